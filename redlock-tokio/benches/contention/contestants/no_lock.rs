use crate::{Result, contestant::Contestant};

/// Lets everybody in at once: if even its holds do not overlap, the check is not worth anything.
#[derive(Clone)]
pub(crate) struct NoLock;

impl Contestant for NoLock {
    type Held = ();

    async fn connect(_urls: &[String]) -> Result<Self> {
        Ok(Self)
    }

    async fn acquire(&self, _key: &str) -> Result<()> {
        Ok(())
    }

    async fn release(&self, _key: &str, (): ()) -> Result<()> {
        Ok(())
    }
}

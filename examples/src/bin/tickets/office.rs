use std::{fmt, sync::Arc, time::Duration};

use futures::future::{BoxFuture, Shared};

use crate::{
    event::Event,
    snapshot::Snapshot,
    store::{Store, StoreError},
};

/// What the handlers and the tasks of this process share.
pub(crate) struct BoxOffice {
    /// In the order in which they are shown.
    pub(crate) events: Vec<Arc<Event>>,
    pub(crate) store: Store,
    /// How long a payment takes.
    pub(crate) payment: Duration,
    /// Which process this is, in words.
    pub(crate) server: String,
    /// Whether a lock makes the sales safe.
    pub(crate) locked: bool,
    /// Ends when the process is told to stop.
    pub(crate) closing: Shared<BoxFuture<'static, ()>>,
}

impl BoxOffice {
    pub(crate) fn event(&self, name: &str) -> Option<&Arc<Event>> {
        self.events.iter().find(|event| event.name.as_str() == name)
    }

    /// Returns what there is to see of an event now.
    pub(crate) async fn look(&self, event: &Event) -> Result<Snapshot, StoreError> {
        let (sales, elsewhere) = self.store.read(event).await?;
        let sales = Arc::new(sales);
        event.remember(&sales);
        Ok(Snapshot::new(self, event, &sales, &elsewhere))
    }

    /// Returns what there is to see of an event now or, if the store does not answer, what was sold when
    /// it did so last.
    pub(crate) async fn look_or_remember(&self, event: &Event) -> Snapshot {
        self.look(event).await.unwrap_or_else(|_| {
            let sales = event.last_sales();
            Snapshot::new(self, event, &sales, &[]).of_the_past()
        })
    }
}

impl fmt::Debug for BoxOffice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoxOffice")
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}

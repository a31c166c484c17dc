use std::{collections::BTreeSet, time::Duration};

use tokio::{sync::Notify, time::timeout};

use super::address::Endpoint;
use crate::sync::Mutex;

/// The configured addresses of an authority that have not been heard of since the client started.
///
/// If one of the addresses leads to another authority, that must be known before the first vote. So no report is
/// passed on before each address has answered once, or was found not to answer.
pub(super) struct RollCall {
    missing: Mutex<BTreeSet<Endpoint>>,
    is_complete: Notify,
}

impl RollCall {
    pub(super) fn new(addresses: &[Endpoint]) -> Self {
        Self {
            missing: Mutex::new(addresses.iter().cloned().collect()),
            is_complete: Notify::new(),
        }
    }

    /// Notes that the address has answered, or does not answer.
    pub(super) fn note(&self, address: &Endpoint) {
        let mut missing = self.missing.lock();
        if missing.remove(address) && missing.is_empty() {
            self.is_complete.notify_waiters();
        }
    }

    /// Waits until something was heard of each address. An address that takes longer than `limit` counts as silent.
    pub(super) async fn complete(&self, limit: Duration) {
        let complete = self.is_complete.notified();
        if !self.missing.lock().is_empty() && timeout(limit, complete).await.is_err() {
            self.missing.lock().clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::{FutureExt, poll};

    #[tokio::test(start_paused = true)]
    async fn it_waits_for_each_address_once_and_no_longer_than_its_limit() {
        let limit = Duration::from_secs(1);
        let [a, b] = ["a:1", "b:1"].map(|address| Endpoint::parse(address, None).unwrap());
        let both = RollCall::new(&[a.clone(), b.clone()]);
        let mut complete = both.complete(limit).boxed();
        assert!(poll!(&mut complete).is_pending());
        both.note(&a);
        both.note(&a);
        assert!(poll!(&mut complete).is_pending());
        both.note(&b);
        assert!(poll!(&mut complete).is_ready());
        assert!(both.complete(limit).now_or_never().is_some());

        let silent = RollCall::new(&[a]);
        silent.complete(limit).await;
        assert!(silent.complete(limit).now_or_never().is_some(), "no longer");
    }
}

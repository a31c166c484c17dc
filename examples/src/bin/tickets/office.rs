use std::{fmt, sync::Arc};

use futures::future::{BoxFuture, Shared};
use redlock_axum::{TaskTracker, redlock_tokio::Redlock};

use crate::{
    event::Event,
    snapshot::Snapshot,
    store::{Store, StoreError},
};

/// What the handlers and the tasks of this process share.
#[derive(Clone)]
pub(crate) struct BoxOffice {
    /// In the order in which they are shown.
    pub(crate) events: Vec<Arc<Event>>,
    /// Halls in which nothing is really sold, and which all pages show.
    pub(crate) demonstration: Vec<Arc<Event>>,
    pub(crate) store: Store,
    pub(crate) redlock: Redlock,
    /// The sales that are under way, also those whose buyers have gone away.
    pub(crate) handlers: TaskTracker,
    /// Which process this is, in words.
    pub(crate) server: String,
    /// Ends when the process is told to stop.
    pub(crate) closing: Shared<BoxFuture<'static, ()>>,
}

impl BoxOffice {
    /// Returns the event that people buy seats of.
    pub(crate) fn event(&self, name: &str) -> Option<&Arc<Event>> {
        self.events.iter().find(|event| event.name.as_str() == name)
    }

    /// Returns all that changes and is shown, the demonstration included.
    pub(crate) fn halls(&self) -> impl Iterator<Item = &Arc<Event>> {
        self.events.iter().chain(&self.demonstration)
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

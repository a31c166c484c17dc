use std::{fmt, sync::Arc};

use futures::future::{BoxFuture, Shared};
use redlock_axum::{TaskTracker, redlock_tokio::Redlock};

use crate::{
    event::Event,
    snapshot::Snapshot,
    store::{Store, StoreError},
};

/// The state that the handlers and tasks of this process share.
#[derive(Clone)]
pub(crate) struct BoxOffice {
    /// The events, in the order of the page.
    pub(crate) events: Vec<Arc<Event>>,
    /// The halls of the demonstration, which all pages show.
    pub(crate) demonstration: Vec<Arc<Event>>,
    pub(crate) store: Store,
    pub(crate) redlock: Redlock,
    /// The sales in progress, including those whose buyers have disconnected.
    pub(crate) handlers: TaskTracker,
    /// A description of this process.
    pub(crate) server: String,
    /// Completes when the process must stop.
    pub(crate) closing: Shared<BoxFuture<'static, ()>>,
}

impl BoxOffice {
    /// Returns the event with this name. The demonstration is not among the events.
    pub(crate) fn event(&self, name: &str) -> Option<&Arc<Event>> {
        self.events.iter().find(|event| event.name.as_str() == name)
    }

    /// Returns all events, including the demonstration.
    pub(crate) fn halls(&self) -> impl Iterator<Item = &Arc<Event>> {
        self.events.iter().chain(&self.demonstration)
    }

    /// Returns the current state of an event.
    pub(crate) async fn look(&self, event: &Event) -> Result<Snapshot, StoreError> {
        let (sales, elsewhere) = self.store.read(event).await?;
        let sales = Arc::new(sales);
        event.remember(&sales);
        Ok(Snapshot::new(self, event, &sales, &elsewhere))
    }

    /// Returns the current state of an event. If the store does not answer, the state has the sales of its last
    /// answer.
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

use std::sync::Arc;

use futures::future::{BoxFuture, Shared};
use redlock_axum::{TaskTracker, redlock_tokio::Redlock};

use crate::{event::Event, store::Store};

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
}

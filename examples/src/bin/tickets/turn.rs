use std::sync::Arc;

use crate::event::Event;

/// A person's place in the line. The drop of the last clone leaves the line.
///
/// The turn travels with the request, through the lock layer to the handler. So a person that is turned away, or
/// disconnects while waiting, leaves the line. A person that disconnects while the handler works stays until the
/// handler has finished.
#[derive(Clone, Debug)]
pub(crate) struct Turn(Arc<Place>);

#[derive(Debug)]
struct Place {
    event: Arc<Event>,
    arrival: u64,
}

impl Turn {
    /// Lines up for a seat.
    pub(crate) fn wait(event: Arc<Event>, seat: u32, name: &str) -> Self {
        let arrival = event.line.join(seat, name);
        event.changed();
        Self(Arc::new(Place { event, arrival }))
    }

    /// Shows that the person pays now.
    pub(crate) fn pay(&self) {
        let Place { event, arrival } = &*self.0;
        event.line.pay(*arrival);
        event.changed();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.event.line.leave(self.arrival);
        self.event.changed();
    }
}

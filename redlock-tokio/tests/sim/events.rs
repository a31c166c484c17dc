//! The events of a world, in the order of true time.

use std::collections::BTreeMap;

use crate::{network::Network, world::World};

/// Something that happens at a moment of true time.
pub(crate) type Event = Box<dyn FnOnce(&mut World) + Send>;

/// The events to come.
#[derive(Default)]
pub(crate) struct Queue {
    /// By when they are due. Those of one moment come in the order in which they were planned.
    events: BTreeMap<(u64, u64), Event>,
    pushed: u64,
}

impl Queue {
    pub(crate) fn push(&mut self, at: u64, event: impl FnOnce(&mut World) + Send + 'static) {
        self.pushed += 1;
        self.events.insert((at, self.pushed), Box::new(event));
    }

    /// Plans what happens to the network alone.
    pub(crate) fn push_to_network(
        &mut self,
        at: u64,
        event: impl FnOnce(&mut Network) + Send + 'static,
    ) {
        self.push(at, |world| event(&mut world.network.lock()));
    }

    /// Returns when the next event is due.
    pub(crate) fn next_at(&self) -> Option<u64> {
        self.events.keys().next().map(|(at, _)| *at)
    }

    /// Takes the next event.
    pub(crate) fn pop(&mut self) -> Option<Event> {
        self.events.pop_first().map(|(_, event)| event)
    }
}

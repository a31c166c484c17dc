use std::sync::Arc;

use redlock_core::NodeId;

use super::Contender;
use crate::{
    engine::{lane::Listeners, queue::Queue, timers::Timers},
    node::FreedNotifier,
};

/// Returns what brings the news of a lane to the leases that they concern.
pub(crate) fn listeners(
    node: NodeId,
    queue: &Arc<Queue<Contender>>,
    timers: &Arc<Timers<Contender>>,
) -> Listeners {
    // Without the queue there are no waiters, and without the timers no leases.
    let (waiting, connected) = (Arc::downgrade(queue), Arc::downgrade(queue));
    let timers = Arc::downgrade(timers);
    Listeners {
        freed_notifier: FreedNotifier::new(move |key| {
            let Some(queue) = waiting.upgrade() else {
                return;
            };
            match key {
                Some(key) => {
                    for (turn, slot) in queue.turns_at(key) {
                        match (turn.into_lease(), slot) {
                            (Some(lease), Some(slot)) => lease.handle_slot_freed(node, slot),
                            (Some(lease), None) => lease.handle_freed(node),
                            (None, _) => {}
                        }
                    }
                }
                None => {
                    for lease in queue.turns().filter_map(Contender::into_lease) {
                        lease.handle_flush(node);
                    }
                }
            }
        }),
        on_withdrawal: Box::new(move |withdrawal| {
            let timers = timers.upgrade();
            let leases = timers.into_iter().flat_map(|timers| timers.scheduled());
            for lease in leases.filter_map(Contender::into_lease) {
                lease.handle_withdrawal(node, withdrawal);
            }
        }),
        on_connection: Box::new(move || {
            let turns = connected.upgrade().map(|queue| queue.turns());
            for lease in turns
                .into_iter()
                .flatten()
                .filter_map(Contender::into_lease)
            {
                lease.handle_connection(node);
            }
        }),
    }
}

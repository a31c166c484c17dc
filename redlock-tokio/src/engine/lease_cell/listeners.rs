use std::sync::Arc;

use redlock_core::NodeId;

use super::LeaseCell;
use crate::{
    engine::{lane::Listeners, queue::Queue, timers::Timers},
    node::FreedNotifier,
};

/// Returns what brings the news of a lane to the leases that they concern.
pub(crate) fn listeners(
    node: NodeId,
    queue: &Arc<Queue<Arc<LeaseCell>>>,
    timers: &Arc<Timers<Arc<LeaseCell>>>,
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
                    if let Some(cell) = queue.turn(key) {
                        cell.handle_freed(node);
                    }
                }
                None => {
                    for cell in queue.turns() {
                        cell.handle_freed(node);
                    }
                }
            }
        }),
        on_withdrawal: Box::new(move |withdrawal| {
            let leases = timers
                .upgrade()
                .map(|timers| timers.all())
                .unwrap_or_default();
            for cell in leases.values() {
                cell.handle_withdrawal(node, withdrawal);
            }
        }),
        on_connection: Box::new(move || {
            let turns = connected.upgrade().map(|queue| queue.turns());
            for cell in turns.into_iter().flatten() {
                cell.handle_connection(node);
            }
        }),
    }
}

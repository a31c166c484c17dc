//! Brings the news of a lane to the leases that they concern.
//!
//! A server does not notify the connection that has made a change. So when a node has carried out a release, for a lease or by
//! force, its lane tells the leases of this process that watch the key or hold it.

use std::{any::Any, ptr, sync::Arc};

use redlock_core::NodeId;

use super::LeaseCell;
use crate::{
    Key,
    engine::{
        lane::{LineListeners, Listeners},
        line::Lines,
        queue::{Queue, Role},
        timers::Timers,
    },
    key::SlotKeys,
    node::{FreedNotifier, Notice},
};

/// Returns what brings the news of a lane to the leases that they concern.
pub(crate) fn listeners(
    node: NodeId,
    queue: &Arc<Queue<Arc<LeaseCell>>>,
    timers: &Arc<Timers<LeaseCell>>,
    lines: &Arc<Lines>,
) -> Listeners {
    // Without the queue and the timers there are no requests.
    let [waiting, beside, connected, standing, wanted] = [(); 5].map(|()| Arc::downgrade(queue));
    let unwanted = Arc::clone(lines);
    let [voting, failing_fast] = [(); 2].map(|()| Arc::downgrade(timers));
    Listeners {
        freed_notifier: FreedNotifier::new(move |notice| {
            let Some(queue) = waiting.upgrade() else {
                return;
            };
            match notice {
                Notice::Freed(key) => tell(&queue, node, key, None),
                Notice::Called { key, is_taken } => {
                    let leases = queue.turns_at(key);
                    if leases.is_empty() {
                        unwanted.note_unwanted(node, key);
                    }
                    for (lease, _) in leases {
                        lease.handle_call(node, key, is_taken);
                    }
                }
                Notice::AllFreed => {
                    for lease in queue.turns() {
                        lease.handle_flush(node);
                    }
                }
            }
        }),
        on_release: Box::new(move |command, by, is_late| {
            // None for a release by force.
            let by = (by as &dyn Any).downcast_ref::<LeaseCell>();
            if let Some(queue) = beside.upgrade() {
                // Those that come after a plain lock ask after its release, unless a node gets it late.
                let by_lock = by.is_some_and(|by| by.role() == Role::Lock);
                for key in command.keys().map(Key::as_bytes) {
                    if !by_lock || is_late || SlotKeys::parse(key).is_some() {
                        tell(&queue, node, key, by);
                    }
                }
            }
        }),
        on_withdrawal: Box::new(move |withdrawal| {
            for lease in voting.upgrade().iter().flat_map(|it| it.all()) {
                lease.handle_withdrawal(node, withdrawal);
            }
        }),
        on_connection: Box::new(move || {
            for lease in connected.upgrade().iter().flat_map(|it| it.turns()) {
                lease.handle_connection(node);
            }
        }),
        in_line: LineListeners {
            lines: Arc::clone(lines),
            on_news: Box::new(move |news| {
                for lease in standing.upgrade().iter().flat_map(|it| it.turns()) {
                    lease.handle_line_news(node, news);
                }
            }),
            is_wanted: Box::new(move |key| {
                let queue = wanted.upgrade();
                queue.is_some_and(|it| !it.turns_at(key.as_bytes()).is_empty())
            }),
        },
        on_no_vote: Box::new(move || {
            for lease in failing_fast.upgrade().iter().flat_map(|it| it.all()) {
                lease.wake_to_look();
            }
        }),
    }
}

/// Tells the leases that watch a key, or hold it, that it is gone from a node or was changed there: by a lease of this
/// process, if there is one.
fn tell(queue: &Queue<Arc<LeaseCell>>, node: NodeId, key: &[u8], by: Option<&LeaseCell>) {
    for (lease, slot) in queue.turns_at(key) {
        match slot {
            _ if by.is_some_and(|by| ptr::eq(by, &*lease)) => {}
            Some(slot) => lease.handle_slot_freed(node, slot),
            // Other readers may still be there. A writer may have become one.
            None if by.is_some_and(LeaseCell::is_reader_or_writer) => lease.probe_again(node),
            None => lease.handle_freed(node),
        }
    }
}

//! How far a call has come, by what its caller and the inner service see.

use std::{
    pin::pin,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    task::Poll,
};

use crate::users::view::View;

/// How far a call has come.
#[derive(Default)]
pub(super) struct Progress {
    pub(super) has_begun: AtomicBool,
    /// How many calls run in the inner service.
    pub(super) running: Arc<AtomicUsize>,
    /// The lock with which the call began, if there was one.
    pub(super) view: OnceLock<View>,
    /// Set when the inner service has ended the call, or the call was dropped there.
    pub(super) end: OnceLock<End>,
    has_left_queue: AtomicBool,
    place: Mutex<Option<QueuePlace>>,
}

/// How the inner service has ended a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    pub(super) is_cut_off: bool,
    pub(super) lock: LockAtEnd,
}

/// What the lock of a call was like at the end of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LockAtEnd {
    /// The call had no lock.
    Missing,
    Valid,
    Lost,
    /// The inner service released the lock, or took it over.
    InOtherHands,
}

/// The calls that wait behind one layer. Clones are handles of the same queue.
#[derive(Clone, Default)]
pub(super) struct CallQueue(Arc<AtomicUsize>);

/// A call that waits. It leaves the queue when this is dropped.
struct QueuePlace(CallQueue);

/// A call that has ended, or was dropped by its caller.
struct Ends<'a>(&'a Progress);

impl CallQueue {
    fn len(&self) -> usize {
        self.0.load(Relaxed)
    }

    fn join(self) -> QueuePlace {
        self.0.fetch_add(1, Relaxed);
        QueuePlace(self)
    }
}

impl Progress {
    pub(super) fn new(running: &Arc<AtomicUsize>) -> Self {
        Self {
            running: Arc::clone(running),
            ..Self::default()
        }
    }

    /// Runs a call, which waits in the queue until it has a lock or ends. Returns how many calls waited before it, too.
    pub(super) async fn run<F: Future>(&self, call: F, queue: CallQueue) -> (F::Output, usize) {
        let mut call = pin!(call);
        let _ends = Ends(self);
        let before = queue.len();
        // A call that has no place in the queue of the layer is refused when it is polled for the first time.
        if let Poll::Ready(outcome) = futures::poll!(call.as_mut()) {
            return (outcome, before);
        }
        self.join(queue);
        (call.await, before)
    }

    /// Notes that the call does not wait any more.
    pub(super) fn leave_queue(&self) {
        self.has_left_queue.store(true, Relaxed);
        *self.place.lock().expect("no code panics under this lock") = None;
    }

    fn join(&self, queue: CallQueue) {
        if !self.has_left_queue.load(Relaxed) {
            let place = queue.join();
            *self.place.lock().expect("no code panics under this lock") = Some(place);
        }
    }
}

impl Drop for QueuePlace {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Relaxed);
    }
}

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.leave_queue();
    }
}

use super::{Queue, wait_queue::WaitQueue};

/// How many entries the tables of a queue have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueTables {
    /// The keys that have a queue.
    pub(crate) keys: usize,
    /// The waiters, as the queue counts them.
    pub(crate) waiting: usize,
    /// The waiters for the key that has most of them.
    pub(crate) waiting_for_one_key: usize,
    /// The waiters for several keys, or their groups, or their parking places: the most of these.
    pub(crate) several: usize,
}

impl<T: Clone> Queue<T> {
    pub(crate) fn tables(&self) -> QueueTables {
        let queues = self.0.lock();
        let of_keys = queues.keys.by_key.values().map(WaitQueue::waiting);
        QueueTables {
            keys: queues.keys.by_key.len(),
            waiting: queues.waiting,
            waiting_for_one_key: of_keys.max().unwrap_or(0),
            several: queues.keys.multi.entries(),
        }
    }
}

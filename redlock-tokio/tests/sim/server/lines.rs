//! The lines of the processes that wait for a key. A node in memory keeps them, by the clock of the server.

use std::{
    collections::BTreeMap,
    mem,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use futures::FutureExt;
use redlock_core::Timestamp;
use redlock_tokio::{
    Clock, Key, MemoryNode,
    node::{FreedNotifier, LineAnswer, LineRequest, Node, Notice, Session},
};

use super::Server;
use crate::{clock::MILLI, message::ConnectionId};

pub(super) struct Lines {
    node: MemoryNode,
    /// What the server's clock shows, in nanoseconds.
    now: Arc<AtomicU64>,
    called: Arc<Mutex<Called>>,
    /// Those of the connections that are open.
    sessions: BTreeMap<ConnectionId, Box<dyn Session>>,
}

/// The processes that are called, by their connections, to which lines, and whether the lock is taken.
type Called = Vec<(ConnectionId, Key, bool)>;

impl Default for Lines {
    fn default() -> Self {
        let now = Arc::new(AtomicU64::new(0));
        let clock = Arc::clone(&now);
        let clock = Clock::custom(move || Timestamp::from_nanos(clock.load(Relaxed)));
        Self {
            node: MemoryNode::with_clock(clock),
            now,
            called: Arc::default(),
            sessions: BTreeMap::new(),
        }
    }
}

impl Server {
    /// Carries out requests about lines. A process that stands in one is called later if its session `is_called`. Nobody hears
    /// a call on a connection that is not open any more.
    pub(crate) fn execute_in_line(
        &mut self,
        at: u64,
        from: ConnectionId,
        is_called: bool,
        is_open: impl Fn(ConnectionId) -> bool,
        requests: &[LineRequest],
    ) -> (Vec<LineAnswer>, Called) {
        let millis = self.millis(at);
        let lines = &mut self.lines;
        lines.now.store(millis * MILLI, Relaxed);
        lines.sessions.retain(|connection, _| is_open(*connection));
        let called = &lines.called;
        let session = lines.sessions.entry(from).or_insert_with(|| {
            let session = lines.node.connect().now_or_never();
            let mut session = session.and_then(Result::ok).expect("it is up");
            let called = Arc::clone(called);
            if is_called {
                session.watch(FreedNotifier::new(move |notice| {
                    if let Notice::Called { key, is_taken } = notice {
                        let key = Key::new(key).expect("it was a key");
                        let call = (from, key, is_taken);
                        called.lock().expect("not poisoned").push(call);
                    }
                }));
            }
            session
        });
        let answers = session.line(requests).now_or_never();
        let answers = answers.and_then(Result::ok).expect("it is up");
        let mut called = called.lock().expect("not poisoned");
        (answers, mem::take(&mut *called))
    }
}

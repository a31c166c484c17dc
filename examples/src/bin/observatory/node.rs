//! An embedded node that can be stopped, hung, slowed down and restarted, behind links that can be cut.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use futures::{
    FutureExt,
    future::{BoxFuture, pending},
};
use redlock_axum::redlock_tokio::{
    Holder, Key, MemoryNode, NodeError, ServerInfo,
    node::{Answer, Command, FreedNotifier, KeyState, Node, RunId, Server, Session},
};
use redlock_examples::lock;
use serde::{Deserialize, Serialize};
use tokio::{
    sync::{Mutex, watch},
    time::{Instant, sleep, timeout},
};

/// How late a slow node answers: later than a lock waits for one node (50 ms).
const LATE: Duration = Duration::from_millis(200);

/// How long a client waits for a node to describe itself.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long a restart takes.
const RESTART: Duration = Duration::from_millis(500);

/// For how long the nodes have been up when the program starts, so that they vote at once.
const UP_BEFORE: Duration = Duration::from_secs(86_400);

/// How a node behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mode {
    Up,
    Slow,
    Hung,
    Stopped,
    Restarting,
}

impl Mode {
    /// Returns whether the node refuses connections.
    fn is_down(self) -> bool {
        matches!(self, Self::Stopped | Self::Restarting)
    }
}

/// What a user does to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Act {
    Start,
    Stop,
    Hang,
    Slow,
    Restart,
    Flush,
}

/// A node whose behaviour a user sets. Clones are the same node.
#[derive(Clone)]
pub(crate) struct StagedNode {
    memory: MemoryNode,
    mode: watch::Sender<Mode>,
    process: Arc<std::sync::Mutex<Process>>,
}

/// A server process, from its start to its end.
struct Process {
    run_id: RunId,
    started: Instant,
    /// Added to the time since the start.
    up_before: Duration,
}

impl Process {
    /// Starts a process that claims to have been up for some time. No other has its id.
    fn start(up_before: Duration) -> Self {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let mut digits = [b'0'; RunId::LEN];
        let number = STARTED.fetch_add(1, Ordering::Relaxed).to_string();
        digits[RunId::LEN - number.len()..].copy_from_slice(number.as_bytes());
        Self {
            run_id: RunId::new(digits),
            started: Instant::now(),
            up_before,
        }
    }
}

impl StagedNode {
    pub(crate) fn new() -> Self {
        Self {
            memory: MemoryNode::new(),
            mode: watch::Sender::new(Mode::Up),
            process: Arc::new(std::sync::Mutex::new(Process::start(UP_BEFORE))),
        }
    }

    pub(crate) fn address(&self) -> &str {
        Node::address(&self.memory)
    }

    pub(crate) fn mode(&self) -> Mode {
        *self.mode.borrow()
    }

    /// Returns who has a key here, even while the node answers nobody.
    pub(crate) fn holder(&self, key: &str) -> Option<Holder> {
        self.memory.value(key).map(Holder::new)
    }

    /// Carries out what a user wants. A restart goes on for a while, unless another act ends it.
    pub(crate) fn act(&self, act: Act) {
        match act {
            Act::Start => self.set(Mode::Up),
            Act::Stop => self.set(Mode::Stopped),
            Act::Hang => self.set(Mode::Hung),
            Act::Slow => self.set(Mode::Slow),
            Act::Flush => self.memory.clear(),
            Act::Restart => {
                self.set(Mode::Restarting);
                self.memory.clear();
                *lock(&self.process) = Process::start(Duration::ZERO);
                let node = self.clone();
                tokio::spawn(async move {
                    sleep(RESTART).await;
                    if node.mode() == Mode::Restarting {
                        node.set(Mode::Up);
                    }
                });
            }
        }
    }

    /// Returns the node as a client reaches it, until the link is cut.
    pub(crate) fn behind(&self, link: Link) -> LinkedNode {
        LinkedNode {
            node: self.clone(),
            link,
        }
    }

    fn set(&self, mode: Mode) {
        self.memory.set_down(mode.is_down());
        self.mode.send_replace(mode);
    }

    fn server(&self) -> Server {
        let process = lock(&self.process);
        let uptime = process.up_before + process.started.elapsed();
        Server::Known(ServerInfo::new(process.run_id, uptime))
    }

    /// Resolves once the node does not hang.
    async fn answers(&self) {
        let mut mode = self.mode.subscribe();
        // The sender is in the node.
        let _ = mode.wait_for(|it| *it != Mode::Hung).await;
    }
}

/// The way from one client to all nodes. Clones are the same link.
#[derive(Clone, Default)]
pub(crate) struct Link {
    is_cut: Arc<AtomicBool>,
}

impl Link {
    /// Lets no message through any more, in either direction.
    pub(crate) fn cut(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::SeqCst)
    }

    /// Never resolves once the link is cut.
    async fn carry(&self) {
        if self.is_cut() {
            pending::<()>().await;
        }
    }
}

/// A node behind the link of a client.
#[derive(Clone)]
pub(crate) struct LinkedNode {
    node: StagedNode,
    link: Link,
}

impl Node for LinkedNode {
    fn address(&self) -> &str {
        self.node.address()
    }

    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Session>, NodeError>> {
        async {
            self.link.carry().await;
            self.node.answers().await;
            let session = self.node.memory.connect().await?;
            Ok(Box::new(LinkedSession {
                session: Arc::new(Mutex::new(session)),
                server: self.node.server(),
                way: self.clone(),
            }) as Box<dyn Session>)
        }
        .boxed()
    }
}

/// A session with such a node. The mutex is fair, so requests reach the node in their order even if it hangs meanwhile.
struct LinkedSession {
    session: Arc<Mutex<Box<dyn Session>>>,
    server: Server,
    way: LinkedNode,
}

impl LinkedSession {
    /// Asks the node, as soon as it takes requests, and returns its answer, as late as the node is slow.
    fn ask<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&mut dyn Session) -> BoxFuture<'static, Result<T, NodeError>> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, NodeError>> {
        let LinkedNode { node, link } = self.way.clone();
        let session = Arc::clone(&self.session);
        async move {
            let answer = {
                let mut session = session.lock().await;
                node.answers().await;
                link.carry().await;
                ask(&mut **session).await
            };
            if node.mode() == Mode::Slow {
                sleep(LATE).await;
            }
            link.carry().await;
            answer
        }
        .boxed()
    }
}

impl Session for LinkedSession {
    fn execute(&mut self, batch: &[Command]) -> BoxFuture<'static, Result<Vec<Answer>, NodeError>> {
        let batch = batch.to_vec();
        self.ask(move |session| session.execute(&batch))
    }

    fn server(&self) -> Server {
        self.server.clone()
    }

    fn inspect(&mut self) -> BoxFuture<'static, Result<Server, NodeError>> {
        let node = self.way.node.clone();
        let server = self.ask(move |_| async move { Ok(node.server()) }.boxed());
        async {
            let in_time = timeout(PATIENCE, server).await;
            in_time.unwrap_or(Err(NodeError::TimedOut(PATIENCE)))
        }
        .boxed()
    }

    fn look_up(&mut self, key: &Key) -> BoxFuture<'static, Result<KeyState, NodeError>> {
        let key = key.clone();
        self.ask(move |session| session.look_up(&key))
    }

    fn watch(&mut self, freed: FreedNotifier) -> bool {
        // No request uses the session yet.
        self.session
            .try_lock()
            .is_ok_and(|mut session| session.watch(freed))
    }

    fn closed(&mut self) -> BoxFuture<'static, NodeError> {
        let mut mode = self.way.node.mode.subscribe();
        async move {
            let _ = mode.wait_for(|it| it.is_down()).await;
            NodeError::Disconnected("the node is down".into())
        }
        .boxed()
    }
}

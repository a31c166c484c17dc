use std::{
    future::{pending, ready},
    sync::Arc,
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use redlock_tokio::{
    Clock, Key, MemoryNode, NodeError, Redlock, RedlockBuilder,
    node::{
        Answer, Command, FreedNotifier, KeyState, LineAnswer, LineRequest, Node, Server, Session,
    },
};
use tokio::time::sleep;

pub(crate) type Answers = BoxFuture<'static, Result<Vec<Answer>, NodeError>>;

/// The end of an attempt to connect.
pub(crate) type Opened = BoxFuture<'static, Result<(), NodeError>>;

type Execute = dyn Fn(&mut MemoryNode, &[Command]) -> Answers + Send + Sync;

/// A node in memory of which a test replaces some parts. Clones are the same node.
#[derive(Clone)]
pub(crate) struct Scripted {
    address: String,
    inner: MemoryNode,
    connect: Arc<dyn Fn() -> Opened + Send + Sync>,
    execute: Arc<Execute>,
    server: Arc<dyn Fn() -> Server + Send + Sync>,
    reports: Reports,
    delay: Duration,
}

/// What becomes of the reports that a probed key is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reports {
    Arrive,
    /// They arrive, and so do the calls of lines, which the node has, too.
    ArriveLikeCalls,
    /// They arrive, and requests about lines are never answered.
    ArriveWithoutLines,
    /// The node promises them, and they do not arrive.
    GetLost,
    /// The node promises none.
    None,
    /// The node promises none, and has lines in which nobody is called.
    NoneButLines,
}

impl Scripted {
    /// Returns a node that carries out commands like this, reports nothing, and has no lines.
    pub(crate) fn new(
        inner: &MemoryNode,
        execute: impl Fn(&mut MemoryNode, &[Command]) -> Answers + Send + Sync + 'static,
    ) -> Self {
        Self {
            address: inner.address().to_owned(),
            inner: inner.clone(),
            connect: Arc::new(|| ready(Ok(())).boxed()),
            execute: Arc::new(execute),
            server: Arc::new(|| Server::None),
            reports: Reports::None,
            delay: Duration::ZERO,
        }
    }

    /// Returns a node that carries out commands as a node in memory does.
    pub(crate) fn obeying(inner: &MemoryNode) -> Self {
        Self::new(inner, |node, batch| node.execute(batch))
    }

    /// Returns a node that answers after this time, and has lines.
    pub(crate) fn late(inner: &MemoryNode, delay: Duration) -> Self {
        let obeying = Self::obeying(inner).reports(Reports::ArriveLikeCalls);
        Self { delay, ..obeying }
    }

    pub(crate) fn address(mut self, address: &str) -> Self {
        address.clone_into(&mut self.address);
        self
    }

    /// Does this when a client connects.
    pub(crate) fn connect(mut self, connect: impl Fn() -> Opened + Send + Sync + 'static) -> Self {
        self.connect = Arc::new(connect);
        self
    }

    /// Describes its server like this.
    pub(crate) fn server(mut self, server: impl Fn() -> Server + Send + Sync + 'static) -> Self {
        self.server = Arc::new(server);
        self
    }

    pub(crate) fn reports(mut self, reports: Reports) -> Self {
        self.reports = reports;
        self
    }
}

impl Node for Scripted {
    fn address(&self) -> &str {
        &self.address
    }

    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Session>, NodeError>> {
        let opened = (self.connect)();
        async {
            opened.await?;
            self.inner.connect().await?;
            Ok(Box::new(self.clone()) as Box<dyn Session>)
        }
        .boxed()
    }
}

impl Session for Scripted {
    fn execute(&mut self, batch: &[Command]) -> Answers {
        let answers = (self.execute)(&mut self.inner, batch);
        after(self.delay, answers)
    }

    fn server(&self) -> Server {
        (self.server)()
    }

    fn look_up(&mut self, key: &Key) -> BoxFuture<'static, Result<KeyState, NodeError>> {
        self.inner.look_up(key)
    }

    fn watch(&mut self, freed: FreedNotifier) -> bool {
        match self.reports {
            Reports::Arrive | Reports::ArriveLikeCalls | Reports::ArriveWithoutLines => {
                self.inner.watch(freed)
            }
            Reports::GetLost => true,
            Reports::None | Reports::NoneButLines => false,
        }
    }

    fn line(
        &mut self,
        requests: &[LineRequest],
    ) -> BoxFuture<'static, Result<Vec<LineAnswer>, NodeError>> {
        if matches!(
            self.reports,
            Reports::ArriveLikeCalls | Reports::NoneButLines
        ) {
            return after(self.delay, self.inner.line(requests));
        }
        if self.reports == Reports::ArriveWithoutLines {
            return pending().boxed();
        }
        ready(Err(out_of_memory())).boxed()
    }
}

fn after<T: Send + 'static>(
    delay: Duration,
    answer: BoxFuture<'static, T>,
) -> BoxFuture<'static, T> {
    match delay {
        Duration::ZERO => answer,
        delay => sleep(delay).then(|()| answer).boxed(),
    }
}

/// The refusal of a server without memory.
pub(crate) fn out_of_memory() -> NodeError {
    NodeError::Refused {
        code: "OOM".into(),
        message: "command not allowed".into(),
    }
}

/// Returns a builder over nodes of any kind, by tokio's clock.
pub(crate) fn over_custom(nodes: impl IntoIterator<Item = impl Node>) -> RedlockBuilder {
    Redlock::builder().custom_nodes(nodes).clock(Clock::tokio())
}

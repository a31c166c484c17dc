//! A node in memory that misbehaves as a test wants.

use std::{
    future::{pending, ready},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use redlock_tokio::{
    Clock, Key, MemoryNode, NodeError, Redlock,
    node::{Command, KeyState, Node, Operation, Session},
};
use tokio::time::sleep;

use crate::support::scripted::{Answers, out_of_memory};

/// How a node treats its commands.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Manner {
    Obeys,
    /// Breaks the connection at each command.
    HangsUp,
    RefusesLocks,
    RefusesReleases,
    /// Answers after this time.
    Dawdles(Duration),
    /// Keeps the commands, and does not answer.
    Swallows,
}

/// A node in memory whose manner a test can change.
#[derive(Clone)]
pub(crate) struct Odd {
    pub(crate) inner: MemoryNode,
    manner: Arc<Mutex<Manner>>,
    swallowed: Arc<Mutex<Vec<Command>>>,
    pub(crate) connections: Arc<AtomicUsize>,
    pub(crate) batches: Arc<AtomicUsize>,
    pub(crate) releases: Arc<AtomicUsize>,
}

impl Odd {
    pub(crate) fn new(manner: Manner, clock: Clock) -> Self {
        Self {
            inner: MemoryNode::with_clock(clock),
            manner: Arc::new(Mutex::new(manner)),
            swallowed: Arc::default(),
            connections: Arc::default(),
            batches: Arc::default(),
            releases: Arc::default(),
        }
    }

    pub(crate) fn set(&self, manner: Manner) {
        *self.manner.lock().unwrap() = manner;
    }

    /// Sets the keys of the swallowed commands, like a network that delivers them late. Returns how many.
    pub(crate) fn set_late(&self) -> usize {
        let mut commands = std::mem::take(&mut *self.swallowed.lock().unwrap());
        commands.retain(is_lock);
        drop(self.inner.clone().execute(&commands));
        commands.len()
    }

    /// Carries out all commands but these.
    fn refuse(&mut self, batch: &[Command], is_refused: fn(&Command) -> bool) -> Answers {
        let refused: Vec<_> = batch.iter().map(is_refused).collect();
        let others: Vec<_> = batch.iter().filter(|it| !is_refused(it)).cloned().collect();
        let answers = self.inner.execute(&others);
        async move {
            let mut answers = answers.await?.into_iter();
            let answer = |is_refused| match is_refused {
                true => Some(Err(out_of_memory())),
                false => answers.next(),
            };
            Ok(refused.into_iter().map_while(answer).collect())
        }
        .boxed()
    }
}

impl Node for Odd {
    fn address(&self) -> &str {
        self.inner.address()
    }

    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Session>, NodeError>> {
        self.connections.fetch_add(1, SeqCst);
        ready(Ok(Box::new(self.clone()) as Box<dyn Session>)).boxed()
    }
}

fn is_lock(command: &Command) -> bool {
    matches!(command.operation(), Operation::Acquire { .. })
}

fn is_release(command: &Command) -> bool {
    matches!(command.operation(), Operation::Release { .. })
}

impl Session for Odd {
    fn execute(&mut self, batch: &[Command]) -> Answers {
        self.batches.fetch_add(1, SeqCst);
        let releases = batch.iter().filter(|it| is_release(it)).count();
        self.releases.fetch_add(releases, SeqCst);
        let manner = *self.manner.lock().unwrap();
        match manner {
            Manner::Obeys => self.inner.execute(batch),
            Manner::HangsUp => ready(Err(NodeError::Disconnected("hung up".into()))).boxed(),
            Manner::RefusesLocks => self.refuse(batch, is_lock),
            Manner::RefusesReleases => self.refuse(batch, is_release),
            Manner::Dawdles(delay) => {
                let answers = self.inner.execute(batch);
                sleep(delay).then(|()| answers).boxed()
            }
            Manner::Swallows => {
                self.swallowed.lock().unwrap().extend_from_slice(batch);
                pending().boxed()
            }
        }
    }

    fn look_up(&mut self, key: &Key) -> BoxFuture<'static, Result<KeyState, NodeError>> {
        match *self.manner.lock().unwrap() {
            Manner::Swallows => pending().boxed(),
            _ => self.inner.look_up(key),
        }
    }
}

/// Connects to three nodes with these manners.
pub(crate) async fn with_three(manners: [Manner; 3], clock: Clock) -> ([Odd; 3], Redlock) {
    let nodes = manners.map(|it| Odd::new(it, clock.clone()));
    let builder = Redlock::builder().custom_nodes(nodes.clone());
    (nodes, builder.clock(clock).build().await.unwrap())
}

/// Connects to two nodes that obey and one with this manner.
pub(crate) async fn with_one(manner: Manner) -> (Odd, Redlock) {
    let manners = [Manner::Obeys, Manner::Obeys, manner];
    let ([.., odd], redlock) = with_three(manners, Clock::tokio()).await;
    (odd, redlock)
}

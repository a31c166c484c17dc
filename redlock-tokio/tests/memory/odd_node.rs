//! A node in memory that misbehaves as a test wants.

use std::{
    future::pending,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use futures::future::BoxFuture;
use redlock_tokio::{
    Clock, Key, MemoryNode, NodeError, Redlock,
    node::{Answer, Command, KeyState, Node, Operation, Session},
};

/// How a node treats its commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    Obeys,
    /// Breaks the connection at each command.
    HangsUp,
    /// Answers releases with an error.
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

    /// Carries out the swallowed commands, like a stopped server that goes on with its buffer.
    pub(crate) fn digest(&self) -> usize {
        let commands: Vec<_> = self.swallowed.lock().unwrap().drain(..).collect();
        drop(self.inner.clone().execute(&commands));
        commands.len()
    }
}

impl Node for Odd {
    fn address(&self) -> &str {
        self.inner.address()
    }

    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Session>, NodeError>> {
        self.connections.fetch_add(1, SeqCst);
        Box::pin(async { Ok(Box::new(self.clone()) as Box<dyn Session>) })
    }
}

impl Session for Odd {
    fn execute(&mut self, batch: &[Command]) -> BoxFuture<'static, Result<Vec<Answer>, NodeError>> {
        let is_release =
            |command: &&Command| matches!(command.operation(), Operation::Release { .. });
        self.batches.fetch_add(1, SeqCst);
        let releases = batch.iter().filter(is_release).count();
        self.releases.fetch_add(releases, SeqCst);
        let manner = *self.manner.lock().unwrap();
        match manner {
            Manner::Obeys => self.inner.execute(batch),
            Manner::HangsUp => {
                let error = NodeError::Disconnected("hung up".into());
                Box::pin(async { Err(error) })
            }
            Manner::RefusesReleases => {
                let refusal = NodeError::Refused {
                    code: "NOPERM".into(),
                    message: "no releases".into(),
                };
                let refused: Vec<_> = batch.iter().map(|it| is_release(&it)).collect();
                let answers = self.inner.execute(batch);
                Box::pin(async move {
                    let answers = answers.await?.into_iter().zip(refused);
                    let answer = |(answer, refused)| match refused {
                        true => Err(refusal.clone()),
                        false => answer,
                    };
                    Ok(answers.map(answer).collect())
                })
            }
            Manner::Dawdles(delay) => {
                let answers = self.inner.execute(batch);
                Box::pin(async move {
                    tokio::time::sleep(delay).await;
                    answers.await
                })
            }
            Manner::Swallows => {
                self.swallowed.lock().unwrap().extend_from_slice(batch);
                Box::pin(pending())
            }
        }
    }

    fn look_up(&mut self, key: &Key) -> BoxFuture<'static, Result<KeyState, NodeError>> {
        match *self.manner.lock().unwrap() {
            Manner::Swallows => Box::pin(pending()),
            _ => self.inner.look_up(key),
        }
    }
}

/// Connects to two nodes that obey and one with this manner.
pub(crate) async fn with_one(manner: Manner, clock: Clock) -> (Odd, Redlock) {
    let nodes = [Manner::Obeys, Manner::Obeys, manner].map(|it| Odd::new(it, clock.clone()));
    let odd = nodes[2].clone();
    let builder = Redlock::builder().custom_nodes(nodes).clock(clock);
    (odd, builder.build().await.unwrap())
}

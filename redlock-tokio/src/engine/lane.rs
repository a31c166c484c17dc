//! One task for each node. It takes requests out of the outbox of the node, and sends them over a session.
//!
//! A lane owns every request that it takes. It sends the requests in its outbox as one batch, keeps
//! a few batches in flight, answers for a node that stays silent, reconnects, and remembers the
//! releases that the node is owed. A caller that goes away cancels nothing, and no caller ever waits
//! for a connection.
//!
//! The lane knows nothing of those that send requests through it: it delivers over a [`Link`].

mod answers;
mod beats;
mod connecting;
mod discovery;
mod handle;
mod in_flight;
mod inbox;
mod outbox;
mod serving;
#[cfg(all(test, redlock_shuttle))]
pub(crate) mod stand_in;
mod status;
mod vetting;

use std::{pin::pin, sync::Arc, time::Duration};

use redlock_core::{NodeId, Tenure, Timestamp};
use tokio::{
    sync::oneshot,
    time::{Instant, timeout},
};

pub(crate) use self::{
    answers::SetRequests,
    beats::LineNews,
    discovery::Discovery,
    handle::{LaneHandle, LineAsker, LineQuestion, ReplyTo, Whom, runtime_ended},
    outbox::{LaneEnded, MOST_WAIT, Outbox},
    status::{Prospect, StatusBoard},
    vetting::Vetting,
};
use self::{
    beats::Beats,
    connecting::{Connector, NewSession},
    in_flight::SILENCE_LIMIT,
    inbox::Inbox,
    serving::Serving,
    status::ObservedNode,
    vetting::VotingRight,
};
use crate::{
    Clock, NodeError, engine::requests::Link, foreign, key::Prefix, log, node::Node,
    observer::Observers, random::Random,
};

pub(crate) struct Lane {
    connector: Connector,
    limits: LaneLimits,
    /// To the requests of the client.
    link: Link,
    status: Arc<StatusBoard>,
    right: VotingRight,
    inbox: Inbox,
    backoff: Backoff,
    observed: ObservedNode,
    /// Dropped last, when the outbox takes nothing more.
    _end: End,
}

/// Wakes those that watch the status when a lane ends, with its runtime or before.
struct End(Arc<StatusBoard>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.notify();
    }
}

/// How long a lane waits for its node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneLimits {
    /// For the answer to a batch.
    pub(crate) answer: Duration,
    /// For a connection, with the questions before the first vote. Also for the refresh of a marker.
    pub(crate) connect: Duration,
}

/// The node of a lane.
pub(crate) struct LaneNode {
    pub(crate) id: NodeId,
    pub(crate) node: Arc<dyn Node>,
    /// The authority that names the server of the node, if the node has no address of its own.
    pub(crate) discovery: Option<Discovery>,
    pub(crate) prefix: Prefix,
}

impl Lane {
    pub(crate) fn new(
        node: LaneNode,
        clock: Clock,
        random: Random,
        limits: LaneLimits,
        vetting: Arc<Vetting>,
        link: Link,
        observers: Observers,
    ) -> (LaneHandle, Self) {
        let id = node.id;
        let board = StatusBoard::new(connecting(), link.clone());
        let handle = LaneHandle::new(node.node.address(), link.clone(), board);
        let (counters, status) = (Arc::clone(&handle.counters), Arc::clone(&handle.board));
        let right = VotingRight::new(
            id,
            clock.clone(),
            Arc::clone(&vetting),
            node.discovery.as_ref().map(|it| it.named_by.clone()),
            link.clone(),
            Arc::clone(&status),
        );
        let beats = Beats::new(clock.clone(), link.clone());
        let connector = Connector {
            node,
            clock: clock.clone(),
            limit: limits.connect,
            vetting,
        };
        let lane = Self {
            connector,
            limits,
            _end: End(Arc::clone(&status)),
            status,
            right,
            inbox: Inbox::new(id, clock.clone(), counters, beats, link.clone()),
            link,
            backoff: Backoff::new(random),
            observed: ObservedNode::new(observers, Arc::clone(&handle.address), clock),
        };
        (handle, lane)
    }

    /// Runs until the client is gone and the node is owed nothing. Sends the outcome of the first attempt to
    /// connect to `first_outcome`.
    pub(crate) async fn run(mut self, first_outcome: oneshot::Sender<Result<(), NodeError>>) {
        let mut first_outcome = Some(first_outcome);
        let mut cause = connecting();
        while let Some(new) = self.connect(&mut first_outcome, cause).await {
            let since = Instant::now();
            let tried = new.tenure.clone();
            let Err(error) = Serving::new(&mut self, new).run().await else {
                return;
            };
            let node = self.connector.address();
            log::warn!(%node, %error, "the connection to the node is given up");
            cause = not_connected(error);
            let has_served = since.elapsed() >= SILENCE_LIMIT;
            if has_served {
                self.backoff.reset();
                self.status.connecting(cause.clone());
            } else {
                // A request is not refused before an attempt has failed, and may want it soon.
                self.status.disconnected(Timestamp::ZERO, cause.clone());
            }
            self.observe();
            if !has_served && self.pause(tried, &cause).await.is_none() {
                // A node that accepts connections only to break them is no better than one that
                // refuses them.
                return;
            }
        }
    }

    /// Connects, however often it takes, and answers each request meanwhile. `cause` is why there is
    /// no connection. Returns `None` if the lane has ended before.
    async fn connect(
        &mut self,
        first_outcome: &mut Option<oneshot::Sender<Result<(), NodeError>>>,
        mut cause: NodeError,
    ) -> Option<NewSession> {
        loop {
            let tried = self.connector.tenure();
            let attempt = self.connector.connect();
            let attempt = async {
                let mut attempt = pin!(attempt);
                match timeout(self.limits.answer, &mut attempt).await {
                    Ok(outcome) => outcome,
                    Err(_) => {
                        self.status.hanging(cause.clone());
                        attempt.await
                    }
                }
            };
            let new = self.inbox.refuse_until(attempt, &cause).await?;
            let outcome = new.and_then(|new| self.admit(new));
            let is_first = first_outcome.is_some();
            if let Some(first_outcome) = first_outcome.take() {
                // An error means that nobody waits for the outcome.
                let first = outcome.as_ref().map(drop).map_err(Clone::clone);
                let _ = foreign::call(|| first_outcome.send(first));
            }
            match outcome {
                Ok(new) => {
                    self.log_connection(is_first);
                    self.observed.note_connection(&self.status);
                    return Some(new);
                }
                Err(error) => {
                    if error != cause {
                        self.log_failure(&error);
                    }
                    let now = self.connector.clock.now();
                    self.status.disconnected(now, error.clone());
                    self.observe();
                    cause = error;
                }
            }
            self.pause(tried, &cause).await?;
        }
    }

    /// Waits before the next attempt to connect. `tried` is the tenure of the last attempt: another one ends the pause.
    /// A request that wants the connection ends it too, but not sooner than a node may take to answer.
    async fn pause(&mut self, tried: Option<Tenure>, cause: &NodeError) -> Option<()> {
        let pause = self.connector.pause(self.backoff.next(), tried);
        let pause = async {
            tokio::select! {
                biased; // Any order would do: either ends the pause.
                () = pause => {}
                () = self.status.connection_wanted(self.limits.answer) => {}
            }
        };
        self.inbox.refuse_until(pause, cause).await
    }

    /// Admits the node behind a new session, unless it has no vote until somebody changes something.
    fn admit(&mut self, mut new: NewSession) -> Result<NewSession, NodeError> {
        self.right
            .handle_connection(&new.statement, new.refusal.as_ref(), new.tenure.as_ref())?;
        let notifies = foreign::call(|| new.session.watch(self.link.freed_notifier()));
        self.status.set_notifies(notifies == Some(true));
        self.link.connected();
        Ok(new)
    }

    fn observe(&mut self) {
        self.observed.look(&self.status, &self.inbox.counters);
    }

    fn log_connection(&self, is_first: bool) {
        let node = self.connector.address();
        if is_first {
            log::debug!(%node, "the node is connected");
        } else {
            log::info!(%node, "the node is connected again");
        }
    }

    fn log_failure(&self, error: &NodeError) {
        let node = self.connector.address();
        if error.is_refusal() {
            log::warn!(%node, %error, "the node has no vote until this is changed");
        } else {
            log::warn!(%node, %error, "this client cannot connect to the node");
        }
    }
}

/// Why there is no connection at first.
fn connecting() -> NodeError {
    NodeError::Unreachable("connecting".into())
}

/// Returns why there is no connection, from the error that ended the last one.
fn not_connected(error: NodeError) -> NodeError {
    match error {
        NodeError::Unreachable(_) => error,
        refusal if refusal.is_refusal() => refusal,
        other => NodeError::Unreachable(other.to_string().into()),
    }
}

/// The delays between attempts to connect.
///
/// Each delay is twice the one before, up to a second. Half of it is random, so that the clients of a
/// node that comes back do not all connect at once.
struct Backoff {
    next: Duration,
    random: Random,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(20);
    const LONGEST: Duration = Duration::from_secs(1);

    fn new(random: Random) -> Self {
        Self {
            next: Self::FIRST,
            random,
        }
    }

    fn reset(&mut self) {
        self.next = Self::FIRST;
        self.random.refill();
    }

    fn next(&mut self) -> Duration {
        let half = self.next / 2;
        self.next = (self.next * 2).min(Self::LONGEST);
        self.random.refill();
        // Without randomness the delays are not spread, which is no reason to fail.
        let random = self.random.u32().unwrap_or(u32::MAX);
        half + half.mul_f64(f64::from(random) / f64::from(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_longest() {
        let mut backoff = Backoff::new(Random::system());
        let mut most = Backoff::FIRST;
        for _ in 0..20 {
            let delay = backoff.next();
            assert!(delay >= most / 2 && delay <= most, "{delay:?} of {most:?}");
            most = (most * 2).min(Backoff::LONGEST);
        }
        assert_eq!(most, Backoff::LONGEST);
    }
}

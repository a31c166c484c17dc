use std::{future::pending, panic::AssertUnwindSafe, pin::Pin, sync::Arc, time::Duration};

use futures::{
    FutureExt,
    future::{BoxFuture, Join, OptionFuture, join},
};
use redlock_core::{Identity, Owner, ServerRole, Sighting, Tenure, Timestamp};
use tokio::time::{Instant, Sleep, Timeout, sleep, timeout};

use super::{
    LaneNode,
    discovery::{Tenures, two_authorities},
    vetting::Vetting,
};
use crate::{
    Clock, NodeError, log,
    node::{AuthorityKind, NamedBy, Role, Server, Session},
};

/// How often a server is asked what it is while it is connected. For this long votes may be counted
/// that another server gave in its place, before they are withdrawn.
const INTERVAL: Duration = Duration::from_secs(1);

/// How often the markers of a server's history and tenure are refreshed. They last for a day.
const MARKER_INTERVAL: Duration = Duration::from_secs(3600);

/// Opens sessions with one node.
pub(super) struct Connector {
    pub(super) node: LaneNode,
    pub(super) clock: Clock,
    /// How long one attempt may take.
    pub(super) limit: Duration,
    pub(super) vetting: Arc<Vetting>,
}

/// A session, and what was found out about the node before its first vote.
pub(super) struct NewSession {
    pub(super) session: Box<dyn Session>,
    pub(super) statement: Statement,
    /// Why the node would not do what every lock needs, if that was found out.
    pub(super) refusal: Option<NodeError>,
    /// The tenure in which the server was named, if an authority names it.
    pub(super) tenure: Option<Tenure>,
}

impl Connector {
    /// Returns what logs call the node.
    pub(super) fn address(&self) -> &str {
        self.node.node.address()
    }

    /// Returns what messages call the owner of the node.
    pub(super) fn name_of(&self, owner: &Owner) -> String {
        let named_by = self.named_by();
        named_by.map_or_else(|| owner.to_string(), |by| by.authority.name_of_owner(owner))
    }

    /// Returns the tenures of the node, if an authority names its server.
    pub(super) fn tenures(&self) -> Option<Tenures> {
        let is_named = self.node.discovery.is_some();
        is_named.then(|| self.vetting.tenures(self.node.id))
    }

    /// Returns what asks the server of the session again.
    pub(super) fn inspector(&self, new: &NewSession) -> Inspector {
        let has_marker = self.needs_history_age(&new.statement);
        let tenure = new.tenure.clone().filter(|_| self.marks_tenures());
        Inspector {
            clock: self.clock.clone(),
            state: match new.statement.server {
                Server::None => State::Never,
                Server::Known(_) | Server::Withheld(_) => State::pausing(),
            },
            marker_due: (has_marker || tenure.is_some()).then(|| Instant::now() + MARKER_INTERVAL),
            has_marker,
            tenure,
            marker_limit: self.limit,
        }
    }

    /// Opens a session, and finds out what must be known before the node's first vote. If an authority names the
    /// server, waits until it does.
    pub(super) async fn connect(&self) -> Result<NewSession, NodeError> {
        let attempt = async {
            match self.named_by() {
                None => self.open(None).await,
                Some(named_by) => self.open_with_owner(named_by).await,
            }
        };
        let attempt = async {
            let in_time = timeout(self.limit, attempt).await;
            in_time.unwrap_or_else(|_| Err(self.too_late()))
        };
        // The code of the user may panic, and must not end the lane.
        let attempt = AssertUnwindSafe(attempt).catch_unwind();
        let panicked = || NodeError::Unreachable("the code of the node panicked".into());
        attempt.await.unwrap_or_else(|_| Err(panicked()))
    }

    /// Waits before the next attempt to connect, or until an authority names another server.
    pub(super) async fn pause(&self, pause: Duration, tried: Option<Tenure>) {
        let Some(mut tenures) = self.tenures() else {
            return sleep(pause).await;
        };
        tokio::select! {
            biased; // Any order would do: either ends the pause.
            () = tenures.other_than(tried.as_ref()) => {}
            () = sleep(pause) => {}
        }
    }

    /// Returns the tenure that the authority of the node has confirmed last.
    pub(super) fn tenure(&self) -> Option<Tenure> {
        self.tenures()?.current()
    }

    /// Returns whether servers have markers of tenures. Sentinels tell the age of a tenure themselves, and a marker
    /// may be of an earlier tenure with the same epoch.
    fn marks_tenures(&self) -> bool {
        self.named_by()
            .is_some_and(|named_by| named_by.kind != AuthorityKind::Sentinels)
    }

    /// Returns whether to find out for how long the server's history exists.
    fn needs_history_age(&self, statement: &Statement) -> bool {
        let electorate = self.vetting.electorate.lock();
        electorate.needs_history_age(&statement.identity())
    }

    fn named_by(&self) -> Option<&NamedBy> {
        let discovery = self.node.discovery.as_ref()?;
        Some(&discovery.named_by)
    }

    /// Opens a session with the server that the authority names. Begins anew if the authority names another.
    async fn open_with_owner(&self, named_by: &NamedBy) -> Result<NewSession, NodeError> {
        let mut tenures = self.vetting.tenures(self.node.id);
        loop {
            let tenure = tenures.first().await;
            tokio::select! {
                biased; // A session that opens at the moment of a failover is with the old master.
                () = tenures.other_than(Some(&tenure)) => {}
                outcome = self.open(Some((named_by, &tenure))) => return outcome,
            }
        }
    }

    async fn open(&self, owner: Option<(&NamedBy, &Tenure)>) -> Result<NewSession, NodeError> {
        let asked_at = self.clock.now();
        let connection = match owner {
            None => self.node.node.connect(),
            Some((by, tenure)) => by.authority.connect(by.index, tenure),
        };
        let mut session = connection.await?;
        let refusal = match session.refusal() {
            None => self.refusal_of_prefix(&mut *session).await?,
            refusal => refusal,
        };
        let mut statement = Statement {
            asked_at,
            server: session.server(),
            history_age: None,
        };
        if refusal.is_none() && self.needs_history_age(&statement) {
            statement.history_age = self.age_of("since", session.history_age()).await?;
        }
        let tenure = owner.map(|(_, tenure)| tenure.clone());
        if refusal.is_none()
            && self.marks_tenures()
            && let Some(tenure) = &tenure
        {
            let age = self.age_of("owner", session.tenure_age(tenure)).await?;
            let (now, age) = (self.clock.now(), age.unwrap_or_default());
            let mut electorate = self.vetting.electorate.lock();
            electorate.handle_marker(now, self.node.id, tenure, age);
        }
        Ok(NewSession {
            session,
            statement,
            refusal,
            tenure,
        })
    }

    /// Finds out why the node would refuse all locks because of their prefix, if it would.
    async fn refusal_of_prefix(
        &self,
        session: &mut dyn Session,
    ) -> Result<Option<NodeError>, NodeError> {
        let prefix = self.node.prefix.as_bytes();
        if prefix.is_empty() {
            return Ok(None);
        }
        match session.check_prefix(prefix).await {
            Ok(()) => Ok(None),
            Err(error) if error.is_refusal() => Ok(Some(error)),
            Err(error) => Err(error),
        }
    }

    /// Finds out for how long something has been true of the server, by the marker of this kind. `None` if nothing
    /// tells, or if the server does not let this client ask.
    async fn age_of(
        &self,
        marker: &str,
        age: BoxFuture<'static, Result<Option<Duration>, NodeError>>,
    ) -> Result<Option<Duration>, NodeError> {
        match age.await {
            Err(error) if error.is_missing_right() => {
                log::warn!(
                    node = %self.address(),
                    %error,
                    keys = %format_args!("redlock:{marker}:*"),
                    "the node does not let this client find out how long ago its server was promoted, so the node \
                     waits as if that were now: grant SET, GET and PTTL on these keys"
                );
                Ok(None)
            }
            // `CLUSTERDOWN` and the like pass. The next attempt asks again.
            Err(error @ NodeError::Refused { .. }) => {
                Err(NodeError::Unreachable(error.to_string().into()))
            }
            age => age,
        }
    }

    fn too_late(&self) -> NodeError {
        let limit = self.limit;
        let text = match (self.named_by(), self.tenure()) {
            (None, _) => {
                if let Some(objection) = self.node.node.objection() {
                    return objection;
                }
                format!(
                    "no connection within {limit:?}: the server does not answer, or only one side expects TLS"
                )
            }
            (Some(_), Some(Tenure { owner, .. })) => {
                let owner = self.name_of(&owner);
                format!("no connection to the master {owner} within {limit:?}")
            }
            (Some(by), None) => {
                if let Some(rivals) = self.vetting.electorate.lock().rivals(self.node.id) {
                    return two_authorities(&*by.authority, rivals);
                }
                if let Some(objection) = by.authority.objection(by.index) {
                    return objection;
                }
                format!("no majority of its {} names a master", by.kind.members())
            }
        };
        NodeError::Unreachable(text.into())
    }
}

/// A node's description of itself, and when it was asked.
pub(super) struct Statement {
    /// A time before the node was asked.
    pub(super) asked_at: Timestamp,
    pub(super) server: Server,
    /// For how long the server's history exists at least, if that was found out.
    pub(super) history_age: Option<Duration>,
}

impl Statement {
    pub(super) fn identity(&self) -> Identity {
        let info = match &self.server {
            Server::None => return Identity::InProcess,
            Server::Withheld(_) => return Identity::Withheld,
            Server::Known(info) => info,
        };
        let role = match info.role {
            Role::ReplicaOf(_) => ServerRole::Replica,
            // One that does not say its role, and is a replica, answers `MOVED` and gives no votes.
            Role::Master | Role::Withheld if info.in_cluster => ServerRole::ClusterMaster,
            Role::Master => ServerRole::Master,
            Role::Withheld => ServerRole::Withheld,
        };
        Identity::Server {
            role,
            sighting: Sighting {
                asked_at: self.asked_at,
                run_id: info.run_id,
                uptime: info.uptime,
                replication: info.replication,
                history_age: self.history_age,
            },
        }
    }
}

/// Asks a connected server again and again what it is, beside the other requests.
pub(super) struct Inspector {
    clock: Clock,
    state: State,
    /// Whether the server has a marker of its history.
    has_marker: bool,
    /// The tenure that the server has a marker of.
    tenure: Option<Tenure>,
    /// When to refresh the markers, if there are any.
    marker_due: Option<Instant>,
    /// How long that may take.
    marker_limit: Duration,
}

enum State {
    /// There is no server.
    Never,
    Pausing(Pin<Box<Sleep>>),
    Asking {
        asked_at: Timestamp,
        answer: BoxFuture<'static, Result<Server, NodeError>>,
    },
    RefreshingMarkers(Pin<Box<Timeout<Refresh>>>),
}

type Age = BoxFuture<'static, Result<Option<Duration>, NodeError>>;
type Refresh = Join<OptionFuture<Age>, OptionFuture<Age>>;

impl Inspector {
    /// Waits for the next answer. Pending for ever if there is no server.
    ///
    /// # Errors
    ///
    /// An error means that the session is broken.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing: the next call continues.
    pub(super) async fn next(&mut self, session: &mut dyn Session) -> Result<Statement, NodeError> {
        loop {
            match &mut self.state {
                State::Never => pending().await,
                State::Pausing(pause) => {
                    pause.await;
                    self.state = self.ask(session);
                }
                State::Asking { asked_at, answer } => {
                    let asked_at = *asked_at;
                    let server = answer.await;
                    self.state = State::pausing();
                    return server.map(|server| Statement {
                        asked_at,
                        server,
                        history_age: None,
                    });
                }
                State::RefreshingMarkers(ages) => {
                    // The ages are of no use now. If the connection is broken, the next question shows
                    // it. If a marker is not refreshed, the next refresh or connection does it.
                    let _ = ages.await;
                    self.state = State::pausing();
                }
            }
        }
    }

    fn ask(&mut self, session: &mut dyn Session) -> State {
        match self.marker_due {
            Some(due) if due <= Instant::now() => {
                self.marker_due = Some(due + MARKER_INTERVAL);
                let of_history = self.has_marker.then(|| session.history_age());
                let tenure = self.tenure.as_ref();
                let of_tenure = tenure.map(|tenure| session.tenure_age(tenure));
                let ages = join(of_history.into(), of_tenure.into());
                State::RefreshingMarkers(Box::pin(timeout(self.marker_limit, ages)))
            }
            _ => State::Asking {
                asked_at: self.clock.now(),
                answer: session.inspect(),
            },
        }
    }
}

impl State {
    fn pausing() -> Self {
        Self::Pausing(Box::pin(sleep(INTERVAL)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redlock_core::RunId;

    use crate::{
        ServerInfo,
        node::{Answer, Command},
    };

    /// Says what it is, and never answers how old its history is.
    #[derive(Default)]
    struct Forgetful {
        refreshes: u32,
        tenure_refreshes: u32,
    }

    impl Session for Forgetful {
        fn execute(&mut self, _: &[Command]) -> BoxFuture<'static, Result<Vec<Answer>, NodeError>> {
            pending().boxed()
        }

        fn server(&self) -> Server {
            Server::Known(ServerInfo::new(RunId::new([b'a'; 40]), Duration::ZERO))
        }

        fn history_age(&mut self) -> Age {
            self.refreshes += 1;
            pending().boxed()
        }

        fn tenure_age(&mut self, _: &Tenure) -> Age {
            self.tenure_refreshes += 1;
            pending().boxed()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_marker_that_cannot_be_refreshed_does_not_end_the_inspections() {
        let limit = Duration::from_secs(5);
        let mut session = Forgetful::default();
        let tenure = Tenure {
            owner: Owner::new("a:1"),
            epoch: 1,
        };
        let start = Instant::now();
        let mut inspector = Inspector {
            clock: Clock::tokio(),
            state: State::pausing(),
            has_marker: true,
            tenure: Some(tenure),
            marker_due: Some(start + MARKER_INTERVAL),
            marker_limit: limit,
        };
        while start.elapsed() < 3 * MARKER_INTERVAL {
            let next = inspector.next(&mut session);
            let next = timeout(limit + 2 * INTERVAL, next).await;
            assert!(next.expect("the inspections go on").is_ok());
        }
        assert!(session.refreshes >= 2, "{} refreshes", session.refreshes);
        assert_eq!(session.tenure_refreshes, session.refreshes);
    }
}

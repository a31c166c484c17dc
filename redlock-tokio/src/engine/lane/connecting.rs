use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use redlock_core::{NodeId, Tenure, Timestamp};
use tokio::time::{sleep, timeout};

use super::{
    discovery::{Discovery, two_authorities},
    inspector::Inspector,
    tenures::Tenures,
    vetting::{Statement, Vetting},
};
use crate::{
    Clock, NodeError,
    key::Prefix,
    log,
    node::{AuthorityKind, NamedBy, Node, Session},
};

/// Opens sessions with one node.
#[derive(Clone)]
pub(super) struct Connector {
    pub(super) id: NodeId,
    pub(super) node: Arc<dyn Node>,
    pub(super) discovery: Option<Discovery>,
    /// The prefix of all locks.
    pub(super) prefix: Prefix,
    pub(super) clock: Clock,
    /// How long one attempt may take.
    pub(super) limit: Duration,
    pub(super) vetting: Arc<Vetting>,
}

/// A session whose node has no vote yet, and what is known of the node.
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
        self.node.address()
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Returns the tenures of the node, if an authority names its server.
    pub(super) fn tenures(&self) -> Option<Tenures> {
        let is_named = self.discovery.is_some();
        is_named.then(|| self.vetting.tenures(self.id))
    }

    /// Creates the inspector of a session.
    pub(super) fn inspector(&self, statement: &Statement, tenure: Option<Tenure>) -> Inspector {
        Inspector::new(
            self.clock.clone(),
            &statement.server,
            self.vetting.needs_history_age(statement),
            tenure.filter(|_| self.marks_tenures()),
            self.limit,
        )
    }

    /// Opens a session, and finds out what must be known before the node's first vote. If an authority names the
    /// server, waits until it does.
    pub(super) fn connect(&self) -> impl Future<Output = Result<NewSession, NodeError>> + use<> {
        let connector = self.clone();
        async move {
            let attempt = async {
                match &connector.discovery {
                    None => connector.open(None).await,
                    Some(it) => connector.open_with_owner(&it.named_by).await,
                }
            };
            let attempt = async {
                let in_time = timeout(connector.limit, attempt).await;
                in_time.unwrap_or_else(|_| Err(connector.too_late()))
            };
            // The code of the user may panic, and must not end the lane.
            let attempt = AssertUnwindSafe(attempt).catch_unwind();
            let panicked = || NodeError::Unreachable("the code of the node panicked".into());
            attempt.await.unwrap_or_else(|_| Err(panicked()))
        }
    }

    /// Waits before the next attempt to connect, or until an authority names another server.
    pub(super) fn pause(
        &self,
        pause: Duration,
        tried: Option<Tenure>,
    ) -> impl Future<Output = ()> + use<> {
        let tenures = self.tenures();
        async move {
            match (tenures, tried) {
                (None, _) => sleep(pause).await,
                (Some(mut tenures), None) => tokio::select! {
                    biased; // Any order would do: either ends the pause.
                    _ = tenures.first() => {}
                    () = sleep(pause) => {}
                },
                (Some(mut tenures), Some(tried)) => tokio::select! {
                    biased;
                    () = tenures.other_than(&tried) => {}
                    () = sleep(pause) => {}
                },
            }
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

    fn named_by(&self) -> Option<&NamedBy> {
        self.discovery.as_ref().map(|discovery| &discovery.named_by)
    }

    /// Opens a session with the server that the authority names. Begins anew if the authority names another.
    async fn open_with_owner(&self, named_by: &NamedBy) -> Result<NewSession, NodeError> {
        let mut tenures = self.vetting.tenures(self.id);
        loop {
            let tenure = tenures.first().await;
            tokio::select! {
                biased; // A session that opens at the moment of a failover is with the old master.
                () = tenures.other_than(&tenure) => {}
                outcome = self.open(Some((named_by, &tenure))) => return outcome,
            }
        }
    }

    async fn open(&self, owner: Option<(&NamedBy, &Tenure)>) -> Result<NewSession, NodeError> {
        let asked_at = self.clock.now();
        let connection = match owner {
            None => self.node.connect(),
            Some((
                NamedBy {
                    authority, index, ..
                },
                tenure,
            )) => authority.connect(*index, tenure),
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
        if refusal.is_none() && self.vetting.needs_history_age(&statement) {
            statement.history_age = self.age_of("since", session.history_age()).await?;
        }
        let tenure = owner.map(|(_, tenure)| tenure.clone());
        if refusal.is_none()
            && self.marks_tenures()
            && let Some(tenure) = &tenure
        {
            let age = self.age_of("owner", session.tenure_age(tenure)).await?;
            let age = age.unwrap_or_default();
            let now = self.clock.now();
            self.vetting.handle_tenure_age(self.id, now, tenure, age);
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
        if self.prefix.as_bytes().is_empty() {
            return Ok(None);
        }
        match session.check_prefix(self.prefix.as_bytes()).await {
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

    /// Returns the error of an attempt that took too long.
    fn too_late(&self) -> NodeError {
        let limit = self.limit;
        let text = match (self.named_by(), self.tenure()) {
            (None, _) => format!("no connection within {limit:?}"),
            (Some(_), Some(Tenure { owner, .. })) => {
                format!("no connection to the master {owner} within {limit:?}")
            }
            (
                Some(NamedBy {
                    authority,
                    index,
                    kind,
                    ..
                }),
                None,
            ) => {
                if let Some(rivals) = self.vetting.rivals(self.id) {
                    return two_authorities(&**authority, rivals);
                }
                if let Some(objection) = authority.objection(*index) {
                    return objection;
                }
                format!("no majority of its {} names a master", kind.members())
            }
        };
        NodeError::Unreachable(text.into())
    }
}

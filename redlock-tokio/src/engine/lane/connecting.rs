use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use redlock_core::{Tenure, Timestamp};
use tokio::time::{sleep, timeout};

use super::{
    LaneNode,
    discovery::{Tenures, two_authorities},
    inspector::Inspector,
    vetting::{Statement, Vetting},
};
use crate::{
    Clock, NodeError, log,
    node::{AuthorityKind, NamedBy, Session},
    random::Random,
};

/// Opens sessions with one node.
pub(super) struct Connector {
    pub(super) node: LaneNode,
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
        self.node.node.address()
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Returns the tenures of the node, if an authority names its server.
    pub(super) fn tenures(&self) -> Option<Tenures> {
        let is_named = self.node.discovery.is_some();
        is_named.then(|| self.vetting.tenures(self.node.id))
    }

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
            self.vetting
                .handle_tenure_age(self.node.id, now, tenure, age);
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
            (None, _) => format!("no connection within {limit:?}"),
            (Some(_), Some(Tenure { owner, .. })) => {
                format!("no connection to the master {owner} within {limit:?}")
            }
            (Some(by), None) => {
                if let Some(rivals) = self.vetting.rivals(self.node.id) {
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

/// The delays between attempts to connect.
///
/// Each delay is twice the one before, up to a second. Half of it is random, so that the clients of a
/// node that comes back do not all connect at once.
pub(super) struct Backoff {
    next: Duration,
    random: Random,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(20);
    const LONGEST: Duration = Duration::from_secs(1);

    pub(super) fn new(random: Random) -> Self {
        Self {
            next: Self::FIRST,
            random,
        }
    }

    pub(super) fn reset(&mut self) {
        self.next = Self::FIRST;
        self.random.reseed();
    }

    pub(super) fn next(&mut self) -> Duration {
        let half = self.next / 2;
        self.next = (self.next * 2).min(Self::LONGEST);
        self.random.reseed();
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

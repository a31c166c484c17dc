use std::{sync::Arc, time::Duration};

use tokio::time::timeout;

use super::{
    inspector::Inspector,
    vetting::{Statement, Vetting},
};
use crate::{
    Clock, NodeError,
    node::{Node, Session},
};

/// Opens sessions with one node.
pub(super) struct Connector {
    node: Arc<dyn Node>,
    clock: Clock,
    /// How long one attempt may take.
    limit: Duration,
    vetting: Arc<Vetting>,
}

/// A session whose node has no vote yet, and what is known of the node.
pub(super) struct NewSession {
    pub(super) session: Box<dyn Session>,
    pub(super) statement: Statement,
    /// Why the node would not do what every lock needs, if that was found out.
    pub(super) refusal: Option<NodeError>,
}

impl Connector {
    pub(super) fn new(
        node: Arc<dyn Node>,
        clock: Clock,
        limit: Duration,
        vetting: Arc<Vetting>,
    ) -> Self {
        Self {
            node,
            clock,
            limit,
            vetting,
        }
    }

    /// Returns what logs call the node.
    pub(super) fn address(&self) -> &str {
        self.node.address()
    }

    /// Creates the inspector of a session.
    pub(super) fn inspector(&self, session: &dyn Session) -> Inspector {
        let statement = Statement {
            asked_at: self.clock.now(),
            server: session.server(),
            history_age: None,
        };
        let has_marker = self.vetting.needs_history_age(&statement);
        Inspector::new(
            self.clock.clone(),
            &statement.server,
            has_marker,
            self.limit,
        )
    }

    /// Opens a session, and finds out what must be known before the node's first vote.
    pub(super) fn connect(&self) -> impl Future<Output = Result<NewSession, NodeError>> + use<> {
        let asked_at = self.clock.now();
        let (node, vetting) = (Arc::clone(&self.node), Arc::clone(&self.vetting));
        let limit = self.limit;
        let attempt = async move {
            let mut session = node.connect().await?;
            let refusal = session.refusal();
            let mut statement = Statement {
                asked_at,
                server: session.server(),
                history_age: None,
            };
            if refusal.is_none() && vetting.needs_history_age(&statement) {
                statement.history_age = history_age(&*node, &mut *session).await?;
            }
            Ok(NewSession {
                session,
                statement,
                refusal,
            })
        };
        async move {
            timeout(limit, attempt).await.unwrap_or_else(|_| {
                let text = format!("no connection within {limit:?}");
                Err(NodeError::Unreachable(text.into()))
            })
        }
    }
}

/// Finds out for how long the server's history exists. `None` if the server does not let it.
async fn history_age(
    node: &dyn Node,
    session: &mut dyn Session,
) -> Result<Option<Duration>, NodeError> {
    match session.history_age().await {
        Err(error @ NodeError::Refused { .. }) => {
            tracing::warn!(
                node = node.address(),
                %error,
                "does not let this client find out how long ago it was promoted, so it waits as if \
                 that were now: grant SET, GET and PTTL on the keys redlock:since:*"
            );
            Ok(None)
        }
        age => age,
    }
}

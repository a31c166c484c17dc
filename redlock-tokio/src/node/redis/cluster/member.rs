use std::{sync::Arc, time::Duration};

use deadpool_redis::redis::{Value, aio::MultiplexedConnection, cmd};
use redlock_core::{KeySlot, MemberId, MemberReport};
use tokio::time::{sleep, timeout};

use super::{directory::Directory, layout::Layout};
use crate::node::{
    NodeError, Reports,
    redis::{
        address::Endpoint,
        connect::ConnectionSettings,
        server_error::{connect_error, needs_password, refusal},
    },
};

/// How long a node may take to be connected to, and to answer. Later the answer is of no use.
const LIMIT: Duration = Duration::from_secs(3);

/// Asks the server at one address about the cluster, about once a second.
pub(super) struct Member {
    pub(super) endpoint: Endpoint,
    pub(super) settings: ConnectionSettings,
    pub(super) directory: Arc<Directory>,
    /// The slots of the voters.
    pub(super) slots: Arc<[KeySlot]>,
    pub(super) reports: Reports,
}

impl Member {
    /// Asks until nobody announces the endpoint any more. Returns the endpoint.
    pub(super) async fn run(self) -> Endpoint {
        let mut connection = None;
        let mut last = None;
        while self.directory.has(&self.endpoint) {
            let is_redundant = |member| self.directory.is_redundant(&self.endpoint, member);
            if last.is_some_and(is_redundant) {
                connection = None;
            } else {
                match timeout(LIMIT, self.ask(&mut connection)).await {
                    Ok(Ok(member)) => last = Some(member),
                    Ok(Err(error)) => {
                        connection = None;
                        self.note_failure(error);
                    }
                    Err(_) => {
                        connection = None;
                        self.note_failure(NodeError::TimedOut(LIMIT));
                    }
                }
            }
            sleep(self.reports.interval()).await;
        }
        self.directory.forget(&self.endpoint);
        self.endpoint
    }

    /// Asks once, over the connection if there is one. Returns which node is at the address.
    async fn ask(
        &self,
        connection: &mut Option<MultiplexedConnection>,
    ) -> Result<MemberId, NodeError> {
        let open = match connection {
            Some(open) => open,
            none => none.insert(self.settings.open(&self.endpoint).await?.connection),
        };
        let asked_at = self.reports.now();
        let reply = open.send_packed_command(cmd("CLUSTER").arg("NODES")).await;
        let layout = Arc::new(read(reply.map_err(|error| connect_error(&error))?)?);
        let member = layout.myself;
        if !self.directory.note_answer(&self.endpoint, &layout) {
            let text = format!("a node that no other knows is at this address: {member}");
            return Err(NodeError::Unreachable(text.into()));
        }
        for (index, slot) in self.slots.iter().enumerate() {
            let report = MemberReport {
                asked_at,
                member,
                members: layout.members().collect(),
                tenure: layout.tenure(*slot),
                // The answer does not say since when.
                age: Duration::ZERO,
            };
            self.reports.deliver(index, report);
        }
        self.warn_of_shared_server();
        Ok(member)
    }

    fn warn_of_shared_server(&self) {
        if let Some(shared) = self.directory.newly_shared(&self.slots) {
            tracing::warn!(
                first = self.slots[shared.first].number(),
                second = self.slots[shared.second].number(),
                server = self.directory.name_of(shared.member),
                "two voters are slots of one server: they fail together"
            );
        }
    }

    fn note_failure(&self, error: NodeError) {
        let text = error.to_string();
        if self.directory.note_failure(&self.endpoint, error) {
            tracing::warn!(node = %self.endpoint, error = text, "a node of the cluster does not answer");
        }
    }
}

/// Reads the reply to `CLUSTER NODES`.
fn read(reply: Value) -> Result<Layout, NodeError> {
    match reply {
        Value::BulkString(text) => Layout::parse(&String::from_utf8_lossy(&text)),
        Value::VerbatimString { text, .. } => Layout::parse(&text),
        Value::ServerError(error) if error.code() == "NOAUTH" => Err(needs_password()),
        Value::ServerError(error) if error.details().unwrap_or_default().contains("disabled") => {
            Err(NodeError::Misconfigured(
                "not a node of a cluster: give independent masters to Redlock::connect".into(),
            ))
        }
        Value::ServerError(error) if error.code() == "NOPERM" => {
            let text = format!(
                "{}: grant +cluster|nodes and +cluster|myid",
                refusal(&error)
            );
            Err(NodeError::Misconfigured(text.into()))
        }
        Value::ServerError(error) => Err(refusal(&error)),
        _ => Err(NodeError::Unexpected(
            "the answer to CLUSTER NODES is not a text".into(),
        )),
    }
}

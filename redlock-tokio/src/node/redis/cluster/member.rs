use std::{sync::Arc, time::Duration};

use deadpool_redis::redis::{Pipeline, Value, aio::MultiplexedConnection};
use redlock_core::{MemberId, MemberList, MemberReport, Timestamp};
use tokio::time::{sleep, timeout};

use super::{
    directory::{Directory, Standing},
    layout::Layout,
};
use crate::{
    log,
    node::{
        NodeError, Reports,
        redis::{
            address::Endpoint,
            connect::{ConnectionSettings, send},
            key_slot::KeySlot,
            roll_call::RollCall,
            server_error::{connect_error, needs_password, refusal},
        },
    },
};

/// How long a node may take to be connected to, and to answer. Later the answer is of no use.
const LIMIT: Duration = Duration::from_secs(3);

/// Asks the server at one address about the cluster, about once a second.
pub(super) struct Member {
    pub(super) endpoint: Endpoint,
    pub(super) settings: ConnectionSettings,
    pub(super) directory: Arc<Directory>,
    pub(super) roll_call: Arc<RollCall>,
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
                match self.report(&mut connection).await {
                    Ok(member) => last = Some(member),
                    Err(error) => {
                        connection = None;
                        self.note_failure(error);
                    }
                }
            }
            sleep(self.reports.interval()).await;
        }
        self.directory.forget(&self.endpoint);
        self.endpoint
    }

    /// Asks once, and passes the answer on. Returns which node is at the address.
    async fn report(
        &self,
        connection: &mut Option<MultiplexedConnection>,
    ) -> Result<MemberId, NodeError> {
        let answer = timeout(LIMIT, self.ask(connection)).await;
        let (asked_at, layout) = answer.unwrap_or(Err(NodeError::TimedOut(LIMIT)))?;
        let member = layout.myself;
        let standing = self.directory.note_answer(&self.endpoint, &layout);
        if standing == Standing::Unknown {
            let text = format!("a node that no other knows is at this address: {member}");
            return Err(NodeError::Unreachable(text.into()));
        }
        let members: MemberList = layout.members().collect();
        for (index, slot) in self.slots.iter().enumerate() {
            let report = MemberReport {
                asked_at,
                member,
                members: members.clone(),
                tenure: layout.tenure(*slot),
                // The answer does not say since when.
                age: Duration::ZERO,
            };
            self.reports.deliver(index, report);
        }
        self.roll_call.note(&self.reports, &self.endpoint, asked_at);
        if standing == Standing::Foreign {
            let text = format!("a node of another cluster is at this address: {member}");
            return Err(NodeError::Misconfigured(text.into()));
        }
        self.warn_of_shared_server();
        Ok(member)
    }

    /// Asks once, over the connection if there is one. Returns the answer, and a time before the question.
    async fn ask(
        &self,
        connection: &mut Option<MultiplexedConnection>,
    ) -> Result<(Timestamp, Arc<Layout>), NodeError> {
        let open = match connection {
            Some(open) => open,
            none => none.insert(self.settings.open(&self.endpoint).await?.connection),
        };
        let asked_at = self.reports.now();
        let mut question = Pipeline::new();
        question.cmd("CLUSTER").arg("NODES");
        let replies = send(open, &question).await;
        let replies = replies.map_err(|error| connect_error(&error))?;
        let layout = read(replies.into_iter().next().unwrap_or(Value::Nil))?;
        Ok((asked_at, Arc::new(layout)))
    }

    fn warn_of_shared_server(&self) {
        if let Some(shared) = self.directory.newly_shared(&self.slots) {
            log::warn!(
                first = self.slots[shared.first].number(),
                second = self.slots[shared.second].number(),
                server = %self.directory.name_of(shared.member),
                "two voters are slots of one server: they fail together"
            );
        }
    }

    fn note_failure(&self, error: NodeError) {
        let now = self.reports.now();
        self.roll_call.note(&self.reports, &self.endpoint, now);
        let text = error.to_string();
        if self.directory.note_failure(&self.endpoint, error) {
            log::warn!(node = %self.endpoint, error = %text, "a node of the cluster does not answer");
        }
        if let Some(error) = self.directory.newly_short(self.slots[0]) {
            log::warn!(%error, "no owner of a slot is confirmed");
        }
    }
}

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

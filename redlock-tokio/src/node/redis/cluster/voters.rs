use deadpool_redis::redis::{Pipeline, Value};
use redlock_core::Tenure;

use super::layout::Layout;
use crate::{
    log,
    node::{
        NodeError,
        redis::{
            address::Endpoint,
            connect::ConnectionSettings,
            key_slot::KeySlot,
            key_tag::KeyTag,
            server_error::{needs_password, refusal},
            survey::{Master, Roster, Topology, View, Words, member_id},
        },
    },
};

/// Slots of a cluster, whose owners its nodes name.
pub(super) struct Voters {
    settings: ConnectionSettings,
    slots: Box<[KeySlot]>,
    /// The tags of the voters, in the same order.
    tags: Box<[KeyTag]>,
}

impl Voters {
    pub(super) fn new(settings: ConnectionSettings, tags: &[String]) -> Self {
        Self {
            settings,
            slots: tags.iter().map(|tag| KeySlot::of(tag.as_bytes())).collect(),
            tags: tags.iter().map(|tag| KeyTag::in_braces(tag)).collect(),
        }
    }
}

impl Topology for Voters {
    const WORDS: Words = Words {
        authority: "cluster",
        member: "node",
        members: "nodes of the cluster",
        counted: ", including replicas",
        forgetting: "CLUSTER FORGET",
    };

    const SWITCHES: Option<&'static str> = None;

    fn member_settings(&self) -> &ConnectionSettings {
        &self.settings
    }

    fn question(&self) -> Pipeline {
        let mut question = Pipeline::new();
        question.cmd("CLUSTER").arg("NODES");
        question
    }

    fn read(&self, replies: Vec<Value>, reached: &Endpoint) -> Result<View, NodeError> {
        let layout = layout(replies.into_iter().next().unwrap_or(Value::Nil))?;
        Ok(layout.view(&self.slots, self.settings.uses_tls(), reached))
    }

    fn master(
        &self,
        index: usize,
        tenure: &Tenure,
        roster: &Roster,
    ) -> Result<Master<'_>, NodeError> {
        let owner = &tenure.owner;
        let member = member_id(owner.as_str()).ok_or_else(|| {
            let text = format!("{owner} is not the id of a node of a cluster");
            NodeError::Unreachable(text.into())
        })?;
        Ok(Master {
            endpoint: roster.place_of(member)?,
            settings: &self.settings,
            tag: self.tags[index].clone(),
            member: Some(member),
        })
    }

    fn name_of_master(&self, index: usize) -> String {
        format!("owner of slot {}", self.slots[index].number())
    }

    fn without_master(&self, index: usize) -> Option<NodeError> {
        let slot = self.slots[index].number();
        let text = format!("no node of the cluster owns slot {slot}: assign the slot to one");
        Some(NodeError::Misconfigured(text.into()))
    }

    fn log(&self, at: &Endpoint, error: Option<&NodeError>) {
        if let Some(error) = error {
            log::warn!(node = %at, %error, "a node of the cluster does not answer");
        }
    }

    fn log_shortage(&self, error: &NodeError) {
        log::warn!(%error, "no owner of a slot is confirmed");
    }
}

fn layout(reply: Value) -> Result<Layout, NodeError> {
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

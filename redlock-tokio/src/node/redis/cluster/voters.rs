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
            survey::{Master, Poll, Roster, Topology, View, member_id},
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
    const NAME: &'static str = "cluster";

    const MEMBER: &'static str = "node";

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
        let unknown = || {
            let text = format!("no node of the cluster knows the address of {owner}");
            NodeError::Unreachable(text.into())
        };
        let member = member_id(owner.as_str()).ok_or_else(unknown)?;
        Ok(Master {
            endpoint: roster.place_of(member)?.ok_or_else(unknown)?,
            settings: &self.settings,
            tag: &self.tags[index],
            member: Some(member),
        })
    }

    fn objection(&self, index: usize, poll: Poll) -> Option<NodeError> {
        let slot = self.slots[index].number();
        let (answering, all, majority) = (poll.answering, poll.all, poll.all / 2 + 1);
        let failures = poll.failures.iter();
        let failures: Vec<_> = failures.map(|(at, it)| format!("{at}: {it}")).collect();
        let shown = failures.join("; ");
        let (is_refusal, text) = if answering == 0 {
            if failures.is_empty() {
                return None;
            }
            let text = format!("no node of the cluster answers ({shown})");
            (poll.is_refused, text)
        } else if answering < majority {
            let text = format!(
                "{answering} of {all} nodes of the cluster answer, including replicas, and {majority} are needed to \
                 confirm the owner of slot {slot}; silent: {}. Forget nodes that are gone: CLUSTER FORGET on each of \
                 the others ({shown})",
                poll.silent
            );
            (false, text)
        } else if poll.agreeing == 0 {
            let text = format!("no node of the cluster owns slot {slot}: assign the slot to one");
            (true, text)
        } else if poll.agreeing < majority {
            let text = format!("the nodes of the cluster do not agree on the owner of slot {slot}");
            (false, text)
        } else {
            return None;
        };
        // A node whose address the map does not translate cannot be asked.
        Some(poll.map_failure.unwrap_or(if is_refusal {
            NodeError::Misconfigured(text.into())
        } else {
            NodeError::Unreachable(text.into())
        }))
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

#[cfg(test)]
mod tests {
    use deadpool_redis::redis::RedisConnectionInfo;

    use super::*;
    use crate::node::redis::options::NodeOptions;

    #[test]
    fn an_objection_says_what_is_missing() {
        let options = NodeOptions::default();
        let settings =
            ConnectionSettings::new(RedisConnectionInfo::default(), false, false, &options);
        let voters = Voters::new(settings.unwrap(), &["8209".into()]);
        let objection = |answering, agreeing, failure: Option<&str>| {
            let error = |it: &str| NodeError::Misconfigured(it.into());
            let failures = failure.map(|it| (Endpoint::tcp("a", 1).unwrap(), error(it)));
            let poll = Poll {
                failures: failures.into_iter().collect(),
                is_refused: failure.is_some(),
                answering,
                all: 3,
                silent: "b:1, c:1".into(),
                agreeing,
                ..Poll::default()
            };
            voters.objection(0, poll)
        };
        assert_eq!(objection(0, 0, None), None, "nothing was asked yet");
        assert_eq!(objection(2, 2, None), None);
        for (answering, agreeing, failure, is_refusal, words) in [
            (
                0,
                0,
                Some("wrong password"),
                true,
                "(a:1: misconfigured: wrong password)",
            ),
            (
                1,
                1,
                None,
                false,
                "1 of 3 nodes of the cluster answer, including replicas, and 2 are needed",
            ),
            (1, 1, None, false, "silent: b:1, c:1. Forget"),
            (2, 0, None, true, "no node of the cluster owns slot 8192"),
            (2, 1, None, false, "do not agree on the owner of slot 8192"),
        ] {
            let error = objection(answering, agreeing, failure).unwrap();
            assert_eq!(error.is_refusal(), is_refusal, "{error}");
            assert!(error.to_string().contains(words), "{error}");
        }
    }
}

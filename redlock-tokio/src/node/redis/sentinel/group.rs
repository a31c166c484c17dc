use deadpool_redis::redis::{Pipeline, Value};
use redlock_core::Tenure;

use super::question::{question, read};
use crate::{
    log,
    node::{
        NodeError,
        redis::{
            address::Endpoint,
            connect::ConnectionSettings,
            key_tag::KeyTag,
            survey::{Master, Poll, Roster, Topology, View},
        },
    },
};

/// Servers that sentinels watch, and of which they name the master.
pub(super) struct Group {
    pub(super) name: String,
    pub(super) sentinel_settings: ConnectionSettings,
    pub(super) server_settings: ConnectionSettings,
}

impl Topology for Group {
    const NAME: &'static str = "group";

    const MEMBER: &'static str = "sentinel";

    const SWITCHES: Option<&'static str> = Some("+switch-master");

    fn member_settings(&self) -> &ConnectionSettings {
        &self.sentinel_settings
    }

    fn question(&self) -> Pipeline {
        question(&self.name)
    }

    fn read(&self, replies: Vec<Value>, _: &Endpoint) -> Result<View, NodeError> {
        read(&self.name, replies)
    }

    fn master(&self, _: usize, tenure: &Tenure, roster: &Roster) -> Result<Master<'_>, NodeError> {
        Ok(Master {
            endpoint: roster.reached(tenure.owner.as_str())?,
            settings: &self.server_settings,
            tag: &KeyTag::NONE,
            member: None,
        })
    }

    fn objection(&self, _: usize, poll: Poll) -> Option<NodeError> {
        let say = |(at, error): (&Endpoint, &NodeError)| match error {
            NodeError::Misconfigured(text) | NodeError::Unreachable(text) => {
                format!("sentinel {at}: {text}")
            }
            other => format!("sentinel {at}: {other}"),
        };
        let failures: Vec<_> = poll.failures.iter().map(say).collect();
        let shown = failures.join("; ");
        match failures.len() {
            0 => None,
            _ if poll.is_refused => Some(NodeError::Misconfigured(shown.into())),
            _ => {
                let text = format!("no majority of its sentinels names a master ({shown})");
                Some(NodeError::Unreachable(text.into()))
            }
        }
    }

    fn log(&self, at: &Endpoint, error: Option<&NodeError>) {
        let group = &self.name;
        match error {
            Some(error) if error.is_refusal() => {
                log::warn!(%group, sentinel = %at, %error, "a sentinel answers, but names no master");
            }
            Some(error) => {
                log::warn!(%group, sentinel = %at, %error, "a sentinel does not answer");
            }
            None => log::info!(%group, sentinel = %at, "a sentinel names the master again"),
        }
    }
}

//! The commands of readers and writers that plain locks do not need.

use std::time::Duration;

use deadpool_redis::redis::{self, Cmd, Value};
use redlock_core::{Access, Operation, Ttl};

use super::{encode::Encoder, part::Call, read};
use crate::{
    Key,
    node::{
        Answer, Command, NodeError, Vote,
        redis::{
            key_tag::KeyTag,
            script::{Script, readers},
            server_error::{is_denied_key, shorten},
        },
    },
};

/// A script for one command of a reader or a writer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Sharing {
    Join,
    ExtendReader,
    ReleaseReader,
    ReleaseWriter,
}

impl Sharing {
    /// Returns the script for a command, if it needs one of these.
    pub(super) fn of(command: &Command) -> Option<Self> {
        match (command.access(), command.operation()) {
            (Access::Reader { .. }, Operation::Acquire { .. }) => Some(Self::Join),
            (Access::Reader { .. }, Operation::Extend { .. }) => Some(Self::ExtendReader),
            (Access::Reader { .. }, Operation::Release { .. }) => Some(Self::ReleaseReader),
            (Access::Writer, Operation::Release { .. }) => Some(Self::ReleaseWriter),
            _ => None,
        }
    }

    fn script(self) -> &'static Script {
        match self {
            Self::Join => &readers::JOIN,
            Self::ExtendReader => &readers::EXTEND_READER,
            Self::ReleaseReader => &readers::RELEASE_READER,
            Self::ReleaseWriter => &readers::RELEASE_WRITER,
        }
    }

    /// `EVALSHA hash n key names.. token arguments..`
    pub(super) fn encode(self, encoder: &Encoder, command: &Command, by: Call) -> Cmd {
        let names: &[&str] = match self {
            Self::Join | Self::ExtendReader => &[Key::READERS, Key::MARKS],
            Self::ReleaseReader => &[Key::READERS],
            Self::ReleaseWriter => &[Key::MARKS],
        };
        let (count, key) = (1 + names.len(), command.key());
        let mut cmd = encoder.script(self.script(), by, count, [key].into_iter());
        for prefix in names {
            cmd.arg(encoder.tag().beside(prefix, key.as_bytes()));
        }
        cmd.arg(command.value());
        cmd.arg(command.ttl().map(Ttl::as_millis));
        match (self, command.access()) {
            (Self::Join, Access::Reader { insists }) => _ = cmd.arg(u8::from(insists)),
            (Self::ExtendReader | Self::ReleaseWriter, _) => _ = cmd.arg(command.mark()),
            _ => {}
        }
        cmd
    }

    pub(super) fn read(self, reply: Value, command: &Command, tag: &KeyTag) -> Answer {
        match (self, reply) {
            (Self::ExtendReader, Value::BulkString(left)) => read::extension(&left),
            (Self::ExtendReader, reply @ Value::Int(_)) => Err(read::failure(reply)),
            (_, Value::Int(1)) => Ok(Vote::Granted),
            (_, Value::Int(0)) => Ok(Vote::Denied),
            (_, Value::ServerError(error)) if error.code() == "WRONGTYPE" => {
                let name = tag.beside(Key::READERS, command.key().as_bytes());
                let name = name.escape_ascii();
                Err(refused(
                    error.code(),
                    format!("{name} is no set of readers"),
                ))
            }
            (_, Value::ServerError(error)) if is_denied_key(&error) => {
                let details = error.details().unwrap_or_default();
                let (readers, marks) = (Key::READERS, Key::MARKS);
                let text = format!(
                    "{details}: readers and writers need their key, and the key patterns {readers}* and {marks}*"
                );
                Err(refused(error.code(), text))
            }
            (_, reply) => Err(read::failure(reply)),
        }
    }
}

fn refused(code: &str, message: String) -> NodeError {
    NodeError::Refused {
        code: code.into(),
        message: shorten(message).into(),
    }
}

/// `SET mark nonce PX time`. Its reply does not matter.
pub(super) fn mark(command: &Command, tag: &KeyTag) -> Option<Cmd> {
    let Operation::Probe { mark: time, .. } = command.operation() else {
        return None;
    };
    let mut cmd = redis::cmd("SET");
    cmd.arg(tag.beside(Key::MARKS, command.key().as_bytes()));
    cmd.arg(command.mark()).arg("PX").arg(time?.as_millis());
    Some(cmd)
}

/// Reads the value of a key that a reader looks at: shared, or the token of the client that has it, for as long as the time to
/// live says that comes next.
pub(super) fn value(reply: Value) -> Option<Answer> {
    let Value::Array(values) = reply else {
        return Some(Err(read::failure(reply)));
    };
    let by = values.first().and_then(read::holder)?;
    Some(Ok(if by.value() == Key::SHARED.as_bytes() {
        Vote::Free
    } else {
        Vote::Taken {
            remaining: Duration::ZERO,
            by: Some(by),
        }
    }))
}

/// Reads how long the key of that value lives.
pub(super) fn probe(earlier: Option<Answer>, left: Answer) -> Answer {
    match (earlier, left) {
        (Some(Ok(Vote::Taken { by, .. })), Ok(Vote::Taken { remaining, .. })) => {
            Ok(Vote::Taken { remaining, by })
        }
        (Some(Ok(Vote::Taken { .. })) | None, left) => left,
        (Some(earlier), _) => earlier,
    }
}

/// Reads how long the mark of a writer lives. It matters only where a reader would be let in. This
/// crate never sets a mark without an expiry.
pub(super) fn marked(earlier: Option<Answer>, reply: Value) -> Option<Answer> {
    match (earlier, reply) {
        (Some(Ok(Vote::Free)), Value::Int(left)) if left > 0 => Some(Ok(Vote::Marked {
            remaining: read::time_left(left),
        })),
        (earlier, _) => earlier,
    }
}

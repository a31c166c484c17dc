use std::{fmt, process, sync::Arc};

use redlock_core::Token;
use smallvec::SmallVec;
use thiserror::Error;

/// Room for a token and a label of usual length, so that most values need no memory of their own.
pub(crate) type Value = SmallVec<[u8; 64]>;

/// The name of a client, for people. It follows the token in the value of each key that the client sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientLabel(Option<Arc<str>>);

impl ClientLabel {
    pub(crate) const NONE: Self = Self(None);

    /// Stands between a token and the label in a value.
    pub(crate) const SEPARATOR: u8 = b'@';

    /// The longest label, in bytes.
    const MAX_LEN: usize = 64;

    pub(crate) fn new(label: &str) -> Result<Self, ClientLabelError> {
        if label.is_empty() {
            Err(ClientLabelError::Empty)
        } else if label.len() > Self::MAX_LEN {
            Err(ClientLabelError::TooLong { len: label.len() })
        } else if label.chars().any(char::is_control) {
            Err(ClientLabelError::ControlCharacter)
        } else {
            Ok(Self(Some(label.into())))
        }
    }

    /// Returns the name of the host and the id of this process, such as `web-3:4711`.
    pub(crate) fn of_process() -> Self {
        let host = host_name().unwrap_or_default();
        let host = host.split('.').next().unwrap_or_default();
        let host: String = host
            .chars()
            .filter(|it| !it.is_control())
            .take(32)
            .collect();
        let label = format!("{host}:{}", process::id());
        Self::new(&label).unwrap_or(Self::NONE)
    }

    pub(crate) fn shared(&self) -> Option<Arc<str>> {
        self.0.clone()
    }

    /// Returns the value that a key with this token has on the nodes.
    pub(crate) fn value_of(&self, token: Token) -> Value {
        let mut value = Value::from_slice(&token.to_ascii());
        if let Some(label) = &self.0 {
            value.push(Self::SEPARATOR);
            value.extend_from_slice(label.as_bytes());
        }
        value
    }
}

impl fmt::Display for ClientLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_deref().unwrap_or("no label"))
    }
}

/// Why a client cannot have this label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ClientLabelError {
    /// The label is empty. [`no_client_label`](crate::RedlockBuilder::no_client_label) leaves it out.
    #[error("it is empty")]
    Empty,
    /// The label is longer than 64 bytes.
    #[error("it has {len} bytes, and may have at most {}", ClientLabel::MAX_LEN)]
    TooLong {
        /// The length of the label, in bytes.
        len: usize,
    },
    /// The label has a control character, which could garble a terminal.
    #[error("it has a control character")]
    ControlCharacter,
}

#[cfg(unix)]
fn host_name() -> Option<String> {
    let name = rustix::system::uname();
    name.nodename().to_str().ok().map(str::to_owned)
}

#[cfg(not(unix))]
fn host_name() -> Option<String> {
    std::env::var("COMPUTERNAME").ok()
}

#[cfg(test)]
mod tests {
    use redlock_core::Nonce;

    use super::*;

    #[test]
    fn a_value_is_the_token_and_the_label() {
        let token = Nonce::new(7).token(1);
        let value =
            |label: &ClientLabel| String::from_utf8(label.value_of(token).to_vec()).unwrap();
        assert_eq!(value(&ClientLabel::NONE), token.to_string());
        let label = ClientLabel::new("web-3").unwrap();
        assert_eq!(value(&label), format!("{token}@web-3"));
    }

    #[test]
    fn a_label_that_could_mislead_is_refused() {
        let longest = "é".repeat(32);
        assert!(ClientLabel::new(&longest).is_ok());
        for (label, error) in [
            ("", ClientLabelError::Empty),
            (
                &*format!("{longest}x"),
                ClientLabelError::TooLong { len: 65 },
            ),
            ("web\n3", ClientLabelError::ControlCharacter),
            ("web\u{1b}[2J", ClientLabelError::ControlCharacter),
        ] {
            assert_eq!(ClientLabel::new(label), Err(error));
        }
    }

    #[test]
    fn the_label_of_this_process_ends_with_its_id() {
        let label = ClientLabel::of_process().to_string();
        assert!(label.ends_with(&format!(":{}", process::id())), "{label}");
        assert!(ClientLabel::new(&label).is_ok());
    }
}

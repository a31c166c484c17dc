use std::{fmt, process, sync::Arc};

use redlock_core::Token;
use smallvec::SmallVec;
use thiserror::Error;

/// Room for a token and a name of usual length, so that most values need no memory of their own.
pub(crate) type Value = SmallVec<[u8; 64]>;

/// The name of a client, for people. It follows the token in the value of each key that the client sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientName(Option<Arc<str>>);

impl ClientName {
    pub(crate) const NONE: Self = Self(None);

    /// Stands between a token and the name in a value.
    pub(crate) const SEPARATOR: u8 = b'@';

    /// The longest name, in bytes.
    const MAX_LEN: usize = 64;

    pub(crate) fn new(name: &str) -> Result<Self, ClientNameError> {
        if name.len() > Self::MAX_LEN {
            Err(ClientNameError("has more than 64 bytes"))
        } else if name.chars().any(char::is_control) {
            // It could garble a terminal.
            Err(ClientNameError("has a control character"))
        } else {
            Ok(Self((!name.is_empty()).then(|| name.into())))
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
        let name = format!("{host}:{}", process::id());
        Self::new(&name).unwrap_or(Self::NONE)
    }

    pub(crate) fn shared(&self) -> Option<Arc<str>> {
        self.0.clone()
    }

    /// Returns the value that a key with this token has on the nodes.
    pub(crate) fn value_of(&self, token: Token) -> Value {
        let mut value = Value::from_slice(&token.to_ascii());
        if let Some(name) = &self.0 {
            value.push(Self::SEPARATOR);
            value.extend_from_slice(name.as_bytes());
        }
        value
    }
}

impl fmt::Display for ClientName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_deref().unwrap_or("no name"))
    }
}

/// Why a client cannot have this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("it {0}")]
pub struct ClientNameError(&'static str);

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
    fn a_value_is_the_token_and_the_name() {
        let token = Nonce::new(7).token(1);
        let value = |name: &ClientName| String::from_utf8(name.value_of(token).to_vec()).unwrap();
        assert_eq!(value(&ClientName::NONE), token.to_string());
        assert_eq!(ClientName::new(""), Ok(ClientName::NONE));
        let name = ClientName::new("web-3").unwrap();
        assert_eq!(value(&name), format!("{token}@web-3"));
    }

    #[test]
    fn a_label_that_could_mislead_is_refused() {
        let longest = "é".repeat(32);
        assert!(ClientName::new(&longest).is_ok());
        for (name, words) in [
            (&*format!("{longest}x"), "64 bytes"),
            ("web\n3", "control character"),
            ("web\u{1b}[2J", "control character"),
        ] {
            let error = ClientName::new(name).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn the_label_of_this_process_ends_with_its_id() {
        let name = ClientName::of_process().to_string();
        assert!(name.ends_with(&format!(":{}", process::id())), "{name}");
        assert!(ClientName::new(&name).is_ok());
    }
}

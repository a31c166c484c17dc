//! Grants for tests.

use redlock_tokio::FencingToken;

use crate::judge::Grant;

/// Returns a grant of the key `a` to this client.
pub(crate) fn grant(client: &str, at: u64, valid_until: u64) -> Grant {
    Grant {
        client: client.into(),
        keys: vec!["a".into()],
        at,
        valid_until,
        fence: None,
        is_shared: false,
    }
}

impl Grant {
    pub(crate) fn of(self, keys: &[&str]) -> Self {
        Self {
            keys: keys.iter().map(|it| (*it).into()).collect(),
            ..self
        }
    }

    pub(crate) fn fenced(self, fence: u64) -> Self {
        Self {
            fence: Some(FencingToken::new(fence)),
            ..self
        }
    }

    pub(crate) fn shared(self) -> Self {
        Self {
            is_shared: true,
            ..self
        }
    }
}

use std::{
    fmt,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use redlock_core::FencingToken;

use crate::{Key, node::Holder};

/// A held lock on its way to another process. Made by [`LockGuard::into_ticket`](crate::LockGuard::into_ticket), and used
/// with [`Redlock::adopt`](crate::Redlock::adopt).
///
/// With the feature `serde`, a ticket can be sent in a message or a job. Its format has a version. It holds the key and the
/// value that the nodes compare with, so anybody with the ticket can take the lock: treat it as you treat the job itself.
///
/// A ticket has an [end](Self::expires_at). Nobody holds the lock while the ticket is under way, but no other client can
/// acquire it either. If nobody adopts it, the lock is free when the ttl of its keys is over.
#[derive(Clone, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(into = "wire::Ticket", try_from = "wire::Ticket")
)]
#[must_use = "nobody holds the lock until the ticket is adopted"]
pub struct LockTicket {
    /// With its prefix.
    pub(super) key: Key,
    /// The value of the key.
    pub(super) giver: Holder,
    /// The end of the giver's validity, as the time since 1970.
    pub(super) until: Duration,
    pub(super) fence: Option<FencingToken>,
}

impl LockTicket {
    /// Returns the key of the lock, with its prefix.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Returns the client that has given the lock away.
    #[must_use]
    pub fn giver(&self) -> &Holder {
        &self.giver
    }

    /// Returns until when the lock can be adopted: the end of the giver's validity, by the giver's wall clock.
    #[must_use]
    pub fn expires_at(&self) -> SystemTime {
        UNIX_EPOCH + self.until
    }

    /// Returns whether its end is over, at this time since 1970.
    pub(crate) fn is_over(&self, wall: Duration) -> bool {
        self.until <= wall
    }

    /// Returns the fencing token that the giver had, if the lock was [fenced](crate::LockOptions::fenced). The adopter gets a
    /// larger one.
    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.fence
    }
}

/// Shows neither the key nor the value.
impl fmt::Debug for LockTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockTicket")
            .field("key", &self.key)
            .field("giver", &self.giver.client_name())
            .field("expires_at", &self.expires_at())
            .finish_non_exhaustive()
    }
}

/// A ticket as it is sent.
#[cfg(feature = "serde")]
mod wire {
    use std::time::Duration;

    use redlock_core::FencingToken;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::LockTicket;
    use crate::{Key, node::Holder};

    const VERSION: u32 = 1;

    #[derive(Serialize, Deserialize)]
    #[serde(rename = "LockTicket")]
    pub(super) struct Ticket {
        /// First, so that a reader knows it before anything else.
        version: u32,
        key: Bytes,
        value: Bytes,
        /// The time since 1970, in milliseconds.
        until: u64,
        fence: Option<u64>,
    }

    /// In a format for people, such as JSON, a text where it is one. A list of bytes is read too.
    struct Bytes(Vec<u8>);

    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a text or a list of bytes")]
    enum TextOrBytes {
        Text(String),
        Bytes(Vec<u8>),
    }

    impl Serialize for Bytes {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            match str::from_utf8(&self.0) {
                Ok(text) if serializer.is_human_readable() => text.serialize(serializer),
                _ => self.0.serialize(serializer),
            }
        }
    }

    impl<'de> Deserialize<'de> for Bytes {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            if !deserializer.is_human_readable() {
                return Vec::deserialize(deserializer).map(Self);
            }
            Ok(Self(match TextOrBytes::deserialize(deserializer)? {
                TextOrBytes::Text(text) => text.into_bytes(),
                TextOrBytes::Bytes(bytes) => bytes,
            }))
        }
    }

    impl From<LockTicket> for Ticket {
        fn from(ticket: LockTicket) -> Self {
            Self {
                version: VERSION,
                key: Bytes(ticket.key.as_bytes().to_vec()),
                value: Bytes(ticket.giver.value().to_vec()),
                // Rounded down: a ticket never lives for longer than the validity.
                until: u64::try_from(ticket.until.as_millis()).unwrap_or(u64::MAX),
                fence: ticket.fence.map(FencingToken::get),
            }
        }
    }

    impl TryFrom<Ticket> for LockTicket {
        type Error = String;

        fn try_from(ticket: Ticket) -> Result<Self, String> {
            let Ticket {
                version,
                key,
                value,
                until,
                fence,
            } = ticket;
            if version != VERSION {
                return Err(format!(
                    "a ticket of version {version}, and this process knows version {VERSION}"
                ));
            }
            let giver = Holder::new(value.0);
            if giver.token().is_none() {
                return Err("the value of the ticket does not begin with a token".into());
            }
            Ok(Self {
                key: Key::new(key.0).map_err(|error| error.to_string())?,
                giver,
                until: Duration::from_millis(until),
                fence: fence.map(FencingToken::new),
            })
        }
    }
}

#[cfg(all(test, feature = "serde"))]
mod tests {
    use redlock_core::Nonce;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_ticket_that_was_sent_is_the_same() {
        let token = Nonce::new(7).token(1).to_string();
        let value = format!("{token}@web-3");
        let ticket = LockTicket {
            key: Key::new([0, 0xff]).unwrap(),
            giver: Holder::new(value.as_bytes()),
            until: Duration::from_millis(1_700_000_000_123),
            fence: Some(FencingToken::new(12)),
        };
        let mut sent = serde_json::to_value(&ticket).unwrap();
        assert_eq!(sent["version"], 1);
        let texts = |it: &serde_json::Value| [it["key"].clone(), it["value"].clone()];
        assert_eq!(texts(&sent), [json!([0, 255]), json!(value)]);
        assert_eq!(
            serde_json::from_value::<LockTicket>(sent.clone()).unwrap(),
            ticket
        );
        for key in [json!("order:42"), json!(b"order:42")] {
            sent["key"] = key;
            sent["value"] = json!(value.as_bytes());
            let read: LockTicket = serde_json::from_value(sent.clone()).unwrap();
            let again = serde_json::to_value(&read).unwrap();
            assert_eq!(texts(&again), [json!("order:42"), json!(value)]);
        }
        let shown = format!("{ticket:?}");
        assert!(
            shown.contains("web-3") && !shown.contains(&token),
            "{shown}"
        );

        let with = |field: &str, value: serde_json::Value| {
            let mut sent = sent.clone();
            sent[field] = value;
            serde_json::from_value::<LockTicket>(sent)
                .unwrap_err()
                .to_string()
        };
        assert!(with("version", json!(2)).contains("version 2"));
        assert!(with("value", json!(b"another client")).contains("token"));
        assert!(with("key", json!([])).contains("empty"));
    }
}

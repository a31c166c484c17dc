use std::{convert::Infallible, sync::Arc};

use deadpool_redis::redis::{AsyncConnectionConfig, PushInfo, PushKind, Value};

use super::connect::plain_config;
use crate::{Key, node::FreedNotifier, sync::Mutex};

/// Receives a server's messages that probed keys are gone (`CLIENT TRACKING`, Redis' client-side caching), and the calls on
/// the channel of a line, and passes them on.
#[derive(Debug, Default)]
pub(super) struct Invalidations(Mutex<Option<FreedNotifier>>);

impl Invalidations {
    /// Returns the configuration of a connection whose messages come here.
    pub(super) fn config(self: &Arc<Self>) -> AsyncConnectionConfig {
        let receiver = Arc::clone(self);
        plain_config().set_push_sender(move |push| {
            receiver.handle(&push);
            Ok::<_, Infallible>(())
        })
    }

    pub(super) fn go_to(&self, freed: FreedNotifier) {
        *self.0.lock() = Some(freed);
    }

    /// Passes on a message that the server sent without being asked.
    fn handle(&self, push: &PushInfo) {
        if !matches!(push.kind, PushKind::Invalidate | PushKind::Message) {
            return;
        }
        let freed = self.0.lock().clone();
        let Some(freed) = freed else {
            return;
        };
        if push.kind == PushKind::Message {
            // The connection may be of a pool of the user, who may subscribe to other channels.
            if let [Value::BulkString(channel), Value::BulkString(message)] = &push.data[..]
                && channel.starts_with(Key::CALLS.as_bytes())
                && let Some((is_taken, key)) = message.split_first()
            {
                freed.called(key, *is_taken == b'1');
            }
            return;
        }
        for item in &push.data {
            match item {
                Value::Array(keys) => {
                    for key in keys {
                        if let Value::BulkString(key) = key {
                            freed.key(key);
                        }
                    }
                }
                // "When the server is flushed [..] a null" (Redis, client-side caching).
                Value::Nil => freed.every_key(),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Notice;

    #[test]
    fn only_messages_on_the_channel_of_a_line_are_calls() {
        let invalidations = Invalidations::default();
        let called = Arc::new(Mutex::new(Vec::new()));
        let note = Arc::clone(&called);
        invalidations.go_to(FreedNotifier::new(move |notice| {
            let Notice::Called { key, is_taken } = notice else {
                panic!("{notice:?}");
            };
            note.lock().push((key.to_vec(), is_taken));
        }));
        let line = "redlock:line:00000000000000a1";
        for (channel, message) in [(line, "0k"), (line, "1k"), ("news", "0other"), (line, "")] {
            let data = [channel, message]
                .map(|it| Value::BulkString(it.into()))
                .to_vec();
            let kind = PushKind::Message;
            invalidations.handle(&PushInfo { kind, data });
        }
        assert_eq!(*called.lock(), [(b"k".into(), false), (b"k".into(), true)]);
    }
}

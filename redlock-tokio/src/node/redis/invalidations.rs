use deadpool_redis::redis::{PushInfo, PushKind, Value};

use crate::{node::FreedNotifier, sync::Mutex};

/// Receives a server's messages that probed keys are gone (`CLIENT TRACKING`, Redis' client-side caching),
/// and passes them on.
#[derive(Debug, Default)]
pub(super) struct Invalidations(Mutex<Option<FreedNotifier>>);

impl Invalidations {
    /// Sets the notifier that gets the messages from now on.
    pub(super) fn go_to(&self, freed: FreedNotifier) {
        *self.0.lock() = Some(freed);
    }

    /// Passes on a message that the server sent without being asked.
    pub(super) fn handle(&self, push: &PushInfo) {
        if push.kind != PushKind::Invalidate {
            return;
        }
        let freed = self.0.lock().clone();
        let Some(freed) = freed else {
            return;
        };
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

use deadpool_redis::redis::{PushInfo, PushKind, Value};

use crate::{node::FreedNotifier, sync::Mutex};

/// Where goes what a server says unasked: that keys are gone which were looked at (`CLIENT TRACKING`,
/// Redis' client-side caching).
///
/// The pool sets it for all connections to a node, of which one at a time is in use.
#[derive(Debug, Default)]
pub(super) struct Pushes(Mutex<Option<FreedNotifier>>);

impl Pushes {
    pub(super) fn go_to(&self, freed: FreedNotifier) {
        *self.0.lock() = Some(freed);
    }

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

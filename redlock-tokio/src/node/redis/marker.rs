//! The key by which clients know for how long a server's history exists.
//!
//! A session looks after the marker of the history that its server had when the session was opened. If the
//! server is promoted meanwhile, the next session of any client writes the marker of the new history. Until
//! then clients believe that the history is younger than it is, which is safe.

use std::time::Duration;

use deadpool_redis::redis::{Pipeline, ServerError, Value, aio::MultiplexedConnection, cmd};
use redlock_core::AgeMarker;

use super::{
    connect::send,
    key_tag::KeyTag,
    server_error::{disconnected, refusal},
};
use crate::node::NodeError;

/// Returns the age that an [`AgeMarker`] under this key shows. Writes the marker if it is missing, and
/// renews it when that is due. Costs one round trip, and a second one for a renewal.
pub(super) async fn age(
    mut connection: MultiplexedConnection,
    tag: KeyTag,
    key: String,
) -> Result<Option<Duration>, NodeError> {
    let key = tag.on(key.as_bytes());
    let ttl = AgeMarker::TTL_MILLIS;
    let mut pipeline = Pipeline::new();
    let first = pipeline.cmd("SET").arg(key).arg(0).arg("NX");
    first.arg("PX").arg(ttl);
    pipeline.cmd("GET").arg(key);
    pipeline.cmd("PTTL").arg(key);
    let replies = send(&mut connection, &pipeline).await;
    let replies = replies.map_err(|error| disconnected(&error))?;
    let [written, value, left] = &replies[..] else {
        return Ok(None);
    };
    let (value, left) = match (value, left) {
        (Value::BulkString(value), Value::Int(left)) => (value, *left),
        // A server that refuses only to write (`OOM`, `NOREPLICAS`) may have a marker all the same.
        _ => {
            let mut errors = [value, left, written].into_iter().filter_map(error_of);
            return errors.next().map_or(Ok(None), |error| Err(refusal(error)));
        }
    };
    let marker = AgeMarker::read(value, left);
    if let Some(renewal) = marker.and_then(AgeMarker::renewal) {
        let mut again = cmd("SET");
        again.arg(key).arg(renewal).arg("PX").arg(ttl);
        // After an error the marker stays as it is, and the next client renews it.
        let _ = connection.send_packed_command(&again).await;
    }
    Ok(marker.map(AgeMarker::age))
}

fn error_of(reply: &Value) -> Option<&ServerError> {
    match reply {
        Value::ServerError(error) => Some(error),
        _ => None,
    }
}

//! The key by which clients know for how long a server's history exists.

use std::time::Duration;

use deadpool_redis::redis::{Pipeline, Value, aio::MultiplexedConnection, cmd};
use redlock_core::{HistoryMarker, ReplicationId};

use super::server_error::{disconnected, refusal};
use crate::node::NodeError;

/// Returns for how long the history exists at least, by its [`HistoryMarker`]. Writes the marker if
/// there is none, and renews it when that is due.
pub(super) async fn age(
    mut connection: MultiplexedConnection,
    history: ReplicationId,
) -> Result<Option<Duration>, NodeError> {
    let key = HistoryMarker::key(history);
    let ttl = HistoryMarker::TTL_MILLIS;
    let mut pipeline = Pipeline::new();
    let first = pipeline.cmd("SET").arg(&key).arg(0).arg("NX");
    first.arg("PX").arg(ttl);
    pipeline.cmd("GET").arg(&key);
    pipeline.cmd("PTTL").arg(&key);
    let replies = connection
        .send_packed_commands(&pipeline, 0, pipeline.len())
        .await
        .map_err(|error| disconnected(&error))?;
    for reply in &replies {
        if let Value::ServerError(error) = reply {
            return Err(refusal(error));
        }
    }
    let [_, Value::BulkString(value), Value::Int(left)] = &replies[..] else {
        return Ok(None);
    };
    let marker = HistoryMarker::read(value, *left);
    if let Some(renewal) = marker.and_then(HistoryMarker::renewal) {
        let mut again = cmd("SET");
        again.arg(&key).arg(renewal).arg("PX").arg(ttl);
        // An error leaves the marker as it is, for the next client to renew.
        let _ = connection.send_packed_command(&again).await;
    }
    Ok(marker.map(HistoryMarker::age))
}

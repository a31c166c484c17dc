//! Connections from a pool of the user.

use std::sync::Arc;

use deadpool_redis::{
    Connection, Pool, PoolError,
    redis::{AsyncConnectionConfig, aio::MultiplexedConnection},
};

use super::{
    connect::{Opened, unless_shut_down},
    invalidations::Invalidations,
    server_error::connect_error,
};
use crate::node::NodeError;

/// Makes the connections of a pool of your own report free locks. One for each
/// [pool](crate::RedlockBuilder::pool).
///
/// A server reports that a lock is free on the connection that has asked for it, and the redis crate passes that on only
/// to a receiver that the connection was opened with.
#[derive(Clone, Debug, Default)]
pub struct PoolMessages(Arc<Invalidations>);

impl PoolMessages {
    /// Creates the receiver of one pool.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the settings for [`Manager::new_with_config`](deadpool_redis::Manager::new_with_config). The connections
    /// have no time limits of their own, unless you add some. They must speak RESP3 (`?protocol=resp3`).
    #[must_use]
    pub fn config(&self) -> AsyncConnectionConfig {
        self.0.config()
    }
}

pub(super) struct OwnPool {
    pub(super) pool: Pool,
    pub(super) messages: Option<PoolMessages>,
}

impl OwnPool {
    /// Takes a connection out of the pool for as long as a session lasts.
    pub(super) async fn open(&self) -> Result<Opened, NodeError> {
        let connection = unless_shut_down(self.pool.get()).await;
        let connection = connection.map_err(|error| match (error, self.objection()) {
            (PoolError::Backend(error), _) => connect_error(&error),
            (PoolError::Timeout(_), Some(objection)) => objection,
            (other, _) => NodeError::Unreachable(other.to_string().into()),
        })?;
        Ok(Opened {
            connection: MultiplexedConnection::clone(&connection),
            invalidations: self
                .messages
                .as_ref()
                .map(|messages| Arc::clone(&messages.0)),
            attachment: Some(Box::new(PlaceInPool(Some(connection)))),
        })
    }

    /// Returns why there is no connection now, if the application has them all.
    pub(super) fn objection(&self) -> Option<NodeError> {
        let status = self.pool.status();
        let is_used_up = status.available == 0 && status.size >= status.max_size;
        let text = format!(
            "the application uses all connections of the pool ({}), and this client needs one for itself",
            status.max_size
        );
        is_used_up.then(|| NodeError::Unreachable(text.into()))
    }
}

/// Counts a connection as one of its pool's.
struct PlaceInPool(Option<Connection>);

impl Drop for PlaceInPool {
    fn drop(&mut self) {
        if let Some(connection) = self.0.take() {
            // A session ends when its connection is useless, so the connection must not go back.
            drop(Connection::take(connection));
        }
    }
}

use std::sync::Arc;

use deadpool_redis::{Connection, redis::aio::MultiplexedConnection};

use super::invalidations::Invalidations;

/// A new connection, which one session uses alone.
pub(super) struct Opened {
    pub(super) connection: MultiplexedConnection,
    /// Gets the messages that the server sends on this connection without being asked. `None` without RESP3.
    pub(super) invalidations: Option<Arc<Invalidations>>,
    /// The place of the connection in a pool, if it came from one.
    pub(super) place: Option<PlaceInPool>,
}

/// Counts a connection as one of its pool's for as long as a session uses it.
pub(super) struct PlaceInPool(Option<Connection>);

impl Opened {
    pub(super) fn new(
        connection: MultiplexedConnection,
        invalidations: Option<Arc<Invalidations>>,
    ) -> Self {
        Self {
            connection,
            invalidations,
            place: None,
        }
    }
}

impl PlaceInPool {
    pub(super) fn of(connection: Connection) -> Self {
        Self(Some(connection))
    }
}

impl Drop for PlaceInPool {
    fn drop(&mut self) {
        if let Some(connection) = self.0.take() {
            // A session ends when its connection is useless, so the connection must not go back.
            drop(Connection::take(connection));
        }
    }
}

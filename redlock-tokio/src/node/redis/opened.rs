use std::sync::Arc;

use deadpool_redis::{Connection, redis::aio::MultiplexedConnection};
use tokio::sync::watch;

use super::invalidations::Invalidations;

/// A new connection, which one session uses alone.
pub(super) struct Opened {
    pub(super) connection: MultiplexedConnection,
    /// Gets the messages that the server sends on this connection without being asked. `None` without RESP3.
    pub(super) invalidations: Option<Arc<Invalidations>>,
    pub(super) attachment: Attachment,
}

/// Kept for as long as the session that uses a connection.
pub(super) enum Attachment {
    None,
    /// The connection's place in a pool.
    InPool {
        _place: PlaceInPool,
    },
    /// The end of this channel closes a stream of the user.
    Stream {
        _session: watch::Sender<()>,
    },
}

/// Counts a connection as one of its pool's.
pub(super) struct PlaceInPool(Option<Connection>);

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

use std::{
    fmt::Display,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use deadpool_redis::{
    Connection, Manager, Pool, PoolError, Runtime, redis::aio::MultiplexedConnection,
};

use super::{
    address::Endpoint,
    connect::{ConnectionSettings, Recipe, is_unknown_protocol},
    invalidations::Invalidations,
    opened::{Attachment, Opened, PlaceInPool},
    server_error::connect_error,
    url::UrlError,
};
use crate::node::NodeError;

/// Pools that open the connections of a node.
pub(super) struct Pools {
    resp2: Pool,
    resp3: Option<Resp3Pool>,
}

/// A pool of connections by which a server also reports that a key is gone.
struct Resp3Pool {
    pool: Pool,
    /// All connections of the pool send their messages here. Only one of them is in use at a time.
    invalidations: Arc<Invalidations>,
    /// The server does not speak RESP3.
    is_unknown: AtomicBool,
}

impl Pools {
    pub(super) fn new(
        settings: &ConnectionSettings,
        endpoint: &Endpoint,
    ) -> Result<Self, UrlError> {
        let resp3 = if settings.excludes_resp3() {
            None
        } else {
            let (recipe, invalidations) = settings.resp3(endpoint).map_err(unusable)?;
            Some(Resp3Pool {
                pool: pool(recipe)?,
                invalidations,
                is_unknown: AtomicBool::new(false),
            })
        };
        Ok(Self {
            resp2: pool(settings.resp2(endpoint).map_err(unusable)?)?,
            resp3,
        })
    }

    /// Creates pools from a pool of the user. Nothing gets the messages of its connections.
    pub(super) fn of(pool: Pool) -> Self {
        Self {
            resp2: pool,
            resp3: None,
        }
    }

    pub(super) async fn open(&self) -> Result<Opened, NodeError> {
        let (connection, invalidations) = self.get().await.map_err(|error| match error {
            PoolError::Backend(error) => connect_error(&error),
            other => NodeError::Unreachable(other.to_string().into()),
        })?;
        Ok(Opened {
            connection: MultiplexedConnection::clone(&connection),
            invalidations,
            attachment: Attachment::InPool {
                _place: PlaceInPool::of(connection),
            },
        })
    }

    async fn get(&self) -> Result<(Connection, Option<Arc<Invalidations>>), PoolError> {
        if let Some(resp3) = &self.resp3
            && !resp3.is_unknown.load(Ordering::Relaxed)
        {
            match resp3.pool.get().await {
                Err(PoolError::Backend(error)) if is_unknown_protocol(&error.to_string()) => {
                    resp3.is_unknown.store(true, Ordering::Relaxed);
                }
                connection => return Ok((connection?, Some(Arc::clone(&resp3.invalidations)))),
            }
        }
        Ok((self.resp2.get().await?, None))
    }
}

fn pool(Recipe { info, config }: Recipe) -> Result<Pool, UrlError> {
    let manager = Manager::new_with_config(info, config).map_err(unusable)?;
    Pool::builder(manager)
        .runtime(Runtime::Tokio1)
        // One in use, and its replacement while that is opened.
        .max_size(2)
        .build()
        .map_err(unusable)
}

fn unusable(error: impl Display) -> UrlError {
    UrlError::new(error.to_string())
}

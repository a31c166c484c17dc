use deadpool_redis::{PoolError, redis::RedisError};
use thiserror::Error;

/// An error of the store. A failed write may have happened, or may happen later, when another holder has the lock.
/// No lock can prevent that, but a fencing token that the store checks can.
#[derive(Debug, Error)]
#[non_exhaustive]
pub(crate) enum StoreError {
    #[error("no connection to the store")]
    Connection(#[from] PoolError),
    #[error("the store failed")]
    Command(#[from] RedisError),
    #[error("the people in line cannot be serialised")]
    Line(#[from] serde_json::Error),
}

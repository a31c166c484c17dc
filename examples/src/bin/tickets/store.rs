//! The sales.

mod shared;

use std::sync::Arc;

use anyhow::{Context, Result};
use deadpool_redis::{PoolError, redis::RedisError};
use redlock_axum::Locked;
use redlock_examples::lock;
use thiserror::Error;

pub(crate) use self::shared::SharedStore;
use crate::{
    event::{Event, Sales},
    line::Person,
    refusal::Refusal,
};

/// The store of the sales: the events of this process, or a Redis server that processes share.
///
/// A sale takes two steps: it reads the owner of the seat, and writes a new one. The store does not make them
/// atomic.
#[derive(Clone, Debug)]
pub(crate) enum Store {
    Embedded,
    Shared(Arc<SharedStore>),
}

/// An error of the store. A failed write may have happened, or may happen later, when another holder has the lock.
/// No lock can prevent that, but a fencing token that the store checks can.
#[derive(Debug, Error)]
pub(crate) enum StoreError {
    #[error("no connection to the store")]
    Connection(#[from] PoolError),
    #[error("the store failed")]
    Command(#[from] RedisError),
    #[error("the people in line cannot be serialised")]
    Line(#[from] serde_json::Error),
}

impl Store {
    /// Opens the Redis at the URL, or an empty store in this process.
    pub(crate) fn open(url: Option<&str>) -> Result<Self> {
        let Some(url) = url else {
            return Ok(Self::Embedded);
        };
        let store = SharedStore::open(url).context("--data is not a Redis URL")?;
        Ok(Self::Shared(Arc::new(store)))
    }

    /// Returns the owner of a seat, if it is sold.
    pub(crate) async fn owner(
        &self,
        event: &Event,
        seat: u32,
    ) -> Result<Option<String>, StoreError> {
        match self {
            Self::Embedded => {
                let sales = lock(&event.sales);
                Ok(sales.sold.get(&seat).map(|sale| sale.owner.clone()))
            }
            Self::Shared(store) => store.owner(event.name.as_str(), seat).await,
        }
    }

    /// Returns the sales of an event, and the people in line in other processes.
    pub(crate) async fn read(&self, event: &Event) -> Result<(Sales, Vec<Person>), StoreError> {
        match self {
            Self::Embedded => Ok((lock(&event.sales).clone(), Vec::new())),
            Self::Shared(store) => {
                let (sales, people) = store.read(event.name.as_str()).await?;
                // For the time when the store does not answer.
                *lock(&event.sales) = sales.clone();
                Ok((sales, people))
            }
        }
    }

    /// Writes the new owner of a seat, who has paid, or frees the seat. Checks the lock just before. To connect to the
    /// store may take a while, and so comes before the check.
    pub(crate) async fn write(
        &self,
        event: &Event,
        seat: u32,
        owner: Option<&str>,
        locked: Option<&Locked>,
    ) -> Result<(), Refusal> {
        let connection = match self {
            Self::Embedded => None,
            Self::Shared(store) => Some(store.connection().await?),
        };
        if let Some(locked) = locked {
            locked.ensure()?;
        }
        match (connection, owner) {
            (None, Some(owner)) => lock(&event.sales).sell(seat, owner),
            (None, None) => drop(lock(&event.sales).sold.remove(&seat)),
            (Some(connection), owner) => {
                shared::write(connection, event.name.as_str(), seat, owner).await?;
            }
        }
        Ok(())
    }
}

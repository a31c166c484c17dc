//! The sales.

mod shared;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use anyhow::{Context, Result};
use deadpool_redis::{PoolError, redis::RedisError};
use redlock_examples::lock;
use thiserror::Error;

pub(crate) use self::shared::SharedStore;
use self::shared::SharedTill;
use crate::{
    event::{Event, Sales},
    line::Person,
};

/// The store of the sales: this process, or a Redis server that processes share.
///
/// A sale takes two steps: it reads the owner of the seat, and writes a new one. The store does not make them
/// atomic.
#[derive(Clone, Debug)]
pub(crate) enum Store {
    Embedded(Arc<EmbeddedStore>),
    Shared(Arc<SharedStore>),
}

/// The sales of each event, by its name.
type EmbeddedStore = Mutex<BTreeMap<String, Sales>>;

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
            return Ok(Self::Embedded(Arc::default()));
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
        let event = event.name.as_str();
        match self {
            Self::Embedded(store) => {
                let store = lock(store);
                let sale = store.get(event).and_then(|sales| sales.sold.get(&seat));
                Ok(sale.map(|sale| sale.owner.clone()))
            }
            Self::Shared(store) => store.owner(event, seat).await,
        }
    }

    /// Opens the till, which writes a sale. To open the till may take a while, and to write does not. So open the
    /// till before the last check of the lock.
    pub(crate) async fn till(&self) -> Result<Till<'_>, StoreError> {
        Ok(match self {
            Self::Embedded(store) => Till::Embedded(store),
            Self::Shared(store) => Till::Shared(store.till().await?),
        })
    }

    /// Returns the sales of an event, and the people in line in other processes.
    pub(crate) async fn read(&self, event: &Event) -> Result<(Sales, Vec<Person>), StoreError> {
        let event = event.name.as_str();
        match self {
            Self::Embedded(store) => {
                let sales = lock(store).get(event).cloned();
                Ok((sales.unwrap_or_default(), Vec::new()))
            }
            Self::Shared(store) => store.read(event).await,
        }
    }
}

/// Writes a sale in one step.
pub(crate) enum Till<'a> {
    Embedded(&'a EmbeddedStore),
    Shared(SharedTill),
}

impl Till<'_> {
    /// Writes the new owner of a seat, who has paid.
    pub(crate) async fn sell(self, event: &Event, seat: u32, to: &str) -> Result<(), StoreError> {
        let event = event.name.as_str();
        match self {
            Self::Embedded(store) => {
                let mut store = lock(store);
                store.entry(event.to_owned()).or_default().sell(seat, to);
                Ok(())
            }
            Self::Shared(till) => till.sell(event, seat, to).await,
        }
    }

    /// Frees a seat.
    pub(crate) async fn take_back(self, event: &Event, seat: u32) -> Result<(), StoreError> {
        let event = event.name.as_str();
        match self {
            Self::Embedded(store) => {
                if let Some(sales) = lock(store).get_mut(event) {
                    sales.sold.remove(&seat);
                }
                Ok(())
            }
            Self::Shared(till) => till.take_back(event, seat).await,
        }
    }
}

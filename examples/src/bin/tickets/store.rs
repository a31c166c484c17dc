//! What is sold.

mod embedded;
mod shared;

use std::{collections::BTreeMap, sync::Arc};

use anyhow::{Context, Result};
use deadpool_redis::{PoolError, redis::RedisError};
use thiserror::Error;

pub(crate) use self::shared::SharedStore;
use self::{embedded::EmbeddedStore, shared::SharedTill};
use crate::{event::Event, line::Person};

/// Where sales are kept: in this process, or in a Redis that processes share.
///
/// A seat is sold in two steps: its owner is read, and one is written. Nothing here makes them one.
#[derive(Clone, Debug)]
pub(crate) enum Store {
    Embedded(Arc<EmbeddedStore>),
    Shared(Arc<SharedStore>),
}

/// What is sold of an event.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sales {
    /// By seat, those that have an owner.
    pub(crate) sold: BTreeMap<u32, Sale>,
    /// How often a seat was sold that was sold already: what the lock is there to prevent.
    pub(crate) sold_twice: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Sale {
    pub(crate) owner: String,
    /// How many people have paid for the seat.
    pub(crate) payments: u32,
}

/// Why the store has not answered. If it was asked to write, it may have done so, or do so later, when the
/// lock is another's: that no lock can prevent, but a fencing token that the store checks.
#[derive(Debug, Error)]
#[non_exhaustive]
pub(crate) enum StoreError {
    #[error("no connection to the store")]
    Connection(#[from] PoolError),
    #[error("the store failed")]
    Command(#[from] RedisError),
    #[error("who lines up cannot be told")]
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

    /// Returns whose the seat is, if it is sold.
    pub(crate) async fn owner(
        &self,
        event: &Event,
        seat: u32,
    ) -> Result<Option<String>, StoreError> {
        let event = event.name.as_str();
        match self {
            Self::Embedded(store) => Ok(store.owner(event, seat)),
            Self::Shared(store) => store.owner(event, seat).await,
        }
    }

    /// Opens the till, where a sale is written down. That may take a while, and writing does not: open it
    /// before the last look at the lock.
    pub(crate) async fn till(&self) -> Result<Till<'_>, StoreError> {
        Ok(match self {
            Self::Embedded(store) => Till::Embedded(store),
            Self::Shared(store) => Till::Shared(store.till().await?),
        })
    }

    /// Returns what is sold of an event, and who lines up for it in other processes.
    pub(crate) async fn read(&self, event: &Event) -> Result<(Sales, Vec<Person>), StoreError> {
        let event = event.name.as_str();
        match self {
            Self::Embedded(store) => Ok((store.sales(event), Vec::new())),
            Self::Shared(store) => store.read(event).await,
        }
    }
}

/// Where a sale is written down, in one step.
pub(crate) enum Till<'a> {
    Embedded(&'a EmbeddedStore),
    Shared(SharedTill),
}

impl Till<'_> {
    /// Writes down that somebody has paid for the seat and owns it.
    pub(crate) async fn sell(self, event: &Event, seat: u32, to: &str) -> Result<(), StoreError> {
        let event = event.name.as_str();
        match self {
            Self::Embedded(store) => {
                store.sell(event, seat, to);
                Ok(())
            }
            Self::Shared(till) => till.sell(event, seat, to).await,
        }
    }

    /// Writes down that the seat is free again.
    pub(crate) async fn take_back(self, event: &Event, seat: u32) -> Result<(), StoreError> {
        let event = event.name.as_str();
        match self {
            Self::Embedded(store) => {
                store.take_back(event, seat);
                Ok(())
            }
            Self::Shared(till) => till.take_back(event, seat).await,
        }
    }
}

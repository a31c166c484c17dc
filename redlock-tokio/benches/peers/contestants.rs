//! The contestants: floors, rivals, and this crate's lock.

mod multiplexed;
mod ours;
#[allow(dead_code, reason = "contention has pings, too")]
#[path = "../shared/plain.rs"]
mod plain;
mod pool_get;
mod rslock;
mod sockets;
#[path = "../shared/wire.rs"]
mod wire;

pub(crate) use self::{
    multiplexed::Multiplexed,
    ours::{Dropped, Ours},
    pool_get::PoolGet,
    rslock::Rslock,
    sockets::Sockets,
};

use crate::{Result, contestant::Contestant, racer::Racer};

/// Connects all of them.
pub(crate) async fn all(urls: &[String]) -> Result<Vec<Box<dyn Racer>>> {
    let ours = Ours::connect(urls).await?;
    Ok(vec![
        Box::new(Sockets::connect(urls).await?),
        Box::new(Multiplexed::connect(urls).await?),
        Box::new(Rslock::connect(urls).await?),
        Box::new(PoolGet::connect(urls).await?),
        Box::new(Dropped::from(ours.clone())),
        Box::new(ours),
    ])
}

/// Connects those of them that are whole locks.
pub(crate) async fn locks(urls: &[String]) -> Result<Vec<Box<dyn Racer>>> {
    let ours = Ours::connect(urls).await?;
    Ok(vec![
        Box::new(Rslock::connect(urls).await?),
        Box::new(Dropped::from(ours.clone())),
        Box::new(ours),
    ])
}

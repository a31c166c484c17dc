use std::thread;

use crate::{
    Result,
    bed::{self, Bed, MAX_TTL, NODES},
    settings::{Breakage, Settings},
    support::{Cli, MS},
};

/// What is left when all workers have ended.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Leftovers {
    /// How many writes did not show in their counter's value.
    pub(crate) lost_updates: u64,
    /// How many keys were on how many nodes at once, and a ttl later.
    pub(crate) keys: u64,
    pub(crate) orphans: u64,
}

impl Leftovers {
    /// Looks for them, which takes a ttl.
    pub(crate) fn find(bed: &Bed, settings: &Settings) -> Result<Self> {
        let keys = || (0..NODES).map(|it| bed.cli(it).locks().len() as u64).sum();
        if settings.breakage == Some(Breakage::Leak) {
            bed.cli(0).set("soak:leaked", "by itself");
        }
        let at_once = keys();
        // What is not there need not be waited for when it does not matter.
        if at_once > 0 || settings.breakage.is_none() {
            thread::sleep(MAX_TTL + MS(200));
        }
        Ok(Self {
            lost_updates: lost_updates(&Cli::of(bed.store()))?,
            keys: at_once,
            orphans: keys(),
        })
    }
}

fn lost_updates(store: &Cli) -> Result<u64> {
    let number =
        |name: &str| -> Result<u64> { Ok(store.get(name).map_or(Ok(0), |it| it.parse())?) };
    let mut lost = 0;
    for key in 0..bed::KEYS {
        let (value, writes) = (number(&bed::name(key))?, number(&bed::writes(key))?);
        lost += writes
            .checked_sub(value)
            .ok_or("more was counted than written")?;
    }
    Ok(lost)
}

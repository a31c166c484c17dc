use std::thread;

use crate::{
    Result,
    bed::{self, Bed},
    report::Damage,
    settings::{Breakage, Settings},
    support::{Cli, MS},
    topology::MAX_TTL,
};

/// Inspects the servers after all workers have ended, which takes a ttl. Returns the damage.
pub(crate) fn find(bed: &Bed, settings: &Settings) -> Result<[Damage; 2]> {
    let voters = bed.voters();
    if settings.breakage == Some(Breakage::Leak) {
        voters[0].set("soak:leaked", "by itself");
    }
    // A negative control looks for keys that stay by themselves.
    if settings.breakage.is_none() {
        thread::sleep(MAX_TTL + MS(200));
    }
    Ok([
        ("lost updates", lost_updates(&Cli::of(bed.store()))?),
        ("orphan keys", voters.iter().map(locks).sum()),
    ])
}

/// Returns how many locks a server has. On a cluster, the names have a tag in front.
fn locks(server: &Cli) -> u64 {
    let names = server.run(&["KEYS", "*soak:*"]);
    // The counters of fences stay by design, and a line expires some seconds after a farewell that a fault has
    // swallowed.
    let others = ["redlock:fence:", "redlock:line:"];
    let is_lock = |it: &&str| !it.is_empty() && !others.iter().any(|other| it.contains(other));
    names.lines().filter(is_lock).count() as u64
}

fn lost_updates(store: &Cli) -> Result<u64> {
    let number =
        |name: &str| -> Result<u64> { Ok(store.get(name).map_or(Ok(0), |it| it.parse())?) };
    let lost = |key| {
        let (value, writes) = (number(&bed::name(key))?, number(&bed::writes(key))?);
        let lost = writes.checked_sub(value);
        lost.ok_or_else(|| "a counter exceeds the number of its writes".into())
    };
    (0..bed::SLOTS.end).map(lost).sum()
}

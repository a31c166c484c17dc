use super::{Bench, column};
use crate::{
    Result,
    bed::{Bed, NODES},
    contestants::{Access, Name},
    group::Group,
};

/// Measures clients of several kinds beside each other, and prints a table.
pub(super) fn measure(bench: &mut Bench) -> Result<()> {
    let mixes = bench.mixes.clone();
    let columns = [
        column::CLIENT,
        column::ENTRIES,
        column::OF_ALL,
        column::BUSY,
        column::COMMANDS_PER_S,
        column::P99,
        column::LONGEST,
        column::IN_ORDER,
        column::RATIO,
        column::SHUT_OUT,
    ];
    let bed = Bed::at([bench.distance; NODES])?;
    bench.table(&bed, "Many processes, one key", mixes, &columns);
    Ok(())
}

/// Returns the groups that the command line calls so, such as `8x1+poller`: eight processes with one task each, beside
/// a client of another kind.
pub(crate) fn mix(text: &str) -> Result<Vec<Group>> {
    let one = Group::ours(1, 1);
    let groups = text.split('+').map(|group| {
        Ok(match group {
            "poller" => one.wants(Access::TryLock),
            "newcomers" => Group::ours(1, 8).of(Name::Newcomers),
            "node-redlock" => one.of(Name::NodeRedlock),
            "redis-semaphore" => one.of(Name::RedisSemaphore),
            ours => {
                let numbers = ours.split_once('x').ok_or(format!("what is {ours}?"))?;
                Group::ours(numbers.0.parse()?, numbers.1.parse()?)
            }
        })
    });
    groups.collect()
}

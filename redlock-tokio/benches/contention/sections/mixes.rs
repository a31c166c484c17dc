use super::Sections;
use crate::{
    Result, column,
    group::Group,
    shared::contestants::{Access, Name},
};

/// Measures clients of several kinds beside each other, and prints a table.
pub(super) fn measure(sections: &mut Sections<'_>, mixes: &[Vec<Group>]) {
    println!(
        "## Clients of several kinds, one key, {:.1} s each\n\n\
         Every task holds the lock, sleeps for a millisecond (which takes tokio's timer another one), releases \
         it and asks again at once. *In order* is how long each would \
         wait if all were served in the order in which they come: the holds of all others. A process is \
         *shut out* from one of its entries to its next, or from the beginning or to the end.\n",
        sections.time.as_secs_f64(),
    );
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
    sections.table("Mixes", mixes.iter().cloned(), &columns);
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
            "redis-py" => one.of(Name::RedisPy),
            ours => {
                let numbers = ours.split_once('x').ok_or(format!("what is {ours}?"))?;
                Group::ours(numbers.0.parse()?, numbers.1.parse()?)
            }
        })
    });
    groups.collect()
}

use super::{Bench, column};
use crate::{Result, bed::Bed, contestants::Name, group::Group};

const TASKS: [usize; 4] = [1, 8, 64, 256];
const CONTESTANTS: [Name; 4] = [Name::Plain, Name::Rslock, Name::Dropped, Name::Ours];

/// How many cycles there are where nobody competes: each task has a key of its own.
pub(super) fn measure(bench: &mut Bench) -> Result<()> {
    let cells = Group::cells_of_own_keys(&CONTESTANTS, &TASKS);
    let columns = [
        column::CONTESTANT,
        column::TASKS,
        column::CYCLES,
        column::ACQUIRE_P50,
        column::P99,
        column::RELEASE_P50,
        column::RELEASE_P99,
    ];
    bench.table(&Bed::near()?, "Own keys", cells, &columns);
    Ok(())
}

use std::time::Duration;

use super::{Bench, column};
use crate::{
    Result,
    bed::{Bed, NODES},
    contestants::Name,
    group::Group,
    nodes, table,
};

const TASKS: [usize; 2] = [1, 64];
const CONTESTANTS: [Name; 3] = [Name::Rslock, Name::Dropped, Name::Ours];

/// In milliseconds, there and back.
const DISTANCES: [[u64; NODES]; 2] = [[5; NODES], [1, 1, 1, 20, 20]];

/// What a lock costs when the nodes are far away, so that round trips are all that counts.
pub(super) fn measure(bench: &mut Bench) -> Result<()> {
    for distances in DISTANCES {
        let bed = Bed::at(distances.map(Duration::from_millis))?;
        let nearest = bed.runtime.block_on(nodes::round_trip(&bed.urls))?;
        let cells = Group::cells_of_own_keys(&CONTESTANTS, &TASKS);
        let columns = [
            column::CONTESTANT,
            column::TASKS,
            column::CYCLES,
            column::ACQUIRE_P50,
            column::P99,
            ("in round trips", &|it| {
                table::ratio(it.history.waits().p50_us, nearest)
            }),
            column::RELEASE_P50,
            ("in round trips", &|it| {
                table::ratio(it.history.releases().p50_us, nearest)
            }),
        ];
        let title = format!(
            "Far nodes: {distances:?} ms, a bare round trip {}",
            table::time(nearest)
        );
        bench.table(&bed, &title, cells, &columns);
    }
    Ok(())
}

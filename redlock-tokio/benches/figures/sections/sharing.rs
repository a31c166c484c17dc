use std::time::Duration;

use super::{Bench, column};
use crate::{
    Result,
    bed::Bed,
    contestants::{Access, Name},
    group::Group,
};

const SHORT: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_millis(20);

/// What it costs that several hold at once.
pub(super) fn measure(bench: &mut Bench) -> Result<()> {
    let mut cells = Vec::new();
    for access in [Access::Lock, Access::Permit(4), Access::Read, Access::Write] {
        cells.push(vec![Group::ours(1, 1).wants(access)]);
    }
    for access in [Access::Lock, Access::Permit(4), Access::Read] {
        let tasks = Group::ours(1, 32).wants(access).spins(Duration::ZERO);
        cells.extend([Name::InProcess, Name::Ours].map(|it| vec![tasks.of(it)]));
    }
    for permits in [1, 4, 16].map(Access::Permit) {
        for hold in [SHORT, LONG] {
            let tasks = Group::ours(4, 8).wants(permits).holds(hold);
            cells.extend([Name::RedisSemaphore, Name::Ours].map(|it| vec![tasks.of(it)]));
        }
    }
    let many = Group::ours(4, 50).wants(Access::Permit(100));
    cells.push(vec![many.holds(Duration::from_millis(10))]);
    for writers in [1, 4] {
        for hold in [SHORT, LONG] {
            let readers = Group::ours(4, 4).wants(Access::Read);
            let writers = Group::ours(writers, 1).wants(Access::Write);
            cells.push(vec![readers.holds(hold), writers.holds(hold)]);
        }
    }
    for processes in [4, 16, 48] {
        let tasks = Group::ours(processes, 1).wants(Access::Permit(4));
        cells.push(vec![tasks.holds(LONG)]);
    }
    let columns = [
        column::CLIENT,
        column::HOLD,
        column::ENTRIES,
        column::P50,
        column::P99,
        column::LONGEST_GAP,
        column::AT_ONCE,
        column::COMMANDS,
        column::ATTEMPTS,
        column::SERVER_TIME,
    ];
    bench.table(
        &Bed::near()?,
        "Permits, readers and writers",
        cells,
        &columns,
    );
    Ok(())
}

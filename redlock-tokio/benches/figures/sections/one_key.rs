use std::time::Duration;

use super::{
    Bench,
    column::{self, Column},
};
use crate::{Result, bed::Bed, contestants::Name, group::Group};

const TASKS: [usize; 3] = [8, 32, 128];
const CONTESTANTS: [Name; 3] = [Name::Plain, Name::Rslock, Name::Ours];

/// How many tasks of one process, and of four, share one key.
pub(super) fn measure(bench: &mut Bench) -> Result<()> {
    let bed = Bed::near()?;
    let mut run = |processes: usize, hold: Duration, more: &[Column]| {
        let cells = TASKS.into_iter().flat_map(|tasks| {
            // A timer would not be as precise.
            let group = Group::ours(processes, tasks / processes).spins(hold);
            CONTESTANTS.map(|it| vec![group.of(it)])
        });
        let title = format!("One key, {processes} processes, hold {hold:?}");
        let columns = [
            column::CONTESTANT,
            column::TASKS,
            column::ENTRIES,
            column::P50,
            column::P99,
            column::MAX,
        ];
        bench.table(&bed, &title, cells, &[&columns, more].concat());
    };
    let within_one = [column::MAX_BY_MIN, column::COMMANDS];
    run(1, Duration::ZERO, &within_one);
    let among_four = [column::PROCESS_SHARE, column::COMMANDS, column::BUSY];
    run(4, Duration::from_millis(1), &among_four);
    Ok(())
}

use std::time::Duration;

use super::Sections;
use crate::{
    column::{self, Column},
    group::Group,
    shared::contestants::Name,
};

const TASKS: [usize; 3] = [8, 32, 128];
const CONTESTANTS: [Name; 3] = [Name::Floor, Name::Rslock, Name::Ours];

/// Many tasks, one key.
pub(super) fn measure(sections: &mut Sections<'_>) {
    println!(
        "## One key, five nodes, {:.1} s each\n\n\
         A hold of 1 ms spins on the clock and yields, since a timer would not be as precise. A wait \
         that the end cut off counts with what it had lasted. Commands are those of all nodes together, and of \
         scripts too: without contention an entry takes 20.\n",
        sections.time.as_secs_f64(),
    );
    let mut run = |processes: usize, hold: Duration, more: &[Column]| {
        let cells = TASKS.into_iter().flat_map(|tasks| {
            let group = Group::ours(processes, tasks / processes).spins(hold);
            CONTESTANTS.map(|it| vec![group.of(it)])
        });
        let title = format!("Processes: {processes}, hold {} ms", hold.as_millis());
        let columns = [
            column::CONTESTANT,
            column::TASKS,
            column::ENTRIES,
            column::P50,
            column::P99,
            column::MAX,
        ];
        sections.table(&title, cells, &[&columns, more].concat());
    };
    let within_one = [column::MAX_BY_MIN, column::COMMANDS];
    run(1, Duration::ZERO, &within_one);
    let among_four = [column::PROCESS_SHARE, column::COMMANDS, column::BUSY];
    run(4, Duration::from_millis(1), &among_four);
}

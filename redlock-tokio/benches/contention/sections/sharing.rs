use std::time::Duration;

use super::Sections;
use crate::{
    column::{self, Column},
    group::Group,
    shared::contestants::{Access, Name},
};

const SHORT: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_millis(20);

const COLUMNS: [Column; 11] = [
    column::CONTESTANT,
    column::ACCESS,
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

/// Measures what several may hold at once, and prints tables.
pub(super) fn measure(sections: &mut Sections<'_>) {
    println!(
        "## What several may hold at once, {:.1} s each\n\n\
         A hold sleeps, which takes tokio's timer a millisecond more. *At once* is the most that were in at the same \
         time. An *attempt* is a `SET` at all nodes. *Server time* is that of all nodes together.\n",
        sections.time.as_secs_f64(),
    );
    let mut run = |title: &str, contestants: &[Name], groups: &[Group], holds: &[Duration]| {
        let cells = holds.iter().flat_map(|&hold| {
            let groups = groups.iter().map(move |it| it.holds(hold));
            contestants
                .iter()
                .map(move |&contestant| groups.clone().map(|it| it.of(contestant)).collect())
        });
        sections.table(title, cells, &COLUMNS);
    };
    let ours = &[Name::Ours][..];
    let permits = |permits, processes, tasks| {
        let group = Group::ours(processes, tasks);
        [group.wants(Access::Permit(permits))]
    };
    for access in [Access::Lock, Access::Permit(4), Access::Read, Access::Write] {
        let group = Group::ours(1, 1).wants(access);
        run(&format!("{access}, one task"), ours, &[group], &[SHORT]);
    }
    let beside_tokio = &[Name::InProcess, Name::Ours][..];
    for access in [Access::Lock, Access::Permit(4), Access::Read] {
        let title = format!("{access}, 32 tasks of one process, which do nothing under the lock");
        let group = Group::ours(1, 32).wants(access).spins(Duration::ZERO);
        run(&title, beside_tokio, &[group], &[Duration::ZERO]);
    }
    let with_rival = &[Name::NoLock, Name::RedisSemaphore, Name::Ours][..];
    for count in [1, 4, 16] {
        let title = format!("{}, 4 processes of 8 tasks", Access::Permit(count));
        run(&title, with_rival, &permits(count, 4, 8), &[SHORT, LONG]);
    }
    for processes in [4, 16, 48] {
        let title = format!("4 permits, {processes} processes of 1 task");
        run(&title, ours, &permits(4, processes, 1), &[LONG]);
    }
    let hold = Duration::from_millis(10);
    let title = "100 permits, 4 processes of 50 tasks";
    run(title, ours, &permits(100, 4, 50), &[hold]);
    let beside_nothing = &[Name::NoLock, Name::Ours][..];
    for writers in [1, 4] {
        let title = format!("4 processes of 4 readers, {writers} of 1 writer");
        let groups = [
            Group::ours(4, 4).wants(Access::Read),
            Group::ours(writers, 1).wants(Access::Write),
        ];
        run(&title, beside_nothing, &groups, &[SHORT, LONG]);
    }
}

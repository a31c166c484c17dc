use std::time::Duration;

use comfy_table::Table;

use crate::{
    Result,
    access::Access,
    contestants::Name,
    history::{History, TaskHistory},
    order::{Order, Stay},
    table,
    test_bed::{NODES, TestBed},
    times::{Summary, us},
};

const NO_HOLD: Duration = Duration::ZERO;
const SHORT: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_millis(20);

/// Tasks that want one key in the same way.
#[derive(Clone, Copy)]
struct Group {
    access: Access,
    processes: usize,
    /// Of each process.
    tasks: usize,
}

/// The outcome for the tasks of one group, which wanted a key beside those of other groups.
struct Crowd {
    contestant: Name,
    access: Access,
    hold: Duration,
    entries_per_s: f64,
    wait: Summary,
    /// The longest time in which none of them entered.
    longest_gap_us: f64,
    most_at_once: usize,
    /// These are shared among the entries of all groups.
    commands_per_entry: f64,
    /// How often a node was asked to set a key, for each entry.
    attempts_per_entry: f64,
    server_us_per_entry: f64,
}

/// Measures what several may hold at once, and prints tables.
pub(super) fn measure(bed: &TestBed, time: Duration, failures: &mut Vec<String>) {
    println!(
        "## What several may hold at once, {:.1} s each\n\n\
         A hold sleeps, which takes tokio's timer a millisecond more. *At once* is the most that were in at the same \
         time. An *attempt* is a `SET` at all nodes. *Server time* is that of all nodes together. A round trip is {}.\n",
        time.as_secs_f64(),
        bed.round_trip
    );
    let mut run = |title: &str, contestants: &[Name], groups: &[Group], holds: &[Duration]| {
        let mut crowds = Vec::new();
        for &hold in holds {
            for &contestant in contestants {
                match Crowd::measure(bed, contestant, groups, hold, time) {
                    Ok((of_groups, complaint)) => {
                        failures.extend(complaint);
                        crowds.extend(of_groups);
                    }
                    Err(error) => println!("NOT RUN: {contestant}: {error}\n"),
                }
            }
        }
        println!("### {title}\n\n{}\n", Crowd::table(&crowds));
    };
    let group = |access, processes, tasks| Group {
        access,
        processes,
        tasks,
    };
    let ours = &[Name::OursShared][..];
    for access in [Access::Lock, Access::Permit(4), Access::Read, Access::Write] {
        let title = format!("{access}, one task");
        run(&title, ours, &[group(access, 1, 1)], &[SHORT]);
    }
    let beside_tokio = &[Name::InProcess, Name::OursShared][..];
    for access in [Access::Lock, Access::Permit(4), Access::Read] {
        let title = format!("{access}, 32 tasks of one process");
        run(&title, beside_tokio, &[group(access, 1, 32)], &[NO_HOLD]);
    }
    let with_rival = &[Name::NoLock, Name::RedisSemaphore, Name::OursShared][..];
    for access in [1, 4, 16].map(Access::Permit) {
        let title = format!("{access}, 4 processes of 8 tasks");
        run(&title, with_rival, &[group(access, 4, 8)], &[SHORT, LONG]);
    }
    for processes in [4, 16, 48] {
        let title = format!("4 permits, {processes} processes of 1 task");
        let groups = [group(Access::Permit(4), processes, 1)];
        run(&title, ours, &groups, &[LONG]);
    }
    let title = "100 permits, 4 processes of 50 tasks";
    let hold = Duration::from_millis(10);
    run(title, ours, &[group(Access::Permit(100), 4, 50)], &[hold]);
    let beside_nothing = &[Name::NoLock, Name::OursShared][..];
    for writers in [1, 4] {
        let title = format!("4 processes of 4 readers, {writers} of 1 writer");
        let groups = [group(Access::Read, 4, 4), group(Access::Write, writers, 1)];
        run(&title, beside_nothing, &groups, &[SHORT, LONG]);
    }
}

impl Crowd {
    /// Measures these groups beside each other. Also says if some were in who must not be in together, or if that would
    /// not have been noticed.
    fn measure(
        bed: &TestBed,
        contestant: Name,
        groups: &[Group],
        hold: Duration,
        time: Duration,
    ) -> Result<(Vec<Self>, Option<String>)> {
        let key = bed.new_key();
        let order = |group: &Group| Order {
            urls: bed.urls.clone(),
            contestant,
            key: key.clone(),
            access: group.access,
            tasks: group.tasks,
            hold,
            stay: if hold.is_zero() {
                Stay::Awake
            } else {
                Stay::Asleep
            },
        };
        let orders = groups.iter().flat_map(|it| vec![order(it); it.processes]);
        let orders: Vec<_> = orders.collect();
        let outcome = bed.carry_out(&orders, time)?;
        let all = outcome.history();
        if let (1.., Some(first)) = all.failures() {
            return Err(first.into());
        }
        let entries = all.entries().max(1) as f64;
        let histories = outcome.of_groups(groups.iter().map(|it| it.processes));
        let mut crowds = Vec::new();
        for (group, history) in groups.iter().zip(histories) {
            crowds.push(Self {
                contestant,
                access: group.access,
                hold,
                entries_per_s: history.entries_per_s(),
                wait: history.waits()?.summary(),
                longest_gap_us: us(history.longest_without_entry()),
                most_at_once: history.most_at_once(),
                commands_per_entry: outcome.commands / entries,
                attempts_per_entry: outcome.sets / NODES as f64 / entries,
                server_us_per_entry: outcome.server_us / entries,
            });
        }
        let clashes = clashes(&orders, &outcome.processes, &all);
        let complaint = match contestant {
            Name::OursShared | Name::InProcess if clashes > 0 => Some(format!(
                "{contestant}: {clashes} clashes of {}",
                orders[0].access
            )),
            Name::NoLock if clashes == 0 => {
                Some("no clash was seen without a lock, so none would be seen with one".into())
            }
            _ => None,
        };
        Ok((crowds, complaint))
    }

    fn table(crowds: &[Self]) -> Table {
        let columns: &[table::Column<'_, Self>] = &[
            ("contestant", &|it| it.contestant.to_string()),
            ("", &|it| it.access.to_string()),
            ("hold", &|it| format!("{} ms", it.hold.as_millis())),
            ("entries/s", &|it| table::whole(it.entries_per_s)),
            ("wait p50", &|it| table::time(it.wait.p50_us)),
            ("p99", &|it| table::time(it.wait.p99_us)),
            ("longest gap", &|it| table::time(it.longest_gap_us)),
            ("at once", &|it| it.most_at_once.to_string()),
            ("commands per entry", &|it| {
                format!("{:.1}", it.commands_per_entry)
            }),
            ("attempts per entry", &|it| {
                format!("{:.2}", it.attempts_per_entry)
            }),
            ("server time per entry", &|it| {
                format!("{:.1} us", it.server_us_per_entry)
            }),
        ];
        table::of(crowds, columns)
    }
}

/// Counts the entries into a key that is taken.
fn clashes(orders: &[Order], processes: &[Vec<TaskHistory>], all: &History) -> usize {
    let allowed = match orders[0].access {
        Access::Lock | Access::TryLock | Access::LockAll => 1,
        Access::Permit(permits) => permits,
        Access::Read | Access::Write => return beside_writers(orders, processes),
    };
    all.most_at_once().saturating_sub(allowed)
}

/// Counts the entries of writers beside anybody, and those of readers beside a writer.
fn beside_writers(orders: &[Order], processes: &[Vec<TaskHistory>]) -> usize {
    let mut holds = Vec::new();
    for (order, tasks) in orders.iter().zip(processes) {
        let is_writer = order.access == Access::Write;
        let of_process = tasks.iter().flat_map(|task| &task.holds);
        holds.extend(of_process.map(|hold| (hold.entered, hold.left, is_writer)));
    }
    holds.sort_unstable();
    let (mut all_left, mut writers_left) = (0, 0);
    let clashes = holds.into_iter().filter(|&(entered, left, is_writer)| {
        let until = if is_writer { all_left } else { writers_left };
        all_left = all_left.max(left);
        if is_writer {
            writers_left = writers_left.max(left);
        }
        entered < until
    });
    clashes.count()
}

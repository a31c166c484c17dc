use std::time::Duration;

use serde::Serialize;

use crate::{
    Result,
    contestants::Name,
    history::History,
    order::{Access, Order, Stay},
    policy::Policy,
    table,
    test_bed::{NODES, TestBed},
    times::Summary,
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

/// Tasks that want one key, and what came of it for one group of them.
#[derive(Serialize)]
pub(crate) struct Crowd {
    contestant: Name,
    access: Access,
    processes: usize,
    tasks: usize,
    hold_ms: u128,
    entries_per_s: f64,
    wait: Summary,
    /// The longest time in which none of them entered.
    longest_gap_ms: f64,
    most_at_once: usize,
    commands_per_entry: f64,
    /// How often a node was asked to set a key, for each entry.
    attempts_per_entry: f64,
}

/// Measures semaphores, and prints tables.
pub(super) fn measure(bed: &TestBed, time: Duration, failures: &mut Vec<String>) -> Vec<Crowd> {
    println!(
        "## What several may hold at once, {:.1} s each\n\n\
         A hold sleeps, which takes tokio's timer a millisecond more. *At once* is the most that were in at the same \
         time. An *attempt* is a `SET` at all nodes.\n",
        time.as_secs_f64()
    );
    let permits = [1, 4, 16].map(Access::Permit);
    let mut crowds = Vec::new();
    let mut run = |title: &str, contestants: &[Name], group: Group, holds: &[Duration]| {
        let mut table = table::new(Crowd::HEADER);
        for &hold in holds {
            for &contestant in contestants {
                match Crowd::measure(bed, contestant, group, hold, time) {
                    Ok(crowd) => {
                        table.add_row(crowd.row());
                        failures.extend(crowd.complaint());
                        crowds.push(crowd);
                    }
                    Err(error) => println!("NOT RUN: {contestant}: {error}\n"),
                }
            }
        }
        println!("### {title}\n\n{table}\n");
    };
    for access in [Access::Lock, Access::Permit(4)] {
        let group = Group {
            access,
            processes: 1,
            tasks: 32,
        };
        let contestants = [Name::InProcess, Name::OursShared];
        let title = format!("{access}, 32 tasks of one process");
        run(&title, &contestants, group, &[NO_HOLD]);
    }
    for access in permits {
        let group = Group {
            access,
            processes: 4,
            tasks: 8,
        };
        let contestants = [Name::NoLock, Name::RedisSemaphore, Name::OursShared];
        let title = format!("{access}, 4 processes of 8 tasks");
        run(&title, &contestants, group, &[SHORT, LONG]);
    }
    for processes in [4, 16, 48] {
        let group = Group {
            access: Access::Permit(4),
            processes,
            tasks: 1,
        };
        let title = format!("4 permits, {processes} processes of 1 task");
        run(&title, &[Name::OursShared], group, &[LONG]);
    }
    crowds
}

impl Crowd {
    const HEADER: [&str; 9] = [
        "contestant",
        "hold",
        "entries/s",
        "wait p50",
        "p99",
        "longest gap",
        "at once",
        "commands per entry",
        "attempts per entry",
    ];

    fn measure(
        bed: &TestBed,
        contestant: Name,
        group: Group,
        hold: Duration,
        time: Duration,
    ) -> Result<Self> {
        let Group {
            access,
            processes,
            tasks,
        } = group;
        let order = Order {
            urls: bed.urls.clone(),
            contestant,
            policy: Policy::default(),
            key: bed.new_key(),
            access,
            tasks,
            hold,
            stay: if hold.is_zero() {
                Stay::Awake
            } else {
                Stay::Asleep
            },
        };
        let outcome = bed.carry_out(&vec![order; processes], time)?;
        let history = History::new(outcome.processes, outcome.window);
        if let (1.., Some(first)) = history.failures() {
            return Err(first.into());
        }
        let entries = history.entries().max(1) as f64;
        Ok(Self {
            contestant,
            access,
            processes,
            tasks,
            hold_ms: hold.as_millis(),
            entries_per_s: history.entries() as f64 / history.seconds(),
            wait: history.waits()?.summary(),
            longest_gap_ms: history.longest_without_entry().as_secs_f64() * 1e3,
            most_at_once: history.most_at_once(),
            commands_per_entry: outcome.commands / entries,
            attempts_per_entry: outcome.sets / NODES as f64 / entries,
        })
    }

    fn row(&self) -> [String; 9] {
        [
            self.contestant.to_string(),
            format!("{} ms", self.hold_ms),
            format!("{:.0}", self.entries_per_s),
            table::time(self.wait.p50_us),
            table::time(self.wait.p99_us),
            table::time(self.longest_gap_ms * 1e3),
            self.most_at_once.to_string(),
            format!("{:.1}", self.commands_per_entry),
            format!("{:.2}", self.attempts_per_entry),
        ]
    }

    /// Says if more were in than may be, or if that would not have been noticed.
    fn complaint(&self) -> Option<String> {
        let allowed = match self.access {
            Access::Lock => 1,
            Access::Permit(permits) => permits,
        };
        let (who, most) = (self.contestant, self.most_at_once);
        match who {
            Name::OursShared | Name::InProcess if most > allowed => {
                Some(format!("{who}: {most} held {} at once", self.access))
            }
            Name::NoLock if most <= allowed => Some(format!(
                "without a lock only {most} were in at once, so more would not be noticed with one"
            )),
            _ => None,
        }
    }
}

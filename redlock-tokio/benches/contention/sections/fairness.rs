use std::{collections::BTreeSet, fmt, time::Duration};

use comfy_table::Table;

use crate::{
    Result,
    access::Access,
    args::Args,
    contestants::Name,
    history::History,
    order::{Order, Stay},
    table,
    test_bed::TestBed,
    times::{Summary, us},
};

/// For how long each task sleeps while it holds the lock, which takes a millisecond more by tokio's timer. It
/// asks again at once.
pub(super) const HOLD: Duration = Duration::from_millis(1);

/// Clients of one kind in a mix.
#[derive(Clone, Copy)]
struct Group {
    contestant: Name,
    processes: usize,
    /// Of each process.
    tasks: usize,
}

/// Clients of several kinds that want the same key.
struct Mix {
    groups: &'static [Group],
    /// redis-py's lock knows of one node only.
    nodes: usize,
    /// A process with one key wants one of these. A process with several keys wants all of them.
    keys: usize,
}

const fn group(contestant: Name, processes: usize, tasks: usize) -> Group {
    Group {
        contestant,
        processes,
        tasks,
    }
}

const fn mix(groups: &'static [Group]) -> Mix {
    Mix {
        groups,
        nodes: 5,
        keys: 1,
    }
}

const BUSY: Group = group(Name::Ours, 1, 8);
const BUSY_FLEET: Group = group(Name::Ours, 4, 8);

const MIXES: [Mix; 26] = [
    mix(&[BUSY_FLEET]),
    mix(&[group(Name::OursResp2, 3, 8)]),
    mix(&[BUSY, group(Name::OursResp2, 1, 1)]),
    mix(&[BUSY, group(Name::OursOverPools, 3, 1)]),
    mix(&[BUSY, group(Name::NodeRedlock, 1, 1)]),
    mix(&[BUSY, group(Name::RedisSemaphore, 1, 1)]),
    Mix {
        nodes: 1,
        ..mix(&[BUSY, group(Name::RedisPy, 1, 1)])
    },
    mix(&[BUSY_FLEET, group(Name::OursResp2, 1, 1)]),
    mix(&[BUSY_FLEET, group(Name::NodeRedlock, 1, 1)]),
    mix(&[
        group(Name::RedisSemaphore, 1, 8),
        group(Name::NodeRedlock, 1, 1),
    ]),
    mix(&[BUSY]),
    mix(&[group(Name::Ours, 2, 8)]),
    mix(&[group(Name::Ours, 8, 4)]),
    mix(&[group(Name::Ours, 1, 1)]),
    mix(&[group(Name::Ours, 2, 1)]),
    mix(&[group(Name::Ours, 4, 1)]),
    mix(&[group(Name::Ours, 8, 1)]),
    mix(&[group(Name::Ours, 16, 1)]),
    mix(&[group(Name::Ours, 8, 8)]),
    mix(&[group(Name::Ours, 16, 8)]),
    Mix {
        keys: 4,
        ..mix(&[group(Name::OursSeveralKeys, 1, 1), group(Name::Ours, 16, 1)])
    },
    Mix {
        keys: 4,
        ..mix(&[group(Name::OursSeveralKeys, 4, 1), group(Name::Ours, 16, 1)])
    },
    mix(&[group(Name::Ours, 32, 1)]),
    mix(&[group(Name::Ours, 64, 1)]),
    mix(&[group(Name::Ours, 8, 1), group(Name::OursPoller, 1, 1)]),
    mix(&[group(Name::Ours, 8, 1), group(Name::OursNewcomers, 1, 8)]),
];

/// The outcome for the clients of one kind.
struct OfGroup {
    group: Group,
    history: History,
    waits: Summary,
}

/// The outcome of one mix.
struct Fair {
    mix: usize,
    all: History,
    busy: f64,
    commands: f64,
    /// How long each task would wait if all were served in the order in which they come.
    in_order_us: f64,
    of_groups: Vec<OfGroup>,
}

/// Measures clients of several kinds beside each other, and prints a table.
pub(super) fn measure(bed: &TestBed, args: &Args, mixes: &[usize], failures: &mut Vec<String>) {
    println!(
        "## Clients of several kinds, one key, {:.1} s each\n\n\
         Every task holds the lock, sleeps for {} ms (which takes tokio's timer a millisecond more), releases \
         it and asks again at once. *In order* is how long each would \
         wait if all were served in the order in which they come: the holds of all others. A process is \
         *shut out* from one of its entries to its next, or from the beginning or to the end.\n",
        args.time.as_secs_f64(),
        HOLD.as_millis(),
    );
    let mut fairness = Vec::new();
    for (number, mix) in (1..).zip(&MIXES) {
        if !mixes.is_empty() && !mixes.contains(&number) {
            continue;
        }
        match Fair::measure(bed, mix, number, args.time, failures) {
            Ok(fair) => fairness.push(fair),
            Err(error) => println!("NOT RUN: {mix}: {error}\n"),
        }
    }
    println!("{}\n", Fair::table(&fairness));
    for (number, mix) in (1..).zip(&MIXES) {
        println!("{number}: {mix}");
    }
    println!();
}

impl Fair {
    fn measure(
        bed: &TestBed,
        mix: &Mix,
        number: usize,
        time: Duration,
        failures: &mut Vec<String>,
    ) -> Result<Self> {
        let orders = mix.orders(bed);
        let outcome = bed.carry_out(&orders, time)?;
        let all = outcome.history();
        if let (1.., Some(first)) = all.failures() {
            return Err(first.into());
        }
        let histories = outcome.of_groups(mix.groups.iter().map(|it| it.processes));
        let mut of_groups = Vec::new();
        for (&group, history) in mix.groups.iter().zip(histories) {
            of_groups.push(OfGroup {
                group,
                waits: history.waits()?.summary(),
                history,
            });
        }
        let keys = mix.keys as f64;
        let mut busy = 0.0;
        for key in keys_of(&orders) {
            let wants = |(order, _): &(&Order, _)| order.key.split(',').any(|it| it == key);
            let of_key = orders.iter().zip(&outcome.processes).filter(wants);
            let of_key = of_key.map(|(_, tasks)| tasks.clone()).collect();
            let of_key = History::new(of_key, outcome.window.clone());
            if of_key.overlaps() > 0 {
                failures.push(format!(
                    "{mix}: {} holds of {key} overlap",
                    of_key.overlaps()
                ));
            }
            busy += of_key.busy() / keys;
        }
        let others = all.tasks().saturating_sub(1) as f64;
        Ok(Self {
            mix: number,
            busy,
            commands: outcome.commands,
            in_order_us: us(all.mean_hold()) * others / keys,
            all,
            of_groups,
        })
    }

    /// What is true of the whole mix is said in its first row only.
    fn table(fairness: &[Self]) -> Table {
        let of_all = |is_first: &bool, text: String| if *is_first { text } else { String::new() };
        let mut rows = Vec::new();
        for fair in fairness {
            let of_groups = fair.of_groups.iter().enumerate();
            rows.extend(of_groups.map(|(index, of_group)| (index == 0, fair, of_group)));
        }
        let columns: &[table::Column<'_, (bool, &Self, &OfGroup)>] = &[
            ("mix", &|(first, all, _)| of_all(first, all.mix.to_string())),
            ("entries/s", &|(first, all, _)| {
                of_all(first, table::whole(all.all.entries_per_s()))
            }),
            ("busy", &|(first, all, _)| {
                of_all(first, table::percent(all.busy))
            }),
            ("commands/s", &|(first, all, _)| {
                of_all(first, table::whole(all.commands / all.all.seconds()))
            }),
            ("client", &|(.., it)| {
                let Group {
                    contestant,
                    processes,
                    tasks,
                } = it.group;
                format!("{processes} x {tasks} {contestant}")
            }),
            ("entries", &|(.., it)| it.history.entries().to_string()),
            ("fewest", &|(.., it)| {
                let of_processes = it.history.entries_of_processes();
                of_processes.iter().min().unwrap_or(&0).to_string()
            }),
            ("p99", &|(.., it)| table::time(it.waits.p99_us)),
            ("longest", &|(.., it)| table::time(it.waits.max_us)),
            ("in order", &|(_, all, _)| table::time(all.in_order_us)),
            ("ratio", &|(_, all, it)| {
                table::ratio(it.waits.p99_us, all.in_order_us)
            }),
            ("shut out", &|(.., it)| {
                table::time(us(it.history.longest_shut_out()))
            }),
        ];
        table::of(&rows, columns)
    }
}

impl Mix {
    fn orders(&self, bed: &TestBed) -> Vec<Order> {
        // Which redis-semaphore puts in front of its keys.
        let key = |_| format!("mutex:{}", bed.new_key());
        let keys: Vec<_> = (0..self.keys).map(key).collect();
        let mut orders = Vec::new();
        for group in self.groups {
            for process in 0..group.processes {
                let own_key = || keys[process % self.keys].clone();
                let (key, access) = match group.contestant {
                    Name::OursSeveralKeys => (keys.join(","), Access::LockAll),
                    Name::OursPoller => (own_key(), Access::TryLock),
                    _ => (own_key(), Access::Lock),
                };
                let urls = match group.contestant {
                    // However far away the nodes are for the others.
                    Name::OursPoller | Name::OursNewcomers => bed.servers.urls(),
                    _ => bed.urls.clone(),
                };
                let urls = urls[..self.nodes].iter();
                orders.push(Order {
                    urls: urls.map(|url| group.url(url)).collect(),
                    contestant: group.contestant,
                    key,
                    access,
                    tasks: group.tasks,
                    hold: HOLD,
                    stay: Stay::Asleep,
                });
            }
        }
        orders
    }
}

/// Returns the keys that these orders are about.
fn keys_of(orders: &[Order]) -> BTreeSet<&str> {
    orders.iter().flat_map(|it| it.key.split(',')).collect()
}

impl Group {
    fn url(&self, url: &str) -> String {
        match self.contestant {
            Name::OursResp2 => format!("{url}?protocol=resp2"),
            _ => url.to_owned(),
        }
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, group) in self.groups.iter().enumerate() {
            let and = if index == 0 { "" } else { ", " };
            let Group {
                contestant,
                processes,
                tasks,
            } = group;
            write!(
                f,
                "{and}{processes} of {contestant} with {tasks} tasks each"
            )?;
        }
        write!(f, ", over {} nodes", self.nodes)
    }
}

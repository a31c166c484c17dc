use std::{collections::BTreeSet, fmt, time::Duration};

use comfy_table::Table;
use serde::Serialize;

use crate::{
    Result,
    access::Access,
    args::Args,
    contestants::Name,
    history::History,
    order::{Order, Stay},
    table,
    test_bed::{Outcome, TestBed},
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
        groups: &[BUSY, group(Name::RedisPy, 1, 1)],
        nodes: 1,
        keys: 1,
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
        groups: &[group(Name::OursSeveralKeys, 1, 1), group(Name::Ours, 16, 1)],
        nodes: 5,
        keys: 4,
    },
    Mix {
        groups: &[group(Name::OursSeveralKeys, 4, 1), group(Name::Ours, 16, 1)],
        nodes: 5,
        keys: 4,
    },
    mix(&[group(Name::Ours, 32, 1)]),
    mix(&[group(Name::Ours, 64, 1)]),
    mix(&[group(Name::Ours, 8, 1), group(Name::OursPoller, 1, 1)]),
    mix(&[group(Name::Ours, 8, 1), group(Name::OursNewcomers, 1, 8)]),
];

/// The outcome for the clients of one kind.
#[derive(Serialize)]
struct Share {
    contestant: Name,
    processes: usize,
    tasks: usize,
    entries: usize,
    /// Of the process that got in least often.
    fewest: usize,
    p99_ms: f64,
    longest_ms: f64,
    /// The longest time in which a process of this kind did not get in.
    shut_out_ms: f64,
}

/// The outcome of one mix.
#[derive(Serialize)]
pub(crate) struct Fair {
    mix: usize,
    run: usize,
    entries_per_s: f64,
    busy: f64,
    commands_per_s: f64,
    /// How long each task would wait if all were served in the order in which they come.
    in_order_ms: f64,
    shares: Vec<Share>,
}

/// Measures clients of several kinds beside each other, and prints a table.
pub(super) fn measure(bed: &TestBed, args: &Args, mixes: &[usize]) -> Vec<Fair> {
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
    for run in 0..args.repeat {
        for (index, mix) in MIXES.iter().enumerate() {
            let number = index + 1;
            if !mixes.is_empty() && !mixes.contains(&number) {
                continue;
            }
            match Fair::measure(bed, mix, number, run, args.time) {
                Ok(fair) => fairness.push(fair),
                Err(error) => println!("NOT RUN: {mix}: {error}\n"),
            }
        }
    }
    println!("{}\n", Fair::table(&fairness));
    for (index, mix) in MIXES.iter().enumerate() {
        println!("{}: {mix}", index + 1);
    }
    println!();
    fairness
}

impl Fair {
    fn measure(
        bed: &TestBed,
        mix: &Mix,
        number: usize,
        run: usize,
        time: Duration,
    ) -> Result<Self> {
        let orders = mix.orders(bed);
        let outcome = bed.carry_out(&orders, time)?;
        let Outcome {
            processes,
            window,
            commands,
            ..
        } = outcome;
        let mut rest = processes.as_slice();
        let mut shares = Vec::new();
        for group in mix.groups {
            let (of_group, others) = rest.split_at(group.processes);
            rest = others;
            let history = History::new(of_group.to_vec(), window.clone());
            shares.push(Share::of(*group, &history)?);
        }
        let keys = mix.keys as f64;
        let mut busy = 0.0;
        for key in keys_of(&orders) {
            let wants = |(order, _): &(&Order, _)| order.key.split(',').any(|it| it == key);
            let of_key = orders.iter().zip(&processes).filter(wants);
            let of_key = of_key.map(|(_, tasks)| tasks.clone()).collect();
            let of_key = History::new(of_key, window.clone());
            if of_key.overlaps() > 0 {
                return Err(format!("{} holds of {key} overlap", of_key.overlaps()).into());
            }
            busy += of_key.busy() / keys;
        }
        let all = History::new(processes, window);
        let others = all.tasks().saturating_sub(1) as f64;
        Ok(Self {
            mix: number,
            run,
            entries_per_s: all.entries() as f64 / all.seconds(),
            busy,
            commands_per_s: commands / all.seconds(),
            in_order_ms: all.mean_hold().as_secs_f64() * 1e3 * others / keys,
            shares,
        })
    }

    /// What is true of the whole mix is said in its first row only.
    fn table(fairness: &[Self]) -> Table {
        let ms = |ms: f64| table::time(ms * 1e3);
        let of_all = |is_first: &bool, text: String| if *is_first { text } else { String::new() };
        let mut rows = Vec::new();
        for fair in fairness {
            let shares = fair.shares.iter().enumerate();
            rows.extend(shares.map(|(index, share)| (index == 0, fair, share)));
        }
        let columns: &[table::Column<'_, (bool, &Self, &Share)>] = &[
            ("mix", &|(first, all, _)| of_all(first, all.mix.to_string())),
            ("entries/s", &|(first, all, _)| {
                of_all(first, table::whole(all.entries_per_s))
            }),
            ("busy", &|(first, all, _)| {
                of_all(first, table::percent(all.busy))
            }),
            ("commands/s", &|(first, all, _)| {
                of_all(first, table::whole(all.commands_per_s))
            }),
            ("client", &|(.., it)| {
                format!("{} x {} {}", it.processes, it.tasks, it.contestant)
            }),
            ("entries", &|(.., it)| it.entries.to_string()),
            ("fewest", &|(.., it)| it.fewest.to_string()),
            ("p99", &|(.., it)| ms(it.p99_ms)),
            ("longest", &|(.., it)| ms(it.longest_ms)),
            ("in order", &|(_, all, _)| ms(all.in_order_ms)),
            ("ratio", &|(_, all, it)| {
                table::ratio(it.p99_ms, all.in_order_ms)
            }),
            ("shut out", &|(.., it)| ms(it.shut_out_ms)),
        ];
        table::of(&rows, columns)
    }
}

impl Share {
    fn of(group: Group, history: &History) -> Result<Self> {
        if let (1.., Some(first)) = history.failures() {
            return Err(first.into());
        }
        let of_processes = history.entries_of_processes();
        let waits = history.waits()?.summary();
        Ok(Self {
            contestant: group.contestant,
            processes: group.processes,
            tasks: group.tasks,
            entries: history.entries(),
            fewest: of_processes.into_iter().min().unwrap_or_default(),
            p99_ms: waits.p99_us / 1e3,
            longest_ms: waits.max_us / 1e3,
            shut_out_ms: history.longest_shut_out().as_secs_f64() * 1e3,
        })
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
                let (key, access) = match group.contestant {
                    Name::OursSeveralKeys => (keys.join(","), Access::LockAll),
                    _ => (keys[process % self.keys].clone(), Access::Lock),
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

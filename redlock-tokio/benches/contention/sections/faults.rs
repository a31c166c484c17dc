use std::{thread, time::Duration};

use redlock_tokio::{Durability, Inspection, Redlock, Verdict};
use rustix::process::Signal;

use super::fairness::HOLD;
use crate::{
    Result,
    access::Access,
    args::Args,
    clock,
    contestants::Name,
    crew::Crew,
    history::History,
    order::{Order, Stay},
    table,
    test_bed::TestBed,
    times::us,
};

const PROCESSES: usize = 8;
const TASKS: usize = 4;

/// How long a process or a node is stopped.
const STOPPED: Duration = Duration::from_secs(3);

/// Longer than a key lives whose holder died, and than a node needs that comes back.
const RECOVERY: Duration = Duration::from_secs(15);

/// What happens while all want one key.
#[derive(Clone, Copy)]
enum Fault {
    None,
    FirstKilled,
    HolderKilled,
    FirstStopped,
    LineNodeStopped,
    LineNodeRestarted,
}

const FAULTS: [(Fault, &str); 6] = [
    (Fault::None, "none"),
    (Fault::FirstKilled, "the first of the line is killed"),
    (Fault::HolderKilled, "the holder is killed"),
    (
        Fault::FirstStopped,
        "the first of the line is stopped for 3 s",
    ),
    (
        Fault::LineNodeStopped,
        "the node of the line is stopped for 3 s",
    ),
    (
        Fault::LineNodeRestarted,
        "the node of the line restarts empty",
    ),
];

/// Lets processes and nodes fail beside a busy fleet, and prints how long nobody got in, and whether the order comes back.
pub(super) fn measure(bed: &TestBed, args: &Args, failures: &mut Vec<String>) -> Result<()> {
    let mut table = table::new([
        "fault",
        "longest time without an entry",
        "entries/s before",
        "after",
        "p99 to in order, before",
        "after",
    ]);
    for (fault, name) in FAULTS {
        let (overlaps, figures) = run(bed, args.time, fault)?;
        if overlaps > 0 {
            failures.push(format!(
                "{overlaps} holds overlap beside this fault: {name}"
            ));
        }
        table.add_row([name.to_owned()].into_iter().chain(figures));
    }
    println!("## Faults beside {PROCESSES} processes of {TASKS} tasks\n\n{table}\n");
    Ok(())
}

/// Returns how many holds overlapped, and the figures.
fn run(bed: &TestBed, time: Duration, fault: Fault) -> Result<(usize, [String; 5])> {
    let order = Order {
        urls: bed.urls.clone(),
        contestant: Name::Ours,
        key: bed.new_key(),
        access: Access::Lock,
        tasks: TASKS,
        hold: HOLD,
        stay: Stay::Asleep,
    };
    let mut crew = Crew::hire(&vec![order.clone(); PROCESSES])?;
    crew.start()?;
    let start = clock::now();
    thread::sleep(time);
    let failed = clock::now();
    cause(bed, &mut crew, &order.key, fault)?;
    thread::sleep(RECOVERY);
    let recovered = clock::now();
    thread::sleep(time);
    let end = clock::now();
    let processes = crew.stop()?;
    let within = |window| History::new(processes.clone(), window);
    let [before, all, after] = [start..failed, start..end, recovered..end].map(within);
    let ratio = |it: &History| -> Result<String> {
        let in_order = us(it.mean_hold()) * (it.tasks() - 1) as f64;
        Ok(table::ratio(it.waits()?.summary().p99_us, in_order))
    };
    let figures = [
        table::time(us(all.longest_without_entry())),
        table::whole(before.entries_per_s()),
        table::whole(after.entries_per_s()),
        ratio(&before)?,
        ratio(&after)?,
    ];
    Ok((all.overlaps(), figures))
}

fn cause(bed: &TestBed, crew: &mut Crew, key: &str, fault: Fault) -> Result<()> {
    match fault {
        Fault::None => {}
        Fault::FirstKilled => crew.kill(look(bed, key, first)?),
        Fault::HolderKilled => crew.kill(look(bed, key, holder)?),
        Fault::FirstStopped => {
            let first = look(bed, key, first)?;
            crew.signal(first, Signal::STOP);
            thread::sleep(STOPPED);
            crew.signal(first, Signal::CONT);
        }
        Fault::LineNodeStopped => {
            let node = bed.servers.get(look(bed, key, line_node)?);
            node.freeze();
            thread::sleep(STOPPED);
            node.thaw();
        }
        Fault::LineNodeRestarted => {
            let node = bed.servers.get(look(bed, key, line_node)?);
            node.kill();
            node.restart()?;
        }
    }
    Ok(())
}

/// Inspects the key until this finds what it looks for.
fn look<T>(bed: &TestBed, key: &str, find: impl Fn(&Inspection) -> Option<T>) -> Result<T> {
    bed.runtime.block_on(async {
        let redlock = Redlock::builder().nodes(&bed.urls);
        let redlock = redlock.durability(Durability::AssumedForTests);
        let redlock = redlock.build().await?;
        loop {
            if let Some(found) = find(&redlock.inspect(key).await?) {
                return Ok(found);
            }
        }
    })
}

fn first(inspection: &Inspection) -> Option<u32> {
    process_of(inspection.waiting().first()?.as_deref()?)
}

fn holder(inspection: &Inspection) -> Option<u32> {
    match inspection.verdict() {
        Verdict::Held { by, .. } => process_of(by.client_name()?),
        _ => None,
    }
}

fn line_node(inspection: &Inspection) -> Option<usize> {
    let has_line = |state: &redlock_tokio::node::KeyState| !state.waiting.is_empty();
    let mut nodes = inspection.nodes().iter();
    nodes.position(|node| node.state.as_ref().is_ok_and(has_line))
}

/// Returns the process with the label that clients have by default.
fn process_of(label: &str) -> Option<u32> {
    label.rsplit(':').next()?.parse().ok()
}

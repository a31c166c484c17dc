use std::{thread, time::Duration};

use redlock_tokio::{Inspection, Verdict, node::KeyState};

use super::Bench;
use crate::{
    Result,
    bed::Bed,
    crew::Crew,
    group::Group,
    history::{History, now},
    table,
    times::us,
};

/// The processes that want one key.
const FLEET: Group = Group::ours(8, 4);

/// How long a process or a node is stopped.
const STOPPED: Duration = Duration::from_secs(3);

/// Longer than a key lives whose holder died, and than a node needs that comes back.
const RECOVERY: Duration = Duration::from_secs(15);

/// Something that happens while all want one key.
type Fault = fn(&Scene<'_>, &mut Crew) -> Result<()>;

const FAULTS: [(&str, Fault); 6] = [
    ("none", |_, _| Ok(())),
    ("the first of the line is killed", |scene, crew| {
        crew.kill(scene.look(first)?);
        Ok(())
    }),
    ("the holder is killed", |scene, crew| {
        crew.kill(scene.look(holder)?);
        Ok(())
    }),
    ("the first of the line is stopped for 3 s", |scene, crew| {
        let first = crew.worker(scene.look(first)?)?;
        first.freeze();
        thread::sleep(STOPPED);
        first.thaw();
        Ok(())
    }),
    ("the node of the line is stopped for 3 s", |scene, _| {
        let node = scene.bed.servers.get(scene.look(line_node)?);
        node.freeze();
        thread::sleep(STOPPED);
        node.thaw();
        Ok(())
    }),
    ("the node of the line restarts empty", |scene, _| {
        Ok(scene.bed.servers.get(scene.look(line_node)?).restart()?)
    }),
];

/// Lets processes and nodes fail beside a busy fleet, and prints how long nobody got in, and whether the order comes
/// back.
pub(super) fn measure(bench: &mut Bench) -> Result<()> {
    let bed = Bed::near()?;
    let mut table = table::new([
        "fault",
        "longest time without an entry",
        "ratio before",
        "ratio after",
    ]);
    for (name, cause) in FAULTS {
        let key = bed.new_key();
        let scene = Scene {
            bed: &bed,
            key: &key,
        };
        let (windows, processes) = bed.play(&[FLEET], &key, |crew| {
            crew.start()?;
            let start = now();
            thread::sleep(bench.time);
            let failed = now();
            cause(&scene, crew)?;
            thread::sleep(RECOVERY);
            let recovered = now();
            thread::sleep(bench.time);
            let end = now();
            Ok([start..failed, start..end, recovered..end])
        })?;
        let [before, all, after] = windows.map(|it| History::new(processes.clone(), it));
        let ratio = |it: &History| table::ratio(it.waits().p99_us, us(it.wait_in_order()));
        table.add_row([
            name.to_owned(),
            table::time(us(all.longest_without_entry())),
            ratio(&before),
            ratio(&after),
        ]);
        if all.most_at_once() > 1 {
            let failure = format!("two were in beside this fault: {name}");
            bench.failures.push(failure);
        }
    }
    println!("## Faults beside {FLEET}\n\n{table}\n");
    Ok(())
}

/// A key that all want.
struct Scene<'a> {
    bed: &'a Bed,
    key: &'a str,
}

impl Scene<'_> {
    /// Inspects the key until this finds what it looks for.
    fn look<T>(&self, find: impl Fn(&Inspection) -> Option<T>) -> Result<T> {
        self.bed.runtime.block_on(async {
            let redlock = self.bed.servers.builder().build().await?;
            loop {
                if let Some(found) = find(&redlock.inspect(self.key).await?) {
                    return Ok(found);
                }
            }
        })
    }
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
    let has_line = |state: &KeyState| !state.waiting.is_empty();
    let mut nodes = inspection.nodes().iter();
    nodes.position(|node| node.state.as_ref().is_ok_and(has_line))
}

/// Returns the process with the label that clients have by default.
fn process_of(label: &str) -> Option<u32> {
    label.rsplit(':').next()?.parse().ok()
}

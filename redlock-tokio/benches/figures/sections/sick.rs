use std::thread;

use super::Bench;
use crate::{
    Result,
    bed::Bed,
    contestants::Name,
    group::Group,
    history::{History, now},
    table,
    times::us,
};

const TASKS: usize = 8;

/// How many of five nodes were killed, and how many are stopped.
const FAULTS: [(&str, usize, usize); 4] = [
    ("all healthy", 0, 0),
    ("one refuses", 1, 0),
    ("one silent", 0, 1),
    ("two silent", 0, 2),
];

/// What a lock costs while some of the nodes are sick.
pub(super) fn measure(bench: &mut Bench) -> Result<()> {
    let mut table = table::new([
        "of five nodes",
        "contestant",
        "first acquire",
        "acquire p50",
        "/ healthy",
        "p99",
        "max",
        "release p50",
        "p99",
        "cycles/s",
    ]);
    for contestant in [Name::Ours, Name::Rslock] {
        let mut healthy = None;
        for (fault, killed, stopped) in FAULTS {
            let history = suffer(bench, contestant, killed, stopped)?;
            let failure = history.failure();
            let failure = failure.map(|it| format!("{contestant}, {fault}: {it}"));
            bench.failures.extend(failure);
            let first = history.first_wait();
            let (acquire, release) = (history.waits(), history.releases());
            table.add_row([
                fault.to_owned(),
                contestant.to_string(),
                first.map_or("none".into(), |it| table::time(us(it))),
                table::time(acquire.p50_us),
                table::ratio(acquire.p50_us, *healthy.get_or_insert(acquire.p50_us)),
                table::time(acquire.p99_us),
                table::time(acquire.max_us),
                table::time(release.p50_us),
                table::time(release.p99_us),
                table::whole(history.entries() as f64 / history.seconds()),
            ]);
        }
    }
    println!("## Sick nodes: {TASKS} tasks, a key per task\n\n{table}\n");
    Ok(())
}

/// Measures a contestant over nodes of its own, some of which fall sick once it is connected.
fn suffer(bench: &Bench, contestant: Name, killed: usize, stopped: usize) -> Result<History> {
    let bed = Bed::near()?;
    let group = Group::of_own_keys(contestant, TASKS);
    let (window, processes) = bed.play(&[group], &bed.new_key(), |crew| {
        let mut sick = bed.servers.iter();
        sick.by_ref().take(killed).for_each(|it| it.kill());
        sick.take(stopped).for_each(|it| it.freeze());
        crew.start()?;
        let start = now();
        thread::sleep(bench.time);
        Ok(start..now())
    })?;
    Ok(History::new(processes, window))
}

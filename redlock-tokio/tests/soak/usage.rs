//! What workers used, and what they left behind.

use std::{ops::Range, time::Duration};

use crate::{crew::WORKERS, findings::Findings, line::Size, topology::MAX_TTL};

/// An old connection beside the new one to each node, and one more.
const MORE_DESCRIPTORS: usize = 6;

/// Memory that the allocator keeps for a while.
const MORE_KILOBYTES: usize = 4096;

/// A shutdown takes at most about one ttl, until the keys have expired whose releases cannot be delivered, and then
/// the time of a request and of an attempt to connect that have begun. The rest is for a busy machine.
const LONGEST_SHUTDOWN: Duration = MAX_TTL.saturating_add(Duration::from_secs(5));

/// Returns what is wrong with the workers of a run of this length.
pub(crate) fn problems(findings: &Findings, length: Duration) -> Vec<String> {
    let mut problems = Vec::new();
    for worker in (0..WORKERS).map(|it| format!("worker {it}")) {
        let sizes = findings.sizes.get(&worker).map_or(&[][..], Vec::as_slice);
        let mut add_if = |is_so, what| {
            if is_so {
                problems.push(format!("{worker} {what}"));
            }
        };
        // Early in the run, after its first fifth, and late in the run, unless it was too short.
        let early = median(sizes, length / 5..length * 2 / 5);
        let late = median(sizes, length * 4 / 5..length);
        if let Some((early, late)) = early.zip(late) {
            println!("{worker}: {early:?}, later {late:?}");
            let most = early.descriptors + MORE_DESCRIPTORS;
            add_if(late.descriptors > most, "leaks descriptors");
            let most = early.kilobytes * 4 / 3 + MORE_KILOBYTES;
            add_if(late.kilobytes > most, "leaks memory");
        }
        let Some(ended) = findings.ended.get(&worker) else {
            add_if(true, "did not report its end");
            continue;
        };
        add_if(ended.sockets > 0, "leaks sockets");
        add_if(ended.held > 0, "still holds locks");
        let took = Duration::from_millis(ended.shutdown_ms);
        add_if(took > LONGEST_SHUTDOWN, "took too long to shut down");
    }
    problems
}

fn median(samples: &[(Duration, Size)], within: Range<Duration>) -> Option<Size> {
    let within = samples.iter().filter(|(at, _)| within.contains(at));
    let sizes = within.map(|(_, it)| (it.descriptors, it.kilobytes));
    let (mut descriptors, mut kilobytes): (Vec<_>, Vec<_>) = sizes.unzip();
    descriptors.sort_unstable();
    kilobytes.sort_unstable();
    Some(Size {
        descriptors: *descriptors.get(descriptors.len() / 2)?,
        kilobytes: *kilobytes.get(kilobytes.len() / 2)?,
    })
}

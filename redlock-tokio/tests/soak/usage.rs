use std::{ops::Range, time::Duration};

use crate::{
    findings::Findings,
    line::{Ended, Size},
    topology::MAX_TTL,
};

/// The resources that a worker used and left behind.
#[derive(Debug)]
pub(crate) struct Usage {
    worker: usize,
    /// The size early in the run, after its first fifth, and late in the run. None if the run was too short.
    change: Option<(Size, Size)>,
    /// None if the worker did not report its end.
    ended: Option<Ended>,
    /// Whether a fault may have kept releases from a node until the keys had expired.
    may_abandon: bool,
}

/// Returns the usage of all workers.
pub(crate) fn of_all(findings: &Findings, length: Duration) -> Vec<Usage> {
    let may_abandon = findings.faults.keys().any(|it| it.delays_releases());
    let usage = |worker: usize| {
        let samples = &findings.sizes[worker];
        let early = median(samples, length / 5..length * 2 / 5);
        let late = median(samples, length * 4 / 5..length);
        Usage {
            worker,
            change: early.zip(late),
            ended: findings.ended[worker],
            may_abandon,
        }
    };
    (0..findings.sizes.len()).map(usage).collect()
}

impl Usage {
    /// An old connection beside the new one to each node, and one more.
    const MORE_DESCRIPTORS: usize = 6;

    /// Memory that the allocator keeps for a while.
    const MORE_KILOBYTES: usize = 4096;

    /// A shutdown takes at most about one ttl, until the keys have expired whose releases cannot be delivered, and then
    /// the time of a request and of an attempt to connect that have begun. The rest is for a busy machine.
    const LONGEST_SHUTDOWN: Duration = MAX_TTL.saturating_add(Duration::from_secs(5));

    pub(crate) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut add_if = |is_so, what| {
            if is_so {
                problems.push(format!("worker {} {what}", self.worker));
            }
        };
        if let Some((early, late)) = self.change {
            let most = early.descriptors + Self::MORE_DESCRIPTORS;
            add_if(late.descriptors > most, "leaks descriptors");
            let most = early.kilobytes * 4 / 3 + Self::MORE_KILOBYTES;
            add_if(late.kilobytes > most, "leaks memory");
        }
        let Some(ended) = self.ended else {
            add_if(true, "did not report its end");
            return problems;
        };
        add_if(ended.sockets > 0, "leaks sockets");
        add_if(ended.held > 0, "still holds locks");
        // Each release is delivered, unless its node is out of reach until the key has expired.
        let is_wrong = ended.abandoned > 0 && !self.may_abandon;
        add_if(is_wrong, "abandoned releases without a fault");
        let took = Duration::from_millis(ended.shutdown_ms);
        add_if(took > Self::LONGEST_SHUTDOWN, "took too long to shut down");
        problems
    }
}

fn median(samples: &[(Duration, Size)], within: Range<Duration>) -> Option<Size> {
    let within = samples.iter().filter(|(at, _)| within.contains(at));
    let sizes: Vec<_> = within.map(|(_, size)| *size).collect();
    let middle = |part: fn(&Size) -> usize| {
        let mut parts: Vec<_> = sizes.iter().map(part).collect();
        parts.sort_unstable();
        parts.get(parts.len() / 2).copied()
    };
    Some(Size {
        descriptors: middle(|it| it.descriptors)?,
        kilobytes: middle(|it| it.kilobytes)?,
    })
}

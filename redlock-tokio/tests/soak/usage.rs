use std::{fmt, ops::Range, time::Duration};

use crate::{
    findings::Findings,
    line::{Line, Size},
};

/// The resources that a worker used and left behind.
pub(crate) struct Usage {
    worker: usize,
    /// The size early in the run, after its first fifth, and late in the run. None if the run was too short.
    change: Option<(Size, Size)>,
    /// Sockets, abandoned releases and held locks, if the worker reported its end.
    left: Option<(usize, usize, usize)>,
}

/// Returns the usage of all workers.
pub(crate) fn of_all(findings: &Findings, length: Duration) -> Vec<Usage> {
    let usage = |worker: usize| {
        let samples = &findings.sizes[worker];
        let early = median(samples, length / 5..length * 2 / 5);
        let late = median(samples, length * 4 / 5..length);
        Usage {
            worker,
            change: early.zip(late),
            left: match findings.ended[worker] {
                Some(Line::Ended {
                    held,
                    abandoned,
                    sockets,
                }) => Some((sockets, abandoned, held)),
                _ => None,
            },
        }
    };
    (0..findings.sizes.len()).map(usage).collect()
}

impl Usage {
    pub(crate) const HEADER: &str =
        "worker          descriptors             memory, kB  sockets  abandoned     held";

    /// An old connection beside the new one to each node, and one more.
    const MORE_DESCRIPTORS: usize = 6;

    /// Memory that the allocator keeps for a while.
    const MORE_KILOBYTES: usize = 4096;

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
        match self.left {
            None => add_if(true, "did not report its end"),
            Some((sockets, _, held)) => {
                add_if(sockets > 0, "leaks sockets");
                add_if(held > 0, "still holds locks");
            }
        }
        problems
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let change = |part: fn(&Size) -> usize| {
            let change = self.change.as_ref();
            change.map_or("-".into(), |(early, late)| {
                format!("{} -> {}", part(early), part(late))
            })
        };
        let (descriptors, memory) = (change(|it| it.descriptors), change(|it| it.kilobytes));
        write!(f, "{:<8} {descriptors:>18} {memory:>22}", self.worker)?;
        match self.left {
            None => Ok(()),
            Some((sockets, abandoned, held)) => {
                write!(f, " {sockets:>8} {abandoned:>10} {held:>8}")
            }
        }
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

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use crate::{
    Result,
    crew::WORKERS,
    fault::{Fault, Kind},
    history::{History, Hold, Overlap},
    line::{Line, Size},
    news::OwnerChange,
};

/// The findings of a run.
pub(crate) struct Findings {
    pub(crate) start: Instant,
    pub(crate) ready: usize,
    pub(crate) gone: usize,
    /// The events that workers counted, by name.
    pub(crate) seen: BTreeMap<String, u64>,
    pub(crate) faults: BTreeMap<Kind, u64>,
    pub(crate) overlaps: u64,
    /// The first overlaps, in words.
    pub(crate) examples: Vec<String>,
    pub(crate) sizes: [Vec<(Duration, Size)>; WORKERS],
    /// The last report of each worker.
    pub(crate) ended: [Option<Line>; WORKERS],
    pub(crate) changes: Vec<OwnerChange>,
    /// When holds began, in nanoseconds of the workers' clock.
    pub(crate) begins: Vec<u64>,
    /// The latest of these times.
    pub(crate) latest: u64,
    history: History,
    recent: VecDeque<(Duration, Fault)>,
}

impl Findings {
    const EXAMPLES: usize = 5;

    /// How many recent faults a violation names.
    const RECENT: usize = 6;

    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
            ready: 0,
            gone: 0,
            seen: BTreeMap::new(),
            faults: BTreeMap::new(),
            overlaps: 0,
            examples: Vec::new(),
            sizes: Default::default(),
            ended: Default::default(),
            changes: Vec::new(),
            begins: Vec::new(),
            latest: 0,
            history: History::default(),
            recent: VecDeque::new(),
        }
    }

    pub(crate) fn hear(&mut self, worker: usize, line: &str) -> Result<()> {
        let line: Line = line.parse()?;
        match line {
            Line::Ready => self.ready += 1,
            Line::Hold { key, from, until } => {
                self.latest = self.latest.max(from);
                self.begins.push(from);
                let hold = Hold {
                    worker,
                    from,
                    until,
                };
                if let Some(overlap) = self.history.add(key, hold) {
                    self.note(overlap);
                }
            }
            Line::Saw(what) => *self.seen.entry(what).or_default() += 1,
            Line::Size(size) => self.sizes[worker].push((self.start.elapsed(), size)),
            Line::Ended { .. } => self.ended[worker] = Some(line),
        }
        Ok(())
    }

    pub(crate) fn fault(&mut self, fault: Fault) {
        *self.faults.entry(fault.kind).or_default() += 1;
        self.recent.push_back((self.start.elapsed(), fault));
        if self.recent.len() > Self::RECENT {
            self.recent.pop_front();
        }
    }

    /// Returns the number of events whose names have this prefix.
    pub(crate) fn count(&self, prefix: &str) -> u64 {
        let named = self
            .seen
            .iter()
            .filter(|(name, _)| name.starts_with(prefix));
        named.map(|(_, count)| count).sum()
    }

    pub(crate) fn progress(&self) -> String {
        format!(
            "{:>5.0?}: {} acquired, {} contended, {} lost, {} cancelled, {} faults, {} overlaps",
            self.start.elapsed(),
            self.count("acquired"),
            self.count("not acquired: Contended"),
            self.count("lost: "),
            self.count("cancelled"),
            self.faults.values().sum::<u64>(),
            self.overlaps,
        )
    }

    fn note(&mut self, overlap: Overlap) {
        self.overlaps += 1;
        if self.examples.len() < Self::EXAMPLES {
            let Overlap { key, first, second } = overlap;
            let ms = |from: u64, to: u64| (to - from) / 1_000_000;
            let mut example = format!(
                "worker {} held key {key} for {} ms; {} ms after it began, worker {} held it too, for {} ms, {:.1} s into the run",
                first.worker,
                ms(first.from, first.until),
                ms(first.from, second.from),
                second.worker,
                ms(second.from, second.until),
                self.start.elapsed().as_secs_f64(),
            );
            for (_, fault) in &self.recent {
                example += &format!("\n    after {fault}");
            }
            self.examples.push(example);
        }
    }
}

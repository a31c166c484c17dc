use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use redlock_tokio::FencingToken;

use crate::{
    Result, bed, clock,
    crew::{Source, WORKERS},
    fault::{Fault, Kind},
    judge::{Grant, HoldId, Judge, Violation},
    line::{Ended, Hold, Line, Size},
};

/// The findings of a run.
pub(crate) struct Findings {
    pub(crate) start: Instant,
    /// The processes that have begun to work.
    pub(crate) ready: Vec<Source>,
    pub(crate) gone: usize,
    /// The events that processes counted, by name.
    pub(crate) seen: BTreeMap<String, u64>,
    pub(crate) faults: BTreeMap<Kind, u64>,
    /// How many holds each process reported.
    pub(crate) holds: BTreeMap<Source, u64>,
    pub(crate) sizes: [Vec<(Duration, Size)>; WORKERS],
    /// The last report of each worker.
    pub(crate) ended: [Option<Ended>; WORKERS],
    /// When the latest hold began, in nanoseconds of the workers' clock, for the thread that causes failovers.
    pub(crate) latest: Arc<AtomicU64>,
    judge: Judge,
    /// The holds whose holders were not told of the loss. The judge says whether they should have been.
    not_told: BTreeSet<HoldId>,
    /// All faults, with the time of the workers' clock.
    log: Vec<(u64, Fault)>,
}

impl Findings {
    /// How many recent faults a violation names.
    const RECENT: usize = 6;

    /// How long after the end of validity a holder may be told on a busy machine. Times in which the whole process
    /// stands still are not counted.
    const TOLERANCE: Duration = Duration::from_secs(1);

    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
            ready: Vec::new(),
            gone: 0,
            seen: BTreeMap::new(),
            faults: BTreeMap::new(),
            holds: BTreeMap::new(),
            sizes: Default::default(),
            ended: Default::default(),
            latest: Arc::default(),
            judge: Judge::new(Self::TOLERANCE),
            not_told: BTreeSet::new(),
            log: Vec::new(),
        }
    }

    pub(crate) fn hear(&mut self, source: Source, line: &str) -> Result<()> {
        let line: Line =
            serde_json::from_str(line).map_err(|error| format!("{source}: {line:?}: {error}"))?;
        match (line, source) {
            (Line::Ready, _) => self.ready.push(source),
            (Line::Hold(hold), _) => self.judge(source, hold),
            (Line::Stalled { from, until }, _) => {
                self.judge.stood_still(&source.to_string(), from, until);
            }
            (Line::Saw(what), _) => *self.seen.entry(what).or_default() += 1,
            (Line::Size(size), Source::Worker(worker)) => {
                self.sizes[worker].push((self.start.elapsed(), size));
            }
            (Line::Ended(ended), Source::Worker(worker)) => self.ended[worker] = Some(ended),
            (line, source) => return Err(format!("{source} does not report {line:?}").into()),
        }
        Ok(())
    }

    pub(crate) fn fault(&mut self, fault: Fault) {
        *self.faults.entry(fault.kind).or_default() += 1;
        self.log.push((clock::now(), fault));
    }

    /// Returns the number of events with this name.
    pub(crate) fn count(&self, name: &str) -> u64 {
        self.seen.get(name).copied().unwrap_or_default()
    }

    /// Returns what the judge says so far.
    pub(crate) fn violations(&self) -> Vec<Violation> {
        let violations = self.judge.violations().into_iter();
        let named = violations.map(|it| match it {
            Violation::ToldLate { hold, told, .. } if self.not_told.contains(&hold.id) => {
                Violation::NotTold { hold, by: told }
            }
            other => other,
        });
        named.collect()
    }

    /// Returns how many locks were lost, for any reason.
    fn losses(&self) -> u64 {
        let losses = self.seen.iter().filter(|(it, _)| it.starts_with("lost: "));
        losses.map(|(_, count)| count).sum()
    }

    /// Returns a line of progress.
    pub(crate) fn progress(&self) -> String {
        format!(
            "{:>5.0?}: {} acquired, {} by foreign clients, {} contended, {} lost, {} cancelled, {} faults",
            self.start.elapsed(),
            self.count("acquired"),
            self.count("foreign: acquired"),
            self.count("not acquired: Contended"),
            self.losses(),
            self.count("cancelled"),
            self.faults.values().sum::<u64>(),
        )
    }

    /// Returns a violation in words, with the faults before it.
    pub(crate) fn explain(&self, violation: &Violation) -> String {
        let mut words = violation.to_string();
        let before = self.log.iter().filter(|(at, _)| *at < violation.at());
        let before: Vec<_> = before.collect();
        let recent = before.len().saturating_sub(Self::RECENT);
        for (at, fault) in &before[recent..] {
            let ms = (violation.at() - at) / 1_000_000;
            words += &format!("\n    {ms} ms after {fault}");
        }
        words
    }

    fn judge(&mut self, source: Source, hold: Hold) {
        self.latest.fetch_max(hold.from, Relaxed);
        *self.holds.entry(source).or_default() += 1;
        let (end, was_not_told) = (hold.end(), hold.was_not_told());
        let id = self.judge.granted(Grant {
            is_shared: hold.is_shared,
            client: source.to_string(),
            keys: hold.keys.into_iter().map(bed::name).collect(),
            at: hold.from,
            valid_until: hold.valid_until,
            fence: hold.fence.map(FencingToken::new),
        });
        if was_not_told {
            self.not_told.insert(id);
        }
        self.judge.ended(id, end, hold.until);
    }
}

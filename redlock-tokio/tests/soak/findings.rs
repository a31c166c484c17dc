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
    fault::{Fault, Kind},
    judge::{End, Grant, Judge},
    line::{Ended, Hold, Line, Size},
    run::News,
    settings::Settings,
    waits::Waits,
};

/// The findings of a run.
pub(crate) struct Findings {
    pub(crate) start: Instant,
    /// The processes that have begun to work.
    pub(crate) ready: Vec<String>,
    /// The events that processes counted, by name.
    pub(crate) seen: BTreeMap<String, u64>,
    /// The processes that held keys.
    pub(crate) holders: BTreeSet<String>,
    pub(crate) sizes: BTreeMap<String, Vec<(Duration, Size)>>,
    /// The last report of each worker.
    pub(crate) ended: BTreeMap<String, Ended>,
    /// When the latest hold began, in nanoseconds of the workers' clock, for the thread that causes failovers.
    pub(crate) latest: Arc<AtomicU64>,
    pub(crate) judge: Judge,
    pub(crate) waits: Waits,
    /// All faults, with the time of the workers' clock.
    faults: Vec<(u64, Fault)>,
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
            seen: BTreeMap::new(),
            holders: BTreeSet::new(),
            sizes: BTreeMap::new(),
            ended: BTreeMap::new(),
            latest: Arc::default(),
            judge: Judge::new(Self::TOLERANCE),
            waits: Waits::default(),
            faults: Vec::new(),
        }
    }

    pub(crate) fn note(&mut self, news: News) -> Result<()> {
        match news {
            News::Said(source, Some(line)) => return self.hear(source, &line),
            News::Said(_, None) => {}
            News::Fault(fault) => {
                if Settings::traces() {
                    println!("{fault}");
                }
                self.waits.fault(fault.kind);
                self.faults.push((clock::now(), fault));
            }
        }
        Ok(())
    }

    fn hear(&mut self, source: String, line: &str) -> Result<()> {
        let line: Line =
            serde_json::from_str(line).map_err(|error| format!("{source}: {line:?}: {error}"))?;
        match line {
            Line::Ready => self.ready.push(source),
            Line::Hold(hold) => self.judge(source, hold),
            Line::Stalled { from, until } => self.judge.stood_still(&source, from, until),
            Line::Waited(wait) => self.waits.waited(source, wait),
            Line::Saw(what) => *self.seen.entry(what).or_default() += 1,
            Line::Size(size) => {
                let sizes = self.sizes.entry(source).or_default();
                sizes.push((self.start.elapsed(), size));
            }
            Line::Ended(ended) => drop(self.ended.insert(source, ended)),
        }
        Ok(())
    }

    /// Returns how many faults of this kind there were.
    pub(crate) fn faults(&self, kind: Kind) -> usize {
        self.faults.iter().filter(|it| it.1.kind == kind).count()
    }

    /// Returns the number of events with this name.
    pub(crate) fn count(&self, name: &str) -> u64 {
        self.seen.get(name).copied().unwrap_or_default()
    }

    /// Returns what happened up to this time in words, with the faults before.
    pub(crate) fn explain(&self, what: &impl ToString, until: u64) -> String {
        let mut words = what.to_string();
        let before = self.faults.iter().filter(|(at, _)| *at < until);
        let before: Vec<_> = before.collect();
        let recent = before.len().saturating_sub(Self::RECENT);
        for (at, fault) in &before[recent..] {
            let ms = (until - at) / 1_000_000;
            words += &format!("\n    {ms} ms after {fault}");
        }
        words
    }

    fn judge(&mut self, source: String, hold: Hold) {
        self.waits.held(&source, &hold);
        self.latest.fetch_max(hold.from, Relaxed);
        let id = self.judge.granted(Grant {
            is_shared: hold.is_shared,
            client: source.clone(),
            keys: hold.keys.into_iter().map(bed::name).collect(),
            at: hold.from,
            valid_until: hold.valid_until,
            fence: hold.fence.map(FencingToken::new),
        });
        let end = hold.told.map_or(End::Released, |told| End::Lost { told });
        self.judge.ended(id, end, hold.until);
        self.holders.insert(source);
    }
}

use std::{
    sync::{
        Arc,
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{
    Result,
    bed::{Bed, Ground},
    crew::Crew,
    failovers::Failovers,
    fault::Fault,
    faults::Faults,
    findings::Findings,
    foreign, leftovers, plan, report,
    settings::{Breakage, Settings},
    worker::{Order, STEP_LIMIT},
};

/// How long workers go on after the last fault.
const SETTLE: Duration = Duration::from_secs(2);

/// How long workers may take to start or to end: a step, and the releases after it.
const PATIENCE: Duration = STEP_LIMIT.saturating_mul(2);

/// Longer than any run.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);

/// An event of the run.
pub(crate) enum News {
    /// A process has written a line, or has closed its output.
    Said(String, Option<String>),
    Fault(Fault),
    /// All faults are over.
    Calm(Result<()>),
}

pub(crate) fn run(settings: &Settings) -> Result<()> {
    println!("soak; to replay its faults: {settings}");
    let foreign = foreign::at_hand(settings);
    if settings.breakage == Some(Breakage::Foreign) && foreign.is_empty() {
        return Ok(());
    }
    let bed = Bed::new(settings.topology)?;
    // With several voters, one failover cannot break exclusion.
    let voters = if settings.breakage.is_some() { 1 } else { 3 };
    let order = Order {
        seed: settings.seed,
        topology: settings.topology,
        breakage: settings.breakage,
        store: bed.store().url(),
        nodes: bed.urls(voters),
    };
    let (inbox, news) = mpsc::channel();
    let mut crew = Crew::hire(&order, foreign, &inbox)?;
    let processes = crew.size();
    let mut listener = Listener {
        news,
        findings: Findings::new(),
        processes,
        is_calm: false,
    };
    if !listener.hear(PATIENCE, |it| it.findings.ready.len() == processes)? {
        return Err(format!("the processes did not start within {PATIENCE:?}").into());
    }
    listener.findings.start = Instant::now();

    let latest = Arc::clone(&listener.findings.latest);
    thread::scope(|scope| {
        let (bed, crew) = (&bed, &crew);
        scope.spawn(move || {
            let (ground, inbox) = (&bed.ground, &inbox);
            let outcome = if let Ground::Masters(masters) = ground {
                let plan = plan::plan(settings);
                Faults::new(masters, crew).carry_out(&plan, settings.length, inbox)
            } else {
                let failovers = Failovers {
                    ground,
                    settings,
                    crew,
                    inbox,
                    latest: &latest,
                };
                failovers.carry_out()
            };
            // The listener waits for this message.
            let _ = inbox.send(News::Calm(outcome));
        });
        listener.hear(LONGEST, |it| it.is_calm)
    })?;
    if settings.breakage.is_none() {
        listener.hear(SETTLE, |_| false)?;
    }
    crew.dismiss();
    // The next line reports workers that do not end, and an error means that all have ended.
    let _ = listener.hear(PATIENCE, |it| it.findings.gone == processes);
    let complaints = crew.bury(SETTLE)?;
    let leftovers = leftovers::find(&bed, settings)?;
    report::report(settings, &listener.findings, leftovers, complaints)
}

/// Collects the events.
struct Listener {
    news: Receiver<News>,
    findings: Findings,
    processes: usize,
    is_calm: bool,
}

impl Listener {
    /// Hears the news until this is so, or until the time is over. Returns whether it is so.
    fn hear(&mut self, limit: Duration, is_so: impl Fn(&Self) -> bool) -> Result<bool> {
        let deadline = Instant::now() + limit;
        while !is_so(self) {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.news.recv_timeout(left) {
                Ok(news) => self.note(news)?,
                Err(RecvTimeoutError::Timeout) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    fn note(&mut self, news: News) -> Result<()> {
        match news {
            News::Said(source, Some(line)) => return self.findings.hear(source, &line),
            News::Said(source, None) if self.findings.ready.len() < self.processes => {
                return Err(format!("{source} ended before it began").into());
            }
            News::Said(_, None) => self.findings.gone += 1,
            News::Fault(fault) => {
                if Settings::traces() {
                    println!("{fault}");
                }
                self.findings.fault(fault);
            }
            News::Calm(outcome) => {
                self.is_calm = true;
                return outcome;
            }
        }
        Ok(())
    }
}

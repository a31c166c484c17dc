use std::{
    sync::Arc,
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use crate::{
    Result,
    bed::{Bed, Ground},
    crew::Crew,
    failovers::Failovers,
    faults::Faults,
    findings::Findings,
    foreign::{Foreign, ForeignOrder},
    leftovers::Leftovers,
    news::News,
    order::Order,
    plan, report,
    settings::{Breakage, Settings},
    worker::STEP_LIMIT,
};

/// The interval between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(5);

/// How long workers go on after the last fault.
const SETTLE: Duration = Duration::from_secs(2);

/// How long workers may take to start or to end: a step, and the releases after it.
const PATIENCE: Duration = STEP_LIMIT.saturating_mul(2);

pub(crate) fn run(settings: &Settings) -> Result<()> {
    println!("soak; to replay its faults: {settings}");
    let foreign = Foreign::at_hand(settings);
    if settings.breakage == Some(Breakage::Foreign) && foreign.is_empty() {
        return Ok(());
    }
    let bed = Bed::new(settings.topology)?;
    let order = Order {
        seed: settings.seed,
        topology: settings.topology,
        breakage: settings.breakage,
        store: bed.store().url(),
        nodes: bed.urls(),
    };
    let (inbox, news) = mpsc::channel();
    let mut crew = Crew::hire(&order, &inbox)?;
    let foreign_order = ForeignOrder::new(settings, order.nodes, order.store);
    crew.invite(foreign, &foreign_order, &inbox)?;
    let processes = crew.size();
    let mut listener = Listener {
        news,
        findings: Findings::new(),
        told: Instant::now(),
        processes,
    };
    listener.until(PATIENCE, |it| it.ready.len() == processes)?;
    listener.findings.start = Instant::now();

    let latest = Arc::clone(&listener.findings.latest);
    thread::scope(|scope| {
        let (bed, crew) = (&bed, &crew);
        scope.spawn(move || {
            let failovers = Failovers {
                settings,
                crew,
                inbox: &inbox,
                latest: &latest,
            };
            let outcome = match &bed.ground {
                Ground::Masters(masters) => {
                    let plan = plan::plan(settings);
                    Faults { masters, crew }.carry_out(&plan, settings.length, &inbox)
                }
                Ground::Sentinel(group) => failovers.carry_out(group),
                Ground::Cluster(cluster) => failovers.carry_out(cluster),
            };
            // The listener waits for this message.
            let _ = inbox.send(News::Calm(outcome));
        });
        listener.until_calm()
    })?;
    if settings.breakage.is_none() {
        listener.hear_for(SETTLE)?;
    }
    crew.dismiss();
    // The next line reports workers that do not end, with more details than this error.
    let _ = listener.until(PATIENCE, |it| it.gone == processes);
    let complaints = crew.bury(SETTLE)?;
    let leftovers = Leftovers::find(&bed, settings)?;
    report::report(settings, &listener.findings, leftovers, complaints)
}

/// Collects the events, and prints the progress.
struct Listener {
    news: Receiver<News>,
    findings: Findings,
    told: Instant,
    processes: usize,
}

impl Listener {
    fn until_calm(&mut self) -> Result<()> {
        loop {
            match self.next(PROGRESS)? {
                Some(News::Calm(outcome)) => return outcome,
                Some(news) => self.note(news)?,
                None => {}
            }
        }
    }

    fn until(&mut self, limit: Duration, is_so: impl Fn(&Findings) -> bool) -> Result<()> {
        let deadline = Instant::now() + limit;
        while !is_so(&self.findings) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(format!("the processes did not start or end within {limit:?}").into());
            }
            if let Some(news) = self.next(left)? {
                self.note(news)?;
            }
        }
        Ok(())
    }

    fn hear_for(&mut self, time: Duration) -> Result<()> {
        let deadline = Instant::now() + time;
        while let Some(news) = self.next(deadline.saturating_duration_since(Instant::now()))? {
            self.note(news)?;
        }
        Ok(())
    }

    /// Returns the next event within this time.
    fn next(&mut self, limit: Duration) -> Result<Option<News>> {
        if self.told.elapsed() >= PROGRESS {
            self.told = Instant::now();
            println!("{}", self.findings.progress());
        }
        match self.news.recv_timeout(limit) {
            Ok(news) => Ok(Some(news)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(error @ RecvTimeoutError::Disconnected) => Err(error.into()),
        }
    }

    fn note(&mut self, news: News) -> Result<()> {
        match news {
            News::Line(source, line) => self.findings.hear(source, &line),
            News::OwnerChange(change) => {
                if Settings::traces() {
                    println!("another owner, by {:?}", change.kind);
                }
                self.findings.changes.push(change);
                Ok(())
            }
            News::Gone(source) if self.findings.ready.len() < self.processes => {
                Err(format!("{source} ended before it began").into())
            }
            News::Gone(_) => {
                self.findings.gone += 1;
                Ok(())
            }
            News::Fault(fault) => {
                if Settings::traces() {
                    println!("{fault}");
                }
                self.findings.fault(fault);
                Ok(())
            }
            News::Calm(outcome) => outcome,
        }
    }
}

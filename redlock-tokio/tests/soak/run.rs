use std::{
    sync::{Arc, mpsc},
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

/// An event of the run.
pub(crate) enum News {
    /// A process has written a line, or has closed its output.
    Said(String, Option<String>),
    Fault(Fault),
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
        waits: false,
        store: bed.store().url(),
        nodes: bed.urls(voters),
    };
    let (inbox, news) = mpsc::channel();
    let crew = Crew::hire(&order, foreign, inbox)?;
    let mut findings = Findings::new();
    while findings.ready.len() < crew.size() {
        match news.recv_timeout(PATIENCE.saturating_sub(findings.start.elapsed()))? {
            News::Said(it, None) => return Err(format!("{it} ended before it began").into()),
            it => findings.note(it)?,
        }
    }
    findings.start = Instant::now();
    let latest = Arc::clone(&findings.latest);
    let listener = thread::spawn(move || {
        let noted = news.into_iter().try_for_each(|it| findings.note(it));
        noted.map(|()| findings)
    });
    match &bed.ground {
        Ground::Masters(masters) => {
            let (plan, crew) = (plan::plan(settings), &crew);
            Faults { masters, crew }.carry_out(&plan, settings.length)?;
        }
        ground => {
            let failovers = Failovers {
                ground,
                settings,
                crew: &crew,
                latest: &latest,
            };
            failovers.carry_out()?;
        }
    }
    if settings.breakage.is_none() {
        thread::sleep(SETTLE);
    }
    let complaints = crew.bury(PATIENCE)?;
    let findings = listener.join().expect("no panic")?;
    let leftovers = leftovers::find(&bed, settings)?;
    report::report(settings, &findings, leftovers, complaints)
}

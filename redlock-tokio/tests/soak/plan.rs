use std::time::Duration;

use fastrand::Rng;

use crate::{
    bed::NODES,
    crew::{WORKERS, some_waiters},
    fault::{CALM, Fault, Kind},
    settings::{Breakage, Settings},
    support::MS,
};

/// Plans the faults of a run: all kinds in turn, in random order. Faults that overlap hit a minority of nodes at
/// most.
pub(crate) fn plan(settings: &Settings) -> Vec<Fault> {
    match settings.breakage {
        None => storm(settings),
        Some(Breakage::Forget) => again_and_again(Kind::Forget, MS(250), settings.length),
        Some(Breakage::Trust) => again_and_again(Kind::PowerCut, MS(800), settings.length),
        Some(_) => Vec::new(),
    }
}

/// Plans the same fault for all nodes at intervals that are too short for a recovery.
fn again_and_again(kind: Kind, every: Duration, length: Duration) -> Vec<Fault> {
    let fault = |at| Fault {
        at,
        kind,
        length: Duration::ZERO,
        victims: (0..NODES).collect(),
    };
    let times = (1..).map(|number| every * number);
    times.take_while(|at| *at < length).map(fault).collect()
}

fn storm(settings: &Settings) -> Vec<Fault> {
    const MINORITY: usize = (NODES - 1) / 2;
    let mut rng = Rng::with_seed(settings.seed);
    let mut faults = Vec::new();
    let (mut nodes, mut workers) = ([Duration::ZERO; NODES], [Duration::ZERO; WORKERS]);
    let (mut kinds, mut now) = (Vec::new(), MS(500));
    loop {
        if kinds.is_empty() {
            kinds = Kind::usual(settings.topology);
            rng.shuffle(&mut kinds);
        }
        let kind = kinds.pop().expect("it was filled");
        let (busy, most) = match kind {
            Kind::StopWorker => (&mut workers[..], 1),
            // All nodes have recovered then.
            Kind::FailWaiters => (&mut nodes[..], 0),
            _ => (&mut nodes[..], MINORITY),
        };
        // Mostly one victim, sometimes as many as possible.
        let wanted = if rng.u8(..4) == 0 { most } else { most.min(1) };
        let mut ends: Vec<_> = busy.iter().copied().filter(|it| *it > now).collect();
        ends.sort_unstable();
        if let Some(excess) = (ends.len() + wanted).checked_sub(most + 1) {
            now = ends[excess];
        }
        let mut length = kind.length(&mut rng);
        let mut victims: Vec<_> = (0..busy.len()).filter(|it| busy[*it] <= now).collect();
        rng.shuffle(&mut victims);
        victims.truncate(wanted);
        for victim in &victims {
            busy[*victim] = now + length + kind.aftermath();
        }
        let mut pause = MS(rng.u64(50..600));
        if kind == Kind::FailWaiters {
            length = length.min(settings.length.saturating_sub(now));
            (victims, pause) = (some_waiters(&mut rng), CALM);
        }
        if now + length > settings.length {
            return faults;
        }
        faults.push(Fault {
            at: now,
            kind,
            length,
            victims,
        });
        now += pause;
    }
}

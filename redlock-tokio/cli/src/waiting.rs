//! The wait for a lock, and what people learn of it.

use std::{
    cell::Cell,
    convert::Infallible,
    ffi::OsString,
    os::unix::ffi::OsStrExt,
    time::{Duration, Instant},
};

use redlock_tokio::{Inspection, Lock, LockError, LockGuard, NodeState, Redlock, Verdict};
use tokio::time::{MissedTickBehavior, interval};

use crate::{
    exit::{Exit, Failure, Result},
    inspect, nodes,
    output::{Output, shown},
};

/// How long a wait must last before a line says who has the lock, where there is no terminal.
const LONG: Duration = Duration::from_secs(5);

/// How long to pause after an outage has ended an attempt.
const PAUSE: Duration = Duration::from_millis(500);

/// Waits for the lock, and shows for whom. `lock` returns the request. A request that waits for as long as it takes begins
/// again after an outage.
pub(crate) async fn acquire(
    redlock: &Redlock,
    keys: &[OsString],
    lock: impl Fn() -> Lock,
    is_endless: bool,
    quiet: bool,
    output: &Output,
) -> Result<LockGuard> {
    let is_told = Cell::new(quiet);
    let acquiring = async {
        loop {
            match lock().await {
                Err(error @ (LockError::NoQuorum(_) | LockError::Quarantined { .. }))
                    if is_endless =>
                {
                    if !is_told.replace(true) {
                        output.progress("");
                        output.failure(&error.into());
                    }
                    tokio::time::sleep(PAUSE).await;
                }
                outcome => return outcome,
            }
        }
    };
    let telling = async {
        match (quiet, output.is_live()) {
            (true, _) => std::future::pending().await,
            (false, true) => show(redlock, keys, output).await,
            (false, false) => report(redlock, keys, &is_told, output).await,
        }
    };
    let acquired = tokio::select! {
        biased;
        acquired = acquiring => acquired,
        never = telling => match never {},
    };
    match acquired {
        Ok(guard) => Ok(guard),
        Err(error) => Err(inspect::failure(redlock, keys, error).await),
    }
}

/// Shows a line about the wait on the terminal, for as long as it takes.
async fn show(redlock: &Redlock, keys: &[OsString], output: &Output) -> Infallible {
    let since = Instant::now();
    let mut looks = interval(Duration::from_millis(250));
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut seen = None;
    for number in 0_u64.. {
        looks.tick().await;
        // Four lines for each look at the nodes.
        if number % 4 == 1 {
            let inspection = inspect::taken(redlock, keys).await;
            seen = inspection.map(|it| (it, Instant::now()));
        }
        let seen = seen.as_ref().map(|(it, at)| whom(it, at.elapsed(), keys));
        output.progress(line(redlock, keys, since, &seen.unwrap_or_default()));
    }
    std::future::pending().await
}

/// Writes a line when an outage begins, and one after a while that says who has the lock. Otherwise the log of a
/// job would not tell why it does nothing.
async fn report(
    redlock: &Redlock,
    keys: &[OsString],
    is_outage_told: &Cell<bool>,
    output: &Output,
) -> Infallible {
    let since = Instant::now();
    let mut looks = interval(Duration::from_millis(500));
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // A node that is slow once is no outage yet.
    let (mut looks_without_majority, mut is_told) = (0_u64, false);
    loop {
        looks.tick().await;
        match nodes::outage(&redlock.nodes()) {
            None => looks_without_majority = 0,
            Some(outage) => {
                looks_without_majority += 1;
                if looks_without_majority == 2 {
                    is_outage_told.set(true);
                    let states = redlock.nodes().into_iter();
                    let states = states.filter(|it| it.state != NodeState::Voting);
                    let states: Vec<_> = states
                        .map(|it| format!("{}: {}", it.address, it.state))
                        .collect();
                    let text = format!(": {outage} ({})", states.join("; "));
                    tell(output, Exit::Unavailable, line(redlock, keys, since, &text));
                }
                continue;
            }
        }
        if !is_told
            && since.elapsed() >= LONG
            && let Some(inspection) = inspect::taken(redlock, keys).await
            && inspection.verdict() != Verdict::Unknown
        {
            is_told = true;
            let text = whom(&inspection, Duration::ZERO, keys);
            tell(output, Exit::Contended, line(redlock, keys, since, &text));
        }
    }
}

fn tell(output: &Output, exit: Exit, text: String) {
    output.failure(&Failure::new(exit, text));
}

fn line(redlock: &Redlock, keys: &[OsString], since: Instant, seen: &str) -> String {
    let waited = since.elapsed().as_secs_f64();
    let mut places = keys.iter().map(|it| redlock.processes_ahead(it.as_bytes()));
    let place = places.find_map(|it| it);
    let place = place.map(|ahead| format!(", number {} in the line", ahead.saturating_add(1)));
    format!(
        "waiting for {} for {waited:.1} s{}{seen}",
        inspect::names(keys),
        place.unwrap_or_default()
    )
}

/// Says who has the lock, and of several which one, according to a look at the nodes so long ago.
fn whom(inspection: &Inspection, ago: Duration, keys: &[OsString]) -> String {
    let verdict = match (inspect::permits(inspection), inspection.verdict()) {
        (Some(permits), _) => permits,
        (None, Verdict::Held { by, remaining }) => {
            let remaining = remaining.saturating_sub(ago).as_secs_f64();
            format!("held by {by} for another {remaining:.1} s")
        }
        (None, Verdict::Shared { readers }) => format!("shared by {} readers", readers.len()),
        (None, other) => other.to_string(),
    };
    match keys {
        [_] => format!(": {verdict}"),
        _ => format!(": {}: {verdict}", shown(inspection.key().as_bytes())),
    }
}

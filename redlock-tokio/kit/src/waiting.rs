use std::{
    error::Error,
    thread,
    time::{Duration, Instant},
};

use super::error::TopologyError;

/// How long servers may take to reach a state. On a busy machine they are many times slower than on an idle
/// one, and a sentinel that was held up for two seconds starts no failover in the next thirty.
const LIMIT: Duration = Duration::from_secs(180);

/// The pause between two looks at the servers.
const PAUSE: Duration = Duration::from_millis(20);

/// Looks at servers again and again until they have reached a state. Until then, a look returns the state that
/// they are in.
pub(super) fn wait_until<T>(
    goal: &str,
    mut look: impl FnMut() -> Result<T, String>,
) -> Result<T, TopologyError> {
    let deadline = Instant::now() + LIMIT;
    loop {
        match look() {
            Ok(reached) => return Ok(reached),
            Err(state) if Instant::now() > deadline => {
                return Err(TopologyError::TimedOut {
                    goal: goal.into(),
                    limit: LIMIT,
                    state,
                });
            }
            Err(_) => thread::sleep(PAUSE),
        }
    }
}

/// Returns an error with its causes, as the state of a server that does not answer.
pub(super) fn in_words(error: &TopologyError) -> String {
    let source = error.source().map(|it| format!(": {it}"));
    format!("{error}{}", source.unwrap_or_default())
}

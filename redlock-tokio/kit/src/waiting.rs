use std::{
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
                return Err(format!("not within {LIMIT:?}: {goal}; at last: {state}").into());
            }
            Err(_) => thread::sleep(PAUSE),
        }
    }
}

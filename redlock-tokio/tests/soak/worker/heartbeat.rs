use std::{thread, time::Duration};

use super::journal;
use crate::{clock, line::Line};

const BEAT: Duration = Duration::from_millis(20);

/// How much later than planned a beat may come on a busy machine.
const LATE: Duration = Duration::from_millis(100);

/// Reports each time in which this process stood still, until the process ends.
pub(super) fn beat() {
    let most = (BEAT + LATE).as_nanos() as u64;
    loop {
        let from = clock::now();
        thread::sleep(BEAT);
        let until = clock::now();
        if until - from > most {
            journal::tell(&Line::Stalled { from, until });
        }
    }
}

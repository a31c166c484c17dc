use std::time::Duration;

use crate::{Result, group::Group, sections::mix};

const USAGE: &str =
    "use --seconds NUMBER, --mix 8x1+poller,.., --sharing, --faults, --distance MILLISECONDS";

/// The options of the command line.
#[derive(Debug)]
pub(crate) struct Args {
    /// How long each cell is measured.
    pub(crate) time: Duration,
    /// Measures only these clients beside each other.
    pub(crate) mixes: Vec<Vec<Group>>,
    /// Measures only what several may hold at once.
    pub(crate) sharing: bool,
    /// Measures only processes and nodes that fail.
    pub(crate) faults: bool,
    /// How far away the nodes are: the time of a round trip. On this machine if `None`.
    pub(crate) distance: Option<Duration>,
    /// Makes this process a worker of another one.
    pub(crate) work: Option<String>,
}

impl Args {
    pub(crate) fn parse(args: impl IntoIterator<Item = String>) -> Result<Self> {
        let mut args = args.into_iter();
        let mut parsed = Self {
            time: Duration::from_secs(2),
            mixes: Vec::new(),
            sharing: false,
            faults: false,
            distance: None,
            work: None,
        };
        while let Some(flag) = args.next() {
            let mut value = || args.next().ok_or(format!("{flag} wants a value"));
            match flag.as_str() {
                "--bench" => {}
                "--seconds" => parsed.time = time(value()?.parse()?)?,
                "--mix" => parsed.mixes = value()?.split(',').map(mix).collect::<Result<_>>()?,
                "--sharing" => parsed.sharing = true,
                "--faults" => parsed.faults = true,
                "--distance" => parsed.distance = Some(Duration::from_millis(value()?.parse()?)),
                "--work" => parsed.work = Some(value()?),
                _ => return Err(format!("{flag} is not known; {USAGE}").into()),
            }
        }
        Ok(parsed)
    }
}

/// Less than a lock may be waited for, so that no wait comes to its own end.
fn time(seconds: f64) -> Result<Duration> {
    if (0.1..=30.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err(format!("{seconds} s is not between 0.1 and 30").into())
    }
}

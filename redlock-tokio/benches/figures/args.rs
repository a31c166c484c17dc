use std::time::Duration;

use crate::{Result, group::Group, sections::mix};

const USAGE: &str = "use --only SECTION,.., --seconds NUMBER, --rows a,.., --mix 8x1+poller,.., --distance MILLISECONDS";

/// What the page shows of many processes.
const MIXES: &str = "4x8,8x4,8x8,16x8,1x1,2x1,4x1,8x1,16x1,32x1,64x1";

/// The options of the command line.
#[derive(Debug)]
pub(crate) struct Args {
    /// The only sections to run. All if it is empty.
    pub(crate) only: Vec<String>,
    /// How long each cell is measured.
    pub(crate) time: Duration,
    /// The only rows of the table of faults, by their letters. All if it is empty.
    pub(crate) rows: String,
    /// Clients that want one key beside each other.
    pub(crate) mixes: Vec<Vec<Group>>,
    /// How far away the nodes of the mixes are: the time of a round trip.
    pub(crate) distance: Duration,
    /// Makes this process a worker of another one.
    pub(crate) work: Option<String>,
}

impl Args {
    pub(crate) fn parse(args: impl IntoIterator<Item = String>) -> Result<Self> {
        let mut args = args.into_iter();
        let mut parsed = Self {
            only: Vec::new(),
            time: Duration::from_secs(2),
            rows: String::new(),
            mixes: mixes(MIXES)?,
            distance: Duration::ZERO,
            work: None,
        };
        while let Some(flag) = args.next() {
            let mut value = || args.next().ok_or(format!("{flag} wants a value"));
            match flag.as_str() {
                "--bench" => {}
                "--only" => parsed.only = value()?.split(',').map(str::to_owned).collect(),
                "--seconds" => parsed.time = time(value()?.parse()?)?,
                "--rows" => {
                    parsed.only = vec!["faults".into()];
                    parsed.rows = value()?;
                }
                "--mix" => {
                    parsed.only = vec!["mixes".into()];
                    parsed.mixes = mixes(&value()?)?;
                }
                "--distance" => parsed.distance = Duration::from_millis(value()?.parse()?),
                "--work" => parsed.work = Some(value()?),
                _ => return Err(format!("{flag} is not known; {USAGE}").into()),
            }
        }
        Ok(parsed)
    }
}

fn mixes(text: &str) -> Result<Vec<Vec<Group>>> {
    text.split(',').map(mix).collect()
}

/// Less than a lock may be waited for, so that no wait comes to its own end.
fn time(seconds: f64) -> Result<Duration> {
    if (0.1..=30.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err(format!("{seconds} s is not between 0.1 and 30").into())
    }
}

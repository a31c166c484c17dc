use std::{fmt, str::FromStr};

/// A report of a worker: one line on its standard output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// The worker has got a first lock and begins to work.
    Ready,
    /// The worker held a key between these nanoseconds of `CLOCK_BOOTTIME`.
    Hold { key: usize, from: u64, until: u64 },
    /// An event, which is counted by its name.
    Saw(String),
    /// The size of the process.
    Size(Size),
    /// The worker has shut down.
    Ended {
        held: usize,
        abandoned: usize,
        sockets: usize,
    },
}

/// The size of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) descriptors: usize,
    pub(crate) kilobytes: usize,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready => f.write_str("ready"),
            Self::Hold { key, from, until } => write!(f, "hold {key} {from} {until}"),
            Self::Saw(what) => write!(f, "saw {what}"),
            Self::Size(Size {
                descriptors,
                kilobytes,
            }) => write!(f, "size {descriptors} {kilobytes}"),
            Self::Ended {
                held,
                abandoned,
                sockets,
            } => write!(f, "ended {held} {abandoned} {sockets}"),
        }
    }
}

impl FromStr for Line {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let numbers: Vec<u64> = rest.split(' ').map_while(|it| it.parse().ok()).collect();
        // Counts of this machine fit into its words.
        let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        match (word, &numbers[..]) {
            ("ready", _) => Ok(Self::Ready),
            ("saw", _) => Ok(Self::Saw(rest.into())),
            ("hold", &[key, from, until]) => Ok(Self::Hold {
                key: count(key),
                from,
                until,
            }),
            ("size", &[descriptors, kilobytes]) => Ok(Self::Size(Size {
                descriptors: count(descriptors),
                kilobytes: count(kilobytes),
            })),
            ("ended", &[held, abandoned, sockets]) => Ok(Self::Ended {
                held: count(held),
                abandoned: count(abandoned),
                sockets: count(sockets),
            }),
            _ => Err(format!("unknown line of a worker: {line:?}")),
        }
    }
}

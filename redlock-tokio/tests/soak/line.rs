use serde::{Deserialize, Serialize};

/// A report of a worker or of a foreign client: one line of JSON on its standard output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Line {
    /// The process has got a first lock and begins to work.
    Ready,
    /// The process held keys.
    Hold(Hold),
    /// The process stood still between these nanoseconds of `CLOCK_BOOTTIME`.
    Stalled {
        from: u64,
        until: u64,
    },
    Waited(Wait),
    /// An event, which is counted by its name.
    Saw(String),
    /// The size of the process.
    Size(Size),
    /// The worker has shut down.
    Ended(Ended),
}

/// A hold as its holder saw it, in nanoseconds of `CLOCK_BOOTTIME`. It is never longer than the real hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hold {
    pub(crate) keys: Vec<usize>,
    pub(crate) from: u64,
    /// The last time at which the holder knew that it held the keys.
    pub(crate) until: u64,
    /// The end of the validity that the holder saw last.
    pub(crate) valid_until: u64,
    /// When the holder was told that its lock is lost. A holder that was not told counts as told at the end of its
    /// report: it was told at that time or later, or never. None if the keys were held until then.
    pub(crate) told: Option<u64>,
    pub(crate) fence: Option<u64>,
    /// Whether it is a reader's.
    #[serde(default)]
    pub(crate) is_shared: bool,
}

/// The shutdown of a worker, and what it left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ended {
    pub(crate) held: usize,
    pub(crate) sockets: usize,
    /// How long the shutdown took.
    pub(crate) shutdown_ms: u64,
}

/// The size of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Size {
    pub(crate) descriptors: usize,
    pub(crate) kilobytes: usize,
}

/// A part of a wait in which the process did not stand still, in nanoseconds of `CLOCK_BOOTTIME`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Wait {
    pub(crate) key: usize,
    /// When the whole wait began.
    pub(crate) began: u64,
    pub(crate) from: u64,
    pub(crate) until: u64,
}

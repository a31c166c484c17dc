use redlock_tokio::FencingToken;

/// A lock that a client got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    /// The name of the client. Its holds and its stops have the same name.
    pub(crate) client: String,
    /// The keys, without repetitions.
    pub(crate) keys: Vec<String>,
    /// When the client had the lock at the latest. The time at which it was told is right.
    pub(crate) at: u64,
    /// When the validity ends, if nothing extends it.
    pub(crate) valid_until: u64,
    pub(crate) fence: Option<FencingToken>,
    /// Whether it is a reader's lock, which others may have as readers at the same time.
    pub(crate) is_shared: bool,
}

/// How a hold ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The release began.
    Released,
    /// The holder was told at this time that the lock is lost.
    Lost { told: u64 },
    /// The process of the holder died.
    Died,
}

/// The number of a hold, in the order in which the grants were reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct HoldId(pub(super) usize);

use redlock_core::OwedRelease;

/// A release that the node is owed, and for whom.
#[derive(Clone, Debug)]
pub(super) struct Owed<R> {
    /// Until when, and after which replies.
    pub(super) release: OwedRelease,
    /// Knows the requests to set the key that were sent.
    pub(super) requester: R,
}

use redlock_core::Timestamp;

/// Until when, and for whom, a release is owed.
#[derive(Clone, Debug)]
pub(super) struct ReleaseTerms<R> {
    /// When the key has expired by itself.
    pub(super) expires_at: Timestamp,
    /// Whether it was delivered before, and is owed again only because the key may still appear.
    pub(super) delivered: bool,
    /// It knows whether the key may appear after a release that found nothing: because a request to
    /// set it was under way on a connection that was given up.
    pub(super) requester: R,
}

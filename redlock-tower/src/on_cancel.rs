/// What becomes of the lock of a call that does not come to its end: it panics, or its caller goes away and
/// takes it with it (see [`Inline`](crate::Inline)), or drops its body half-way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnCancel {
    /// The lock is released at once.
    #[default]
    Release,
    /// The lock is kept for as long as it would have lived without renewal, a ttl at most: whatever the
    /// call has set going elsewhere (a statement that a database is carrying out) has so long to end. Where
    /// there is no tokio runtime, or it ends before, it is released.
    Expire,
}

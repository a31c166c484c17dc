/// The fate of a call whose lock is lost while it runs.
///
/// With every variant the loss is logged, and the inner service can detect the loss itself by its
/// [`Locked`](crate::Locked).
///
/// If the lock is held until the body's end (feature `http`), `Fail` and `Cancel` cut the body off, since the head
/// has already been sent. Clients can tell that the body is incomplete, except for HTTP/1.0 clients that get a body
/// without a length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnLost {
    /// Runs the call to its end, and leaves the response alone: the work may be committed, and an error would
    /// deny that.
    #[default]
    Signal,
    /// Runs the call to its end, and then fails with [`CallError::Lost`](crate::CallError::Lost): the outcome is
    /// unknown.
    Fail,
    /// Drops the call at the moment of the loss, and fails with [`CallError::Lost`](crate::CallError::Lost).
    Cancel,
}

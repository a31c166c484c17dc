/// The fate of the lock of a call that is cut short.
///
/// A call is cut short if it panics, if its caller goes away and it is not [detached](crate::LockLayer::detached), or
/// if the body of its response holds the lock and is dropped half-way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnCancel {
    /// Releases the lock at once.
    #[default]
    Release,
    /// Keeps the lock until it expires without renewal, which takes one ttl at most.
    ///
    /// An operation that the call has started elsewhere, such as a database statement, has this time to end. If
    /// there is no tokio runtime, or the runtime ends earlier, the lock is released.
    Expire,
}

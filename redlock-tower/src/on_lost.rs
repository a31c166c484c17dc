/// What becomes of a call whose lock is lost while it runs.
///
/// The inner service can always see it for itself: [`HeldLock`](crate::HeldLock) tells. Whichever it is,
/// a loss is logged and counted.
///
/// Where the lock is held to the body's end (feature `http`), `Fail` and `Cancel` cut the body off: the
/// head is gone by then, and a client can tell a body that was cut off from a whole one (but for one that
/// speaks HTTP/1.0, where a body of unknown length ends with the connection).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnLost {
    /// The call goes on, and its response is what it answers: what it did may be done for good, and to
    /// say otherwise would be a lie.
    #[default]
    Signal,
    /// The call goes on, and fails in the end with [`LockError::Lost`](crate::LockError::Lost): "outcome
    /// unknown".
    Fail,
    /// The call is dropped where it stands at the moment of the loss, and fails with
    /// [`LockError::Lost`](crate::LockError::Lost).
    Cancel,
}

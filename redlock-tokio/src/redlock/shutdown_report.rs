#[cfg(doc)]
use super::Redlock;

/// The work that [`Redlock::shutdown`] could not finish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// How many releases were never delivered, each to one node, since the [`Redlock`] was built (not only since
    /// the shutdown began). Their keys expire after the ttl.
    pub abandoned: usize,
    /// How many locks are still held.
    pub held: usize,
    /// Whether the shutdown stopped waiting because of its limit.
    pub timed_out: bool,
}

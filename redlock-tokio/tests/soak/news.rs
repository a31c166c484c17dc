use crate::{
    Result,
    fault::{Fault, Kind},
    source::Source,
};

/// An event of the run.
pub(crate) enum News {
    Line(Source, String),
    /// A process has closed its output.
    Gone(Source),
    Fault(Fault),
    OwnerChange(OwnerChange),
    /// All faults are over.
    Calm(Result<()>),
}

/// A failover or a move of slots, after which a node has another owner.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnerChange {
    pub(crate) kind: Kind,
    /// When the fault began, in nanoseconds of the workers' clock.
    pub(crate) began: u64,
    /// When a majority of the authority named the new owner.
    pub(crate) named: u64,
}

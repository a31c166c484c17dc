use crate::{Result, fault::Fault};

/// An event of the run.
pub(crate) enum News {
    Line(usize, String),
    /// A worker has closed its output.
    Gone(usize),
    Fault(Fault),
    /// All faults are over.
    Calm(Result<()>),
}

use alloc::sync::Arc;
use core::fmt;

/// The name of a server in the reports of an authority, such as its address or its node id.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(Arc<str>);

/// The time of one server as the owner of a node, from one failover to the next.
///
/// The same server with another epoch is another tenure: it was a replica meanwhile, and may have lost keys.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tenure {
    /// The server.
    pub owner: Owner,
    /// The authority's number of the failover that made the server the owner. It grows with each failover.
    pub epoch: u64,
}

impl Owner {
    /// Creates the name from the authority's text.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// Returns the authority's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

//! From whose point of view servers are judged.

use std::sync::Arc;

use crate::{host::Host, requests::ServiceId};

/// A process with one of its `Redlock`s, which has asked its servers for something.
#[derive(Clone, Copy)]
pub(crate) struct Witness<'a> {
    pub(crate) host: &'a Arc<Host>,
    pub(crate) service: ServiceId,
    /// When the request began.
    pub(crate) since: u64,
    /// A server that has changed later, or that the process has connected to later, may have no vote.
    pub(crate) unchanged_since: u64,
}

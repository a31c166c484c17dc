use std::sync::Arc;

use thiserror::Error;

use crate::node::redis::{tls::TlsError, url::UrlError};

/// Why a cluster cannot be used for locks. See [`ClusterNodes`](crate::ClusterNodes).
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// There are no seeds.
    #[error("no seeds are given: name at least one node of the cluster")]
    NoSeeds,
    /// The URL of a seed cannot be used. The error does not repeat the URL, which may hold a password.
    #[error("seed {position}: {error}")]
    Seed {
        /// The position in the list of seeds, from 1.
        position: usize,
        /// The defect of the URL.
        error: UrlError,
    },
    /// The TLS options cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The seeds have a user or a password, and there is a function that returns both.
    #[error("there are credentials, and a function that returns them: leave one of them out")]
    TwoCredentials,
    /// The number of voters is even, zero, or larger than 63.
    #[error("{count} voters: choose an odd number, at most {}", Self::MAX_VOTERS)]
    Voters {
        /// The number that was given.
        count: usize,
    },
    /// A tag cannot stand in braces.
    #[error(
        "tag {position}: a tag has 1 to {} bytes, and neither braces nor control characters",
        Self::MAX_TAG
    )]
    Tag {
        /// The position in the list of tags, from 1.
        position: usize,
    },
    /// Two tags are in one slot, so that their keys would be on one server for ever.
    #[error("tags {first} and {second} are both in slot {slot}: choose tags of different slots")]
    SameSlot {
        /// The position of the first, from 1.
        first: usize,
        /// The position of the second, from 1.
        second: usize,
        /// The slot.
        slot: u16,
    },
    /// Two voters are slots of one server. They would fail together.
    #[error(
        "slots {first} and {second} are both on server {server}, so that two of {voters} voters would fail \
         together, in a cluster of {shards} shards: move one of the slots to another server, or accept that by \
         allow_shared_servers; voters(1) and other tags are only for a fleet of which no process runs, since they do \
         not exclude processes that have the present voters"
    )]
    SharedServer {
        /// The slot of the first voter.
        first: u16,
        /// The slot of the second voter.
        second: u16,
        /// The address of the server that owns both.
        server: Arc<str>,
        /// The number of voters.
        voters: usize,
        /// The number of servers that own slots.
        shards: usize,
    },
}

impl ClusterError {
    /// As many nodes as a lock can have, and an odd number.
    pub(super) const MAX_VOTERS: usize = 63;

    /// The longest tag, in bytes.
    pub(super) const MAX_TAG: usize = 64;
}

use std::{sync::Arc, time::Duration};

use redlock_core::{QuorumError, TtlError};
use thiserror::Error;

use crate::{ClientNameError, Key, NodeReports, OptionsError, UrlError, node::SHARED_SERVER};

/// Why a [`Redlock`](crate::Redlock) could not be built.
///
/// A `main` that returns an error prints its `Debug` form. Print the error itself, so that people can read it:
///
/// ```
/// # use redlock_tokio::Redlock;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let urls = ["redis://a", "redis://b", "redis://a"];
/// let error = Redlock::connect(urls).await.unwrap_err();
/// eprintln!("cannot lock: {error}");
/// assert_eq!(
///     error.to_string(),
///     "nodes 1 and 3 are both a:6379: one server must not vote twice",
/// );
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BuildError {
    /// There are no nodes, or more than 64.
    #[error(transparent)]
    Quorum(#[from] QuorumError),
    /// A URL cannot be used, by itself or with the options of the builder. The error does not repeat the URL, which may
    /// hold a password.
    #[error("node {position}: {error}")]
    Url {
        /// The position in the list of nodes, from 1.
        position: usize,
        /// The defect.
        error: UrlError,
    },
    /// Two nodes have the same address, so one server would vote twice. (`localhost` and `127.0.0.1` are
    /// [`SameServer`](Self::SameServer), if the server is up.)
    #[error("nodes {first} and {second} are both {address}: one server must not vote twice")]
    DuplicateNode {
        /// The address that occurs twice.
        address: Arc<str>,
        /// The position of the first in the list of nodes, from 1. All voters of a cluster have that of its URL.
        first: usize,
        /// The position of the second, from 1.
        second: usize,
    },
    /// The default options cannot be used.
    #[error("invalid defaults: {0}")]
    Options(#[from] OptionsError),
    /// The longest ttl is zero, or longer than 100 years.
    #[error("max_ttl: {0}")]
    MaxTtl(TtlError),
    /// The [`client_name`](crate::RedlockBuilder::client_name) cannot be used.
    #[error("client_name: {0}")]
    ClientName(ClientNameError),
    /// A timeout is zero, so that no node could answer in time, or longer than an hour.
    #[error("{name} is {timeout:?}: choose more than zero and at most an hour")]
    Timeout {
        /// The name of the timeout.
        name: &'static str,
        /// The value that was given.
        timeout: Duration,
    },
    /// The prefix leaves no room for keys.
    #[error(
        "the prefix has {len} bytes, and a key with its prefix may have at most {}",
        Key::MAX_LEN
    )]
    Prefix {
        /// The length of the prefix, in bytes.
        len: usize,
    },
    /// No lock can have this prefix, since its keys would be taken for [other keys](crate::KeyError::Reserved) of this
    /// crate.
    #[error(
        "the prefix begins with `{name}`, which is reserved for keys that are not locks: choose another"
    )]
    ReservedPrefix {
        /// The beginning that is reserved.
        name: &'static str,
    },
    /// So many nodes refuse this client that the others cannot form a majority. See
    /// [`NodeError::Misconfigured`](crate::NodeError::Misconfigured).
    #[error(
        "{votes_needed} of {nodes_total} nodes must agree, and too many refuse this client ({nodes})"
    )]
    Refused {
        /// How many nodes must agree.
        votes_needed: usize,
        /// How many nodes there are.
        nodes_total: usize,
        /// The nodes that refuse this client, with their reasons.
        nodes: NodeReports,
    },
    /// Two addresses lead to one server, which would vote twice.
    #[error("{first} and {second} are one server: one server must not vote twice")]
    SameServer {
        /// The address that was given first.
        first: Arc<str>,
        /// The address that was given second.
        second: Arc<str>,
    },
    /// Two voters of a cluster are slots of one server. They would fail together.
    #[error("{first} and {second} are both on {server}, {SHARED_SERVER}")]
    SharedServer {
        /// The voter that was given first.
        first: Arc<str>,
        /// The voter that was given second.
        second: Arc<str>,
        /// The address of the server.
        server: Arc<str>,
    },
    /// There is no tokio runtime for the background work.
    #[error("no tokio runtime: call this from within one, such as under #[tokio::main]")]
    NoRuntime,
}

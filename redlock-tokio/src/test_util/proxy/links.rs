use std::net::SocketAddr;

use tokio::sync::watch;

use super::link::Link;

/// The state that a proxy's thread and its owner share.
#[derive(Debug)]
pub(super) struct Links {
    pub(super) requests: Link,
    pub(super) replies: Link,
    pub(super) route: watch::Sender<Route>,
}

impl Links {
    pub(super) fn to(target: SocketAddr) -> Self {
        Self {
            requests: Link::default(),
            replies: Link::default(),
            route: watch::Sender::new(Route { target, moved: 0 }),
        }
    }
}

/// The server that a proxy relays to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Route {
    pub(super) target: SocketAddr,
    /// How often the connections that existed were moved to another server.
    pub(super) moved: u64,
}

//! Which servers could do all that a process asked them for: what a process says of its nodes is judged by that.

use std::sync::Arc;

use super::{Connection, Network};
use crate::{
    clock::MILLI,
    host::Host,
    requests::ServiceId,
    server::{Condition, Server},
};

/// How long it takes at most until the code of a process has an answer.
const HEARD: u64 = 10 * MILLI;

/// When each server changed for the last time, in true time.
#[derive(Default)]
pub(super) struct Changes(Vec<Change>);

struct Change {
    condition: Condition,
    at: u64,
}

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

impl Changes {
    /// Looks which servers have changed.
    pub(super) fn note(&mut self, at: u64, servers: &[Server]) {
        for (index, server) in servers.iter().enumerate() {
            let condition = server.condition();
            match self.0.get_mut(index) {
                Some(last) if last.condition == condition => {}
                Some(last) => *last = Change { condition, at },
                None => self.0.push(Change { condition, at }),
            }
        }
    }

    pub(super) fn last_of(&self, server: usize) -> u64 {
        self.0.get(server).map_or(0, |it| it.at)
    }
}

impl Network {
    /// Looks which servers have changed. Call this after each step of the world.
    pub(crate) fn note_changes(&mut self) {
        let at = self.at();
        self.changes.note(at, &self.servers);
    }

    /// Returns whether a server has changed after this time.
    pub(crate) fn has_changed(&self, server: usize, since: u64) -> bool {
        self.changes.last_of(server) > since
    }

    /// Returns how many of the servers may have had no vote, or may not have answered each command in time, since the
    /// request began.
    pub(crate) fn unreliable_servers(&self, witness: Witness<'_>, addresses: usize) -> usize {
        let is_reliable = |address: usize| {
            let server = self.machine(address);
            let mut connections = self.connections.values();
            self.changes.last_of(server) <= witness.unchanged_since
                && connections.any(|it| it.server == server && it.served(witness))
        };
        (0..addresses).filter(|it| !is_reliable(*it)).count()
    }
}

impl Connection {
    fn served(&self, witness: Witness<'_>) -> bool {
        let Witness {
            host,
            service,
            since,
            unchanged_since,
        } = witness;
        let is_own = Arc::ptr_eq(&self.host, host) && self.service == service;
        let prompt_since = self.prompt_since(host.now());
        // A process that stood still sees only then what has changed.
        let is_old = self.opened_at.max(host.resumed_at()) <= unchanged_since;
        is_own && is_old && prompt_since.is_some_and(|it| it + HEARD <= since)
    }
}

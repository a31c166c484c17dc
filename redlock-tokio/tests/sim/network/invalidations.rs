//! Word that keys are gone, which may be lost, late, doubled or invented.

use std::collections::BTreeSet;

use redlock_tokio::Key;
use tokio::sync::mpsc;

use super::{ConnectionId, Network};
use crate::{clock::MILLI, message::Word, seen::Seen};

impl Network {
    /// Sends word that a key is gone to all that asked for it, or plans to do so when it expires.
    pub(crate) fn notify_of(&mut self, at: u64, server: usize, key: &Key) {
        let trackers: BTreeSet<_> = self.servers[server].take_trackers(at, key);
        for id in trackers {
            self.invalidate(at, id, &Word::Freed(key.clone()));
        }
        self.plan_expiry(at, server, key);
    }

    /// Plans to send word of a key that somebody asked for when it expires.
    pub(crate) fn plan_expiry(&mut self, at: u64, server: usize, key: &Key) {
        if let Some(left) = self.servers[server].expires_in(at, key) {
            let key = key.clone();
            let expire = move |network: &mut Self| {
                let at = network.at();
                network.notify_of(at, server, &key);
            };
            self.queue.push_to_network(at + left, expire);
        }
    }

    /// Sends word to all that are connected to a server that any key may be gone.
    pub(crate) fn notify_of_all(&mut self, at: u64, server: usize) {
        for id in self.connections_to(server) {
            self.invalidate(at, id, &Word::AllFreed);
        }
    }

    pub(super) fn invalidate(&mut self, at: u64, connection: ConnectionId, word: &Word) {
        if self.befalls(Seen::InvalidationLost) {
            return;
        }
        let times = 1 + u32::from(self.befalls(Seen::InvalidationDoubled));
        for _ in 0..times {
            let late = if self.befalls(Seen::InvalidationLate) {
                self.rng.around(500 * MILLI)
            } else {
                0
            };
            let Some(at) = self.delivery(at, connection) else {
                return;
            };
            let word = word.clone();
            let arrive = move |network: &mut Self| network.deliver_invalidation(connection, word);
            self.queue.push_to_network(at + late, arrive);
        }
    }

    /// Word that a key is gone reaches the process.
    pub(crate) fn deliver_invalidation(&mut self, id: ConnectionId, word: Word) {
        let connection = self.connections.get(&id);
        if let Some(invalidations) = connection.and_then(|it| it.invalidations.as_ref()) {
            let _ = invalidations.send(word);
        }
    }

    /// Claims to some process that keys are gone: any key, one that may be taken, or one that nobody asked for.
    pub(crate) fn invent_invalidation(&mut self) {
        if self.connections.is_empty() || !self.befalls(Seen::InvalidationInvented) {
            return;
        }
        let index = self.rng.usize(..self.connections.len());
        let id = self.connections.keys().nth(index).copied();
        let key = |text: &str| Key::new(text).expect("a short key");
        let word = match self.rng.u8(..4) {
            0 => Word::AllFreed,
            1 => Word::Freed(key("key-0")),
            2 => Word::Called(key("key-0"), false),
            _ => {
                self.seen.note(Seen::InvalidationUnasked);
                Word::Freed(key("nobody-asked"))
            }
        };
        if let Some(id) = id {
            self.deliver_invalidation(id, word);
        }
    }

    /// Returns where word of keys that are gone arrives.
    pub(crate) fn invalidations(&mut self, id: ConnectionId) -> mpsc::UnboundedReceiver<Word> {
        let (sender, receiver) = mpsc::unbounded_channel();
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.invalidations = Some(sender);
        }
        receiver
    }
}

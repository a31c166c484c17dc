//! Clients that are not ours and share our keys.
//!
//! One kind keeps to the rules: it sets a key where it is free, and deletes its own. The other deletes and overwrites
//! keys of ours. A lock survives that as long as a majority of the servers has its key for as long as the one that is
//! hit would have had it: then no other lock finds a majority before the validity ends.

use std::sync::Arc;

use redlock_core::{Nonce, Ttl};
use redlock_tokio::{Key, Token};

use crate::{
    clock::MILLI,
    network::Network,
    requests::{Keys, OpenRequest},
    seen::Seen,
    server::Found,
    world::World,
};

/// What a foreign client writes to a key, on one server or on several.
struct Value {
    key: Key,
    token: Token,
    ttl: Ttl,
    /// To our clients it is a rival, until this is dropped.
    _open: OpenRequest,
}

impl World {
    /// A foreign client sets a key where it is free, and deletes its own later, or lets it expire.
    pub(super) fn lock_as_foreign_client(&mut self) {
        let value = self.draw_value(None);
        let servers = self.network.lock().writable_servers(self.scale.servers);
        let share = self.rng.pick(&[1_000_000, 1_000_000, 300_000]);
        let deletes = self.rng.chance(700_000);
        let hold = self.rng.around(self.max_ttl() / 8) + 10 * MILLI;
        for server in servers {
            if !self.rng.chance(share) {
                continue;
            }
            let delay = self.rng.around(MILLI);
            let set = Arc::clone(&value);
            self.push(delay, move |world| world.set_foreign(server, &set));
            if deletes {
                let delay = delay + hold + self.rng.around(MILLI);
                self.delete_foreign_later(delay, server, &value);
            }
        }
        self.forget_later(value);
    }

    /// A foreign client deletes or overwrites a key of ours, on a server that the lock can spare.
    pub(super) fn write_as_foreign_client(&mut self) {
        if self.configuration.owners.is_some() {
            // A voter is several servers, and none can be spared.
            return;
        }
        let count = self.scale.servers * self.scale.keys;
        let first = self.rng.usize(..count);
        let overwrites = self.rng.bool();
        let Some((server, key)) = (0..count).find_map(|it| {
            let index = (first + it) % count;
            let key = shared_key(index / self.scale.servers);
            let address = index % self.scale.servers;
            let network = self.network.lock();
            let can_spare = network.can_spare(self.scale.servers, address, &key);
            can_spare.then(|| (network.machine(address), key))
        }) else {
            return;
        };
        let text = || format!("a foreign client takes {key:?} on server {server}");
        self.tell((server, key.as_bytes(), overwrites), text);
        let value = overwrites.then(|| self.draw_value(Some(key.clone())));
        let mut network = self.network.lock();
        let at = network.at();
        network.servers[server].delete(at, &key);
        network.foreign_delete_at = at;
        network.notify_of(at, server, &key);
        network.seen.note(Seen::ForeignDelete);
        if let Some(value) = value {
            network.servers[server].overwrite(at, &key, value.token, value.ttl);
            network.seen.note(Seen::ForeignOverwrite);
            drop(network);
            let delay = self.rng.around(self.max_ttl() / 8) + MILLI;
            self.delete_foreign_later(delay, server, &value);
            self.forget_later(value);
        }
    }

    fn set_foreign(&mut self, server: usize, value: &Value) {
        let Value {
            key, token, ttl, ..
        } = value;
        let network = &mut *self.network.lock();
        let at = network.at();
        let it = &mut network.servers[server];
        if self.is_calm || !it.is_at_work(at) {
            return;
        }
        if !it.find(at, key).is_empty() {
            return network.seen.note(Seen::ForeignDenied);
        }
        it.overwrite(at, key, *token, *ttl);
        let what = (server, key.as_bytes(), *token);
        let text = || format!("a foreign client sets {key:?} on server {server}");
        network.trace.note(at, what, text);
        network.seen.note(Seen::ForeignSet);
    }

    fn delete_foreign_later(&self, delay: u64, server: usize, value: &Arc<Value>) {
        let value = Arc::clone(value);
        self.push(delay, move |world| {
            let network = &mut *world.network.lock();
            let at = network.at();
            let it = &mut network.servers[server];
            let found = it.find(at, &value.key);
            let is_own = found.iter().any(|found| found.token == value.token);
            if it.is_at_work(at) && is_own {
                it.delete(at, &value.key);
                network.notify_of(at, server, &value.key);
                network.seen.note(Seen::ForeignRelease);
            }
        });
    }

    fn draw_value(&mut self, key: Option<Key>) -> Arc<Value> {
        let key = key.unwrap_or_else(|| shared_key(self.rng.usize(..self.scale.keys)));
        let ttl = self.scale.max_ttl / self.rng.pick(&[1, 4, 20]);
        let requests = &self.records.requests;
        let names = vec![String::from_utf8_lossy(key.as_bytes()).into_owned()];
        let network = self.network.clone();
        let now = Arc::clone(&network.lock().now);
        let now = move || now.load(std::sync::atomic::Ordering::Relaxed);
        let service = requests.lock().new_service();
        Arc::new(Value {
            _open: OpenRequest::begin(requests, service, Keys::Foreign, names, now),
            key,
            token: Nonce::new(self.rng.u128(..)).token(1),
            ttl: Ttl::new(ttl).expect("at least some milliseconds"),
        })
    }

    /// Counts a foreign client as a rival until its keys have expired on clocks that were set back, too.
    fn forget_later(&self, value: Arc<Value>) {
        self.push(2 * self.max_ttl(), |_| drop(value));
    }
}

impl Network {
    /// Returns whether a key of ours can be taken from a server: a majority of the others has it for as long.
    fn can_spare(&self, addresses: usize, address: usize, key: &Key) -> bool {
        let at = self.at();
        let find = |address| self.servers[self.machine(address)].find(at, key);
        let is_at_work = self.servers[self.machine(address)].is_at_work(at);
        let found = find(address);
        let is_backed = |found: &Found| {
            let others = (0..addresses).filter(|other| *other != address);
            let backed = others
                .flat_map(find)
                .filter(|other| other.token == found.token && other.expires_in >= found.expires_in);
            found.is_ours && backed.count() > addresses / 2
        };
        is_at_work && !found.is_empty() && found.iter().all(is_backed)
    }
}

fn shared_key(number: usize) -> Key {
    Key::new(format!("key-{number}")).expect("a short key")
}

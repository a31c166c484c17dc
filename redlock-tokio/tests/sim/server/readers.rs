//! Readers and waiting writers on a simulated server, which does the same as the scripts on a real one.

use std::time::Duration;

use redlock_tokio::{
    Key,
    node::{Access, Answer, Command, Operation, Vote},
};

use super::{
    Sender, Server,
    store::{Entry, Name},
};
use crate::message::refused;

/// The mark of a writer that waits.
pub(super) struct Mark {
    writer: Box<[u8]>,
    /// In milliseconds of the server's clock.
    expires_at: u64,
}

/// The length of the nonce that a mark has, with which the token of its writer begins.
const NONCE_LEN: usize = 32;

impl Server {
    /// Carries out a command of a reader.
    pub(super) fn execute_for_reader(
        &mut self,
        at: u64,
        from: Sender,
        command: &Command,
    ) -> Answer {
        let (now, key) = (self.millis(at), command.key());
        let is_alone = self.live(now, key).is_some();
        let is_shared = !is_alone && self.all_live(now, key).next().is_some();
        Ok(match command.operation() {
            Operation::Acquire { token, ttl, .. } => {
                if is_alone {
                    return Ok(Vote::Denied);
                }
                let name = Name::of_reader(key, token);
                let own = self.live_reader(now, &name);
                let insists = matches!(command.access(), Access::Reader { insists: true });
                if !insists && own.is_none() && self.mark_left(now, key).is_some() {
                    return Ok(Vote::Denied);
                }
                let ends = now + ttl.as_millis();
                let entry = Entry {
                    token,
                    expires_at: own.map_or(ends, |it| ends.max(it.expires_at)),
                    set_by: Some(from.service),
                    set_at: at,
                    ttl,
                };
                self.put_reader(at, name, entry);
                Vote::Granted
            }
            Operation::Extend { token, ttl, .. } => {
                let name = Name::of_reader(key, token);
                let own = match self.live(now, key) {
                    Some(own) if own.token == token => {
                        self.delete_mark(command);
                        Some(own)
                    }
                    Some(_) => None,
                    None => self.live_reader(now, &name),
                };
                let Some(own) = own else {
                    return Ok(Vote::Denied);
                };
                let entry = Entry {
                    expires_at: own.expires_at.max(now + ttl.as_millis()),
                    set_at: at,
                    ..own
                };
                self.put_reader(at, name, entry);
                Vote::Extended {
                    remaining: Duration::from_millis(own.expires_at - now),
                }
            }
            Operation::Release { token } => {
                let name = Name::of_reader(key, token);
                let is_in = is_shared && self.store.get(&name).is_some();
                if !is_in && !self.has(now, key, token) {
                    return Ok(Vote::Denied);
                }
                self.store.remove_if(at, key, |_, it| it.token == token);
                Vote::Granted
            }
            Operation::Probe { .. } => match (self.live(now, key), self.mark_left(now, key)) {
                (Some(it), _) => {
                    self.track(now, from.connection, command);
                    let remaining = Duration::from_millis(it.expires_at - now);
                    Vote::Taken {
                        remaining,
                        by: None,
                    }
                }
                (None, Some(remaining)) => {
                    self.track(now, from.connection, command);
                    Vote::Marked { remaining }
                }
                (None, None) => Vote::Free,
            },
            _ => return Err(refused("ERR", "unknown command")),
        })
    }

    /// Marks a key for the writer whose probe this is.
    pub(crate) fn mark(&mut self, at: u64, command: &Command) {
        let Operation::Probe {
            mark: Some(ttl), ..
        } = command.operation()
        else {
            return;
        };
        let mark = Mark {
            writer: nonce(command).into(),
            expires_at: self.millis(at) + ttl.as_millis(),
        };
        self.marks.insert(command.key().clone(), mark);
    }

    /// Deletes the mark of a writer, or of a reader that was one.
    pub(super) fn delete_mark(&mut self, command: &Command) {
        let mark = self.marks.get(command.key());
        if mark.is_some_and(|it| *it.writer == *nonce(command)) {
            self.marks.remove(command.key());
        }
    }

    /// Returns whether a reader that did not insist would be kept out by a mark.
    pub(crate) fn keeps_readers_out(&self, at: u64, key: &Key) -> bool {
        self.mark_left(self.millis(at), key).is_some()
    }

    /// Adds a reader, or replaces its entry, and drops all that does not belong to a shared key.
    fn put_reader(&mut self, at: u64, name: Name, entry: Entry) {
        let (now, key) = (self.millis(at), &name.key);
        let is_over = |name: &Name, it: &Entry| !name.is_readers() || it.expires_at <= now;
        self.store.remove_if(at, key, is_over);
        self.store.put(at, name, entry);
    }

    fn live_reader(&self, now: u64, name: &Name) -> Option<Entry> {
        self.store.get(name).filter(|it| now < it.expires_at)
    }

    pub(super) fn mark_left(&self, now: u64, key: &Key) -> Option<Duration> {
        let mark = self.marks.get(key).filter(|it| now < it.expires_at)?;
        Some(Duration::from_millis(mark.expires_at - now))
    }
}

fn nonce(command: &Command) -> &[u8] {
    &command.value()[..NONCE_LEN]
}

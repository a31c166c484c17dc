//! The loop that drives a lease: requests out, replies and events in, one timer.

use redlock_core::{Eligibility, Event as LeaseEvent, Operation, Reply, RoundId};

use super::{Active, Said};
use crate::{
    clock::MILLI, configuration::Mutant, events::ClientEvent, history::Breach, lane::Purpose,
    master::Request, seen::Seen, world::World,
};

impl World {
    /// Does what the lease wants done, until it wants nothing any more; then arms its timer.
    pub(super) fn settle(&mut self, client: usize) {
        let Some(mut active) = self.clients[client].active.take() else {
            self.clients[client].replies.clear();
            return;
        };
        let now = self.clients[client].now(self.at);
        loop {
            if let Some(transmit) = active.lease.poll_transmit() {
                let held = active.lease.valid_until(now).is_some();
                match transmit.operation {
                    Operation::Acquire { .. } if held => self.note(Seen::Repaired),
                    Operation::Fence { .. } if held => self.note(Seen::RaisedAgain),
                    Operation::Acquire { .. } => active.fenced_twice = false,
                    Operation::Fence { .. } => active.fenced_twice = true,
                    _ => {}
                }
                let request = Request {
                    key: active.key,
                    lease: active.number,
                    operation: transmit.operation,
                };
                let purpose = Purpose::Round(transmit.round);
                // Now and then the process is stopped after it has read the clock and before it
                // sends.
                if !self.calm && self.rng.chance(20 * self.configuration.severity) {
                    self.pause(client);
                }
                for node in transmit.nodes.iter() {
                    let master = node.index();
                    if self.clients[client].paused_at.is_some() {
                        self.clients[client].stalled.push_back(ClientEvent::Send {
                            master,
                            request,
                            purpose,
                        });
                    } else {
                        self.send(client, master, request, purpose);
                    }
                }
            } else if let Some(event) = active.lease.poll_event() {
                self.hear(client, &mut active, event);
            } else if let Some((lease, round, node, said)) =
                self.clients[client].replies.pop_front()
            {
                if lease == active.number {
                    let Said { reply, eligibility } = self.forge(&mut active, round, said);
                    if reply == Reply::Denied && active.acquired_at.is_none() {
                        self.note(Seen::Contended);
                    }
                    active
                        .lease
                        .handle_reply(now, round, node, reply, eligibility);
                }
            } else {
                break;
            }
        }
        if active.lease.is_closed() {
            return self.end(client, active.number);
        }
        match active.lease.poll_timeout() {
            None => self.fail(Breach::NoTimeout { client }),
            Some(due) => {
                let fires = self.clients[client].when(due).max(self.at);
                if active.armed.is_none_or(|armed| fires < armed) {
                    active.armed = Some(fires);
                    // Now and then timers fire late.
                    let late = if self.rng.chance(50_000) {
                        self.rng.around(10 * MILLI)
                    } else {
                        0
                    };
                    self.schedule_client(fires + late, client, ClientEvent::Wake);
                }
            }
        }
        self.clients[client].active = Some(active);
    }

    /// Takes what a lease tells its holder.
    fn hear(&mut self, client: usize, active: &mut Active, event: LeaseEvent) {
        self.trace.tell(self.at, || {
            let Active { number, key, .. } = active;
            format!("client {client} lease {number} key {key}: {event:?}")
        });
        let word = match event {
            LeaseEvent::Acquired { valid_until, .. }
            | LeaseEvent::Extended { valid_until }
            | LeaseEvent::ExtendFailed { valid_until } => valid_until.as_nanos(),
            _ => 0,
        };
        self.trace.event([self.at, 21, client as u64, word]);
        match event {
            LeaseEvent::Acquired {
                valid_until, fence, ..
            } => {
                active.lease.claim(self.clients[client].now(self.at));
                self.acquired(client, active, valid_until, fence);
            }
            LeaseEvent::Extended { valid_until } => {
                self.note(Seen::Extended);
                if std::mem::take(&mut active.renewal_fails) {
                    self.note(Seen::Recovered);
                }
                self.check_gain(client, active, valid_until);
            }
            LeaseEvent::ExtendFailed { .. } => {
                active.renewal_fails = true;
                if self.configuration.mutant == Some(Mutant::ReleasesOnFailedExtension) {
                    let token = active.lease.token();
                    let request = Request {
                        key: active.key,
                        lease: active.number,
                        operation: Operation::Release { token },
                    };
                    for master in 0..self.nodes() {
                        self.send(client, master, request, Purpose::Nothing);
                    }
                }
            }
            other => self.note_end(other),
        }
    }

    /// Turns one refusal in each round of acquisition into a grant, for the mutant.
    fn forge(&self, active: &mut Active, round: RoundId, said: Said) -> Said {
        let forges = self.configuration.mutant == Some(Mutant::ForgesAVote);
        let free = active.acquired_at.is_none() && active.forged_in != Some(round);
        if forges && free && said.reply == Reply::Denied {
            active.forged_in = Some(round);
            Said {
                reply: Reply::Granted,
                eligibility: Eligibility::ALWAYS,
            }
        } else {
            said
        }
    }
}

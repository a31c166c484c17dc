//! What each step does to a world with an authority.

use std::time::Duration;

use redlock_core::Lease;

use super::{
    setup::{Failovers, Mutation, OwnerSetup},
    steps::OwnerStep,
    world::{Member, Members, OwnerWorld, Reign, RollCall, node},
};
use crate::world::Phase;

impl OwnerSetup {
    pub(super) fn apply(&self, world: &mut OwnerWorld, step: OwnerStep) {
        match step {
            OwnerStep::Tick { stalled } => self.tick(world, stalled),
            OwnerStep::FailOver { member, owner } => {
                world.faults.failovers -= 1;
                let epoch = world.members[member].reign.epoch + 1;
                self.follow(world, member, Reign { epoch, owner });
                self.promote(world, owner);
            }
            OwnerStep::Follow { member, to } => self.follow(world, member, to),
            OwnerStep::Restart(member) => {
                world.faults.restarts -= 1;
                world.members[member].since = Some(world.now);
            }
            OwnerStep::Renew(member) => {
                world.faults.renewals -= 1;
                world.members[member] = Member {
                    reign: Reign {
                        epoch: 0,
                        ..Reign::FIRST
                    },
                    since: self.ages.then_some(world.now),
                    is_alone: true,
                };
            }
            OwnerStep::Return(member) => {
                world.faults.returns -= 1;
                world.members[member].reign = Reign::FIRST;
            }
            OwnerStep::Mark(reign) => {
                world.faults.marks -= 1;
                self.mark(world, &reign.tenure(), reign.owner);
            }
            OwnerStep::Poll {
                client,
                members,
                late,
            } => self.poll(world, client, members, late),
            OwnerStep::Hear { client, answer } => {
                let (member, report) = world.clients[client].late_answers.remove(answer);
                self.hear(world, client, member, report);
            }
            OwnerStep::Begin { client, late } => {
                world.faults.late_sets -= u8::from(late);
                world.clients[client].phase = Phase::Acquiring;
                self.drive(world, client, late, |lease, now| {
                    lease.acquire(now, now.saturating_add(Duration::from_millis(100)));
                });
            }
            OwnerStep::Arrive(client) => {
                if let Some((server, message)) = world.clients[client].late_set.take() {
                    self.carry_out(world, client, server, &message);
                    self.drive(world, client, false, |_, _| {});
                }
            }
        }
    }

    fn tick(&self, world: &mut OwnerWorld, stalled: Option<usize>) {
        world.now += 1;
        if let Some(client) = stalled {
            world.faults.stalls -= 1;
            world.clients[client].lag += 1;
        }
        for client in 0..world.clients.len() {
            world.clients[client].has_polled = false;
            if world.clients[client].phase.is_active() {
                self.drive(world, client, false, Lease::handle_timeout);
            }
        }
        // States that differ only in what no longer matters are one.
        for server in &mut world.servers {
            server.master.forget_expired(world.now);
        }
    }

    /// A server becomes the owner. A connected client sees that.
    fn promote(&self, world: &mut OwnerWorld, owner: usize) {
        if self.failovers == Failovers::LoseKeys {
            world.servers[owner].master.forget_all();
        } else {
            let old = world.servers.iter().find(|it| !it.is_deposed);
            let keys = old.expect("one is the owner").master.keys.clone();
            for server in &mut world.servers {
                server.is_deposed = true;
            }
            world.servers[owner].master.keys = keys;
            world.servers[owner].is_deposed = false;
        }
        world.servers[owner].master.promoted_at = Some(world.now);
        for client in 0..world.clients.len() {
            if world.clients[client].server == Some(owner) {
                self.inspect(world, client);
            }
        }
    }

    fn follow(&self, world: &mut OwnerWorld, member: usize, to: Reign) {
        let it = &mut world.members[member];
        let is_same_server = it.reign.owner == to.owner;
        it.reign = to;
        if self.ages && !(is_same_server && self.mutation == Some(Mutation::AgeOfTheServer)) {
            it.since = Some(world.now);
        }
    }

    fn poll(&self, world: &mut OwnerWorld, client: usize, members: Members, is_late: bool) {
        world.clients[client].has_polled = true;
        let asked = members.iter().filter(|&it| !self.is_left_out(world, it));
        let reports = asked.map(|it| (it, self.report(world, client, it)));
        let reports: Vec<_> = reports.collect();
        let asked_at = world.local(client);
        let it = &mut world.clients[client];
        // An owner that is known needs no roll call.
        it.roll_call = it.electorate.tenure(node()).is_none().then(|| RollCall {
            asked_at,
            unheard: self.lists[client].to_vec(),
        });
        if is_late {
            world.faults.late_answers -= u8::from(!self.scatters[client]);
            world.clients[client].late_answers = reports;
        } else {
            for (member, report) in reports {
                self.hear(world, client, member, report);
            }
        }
    }
}

//! Which steps can come next in a world with an authority.

use std::{collections::BTreeSet, ops::RangeInclusive};

use super::{
    setup::{Mutation, OwnerSetup},
    steps::OwnerStep,
    world::{Member, Members, OwnerWorld, Reign},
};
use crate::world::Phase;

impl OwnerSetup {
    pub(super) fn steps(&self, world: &OwnerWorld) -> Vec<OwnerStep> {
        let mut steps = Vec::new();
        // Clients are alike, and the first of them begins first. Without it there is nothing to see.
        let is_going_on = (0..world.clients.len()).any(|client| {
            let phase = world.clients[client].phase;
            phase.is_active() || self.may_begin(world, client, world.now + 1)
        });
        for member in 0..world.members.len() {
            self.push_steps_of_member(&mut steps, world, member);
        }
        if world.faults.marks > 0 {
            steps.extend(self.markable(world).map(OwnerStep::Mark));
        }
        for client in 0..world.clients.len() {
            self.push_steps_of_client(&mut steps, world, client);
        }
        if is_going_on {
            steps.push(OwnerStep::Tick { stalled: None });
            let active = |it: &usize| world.clients[*it].phase.is_active();
            if world.faults.stalls > 0 {
                let clients = (0..world.clients.len()).filter(active);
                steps.extend(clients.map(|it| OwnerStep::Tick { stalled: Some(it) }));
            }
        }
        steps
    }

    fn push_steps_of_member(&self, steps: &mut Vec<OwnerStep>, world: &OwnerWorld, member: usize) {
        let faults = &world.faults;
        let own = world.members[member].reign;
        if world.members[member].is_alone {
            return;
        }
        let begun = usize::from(self.faults.failovers - faults.failovers);
        let may_begin = begun > 0 || !self.are_alike || member == 0;
        let is_time = |it: &RangeInclusive<u8>| it.contains(&world.now);
        // Where epochs begin anew, each change is made at all members before the next one begins.
        let may_begin = may_begin
            && (!self.epochs_begin_anew || world.members.iter().all(|it| it.reign == own));
        if faults.failovers > 0 && may_begin && is_time(&self.fail_over_at[begun]) {
            let others = (0..self.servers).filter(|&owner| owner != own.owner);
            steps.extend(others.map(|owner| OwnerStep::FailOver { member, owner }));
        }
        let later: BTreeSet<_> = world.members.iter().map(|it| it.reign).collect();
        let later = later.into_iter().filter(|it| it.epoch > own.epoch);
        // The members that are alike turn in their order.
        let is_first = !self.are_alike || world.members[..member].iter().all(|it| it.reign != own);
        let follows = later.filter(|_| is_first);
        steps.extend(follows.map(|to| OwnerStep::Follow { member, to }));
        if faults.restarts > 0 && member == 1 && world.members[member].since != Some(world.now) {
            steps.push(OwnerStep::Restart(member));
        }
        if faults.renewals > 0 && member == 0 {
            steps.push(OwnerStep::Renew(member));
        }
        if faults.returns > 0 && own != Reign::FIRST {
            steps.push(OwnerStep::Return(member));
        }
    }

    fn push_steps_of_client(&self, steps: &mut Vec<OwnerStep>, world: &OwnerWorld, client: usize) {
        let it = &world.clients[client];
        // A client that has begun needs its watch for extensions only.
        let watches = self.may_begin(world, client, world.now)
            || it.phase == Phase::Held && self.max_hold > 0;
        if watches && !it.has_polled {
            for members in Members::sets_of(self.polls[client], self.lists[client]) {
                let poll = |late| OwnerStep::Poll {
                    client,
                    members,
                    late,
                };
                if self.scatters[client] {
                    if it.late_answers.is_empty() {
                        steps.push(poll(true));
                    }
                    continue;
                }
                steps.push(poll(false));
                if client == 0 && world.faults.late_answers > 0 && it.late_answers.is_empty() {
                    steps.push(poll(true));
                }
            }
        }
        if watches {
            let late = 0..it.late_answers.len();
            steps.extend(late.map(|answer| OwnerStep::Hear { client, answer }));
        }
        if it.late_set.is_some() {
            steps.push(OwnerStep::Arrive(client));
        }
        let is_next = client == 0 || world.clients[0].phase != Phase::Idle;
        if is_next && it.server.is_some() && self.may_begin(world, client, world.now) {
            steps.push(OwnerStep::Begin {
                client,
                late: false,
            });
            if client == 0 && world.faults.late_sets > 0 {
                steps.push(OwnerStep::Begin { client, late: true });
            }
        }
    }

    /// The tenures after the first one that a client may have a confirmation of.
    fn markable(&self, world: &OwnerWorld) -> impl Iterator<Item = Reign> {
        let votes = match self.mutation {
            Some(Mutation::MarkedTooSoon) => 1,
            _ => world.members.len() / 2 + 1,
        };
        let of = |member: &Member| member.reign;
        let reigns: BTreeSet<_> = world.members.iter().map(of).collect();
        let named = |it: &Reign| world.members.iter().map(of).filter(|of| of == it).count();
        let markable = |it: &Reign| *it != Reign::FIRST && named(it) >= votes;
        let markable: Vec<_> = reigns.into_iter().filter(markable).collect();
        markable.into_iter()
    }

    /// Whether a client may begin then, or later.
    fn may_begin(&self, world: &OwnerWorld, client: usize, now: u8) -> bool {
        let is_first_over = world.clients[0].phase == Phase::Idle && now > self.begin_by[0];
        let is_idle = world.clients[client].phase == Phase::Idle;
        is_idle && !is_first_over && now <= self.begin_by[client]
    }
}

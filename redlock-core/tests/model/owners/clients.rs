//! The driver of a client: it asks members, connects to the owner, sends, and breaks a rule if it is told to.

use std::time::Duration;

use redlock_core::{
    AgeMarker, Eligibility, Event, Identity, Lease, MemberReport, Reply, ServerRole, Sighting,
    Status, Tenure, Timestamp,
};

use super::{
    setup::{Authority, Failovers, Mutation, OwnerSetup},
    world::{LONG, OwnerWorld, Reign, TICK, member_id, node},
};
use crate::{
    driver::prompt,
    masters::carry_out,
    setup::Setup,
    world::{Message, Phase},
};

impl OwnerSetup {
    /// A client has heard of the first owner long ago, from all members that it asks.
    pub(super) fn watch_from_the_beginning(&self, world: &mut OwnerWorld, client: usize) {
        let long_ago = Timestamp::ZERO;
        for asked_at in [long_ago, world.local(client)] {
            let own = self.lists[client]
                .iter()
                .filter(|it| !self.is_stranger(**it));
            for &member in own {
                let report = MemberReport {
                    age: LONG,
                    asked_at,
                    ..self.report(world, client, member)
                };
                let electorate = &mut world.clients[client].electorate;
                electorate.handle_report(asked_at, node(), report);
            }
            let electorate = &mut world.clients[client].electorate;
            if electorate.handle_roll_call(asked_at, node(), asked_at) {
                self.connect(world, client, world.local(client));
            }
        }
    }

    /// What a driver makes of a member's answer: the truth, unless it is broken.
    pub(super) fn report(&self, world: &OwnerWorld, client: usize, member: usize) -> MemberReport {
        let it = &world.members[member];
        let known: Vec<usize> = match self.mutation {
            _ if it.is_alone => Vec::new(),
            Some(Mutation::ListedMembersOnly) => self.lists[client].to_vec(),
            Some(Mutation::MastersOnly) => self.masters(world, member),
            Some(Mutation::StrangersCounted) if client == 1 => (0..world.members.len()).collect(),
            _ => {
                let is_known = |it: &usize| self.is_stranger(*it) == self.is_stranger(member);
                (0..world.members.len()).filter(is_known).collect()
            }
        };
        let age = match it.since {
            _ if !self.ages => Duration::ZERO,
            None => LONG,
            Some(since) => TICK * (world.now - since).into(),
        };
        MemberReport {
            asked_at: world.local(client),
            member: member_id(member, it.is_alone),
            members: known.into_iter().map(|it| member_id(it, false)).collect(),
            tenure: Some(self.told(it.reign).tenure()),
            age,
        }
    }

    fn told(&self, reign: Reign) -> Reign {
        if self.epochs_begin_anew {
            reign.anew()
        } else {
            reign
        }
    }

    /// Whether a driver that asks masters alone leaves a member out, which is a replica by its own word.
    pub(super) fn is_left_out(&self, world: &OwnerWorld, member: usize) -> bool {
        let masters_only = self.mutation == Some(Mutation::MastersOnly);
        masters_only && !self.masters(world, member).contains(&member)
    }

    /// The masters of a cluster, as a member sees them.
    fn masters(&self, world: &OwnerWorld, member: usize) -> Vec<usize> {
        let owner = world.members[member].reign.owner;
        (0..world.members.len())
            .filter(|&it| it == owner || it >= self.servers)
            .collect()
    }

    /// A client takes the report of a member, and connects to the owner if that is another one.
    pub(super) fn hear(
        &self,
        world: &mut OwnerWorld,
        client: usize,
        member: usize,
        mut report: MemberReport,
    ) {
        let now = world.local(client);
        if self.mutation == Some(Mutation::DatedByTheAnswer) {
            report.asked_at = now;
        }
        let over = self.end_roll_call(world, client, member);
        let electorate = &mut world.clients[client].electorate;
        let mut has_changed = electorate.handle_report(now, node(), report);
        if let Some(asked_at) = over {
            has_changed |= electorate.handle_roll_call(now, node(), asked_at);
        }
        if has_changed {
            self.connect(world, client, now);
        }
    }

    /// Notes that a client hears a member. Returns the date of the roll call if it is over by that.
    fn end_roll_call(
        &self,
        world: &mut OwnerWorld,
        client: usize,
        member: usize,
    ) -> Option<Timestamp> {
        let it = &mut world.clients[client];
        let roll_call = it.roll_call.as_mut()?;
        let asked_at = roll_call.asked_at;
        roll_call.unheard.retain(|it| *it != member);
        let is_over = roll_call.unheard.is_empty();
        if is_over {
            it.roll_call = None;
        }
        (is_over || self.mutation == Some(Mutation::JudgedOneByOne)).then_some(asked_at)
    }

    fn connect(&self, world: &mut OwnerWorld, client: usize, now: Timestamp) {
        let it = &mut world.clients[client];
        let Some(tenure) = it.electorate.tenure(node()) else {
            // It was given up because of another authority.
            it.server = None;
            return;
        };
        let (tenure, reign) = (tenure.clone(), Reign::of(tenure));
        let is_kept = self.mutation == Some(Mutation::ConnectionKept) && client == 0;
        if !is_kept || it.server.is_none() {
            it.server = Some(reign.owner);
        }
        let identity = self.identity(world, reign.owner, now);
        let it = &mut world.clients[client];
        let admission = it
            .electorate
            .handle_owner_connection(now, node(), &tenure, &identity);
        assert_eq!(admission.withdrawal, None, "another tenure");
        if world.members.iter().any(|it| it.reign > reign) {
            it.seen.old_owner = true;
        }
        if self.mutation == Some(Mutation::WatchNotRestarted) {
            it.electorate.handle_marker(now, node(), &tenure, LONG);
        }
        if self.markers {
            let age = self.mark(world, &tenure, reign.owner);
            let electorate = &mut world.clients[client].electorate;
            let before = electorate.eligibility(node()).starts_at();
            electorate.handle_marker(now, node(), &tenure, age);
            let after = electorate.eligibility(node()).starts_at();
            world.clients[client].seen.marked |= after < before;
        }
    }

    /// Writes the marker of a tenure on its owner, unless it is there. Returns its age.
    pub(super) fn mark(&self, world: &mut OwnerWorld, tenure: &Tenure, owner: usize) -> Duration {
        let key = match self.mutation {
            Some(Mutation::MarkerWithoutEpoch) => tenure.owner.to_string(),
            _ => AgeMarker::key_of_tenure(tenure),
        };
        let now = world.now;
        let markers = &mut world.servers[owner].markers;
        let written_at = *markers.entry(key).or_insert(now);
        let left = AgeMarker::TTL_MILLIS - u64::from(now - written_at);
        let marker = AgeMarker::read(b"0", left as i64).expect("it was written like this");
        marker.age()
    }

    /// A client asks the server that it is connected to what it is.
    pub(super) fn inspect(&self, world: &mut OwnerWorld, client: usize) {
        let now = world.local(client);
        let Some(server) = world.clients[client].server else {
            return;
        };
        let identity = self.identity(world, server, now);
        let electorate = &mut world.clients[client].electorate;
        let admission = electorate.handle_inspection(now, node(), &identity);
        if let Some(withdrawal) = admission.withdrawal {
            self.drive(world, client, false, |lease, now| {
                lease.handle_withdrawal(now, node(), withdrawal);
            });
        }
    }

    /// What a server says of itself.
    fn identity(&self, world: &OwnerWorld, server: usize, now: Timestamp) -> Identity {
        let master = &world.servers[server].master;
        Identity::Server {
            role: match self.authority {
                Authority::Sentinels => ServerRole::Master,
                Authority::Cluster => ServerRole::ClusterMaster,
            },
            sighting: Sighting {
                uptime: Some(LONG),
                ..master.sighting(b'0' + server as u8, world.now, now)
            },
        }
    }

    /// Calls a lease at its client's own time, then carries out what it sends, and hears what it says.
    pub(super) fn drive(
        &self,
        world: &mut OwnerWorld,
        client: usize,
        is_late: bool,
        call: impl FnOnce(&mut Lease, Timestamp),
    ) {
        let local = world.local(client);
        call(&mut world.clients[client].lease, local);
        while let Some(transmit) = world.clients[client].lease.poll_transmit() {
            let message = prompt(Some(transmit.round), transmit.operation, transmit.access);
            match world.clients[client].server {
                None => self.answer(world, client, &message, Reply::Refused),
                Some(server) if is_late => {
                    world.clients[client].late_set = Some((server, message));
                }
                Some(server) => self.carry_out(world, client, server, &message),
            }
        }
        let has_turned = world.members.iter().any(|it| it.reign != Reign::FIRST);
        let it = &mut world.clients[client];
        while let Some(event) = it.lease.poll_event() {
            match event {
                Event::Extended { .. } => it.seen.extended |= has_turned,
                Event::Acquired { .. } => {
                    it.phase = Phase::Held;
                    it.lease.claim(local);
                }
                _ => {}
            }
        }
        if let Status::Ended(_) = it.lease.status() {
            it.phase = Phase::Released;
        }
    }

    /// A server carries out a message, and the client hears of it at once.
    pub(super) fn carry_out(
        &self,
        world: &mut OwnerWorld,
        client: usize,
        server: usize,
        message: &Message,
    ) {
        let it = &mut world.servers[server];
        let is_read_only = self.failovers == Failovers::LoseNothing && it.is_deposed;
        let reply = if is_read_only {
            Reply::Refused
        } else {
            carry_out(&Setup::CALM, world.now, &mut it.master, 0..1, message)
        };
        // A connection that was closed passes nothing on.
        let is_connected = world.clients[client].server == Some(server);
        let reply = if is_connected { reply } else { Reply::Unknown };
        self.answer(world, client, message, reply);
    }

    fn answer(&self, world: &mut OwnerWorld, client: usize, message: &Message, reply: Reply) {
        let local = world.local(client);
        let it = &mut world.clients[client];
        let mut eligibility = it.electorate.eligibility(node());
        if self.mutation == Some(Mutation::NeverLapses) && eligibility != Eligibility::NEVER {
            eligibility = Eligibility::since(eligibility.starts_at());
        }
        if reply == Reply::Granted {
            it.seen.settling |= eligibility.starts_at() > local;
            it.seen.expired |= eligibility.ends_at() < local;
        }
        let round = message.round.expect("a lease has asked");
        it.lease
            .handle_reply(local, round, node(), reply, eligibility);
    }
}

//! The driver of the leases: it sends, hands replies over, and breaks one rule if it is told to.

use redlock_core::{
    Access, Eligibility, End, Event, FencingToken, Lease, Operation, Reply, RoundId, Status,
    Timestamp,
};

use crate::{
    masters::look,
    setup::{Mutation, Setup},
    world::{Client, Heard, Link, MICROS_PER_TICK, Message, Phase, World, node, ticks},
};

const ALWAYS: Eligibility = Eligibility::ALWAYS;

impl Setup {
    /// What the driver tells the lease about a master's answer: the truth, unless the driver is broken.
    pub(crate) fn tell(&self, link: Link, operation: &Operation, reply: Reply) -> Reply {
        let releases = matches!(operation, Operation::Release { .. });
        if self.mutation == Some(Mutation::QuorumOneShort) && link.master == 0 && !releases {
            return Reply::Granted;
        }
        if self.mutation == Some(Mutation::CountersIgnored) && matches!(reply, Reply::Outbid { .. })
        {
            return Reply::Granted;
        }
        reply
    }

    /// What the driver says that a master's votes are worth.
    pub(crate) fn worth(
        &self,
        world: &World,
        Link { client, master }: Link,
        operation: &Operation,
        reply: Reply,
    ) -> Eligibility {
        let extends = matches!(operation, Operation::Extend { .. });
        let fences =
            matches!(operation, Operation::Fence { .. }) || matches!(reply, Reply::Outbid { .. });
        match self.mutation {
            Some(Mutation::ExtendNotGated) if extends => ALWAYS,
            Some(Mutation::FenceNotGated) if fences => ALWAYS,
            // No master gave the vote that is made up.
            Some(Mutation::QuorumOneShort) => ALWAYS,
            _ => world.clients[client].eligibility[master],
        }
    }

    pub(crate) fn answer(
        &self,
        world: &mut World,
        Link { client, master }: Link,
        round: Option<RoundId>,
        reply: Reply,
        eligibility: Eligibility,
    ) {
        let it = &mut world.clients[client];
        let Some(round) = round else { return };
        if it.phase == Phase::Crashed {
            return;
        }
        match &mut it.paused {
            Some(inbox) => inbox.push(Heard {
                round,
                node: node(master),
                reply,
                eligibility,
            }),
            None => self.drive(world, client, |lease, now| {
                lease.handle_reply(now, round, node(master), reply, eligibility);
            }),
        }
    }

    /// Calls a lease at its client's own time, then sends and hears what there is.
    pub(crate) fn drive(
        &self,
        world: &mut World,
        client: usize,
        call: impl FnOnce(&mut Lease, Timestamp),
    ) {
        let local = ticks(world.local(client));
        let now = world.now;
        let it = &mut world.clients[client];
        let before = it.lease.status();
        call(&mut it.lease, local);
        let mut looks = Vec::new();
        while let Some(transmit) = it.lease.poll_transmit() {
            if let Operation::Probe { .. } = transmit.operation {
                looks.push(transmit);
                continue;
            }
            for to in transmit.nodes.iter() {
                let master = to.index();
                let Some(operation) = self.as_sent(it, transmit.operation) else {
                    continue;
                };
                if self.mutation == Some(Mutation::ReleaseOnlyGranted)
                    && let Operation::Release { token } = operation
                {
                    let mut keys = world.masters[master].keys.iter().flatten();
                    if !keys.any(|key| key.token == token && now < key.expires_at) {
                        continue;
                    }
                }
                let is_set = matches!(operation, Operation::Acquire { .. });
                it.links[master].push(Message {
                    repairs: is_set && it.phase == Phase::Held,
                    ..prompt(Some(transmit.round), operation, transmit.access)
                });
            }
        }
        while let Some(event) = it.lease.poll_event() {
            match event {
                Event::Acquired { fence, .. } => {
                    it.phase = Phase::Held;
                    it.lease.claim(local);
                    world.fences.extend(fence.map(|fence| kept_of(it, fence)));
                    if let Some(given) = &mut world.given {
                        given.note_holder((self.adopts)(client));
                    }
                }
                Event::Extended { .. } => it.extended = true,
                Event::ExtendFailed { .. }
                    if self.mutation == Some(Mutation::FailedExtendReleases) =>
                {
                    let token = it.lease.token();
                    for link in &mut it.links {
                        link.push(prompt(
                            None,
                            Operation::Release { token },
                            Access::Exclusive,
                        ));
                    }
                }
                _ => {}
            }
        }
        match it.lease.status() {
            // A client that ends may have ended its lease before.
            status if status == before => {}
            Status::Ended(End::Exhausted { failure, .. }) => it.phase = Phase::Exhausted(failure),
            Status::Ended(End::Lost(reason)) => it.phase = Phase::Lost(reason),
            Status::Ended(End::Released(_)) => it.phase = Phase::Released,
            _ => {}
        }
        for transmit in looks {
            for to in transmit.nodes.iter() {
                let master = to.index();
                let (round, seen) = (Some(transmit.round), look(world, master));
                self.answer(world, Link { client, master }, round, seen, ALWAYS);
            }
        }
    }
}

impl Setup {
    /// What a driver that breaks a rule of repairs or fences sends instead of an operation, if anything.
    fn as_sent(&self, client: &Client, mut operation: Operation) -> Option<Operation> {
        let repairs = client.phase == Phase::Held;
        let Some(mutation) = self.mutation else {
            return Some(operation);
        };
        match (&mut operation, mutation) {
            (Operation::Acquire { .. }, Mutation::RepairedOnlyOnceExtended)
                if repairs && !client.extended =>
            {
                return None;
            }
            (Operation::Fence { .. }, Mutation::CountersNotRaisedAgain) if repairs => return None,
            (Operation::Acquire { fence, .. }, Mutation::RepairWithoutCounter) if repairs => {
                *fence = None;
            }
            (Operation::Acquire { fence, .. }, Mutation::ProposalKept) => {
                *fence = fence.map(|fence| kept_of(client, fence));
            }
            _ => {}
        }
        Some(operation)
    }
}

/// The first proposal instead of a later one, if the driver keeps it. A fence that was raised in
/// a second round lies between two ticks.
fn kept_of(client: &Client, fence: FencingToken) -> FencingToken {
    let is_drawn = fence.get() % MICROS_PER_TICK == Setup::proposal().get();
    client.kept.filter(|_| is_drawn).unwrap_or(fence)
}

pub(crate) fn prompt(round: Option<RoundId>, operation: Operation, access: Access) -> Message {
    Message {
        round,
        operation,
        access,
        repairs: false,
        late: false,
        given_up: false,
    }
}

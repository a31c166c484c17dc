//! What can happen next, and what it does: the driver of the leases, the masters, the faults.

use std::time::Duration;

use redlock_core::{Eligibility, Event, FencingToken, Lease, Operation, Reply, RoundId, Timestamp};

use crate::{
    masters::execute,
    setup::{Counters, Mutation, Setup},
    world::{Client, Heard, MASTERS, MICROS_PER_TICK, Message, Phase, World, node, ticks},
};

const ALWAYS: Eligibility = Eligibility::ALWAYS;

/// One step of the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// A tick passes, which one client's clock may miss.
    Tick {
        stalled: Option<usize>,
    },
    /// A client begins to acquire.
    Begin(usize),
    /// A client releases, or gives up.
    Release(usize),
    Crash(usize),
    Pause(usize),
    /// A client goes on. Its timers and what came in meanwhile race.
    Resume {
        client: usize,
        timers_first: bool,
    },
    /// A master carries out a message, and the client hears of it.
    Deliver {
        client: usize,
        master: usize,
        index: usize,
    },
    /// The same, but the message stays under way.
    Repeat {
        client: usize,
        master: usize,
    },
    /// A message takes its time. `given_up`: the client is told that there is no answer.
    Delay {
        client: usize,
        master: usize,
        given_up: bool,
    },
    /// A message is lost, or carried out without an answer.
    Lose {
        client: usize,
        master: usize,
        carried_out: bool,
    },
    Restart(usize),
    /// A replica without the keys takes the place of a master.
    Promote(usize),
    /// A client asks a master what it is, and sees that it was replaced.
    Notice {
        client: usize,
        master: usize,
    },
}

impl Setup {
    pub(crate) fn steps(&self, world: &World) -> Vec<Step> {
        let mut steps = Vec::new();
        let faults = &world.faults;
        for (index, client) in world.clients.iter().enumerate() {
            for (master, link) in client.links.iter().enumerate() {
                // In order, only the oldest message can arrive.
                let arriving = if self.fifo {
                    link.len().min(1)
                } else {
                    link.len()
                };
                for position in 0..arriving {
                    steps.push(Step::Deliver {
                        client: index,
                        master,
                        index: position,
                    });
                }
                let Some(newest) = link.last() else { continue };
                let fresh = !newest.late;
                if fresh && faults.stragglers > 0 {
                    for given_up in [false, true] {
                        steps.push(Step::Delay {
                            client: index,
                            master,
                            given_up,
                        });
                    }
                }
                if fresh && faults.losses > 0 {
                    for carried_out in [false, true] {
                        steps.push(Step::Lose {
                            client: index,
                            master,
                            carried_out,
                        });
                    }
                }
                if fresh && faults.repeats > 0 {
                    steps.push(Step::Repeat {
                        client: index,
                        master,
                    });
                }
            }
            if client.phase == Phase::Crashed {
                continue;
            }
            if client.paused.is_some() {
                for timers_first in [false, true] {
                    steps.push(Step::Resume {
                        client: index,
                        timers_first,
                    });
                }
                continue;
            }
            match client.phase {
                Phase::Idle if world.now <= self.begin_by => steps.push(Step::Begin(index)),
                Phase::Held => steps.push(Step::Release(index)),
                _ => {}
            }
            let is_active = client.phase.is_active();
            if is_active && faults.pauses > 0 {
                steps.push(Step::Pause(index));
            }
            if is_active && faults.crashes > 0 {
                steps.push(Step::Crash(index));
            }
        }
        if faults.restarts > 0 {
            // A master without a key has nothing to forget.
            let full = (0..MASTERS).filter(|&it| world.live_key(it).is_some());
            steps.extend(full.map(Step::Restart));
        }
        if faults.promotions > 0 {
            let full = (0..MASTERS).filter(|&it| world.live_key(it).is_some());
            steps.extend(full.map(Step::Promote));
        }
        for client in 0..world.clients.len() {
            let deceived = (0..MASTERS).filter(|&it| world.is_deceived(client, it));
            steps.extend(deceived.map(|master| Step::Notice { client, master }));
        }
        if self.may_tick(world) {
            steps.push(Step::Tick { stalled: None });
            if faults.stalls > 0 {
                let active = |it: &usize| {
                    world.clients[*it].phase != Phase::Idle && !world.clients[*it].phase.has_ended()
                };
                let clients = (0..world.clients.len()).filter(active);
                steps.extend(clients.map(|it| Step::Tick { stalled: Some(it) }));
            }
        }
        steps.retain(|step| (self.allows)(world, step));
        steps
    }

    /// Time passes once every message that is not late has arrived, and as long as anything can
    /// still come of it.
    fn may_tick(&self, world: &World) -> bool {
        let is_prompt = |link: &Vec<Message>| {
            let arriving = if self.fifo {
                &link[..link.len().min(1)]
            } else {
                link
            };
            arriving.iter().any(|message| !message.late)
        };
        let waits_for_prompt = world
            .clients
            .iter()
            .any(|client| client.links.iter().any(is_prompt));
        let may_begin = |phase| phase == Phase::Idle && world.now < self.begin_by;
        let is_going_on = world
            .clients
            .iter()
            .any(|client| may_begin(client.phase) || client.phase.is_active());
        // A connected client asks once in a tick.
        !waits_for_prompt && is_going_on && !world.is_anyone_deceived()
    }

    pub(crate) fn apply(&self, world: &mut World, step: Step) {
        match step {
            Step::Tick { stalled } => {
                world.now += 1;
                if let Some(client) = stalled {
                    world.faults.stalls -= 1;
                    world.clients[client].lag += 1;
                }
                for client in 0..world.clients.len() {
                    self.look_at_masters(world, client);
                    self.fire_timers(world, client);
                }
                forget_what_no_longer_matters(world);
            }
            Step::Begin(client) => {
                world.clients[client].phase = Phase::Acquiring;
                let proposal = self.proposal_at(world.now);
                if self.mutation == Some(Mutation::ProposalKept) {
                    world.clients[client].kept = Some(proposal);
                }
                self.meet_masters(world, client);
                self.drive(world, client, |lease, now| {
                    // Later than any attempt: the number of attempts ends them.
                    let deadline = now.saturating_add(Duration::from_millis(100));
                    if self.fenced {
                        lease.acquire_fenced(now, deadline, proposal);
                    } else {
                        lease.acquire(now, deadline);
                    }
                });
            }
            Step::Release(client) => {
                self.drive(world, client, Lease::release);
                if world.clients[client].phase == Phase::Held {
                    world.clients[client].phase = Phase::Released;
                }
            }
            Step::Crash(client) => {
                world.faults.crashes -= 1;
                world.clients[client].phase = Phase::Crashed;
            }
            Step::Pause(client) => {
                world.faults.pauses -= 1;
                world.clients[client].paused = Some(Vec::new());
            }
            Step::Resume {
                client,
                timers_first,
            } => {
                let inbox = world.clients[client].paused.take().unwrap_or_default();
                if timers_first {
                    self.fire_timers(world, client);
                }
                for heard in inbox {
                    self.drive(world, client, |lease, now| {
                        let Heard {
                            round,
                            node,
                            reply,
                            eligibility,
                        } = heard;
                        lease.handle_reply(now, round, node, reply, eligibility);
                    });
                }
                self.fire_timers(world, client);
            }
            Step::Deliver {
                client,
                master,
                index,
            } => {
                let message = world.clients[client].links[master].remove(index);
                self.carry_out(world, client, master, &message);
            }
            Step::Repeat { client, master } => {
                world.faults.repeats -= 1;
                let link = &mut world.clients[client].links[master];
                if let Some(newest) = link.last_mut() {
                    // The copy that stays comes when it likes.
                    let message = newest.clone();
                    newest.late = true;
                    self.carry_out(world, client, master, &message);
                }
            }
            Step::Delay {
                client,
                master,
                given_up,
            } => {
                world.faults.stragglers -= 1;
                let Some(newest) = world.clients[client].links[master].last_mut() else {
                    return;
                };
                newest.late = true;
                newest.given_up = given_up;
                let round = newest.round;
                if given_up {
                    self.answer(world, client, master, round, Reply::Unknown, ALWAYS);
                }
            }
            Step::Lose {
                client,
                master,
                carried_out,
            } => {
                world.faults.losses -= 1;
                let Some(message) = world.clients[client].links[master].pop() else {
                    return;
                };
                if carried_out {
                    execute(self, world, master, &message.operation);
                }
                let round = message.round;
                self.answer(world, client, master, round, Reply::Unknown, ALWAYS);
            }
            Step::Promote(master) => {
                world.faults.promotions -= 1;
                world.masters[master].key = None;
                world.masters[master].promoted_at = Some(world.now);
            }
            Step::Notice { client, master } => self.notice(world, client, master),
            Step::Restart(master) => {
                world.faults.restarts -= 1;
                world.masters[master].key = None;
                world.masters[master].restarted = true;
                if self.counters != Counters::Durable {
                    world.masters[master].counter = None;
                }
                for client in 0..world.clients.len() {
                    let until = ticks(world.local(client) + self.quarantine);
                    world.clients[client].eligibility[master] = Eligibility::since(until);
                }
            }
        }
    }

    fn fire_timers(&self, world: &mut World, client: usize) {
        let it = &world.clients[client];
        let runs = it.paused.is_none() && it.phase != Phase::Crashed;
        if runs && self.mutation != Some(Mutation::TimersIgnored) {
            self.drive(world, client, Lease::handle_timeout);
        }
    }

    fn carry_out(&self, world: &mut World, client: usize, master: usize, message: &Message) {
        let reply = execute(self, world, master, &message.operation);
        if !message.given_up {
            let reply = self.tell(master, &message.operation, reply);
            let eligibility = self.worth(world, client, master, &message.operation, reply);
            self.answer(world, client, master, message.round, reply, eligibility);
        }
    }

    /// What the driver tells of a master's answer: the truth, unless it is broken.
    fn tell(&self, master: usize, operation: &Operation, reply: Reply) -> Reply {
        let releases = matches!(operation, Operation::Release { .. });
        if self.mutation == Some(Mutation::QuorumOneShort) && master == 0 && !releases {
            return Reply::Granted;
        }
        if self.mutation == Some(Mutation::CountersIgnored) && matches!(reply, Reply::Outbid { .. })
        {
            return Reply::Granted;
        }
        reply
    }

    /// What the driver says that a master's votes are worth.
    fn worth(
        &self,
        world: &World,
        client: usize,
        master: usize,
        operation: &Operation,
        reply: Reply,
    ) -> Eligibility {
        let extends = matches!(operation, Operation::Extend { .. });
        let fences =
            matches!(operation, Operation::Fence { .. }) || matches!(reply, Reply::Outbid { .. });
        match self.mutation {
            Some(Mutation::ExtendNotGated) if extends => ALWAYS,
            Some(Mutation::FenceNotGated) if fences => ALWAYS,
            // The vote that is made up is nobody's.
            Some(Mutation::QuorumOneShort) => ALWAYS,
            _ => world.clients[client].eligibility[master],
        }
    }

    fn answer(
        &self,
        world: &mut World,
        client: usize,
        master: usize,
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
        call(&mut it.lease, local);
        while let Some(transmit) = it.lease.poll_transmit() {
            for to in transmit.nodes.iter() {
                let master = to.index();
                let Some(operation) = self.fence_as_sent(it, transmit.operation) else {
                    continue;
                };
                if self.mutation == Some(Mutation::ReleaseOnlyGranted)
                    && let Operation::Release { token } = operation
                {
                    let key = world.masters[master].key.as_ref();
                    if !key.is_some_and(|key| key.token == token && now < key.expires_at) {
                        continue;
                    }
                }
                it.links[master].push(prompt(Some(transmit.round), operation));
            }
        }
        while let Some(event) = it.lease.poll_event() {
            match event {
                Event::Acquired { fence, .. } => {
                    it.phase = Phase::Held;
                    it.lease.claim(local);
                    world.fences.extend(fence.map(|fence| kept_of(it, fence)));
                }
                Event::Exhausted { failure, .. } => it.phase = Phase::Exhausted(failure),
                Event::Lost(reason) => it.phase = Phase::Lost(reason),
                Event::Released(_) => it.phase = Phase::Released,
                Event::Extended { .. } => it.extended = true,
                Event::ExtendFailed { .. }
                    if self.mutation == Some(Mutation::FailedExtendReleases) =>
                {
                    let token = it.lease.token();
                    for link in &mut it.links {
                        link.push(prompt(None, Operation::Release { token }));
                    }
                }
                _ => {}
            }
        }
    }
}

impl Setup {
    /// What a driver that breaks a rule of fences sends instead of an operation, if anything.
    fn fence_as_sent(&self, client: &Client, operation: Operation) -> Option<Operation> {
        let repairs = client.phase == Phase::Held;
        match (operation, self.mutation) {
            (Operation::Acquire { token, ttl, .. }, Some(Mutation::RepairWithoutCounter))
                if repairs =>
            {
                let fence = None;
                Some(Operation::Acquire { token, ttl, fence })
            }
            (Operation::Fence { .. }, Some(Mutation::CountersNotRaisedAgain)) if repairs => None,
            (Operation::Acquire { token, ttl, fence }, Some(Mutation::ProposalKept)) => {
                let fence = fence.map(|fence| kept_of(client, fence));
                Some(Operation::Acquire { token, ttl, fence })
            }
            _ => Some(operation),
        }
    }
}

/// The first proposal instead of a later one, if the driver keeps it. What was raised in a second
/// round lies between two ticks.
fn kept_of(client: &Client, fence: FencingToken) -> FencingToken {
    let is_drawn = fence.get() % MICROS_PER_TICK == Setup::proposal().get();
    client.kept.filter(|_| is_drawn).unwrap_or(fence)
}

fn prompt(round: Option<RoundId>, operation: Operation) -> Message {
    Message {
        round,
        operation,
        late: false,
        given_up: false,
    }
}

/// Maps states that differ only in what can never matter again onto one.
fn forget_what_no_longer_matters(world: &mut World) {
    for master in 0..MASTERS {
        if world.live_key(master).is_none() {
            world.masters[master].key = None;
        }
    }
}

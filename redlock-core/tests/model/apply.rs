//! What each step does to a world.

use std::time::Duration;

use redlock_core::{Eligibility, Lease, Operation, Reply, Timestamp};

use crate::{
    masters::execute,
    setup::{Counters, Mutation, Setup},
    steps::Step,
    world::{Given, Heard, Link, Message, Phase, World, ticks},
};

const ALWAYS: Eligibility = Eligibility::ALWAYS;

impl Setup {
    pub(crate) fn apply(&self, world: &mut World, step: Step) {
        match step {
            Step::Tick { stalled } => self.tick(world, stalled),
            Step::Begin(client) => self.begin(world, client),
            Step::Release(client) => {
                self.drive(world, client, Lease::release);
                if world.clients[client].phase == Phase::Held {
                    world.clients[client].phase = Phase::Released;
                }
            }
            Step::Crash(client) => {
                world.faults.crashes -= 1;
                if world.clients[client].release_at.is_some() {
                    self.end_before_release(world, client);
                }
                world.clients[client].phase = Phase::Crashed;
            }
            Step::Pause(client) => {
                world.faults.pauses -= 1;
                world.clients[client].paused = Some(Vec::new());
            }
            Step::Resume {
                client,
                timers_first,
            } => self.resume(world, client, timers_first),
            Step::Deliver { link, index } => {
                let message = world.link_mut(link).remove(index);
                self.carry_out(world, link, &message);
            }
            Step::Mark(link) => {
                world.faults.marks -= 1;
                let round = world.link_mut(link).remove(0).round;
                self.answer(world, link, round, Reply::Denied, ALWAYS);
            }
            Step::Downgrade(client) => {
                self.drive(world, client, |lease, now| _ = lease.downgrade(now));
                world.clients[client].reads = true;
            }
            Step::ReleaseLater(client) => self.release_later(world, client),
            Step::Give(client) => self.give(world, client),
            Step::Repeat(link) => self.repeat(world, link),
            Step::Delay { link, given_up } => self.delay(world, link, given_up),
            Step::Lose { link, carried_out } => self.lose(world, link, carried_out),
            Step::Halve(link) => self.halve(world, link),
            Step::Promote(master) => {
                world.faults.promotions -= 1;
                world.masters[master].forget_all();
                world.masters[master].promoted_at = Some(world.now);
            }
            Step::Fall(master) => {
                world.faults.outages -= 1;
                world.masters[master].forget_all();
                world.masters[master].is_gone = true;
            }
            Step::Notice(link) => self.notice(world, link),
            Step::Restart(master) => self.restart(world, master),
        }
    }

    fn tick(&self, world: &mut World, stalled: Option<usize>) {
        world.now += 1;
        if let Some(client) = stalled {
            world.faults.stalls -= 1;
            world.clients[client].lag += 1;
        }
        for client in 0..world.clients.len() {
            self.look_at_masters(world, client);
            self.fire_timers(world, client);
        }
        // States that differ only in what no longer matters are one.
        for master in &mut world.masters {
            master.forget_expired(world.now);
        }
    }

    fn begin(&self, world: &mut World, client: usize) {
        world.clients[client].phase = Phase::Acquiring;
        let proposal = self.proposal_at(client, world.now);
        if self.mutation == Some(Mutation::ProposalKept) {
            world.clients[client].kept = Some(proposal);
        }
        self.meet_masters(world, client);
        let given = world.given.clone().filter(|_| (self.adopts)(client));
        let clock = |tick| match self.mutation {
            Some(Mutation::AdoptedAfterItsEnd) => Timestamp::MAX,
            _ => ticks(tick - world.clients[client].lag),
        };
        let given = given.map(|it| (it.token, clock(it.until.max(world.now))));
        self.drive(world, client, |lease, now| {
            if let Some((giver, until)) = given {
                return lease.adopt(now, giver, until, self.fenced.then_some(proposal));
            }
            // Later than any attempt: the number of attempts ends them.
            let deadline = now.saturating_add(Duration::from_millis(100));
            if self.fenced {
                lease.acquire_fenced(now, deadline, proposal);
            } else {
                lease.acquire(now, deadline);
            }
        });
    }

    fn release_later(&self, world: &mut World, client: usize) {
        let mut release_at = None;
        self.drive(world, client, |lease, now| {
            let until = lease.valid_until(now);
            release_at = until.filter(|until| lease.release_at(now, *until));
        });
        world.clients[client].release_at = release_at;
    }

    /// The driver ends. Its last messages may still arrive.
    fn end_before_release(&self, world: &mut World, client: usize) {
        self.drive(world, client, |lease, now| {
            if self.mutation == Some(Mutation::ReleasedTooEarly) {
                lease.release(now);
            } else {
                lease.abandon();
            }
        });
    }

    fn give(&self, world: &mut World, client: usize) {
        let mut valid_until = None;
        let token = world.clients[client].lease.token();
        self.drive(world, client, |lease, now| {
            valid_until = if self.mutation == Some(Mutation::GiverGoesOn) {
                lease.valid_until(now)
            } else {
                lease.give(now)
            };
        });
        let Some(valid_until) = valid_until else {
            return;
        };
        world.clients[client].phase = Phase::Gave;
        let left = (0..=u8::MAX).find(|&it| ticks(world.local(client) + it) >= valid_until);
        world.given = Some(Given {
            token,
            until: world.now + left.expect("some ticks"),
            adoptions: 0,
            others: false,
            adopted_after_others: false,
        });
    }

    fn resume(&self, world: &mut World, client: usize, timers_first: bool) {
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

    fn repeat(&self, world: &mut World, link: Link) {
        world.faults.repeats -= 1;
        if let Some(newest) = world.link_mut(link).last_mut() {
            // The copy that stays arrives at any time.
            let message = newest.clone();
            newest.late = true;
            self.carry_out(world, link, &message);
        }
    }

    fn delay(&self, world: &mut World, link: Link, given_up: bool) {
        world.faults.stragglers -= 1;
        let Some(newest) = world.link_mut(link).last_mut() else {
            return;
        };
        newest.late = true;
        newest.given_up = given_up;
        let round = newest.round;
        if given_up {
            self.answer(world, link, round, Reply::Unknown, ALWAYS);
        }
    }

    fn lose(&self, world: &mut World, link: Link, carried_out: bool) {
        world.faults.losses -= 1;
        let Some(message) = world.link_mut(link).pop() else {
            return;
        };
        if carried_out {
            execute(self, world, link, &message);
        }
        self.answer(world, link, message.round, Reply::Unknown, ALWAYS);
    }

    fn halve(&self, world: &mut World, link: Link) {
        world.faults.halves -= 1;
        let Some(mut message) = world.link_mut(link).pop() else {
            return;
        };
        if let Operation::Acquire { fence, .. } | Operation::Adopt { fence, .. } =
            &mut message.operation
        {
            *fence = None;
        }
        execute(self, world, link, &message);
        self.answer(world, link, message.round, Reply::Unknown, ALWAYS);
    }

    fn restart(&self, world: &mut World, master: usize) {
        world.faults.restarts -= 1;
        world.masters[master].forget_all();
        world.masters[master].restarted = true;
        if matches!(self.counters, Counters::Lost | Counters::AheadAndLost) {
            world.masters[master].counter = None;
        }
        for client in 0..world.clients.len() {
            let until = ticks(world.local(client) + self.quarantine);
            world.clients[client].eligibility[master] = Eligibility::since(until);
        }
    }

    fn fire_timers(&self, world: &mut World, client: usize) {
        let it = &world.clients[client];
        let runs = it.paused.is_none() && it.phase != Phase::Crashed;
        if runs && self.mutation != Some(Mutation::TimersIgnored) {
            self.drive(world, client, Lease::handle_timeout);
        }
    }

    fn carry_out(&self, world: &mut World, link: Link, message: &Message) {
        let reply = execute(self, world, link, message);
        if !message.given_up {
            let reply = self.tell(link, &message.operation, reply);
            let eligibility = self.worth(world, link, &message.operation, reply);
            self.answer(world, link, message.round, reply, eligibility);
        }
    }
}

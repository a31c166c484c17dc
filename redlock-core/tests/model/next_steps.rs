//! Which steps can come next in a world.

use redlock_core::{Access, Operation};

use crate::{
    setup::Setup,
    steps::Step,
    world::{Link, MASTERS, Message, Phase, World},
};

impl Setup {
    pub(crate) fn steps(&self, world: &World) -> Vec<Step> {
        let mut steps = Vec::new();
        let faults = &world.faults;
        for (index, client) in world.clients.iter().enumerate() {
            let link = |master| Link {
                client: index,
                master,
            };
            for master in 0..MASTERS {
                self.push_steps_of_link(&mut steps, world, link(master));
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
                Phase::Idle if (self.adopts)(index) && world.given.is_none() => {}
                Phase::Idle if world.now <= self.begin_by => steps.push(Step::Begin(index)),
                Phase::Held if client.release_at.is_some() => {}
                Phase::Held => {
                    steps.push(Step::Release(index));
                    if self.releases_later {
                        steps.push(Step::ReleaseLater(index));
                    }
                    if self.transfers() && index == 0 && world.given.is_none() {
                        steps.push(Step::Give(index));
                    }
                    if self.downgrades && !client.reads {
                        steps.push(Step::Downgrade(index));
                    }
                }
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
        // A master without a key has nothing to forget.
        let full = || (0..MASTERS).filter(|&it| world.has_key(it));
        if faults.restarts > 0 {
            steps.extend(full().map(Step::Restart));
        }
        if faults.outages > 0 {
            steps.extend((0..MASTERS).map(Step::Fall));
        }
        if faults.promotions > 0 {
            steps.extend(full().map(Step::Promote));
        }
        for client in 0..world.clients.len() {
            let links = (0..MASTERS).map(|master| Link { client, master });
            let deceived = links.filter(|link| world.is_deceived(*link));
            steps.extend(deceived.map(Step::Notice));
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

    fn push_steps_of_link(&self, steps: &mut Vec<Step>, world: &World, link: Link) {
        let (faults, messages) = (&world.faults, world.link(link));
        let arriving = 0..self.arriving(messages).len();
        steps.extend(arriving.map(|index| Step::Deliver { link, index }));
        let can_be_marked = |it: &Message| {
            it.operation.sets_key() && it.access == Access::Reader { insists: false }
        };
        if faults.marks > 0 && messages.first().is_some_and(can_be_marked) {
            steps.push(Step::Mark(link));
        }
        let Some(newest) = messages.last().filter(|newest| !newest.late) else {
            return;
        };
        if faults.stragglers > 0 {
            steps.extend([false, true].map(|given_up| Step::Delay { link, given_up }));
        }
        if faults.losses > 0 {
            steps.extend([false, true].map(|carried_out| Step::Lose { link, carried_out }));
        }
        let is_fenced = matches!(newest.operation, Operation::Acquire { fence: Some(_), .. });
        if faults.halves > 0 && is_fenced {
            steps.push(Step::Halve(link));
        }
        if faults.repeats > 0 {
            steps.push(Step::Repeat(link));
        }
    }

    /// The messages that can arrive: in order, only the oldest.
    fn arriving<'a>(&self, messages: &'a [Message]) -> &'a [Message] {
        let count = if self.fifo { 1 } else { messages.len() };
        &messages[..count.min(messages.len())]
    }

    /// Time passes once every message that is not late has arrived, and as long as anything can
    /// still come of it.
    fn may_tick(&self, world: &World) -> bool {
        let is_prompt =
            |link: &Vec<Message>| self.arriving(link).iter().any(|message| !message.late);
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
}

//! What must always hold, and what must be reached so that no property holds vacuously.

use redlock_core::{AcquireFailure, Eligibility, LossReason, Slot};
use stateright::{Model, Property};

use crate::{
    setup::{Beyond, Mutation, Setup},
    steps::Step,
    world::{Client, MASTERS, Master, Phase, World},
};

type Condition = fn(&Setup, &World) -> bool;

/// Another client had the lock.
const CONTENDED: Phase = Phase::Exhausted(AcquireFailure::Contended);

impl Model for Setup {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![self.world()]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        steps.extend(self.steps(world));
    }

    fn within_boundary(&self, world: &World) -> bool {
        // Only a world in which a lease never ends could leave it.
        world.now <= self.end() + 1
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        let mut next = world.clone();
        self.apply(&mut next, step);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always("fences differ", |_, world: &World| {
                let fences = &world.fences;
                (1..fences.len()).all(|it| !fences[..it].contains(&fences[it]))
            }),
            Property::always("ends in time", ends_in_time),
            Property::always("always a timer", always_a_timer),
            Property::always("nothing left behind", nothing_left_behind),
            Property::sometimes("acquired", |_, world: &World| world.holders() == 1),
        ];
        let sometimes: [(&'static str, Condition); 28] = [
            ("contended by a client that is gone", |_, world| {
                let is_gone = |it: &Client| it.phase == Phase::Crashed && it.release_at.is_some();
                world.clients.iter().any(is_gone) && world.has_any(CONTENDED)
            }),
            ("adopted", |_, world| {
                is_adopted(world) && world.holders() == 1
            }),
            ("adopted twice", |_, world| {
                world.given.as_ref().is_some_and(|it| it.adoptions == 2)
            }),
            ("not adopted", |setup, world| {
                let clients = world.clients.iter().enumerate();
                let mut adopters = clients.filter(|(index, _)| (setup.adopts)(*index));
                adopters.any(|(_, it)| matches!(it.phase, Phase::Exhausted(_)))
            }),
            ("the giver's token after an adoption", |_, world| {
                let given = world.given.as_ref().map(|it| it.token);
                let mut keys = (0..MASTERS).flat_map(|it| world.live_keys(it));
                is_adopted(world) && keys.any(|it| Some(it.token) == given)
            }),
            ("two keys held", |_, world| {
                let has_both =
                    |it: usize| world.clients[it].phase == Phase::Held && world.wants_several(it);
                (0..world.clients.len()).any(has_both)
            }),
            ("two permits held", |_, world| {
                world.holders() == 1 && world.all_holders() == 2
            }),
            ("another slot after a denial", |setup, world| {
                let has_another = |(index, it): (usize, &Client)| {
                    let preferred = setup.preferred.map(|preferred| preferred(index));
                    it.phase == Phase::Held && it.lease.slot().map(Slot::index) != preferred
                };
                world.clients.iter().enumerate().any(has_another)
            }),
            ("two readers", |_, world| world.readers() == 2),
            ("a reader beside a downgraded writer", |setup, world| {
                let is_downgraded = |it: usize| !(setup.reads)(it) && world.clients[it].reads;
                let mut clients = 0..world.clients.len();
                world.readers() == 2 && clients.any(|it| is_downgraded(it) && world.is_valid(it))
            }),
            ("a reader after a writer", |_, world| after(world, true)),
            ("a writer after a reader", |_, world| after(world, false)),
            ("repairing", |_, world| {
                let mut links = world.clients.iter().flat_map(|it| &it.links);
                links.any(|link| link.iter().any(|message| message.repairs))
            }),
            ("contended", |_, world| world.has_any(CONTENDED)),
            ("acquired at the second attempt", |_, world| {
                let held = |it: &Client| it.phase == Phase::Held;
                world
                    .clients
                    .iter()
                    .any(|it| held(it) && it.lease.attempts() == 2)
            }),
            ("extended", |_, world| {
                world.clients.iter().any(|it| it.extended)
            }),
            ("extended without a master", |_, world| {
                let is_gone = |it: &Master| it.is_gone && world.holders() == 1;
                world.masters.iter().any(is_gone) && world.clients.iter().any(|it| it.extended)
            }),
            ("lost", |_, world| {
                let is_lost = |phase| matches!(phase, Phase::Lost(_));
                world.clients.iter().any(|it| is_lost(it.phase))
            }),
            ("late SET", |_, world| {
                let ended = |owner: usize| world.clients[owner].phase.has_ended();
                let mut keys = (0..MASTERS).flat_map(|it| world.live_keys(it));
                keys.any(|it| world.owner(it.token).is_some_and(ended))
            }),
            ("restarted while held", |_, world| {
                world.holders() == 1
                    && world
                        .masters
                        .iter()
                        .any(|it| it.restarted && it.keys[0].is_none())
            }),
            ("repaired", |_, world| {
                let is_back = |it: usize| {
                    let owner = world.live_keys(it).next();
                    let owner = owner.and_then(|key| world.owner(key.token));
                    world.masters[it].restarted
                        && owner.is_some_and(|owner| {
                            world.is_valid(owner) && world.clients[owner].extended
                        })
                };
                (0..MASTERS).any(is_back)
            }),
            ("outbid in quarantine", |_, world| {
                // A key that was set after the restart, and a counter from before it.
                let outbid =
                    |it: &Master| it.restarted && it.keys[0].is_some() && it.counter.is_some();
                world.holders() == 1 && world.masters.iter().any(outbid)
            }),
            ("fenced after a counter expired", |_, world| {
                let expired = world.masters.iter().any(|it| it.counter_expired);
                expired && world.fences.len() == 2
            }),
            ("promoted while held", |_, world| {
                world.holders() == 1 && world.masters.iter().any(|it| it.promoted_at.is_some())
            }),
            ("deceived", |_, world| {
                world.is_anyone_deceived() && world.holders() == 2
            }),
            ("votes withdrawn", |_, world| {
                world.has_any(Phase::Lost(LossReason::VotesWithdrawn))
            }),
            ("votes by its marker", |_, world| {
                // It votes at once for a client that has never seen what was there before.
                let votes = |client: &Client, master: usize| {
                    client.eligibility[master] == Eligibility::ALWAYS && client.phase == Phase::Held
                };
                world.masters.iter().enumerate().any(|(master, it)| {
                    let is_seen = |client: &Client| {
                        let sights = client.sights.as_ref();
                        sights.is_some_and(|it| it[master].promoted_at.is_some())
                    };
                    let mut clients = world.clients.iter();
                    it.promoted_at.is_some() && clients.any(|it| is_seen(it) && votes(it, master))
                })
            }),
            ("fenced twice", |_, world| {
                world.fences.iter().any(|it| *it > Self::proposal())
            }),
        ];
        if self.transfers() {
            // A late SET that is overtaken by a repair may bring the giver's token back.
            if self.fifo {
                properties.push(Property::always("adopted once", |_, world: &World| {
                    world.given.as_ref().is_none_or(|it| it.adoptions <= 1)
                }));
            }
            properties.push(Property::always("nobody in between", |_, world: &World| {
                let given = world.given.as_ref();
                given.is_none_or(|it| !it.adopted_after_others)
            }));
        }
        if self.lets_writers_in {
            properties.push(Property::always("a writer gets in", gets_in));
        }
        if self.faults.outages > 0 {
            properties.push(Property::always("kept", kept));
        }
        // Restarts without a quarantine change the order in which a master saw two keys.
        if self.beyond != Some(Beyond::Restarts) {
            properties.push(Property::always("fences grow", |_, world: &World| {
                world.fences.is_sorted_by(|earlier, later| earlier < later)
            }));
        }
        if self.preferred.is_some() {
            let within = |setup: &Self, world: &World| world.all_holders() <= (setup.keys)(0).len();
            properties.push(Property::always("no more holders than permits", within));
        }
        properties.push(if self.mutation == Some(Mutation::PermitsCounted) {
            // A permit has no slot there.
            Property::always("one holder", |_, _| true)
        } else if self.beyond.is_some() {
            Property::sometimes("two holders", |_, world: &World| world.holders() == 2)
        } else {
            // A client that is connected may be deceived for a moment, until it asks again.
            Property::always("one holder", |_, world: &World| {
                world.holders() <= 1 || world.is_anyone_deceived()
            })
        });
        for (name, condition) in sometimes {
            if self.reaches.contains(&name) {
                properties.push(Property::sometimes(name, condition));
            }
        }
        properties
    }
}

fn is_adopted(world: &World) -> bool {
    world.given.as_ref().is_some_and(|it| it.adoptions > 0)
}

/// Whether a reader holds the key after a writer has, or the other way round.
fn after(world: &World, reads: bool) -> bool {
    let has_held = |it: &Client| matches!(it.phase, Phase::Released | Phase::Lost(_));
    let holds = |it: usize| world.clients[it].reads == reads && world.is_valid(it);
    let mut before = world.clients.iter().filter(|it| it.reads != reads);
    before.any(has_held) && (0..world.clients.len()).any(holds)
}

/// No writer fails because of others, where it begins only after they are gone.
fn gets_in(_: &Setup, world: &World) -> bool {
    let mut writers = world.clients.iter().filter(|it| !it.reads);
    !writers.any(|it| it.phase == CONTENDED)
}

/// A lock is lost only by its end, as long as a majority of the masters is left.
fn kept(_: &Setup, world: &World) -> bool {
    let ended = Phase::Lost(LossReason::MaxHold);
    let is_lost = |it: &Client| matches!(it.phase, Phase::Lost(_)) && it.phase != ended;
    !world.clients.iter().any(is_lost)
}

/// No client waits for ever or holds for ever, unless it stands still.
fn ends_in_time(setup: &Setup, world: &World) -> bool {
    let is_stuck = |client: &Client| client.phase.is_active() && client.paused.is_none();
    world.now <= setup.end() || !world.clients.iter().any(is_stuck)
}

/// A lease that is under way has a timer: it ends even if no message ever arrives again.
fn always_a_timer(_: &Setup, world: &World) -> bool {
    let mut active = world.clients.iter().filter(|it| it.phase.is_active());
    active.all(|client| client.lease.poll_timeout().is_some())
}

/// Once nothing is under way, no key is left of a client that ended properly: a failed attempt and a
/// lost lock are released everywhere. (Messages that are lost or overtake leave keys to their ttl.)
fn nothing_left_behind(setup: &Setup, world: &World) -> bool {
    let order_is_kept = setup.fifo
        && world.faults.losses == setup.faults.losses
        && world.faults.repeats == setup.faults.repeats;
    if !order_is_kept || !world.is_silent() {
        return true;
    }
    (0..MASTERS)
        .flat_map(|master| world.live_keys(master))
        .all(|key| {
            let owner = world.owner(key.token);
            owner.is_some_and(|owner| {
                let phase = world.clients[owner].phase;
                !phase.has_ended() || matches!(phase, Phase::Gave | Phase::Crashed)
            })
        })
}

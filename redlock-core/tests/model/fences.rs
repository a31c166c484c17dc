//! Fencing counters that are lost or expire: what keeps tokens growing all the same, each with a control.

use crate::{
    setup::{Counters, Mutation::*, Setup, TTL, WallClocks},
    steps::Step,
    world::{MASTERS, World, faults, ticks},
};

/// The first client holds the lock; the second gets it later.
const HOLDER: usize = 0;
const NEXT: usize = 1;

const LOST: Setup = Setup {
    fenced: true,
    attempts: 1,
    counters: Counters::Lost,
    ..Setup::CALM
};

/// The world in which it matters that each attempt proposes anew.
const ONE_WALL_CLOCK: Setup = Setup {
    name: "fenced, counters lost, one wall clock",
    attempts: 2,
    wall_clocks: WallClocks::Agree,
    faults: faults!(restarts: 2, pauses: 1),
    allows: paused_before_the_holder,
    reaches: &["acquired at the second attempt", "restarted while held"],
    ..LOST
};

/// The world in which it matters that the counter comes back with the key.
const ROLLING_RESTARTS: Setup = Setup {
    name: "fenced, rolling restarts, wall clocks apart",
    begin_by: 7,
    max_hold: 5,
    faults: faults!(restarts: 2),
    allows: rolling_restarts,
    reaches: &[
        "contended",
        "restarted while held",
        "repaired",
        "fenced twice",
    ],
    ..LOST
};

/// The world in which it matters that a counter is raised again beside a key that is there.
const SECOND_ROUND_LOST: Setup = Setup {
    name: "fenced twice, a loss, then a restart",
    begin_by: 5,
    max_hold: 2,
    counters: Counters::AheadAndLost,
    faults: faults!(losses: 1, restarts: 1),
    allows: restart_after_an_extension,
    reaches: &["extended", "restarted while held", "fenced twice"],
    ..LOST
};

/// The same, where a key was set without its counter.
const HALF_SET: Setup = Setup {
    name: "fenced, half of a SET lost, then a restart",
    counters: Counters::Lost,
    faults: faults!(halves: 1, restarts: 1),
    ..SECOND_ROUND_LOST
};

/// How far the holder's wall clock is ahead of the next one's, in ticks.
const AHEAD: u8 = 2;

/// The world in which it matters for how long a counter is remembered: for as long as wall clocks differ, and then for
/// as long as an attempt may take. The holder may keep the lock until its counters have expired.
const EXPIRING: Setup = Setup {
    name: "fenced, counters expire",
    begin_by: 5,
    max_hold: 3,
    counters: Counters::Expire { after: AHEAD + TTL },
    wall_clocks: WallClocks::FirstAhead(AHEAD),
    faults: faults!(stragglers: 2),
    allows: late_sets_of_the_next_holder,
    reaches: &["extended", "fenced after a counter expired"],
    ..LOST
};

pub(crate) fn all() -> Vec<Setup> {
    vec![
        ONE_WALL_CLOCK,
        ROLLING_RESTARTS,
        SECOND_ROUND_LOST,
        HALF_SET,
        EXPIRING,
        ONE_WALL_CLOCK
            .broken(ProposalKept, "the first proposal kept")
            .violating("fences grow"),
        ROLLING_RESTARTS
            .broken(RepairWithoutCounter, "repaired without the counter")
            .violating("fences grow"),
        SECOND_ROUND_LOST
            .broken(
                CountersNotRaisedAgain,
                "counters repaired only with the key",
            )
            .violating("fences grow"),
        HALF_SET
            .broken(CountersNotRaisedAgain, "counters trusted beside their keys")
            .violating("fences grow"),
        Setup {
            counters: Counters::Expire { after: AHEAD + 1 },
            ..EXPIRING
        }
        .control("counters expire too soon")
        .violating("fences grow"),
    ]
}

/// The next holder begins first, and may stand still for a while.
fn paused_before_the_holder(world: &World, step: &Step) -> bool {
    match *step {
        Step::Begin(NEXT) => world.now == 0,
        Step::Begin(_) => world.now > 0,
        Step::Pause(client) => client == NEXT,
        // So late that all is forgotten, and so early that another attempt ends in time.
        Step::Resume { .. } => world.now <= 9,
        _ => true,
    }
}

/// The next holder begins when the last quarantine may be over. Masters restart one at a time under
/// the holder, each when the one before has its vote and the key back.
fn rolling_restarts(world: &World, step: &Step) -> bool {
    let is_back = |master: usize| {
        let votes = world.clients[HOLDER].eligibility[master].covers(ticks(world.local(HOLDER)));
        votes && world.masters[master].restarted && world.has_key(master)
    };
    match *step {
        Step::Begin(HOLDER) => world.now == 0,
        Step::Begin(_) => world.now >= 6,
        Step::Restart(master) => {
            let is_next = !world.masters[master].restarted && (0..master).all(is_back);
            is_next && world.is_valid(HOLDER)
        }
        _ => true,
    }
}

/// The next holder begins later, and its SETs may be late.
fn late_sets_of_the_next_holder(world: &World, step: &Step) -> bool {
    match *step {
        Step::Begin(HOLDER) => world.now == 0,
        Step::Begin(_) => world.now > 0,
        Step::Delay { link, given_up } => link.client == NEXT && !given_up,
        _ => true,
    }
}

/// A master restarts under the holder once an extension, and what follows it, has arrived.
fn restart_after_an_extension(world: &World, step: &Step) -> bool {
    let holder = &world.clients[HOLDER];
    match *step {
        Step::Begin(HOLDER) => world.now == 0,
        Step::Begin(_) => world.now >= 4,
        Step::Lose { link, .. } | Step::Halve(link) => link.client == HOLDER,
        Step::Restart(_) => {
            let has_arrived = (0..MASTERS).all(|it| holder.links[it].is_empty());
            world.is_valid(HOLDER) && holder.extended && has_arrived
        }
        _ => true,
    }
}

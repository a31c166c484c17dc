//! What may happen in a world, and what must be true in it.

use stateright::{Model, Property};

use crate::{
    check::Checked,
    event::{
        Action,
        Fault::{
            self, Becomes, DoubledCall, EarlyCheck, GoesOn, Hang, Loss, LostCall, Reset, Restart,
            Unanswered,
        },
    },
    line_node::DEAD_AFTER,
    process::{
        Answer,
        Health::{self, CutOff, Killed, NoMajority, Stopped},
        Process, State,
    },
    setup::{
        BEATS_HELP, BOUND, Broken, CHECKS_HELP, FIRST_ARE_ACTIVE, KILLED_COST_NOTHING,
        LIVING_KEEP_PLACES, NOBODY_IS_FORGOTTEN, ONLY_FIRST, ORDER_RETURNS, Setup,
    },
    world::World,
};

/// Newcomers try before they stand in the line, each once, and permits let the active overtake each other.
fn is_within_bound(setup: &Setup, world: &World) -> bool {
    let slack = setup.processes() - 1 + setup.permits - 1;
    let waiting = world.node.lines[0].iter().map(|it| &world.processes[it.1]);
    let mut waiting = waiting.filter(|it| matches!(it.state, State::Placed(_)));
    waiting.all(|it| usize::from(it.overtaken) <= usize::from(it.ahead) + slack)
}

impl Model for Setup {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(self)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        let may = |fault| world.faults_left.contains(&fault);
        let is_unanswered =
            |it: &Process| it.runs() && it.health != CutOff && !it.to_node.is_empty();
        if world.seconds_left > 0 && !world.processes.iter().any(is_unanswered) {
            actions.push(Action::Second);
        }
        // One that stands elsewhere lets the others go first.
        let others_try = |process: usize| {
            let mut line = world.node.lines[0].iter();
            let is_well = |it: &(u8, usize)| world.processes[it.1].health == Health::Well;
            self.is_elsewhere(process) && line.any(is_well)
        };
        for (process, it) in world.processes.iter().enumerate() {
            let mut add_if =
                |is_possible, action| actions.extend(Some(action).filter(|_| is_possible));
            if !it.runs() {
                let resumes = it.health == Stopped && may(GoesOn);
                add_if(resumes, Action::Becomes(process, Health::Well));
                add_if(!it.to_node.is_empty(), Action::Arrive(process));
                continue;
            }
            match &it.state {
                State::Idle => {
                    let begins = it.requests > 0 && !others_try(process);
                    add_if(begins, Action::Begin(process));
                }
                State::Placed(place) => {
                    let tries = place.is_active() && world.is_free(self) && self.is_ready(process);
                    add_if(
                        tries && it.health == Health::Well && !others_try(process),
                        Action::Try(process),
                    );
                    add_if(true, Action::GiveUp(process));
                    add_if(it.requests > 1, Action::Pause(process));
                    let checks = may(EarlyCheck) && world.can_check(process);
                    add_if(checks, Action::Check(process));
                }
                State::Holding { asks: false } => add_if(true, Action::End(process)),
                State::Holding { asks: true } => {}
            }
            add_if(!it.to_node.is_empty(), Action::Arrive(process));
            let is_next =
                |it: &Answer| *it != Answer::Call || self.broken == Broken::AnswersOvertakeCalls;
            let is_answered = it.answers.front().is_some_and(is_next);
            add_if(is_answered, Action::Answer(process));
            let may_lose = may(Unanswered) && !it.to_node.is_empty();
            add_if(may_lose, Action::LoseRequest(process));
            if it.call().is_some() {
                add_if(true, Action::Call(process));
                add_if(may(LostCall), Action::LoseCall(process));
                add_if(may(DoubledCall), Action::DoubleCall(process));
            }
            if it.health == Health::Well {
                let is_busy = it.state != State::Idle;
                for health in [Killed, Stopped, CutOff, NoMajority] {
                    let may = is_busy && may(Becomes(health));
                    add_if(may, Action::Becomes(process, health));
                }
                let is_used = is_busy || !it.to_node.is_empty();
                add_if(is_used && may(Reset), Action::Reset(process));
            }
        }
        let stand = world.node.lines.iter().any(|line| !line.is_empty());
        for (fault, action) in [
            (Loss, Action::LoseLine),
            (Restart, Action::Restart),
            (Hang, Action::Hang),
        ] {
            actions.extend((stand && may(fault)).then_some(action));
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        next.step(action, self);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always(NOBODY_IS_FORGOTTEN, |setup: &Self, it: &World| {
                it.is_disturbed || !it.is_stuck(setup)
            }),
            Property::always(BEATS_HELP, |setup: &Self, it: &World| {
                let help = || it.seconds_until_tried(setup, false);
                let waits = it.is_disturbed && !setup.needs_looks();
                !waits || help().is_some_and(|it| it <= DEAD_AFTER.into())
            }),
            Property::always(CHECKS_HELP, |setup: &Self, it: &World| {
                let looks = setup.broken != Broken::NoChecks;
                let help = || it.seconds_until_tried(setup, looks);
                !setup.needs_looks() || help().is_some_and(|it| it <= 4)
            }),
            Property::always(KILLED_COST_NOTHING, |setup: &Self, it: &World| {
                let is_killed = |it: &Fault| *it == Becomes(Killed);
                let others = !setup.faults.iter().all(is_killed);
                others || it.has_died_since_call || !it.is_stuck(setup)
            }),
            Property::always(LIVING_KEEP_PLACES, |_, it: &World| {
                !it.has_buried_alive || it.is_disturbed
            }),
            Property::always(FIRST_ARE_ACTIVE, |setup: &Self, it: &World| {
                it.is_disturbed || !it.is_quiet() || it.first_are_active(setup)
            }),
            Property::always(ONLY_FIRST, |setup: &Self, it: &World| {
                // Those that have had no answer before a restart try until they have asked.
                let others = it.is_disturbed || setup.faults.contains(&Restart);
                others || !it.is_quiet() || it.only_first_are_active(setup)
            }),
            Property::always(ORDER_RETURNS, |setup: &Self, it: &World| {
                !it.is_quiet() || it.when_all_have_asked(setup).only_first_are_active(setup)
            }),
            Property::always(BOUND, |setup: &Self, it: &World| {
                it.is_disturbed || is_within_bound(setup, it)
            }),
        ];
        let sometimes = self.sometimes.iter();
        properties.extend(sometimes.map(|(name, condition)| Property::sometimes(name, *condition)));
        properties
    }
}

impl Checked for Setup {
    fn name(&self) -> &'static str {
        self.name
    }

    fn violates(&self) -> Option<&'static str> {
        self.violates
    }

    fn describe(world: &World, step: Action) -> String {
        format!("{step:?}, the lines are {:?}", world.node.lines)
    }

    fn describe_end(world: &World) -> String {
        format!(
            "holders {:?}, the lines {:?}",
            world.holders, world.node.lines
        )
    }
}

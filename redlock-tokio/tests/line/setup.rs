//! The worlds that are explored, and what must be true in them.

use stateright::{Model, Property};

use crate::{
    check::Checked,
    world::{Action, Answer, Faults, PROCESSES, State, World},
};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    name: &'static str,
    /// How many processes may hold the lock at a time.
    pub(crate) permits: usize,
    /// How many of the line may try at a time.
    pub(crate) active: u32,
    /// So many of the processes try only as the first.
    pub(crate) modest: usize,
    /// How many requests each process makes.
    pub(crate) requests: [u8; PROCESSES],
    pub(crate) faults: Faults,
    pub(crate) broken: Broken,
    /// The property that must be violated, in a control.
    violates: Option<&'static str>,
    sometimes: &'static [Sometimes],
}

type Sometimes = (&'static str, fn(&Setup, &World) -> bool);

/// A rule that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    Nothing,
    LeaveForgotten,
    CallsNobody,
    /// The node calls the one behind, and not the one that becomes active.
    CallsTheNext,
    CallsOnlyTheLast,
    NoChecks,
    AsksByJoining,
    OldAnswersBelieved,
    CallsIgnoredWhileJoining,
    CallsBelievedWhileJoining,
    AnswersOvertakeCalls,
    OthersNotLetIn,
    ConnectionsIgnored,
}

const NOBODY_IS_FORGOTTEN: &str = "nobody needs a check while nothing goes wrong";
const CHECKS_HELP: &str = "checks help after each fault";
const FIRST_ARE_ACTIVE: &str = "the first of the line are active as soon as all messages are there";
const ONLY_FIRST: &str = "nobody behind the first is active once all messages are there";
const BOUND: &str = "no more streaks of others than stood before";

const ALL_STAND: Sometimes = ("all others stand in the line", |setup, it| {
    it.line.len() + setup.permits == setup.processes()
});
const OVERTAKEN: Sometimes = ("overtaken by all before", |_, world| {
    let mut all = world.processes.iter();
    all.any(|it| it.ahead > 0 && it.overtaken >= it.ahead)
});
const ALONE: Sometimes = ("the others are gone when one comes back", |_, it| {
    it.comes_back_alone()
});
const CALLED: Sometimes = ("a call finds its process behind others", |_, it| {
    it.processes.iter().any(|it| it.is_called_behind())
});
const OVERTAKING: Sometimes = ("a call overtakes an answer", |_, it| {
    it.processes.iter().any(|it| it.call() > Some(0))
});
const STUCK: Sometimes = ("only a check helps", |setup, it| it.is_stuck(setup));

const CALM: Setup = Setup {
    name: "calm",
    permits: 1,
    active: 1,
    modest: 0,
    requests: [2, 1, 1, 0],
    faults: Faults {
        lost_calls: 0,
        doubled_calls: 0,
        losses: 0,
        restarts: 0,
        deaths: 0,
        early_checks: 0,
        unanswered: 0,
    },
    broken: Broken::Nothing,
    violates: None,
    sometimes: &[ALL_STAND, OVERTAKEN, ALONE, CALLED, OVERTAKING],
};

const NO_FAULTS: Faults = CALM.faults;

/// A world in which calls are lost and processes die needs checks.
const DISTURBED: Setup = Setup {
    sometimes: &[ALL_STAND, STUCK],
    ..CALM
};

const CONTROL: Setup = Setup {
    sometimes: &[],
    ..CALM
};

/// The worlds of the most states, which a debug build leaves out.
pub(crate) const LARGE: &[&str] = &[
    "checks at the wrong time",
    "one comes back twice",
    "NOT: calls count before the answer",
    "NOT: answers overtake calls",
];

pub(crate) const ALL: [Setup; 24] = [
    CALM,
    Setup {
        name: "two permits",
        requests: [1, 1, 1, 1],
        permits: 2,
        active: 2,
        sometimes: &[ALL_STAND],
        ..CALM
    },
    Setup {
        name: "two permits, two processes that try only as the first",
        requests: [1, 1, 1, 1],
        permits: 2,
        active: 2,
        modest: 2,
        sometimes: &[ALL_STAND, CALLED],
        ..CALM
    },
    Setup {
        name: "lost and doubled calls",
        faults: Faults {
            lost_calls: 1,
            doubled_calls: 1,
            ..NO_FAULTS
        },
        ..DISTURBED
    },
    Setup {
        name: "an empty restart of the node",
        faults: Faults {
            restarts: 1,
            ..NO_FAULTS
        },
        sometimes: &[ALL_STAND],
        ..CALM
    },
    Setup {
        name: "a line that is lost without a word",
        faults: Faults {
            losses: 1,
            ..NO_FAULTS
        },
        ..DISTURBED
    },
    Setup {
        name: "two deaths",
        faults: Faults {
            deaths: 2,
            ..NO_FAULTS
        },
        ..DISTURBED
    },
    Setup {
        name: "a death and a lost call",
        faults: Faults {
            deaths: 1,
            lost_calls: 1,
            ..NO_FAULTS
        },
        ..DISTURBED
    },
    Setup {
        name: "checks at the wrong time",
        faults: Faults {
            early_checks: 3,
            lost_calls: 1,
            ..NO_FAULTS
        },
        ..DISTURBED
    },
    Setup {
        name: "requests that are not answered",
        faults: Faults {
            unanswered: 2,
            lost_calls: 1,
            ..NO_FAULTS
        },
        ..DISTURBED
    },
    Setup {
        name: "two permits, two deaths",
        requests: [1, 1, 1, 1],
        permits: 2,
        active: 2,
        faults: Faults {
            deaths: 2,
            ..NO_FAULTS
        },
        sometimes: &[],
        ..CALM
    },
    Setup {
        name: "NOT: a place is kept by a process that has the lock",
        broken: Broken::LeaveForgotten,
        violates: Some(CHECKS_HELP),
        ..CONTROL
    },
    Setup {
        name: "NOT: nobody is called",
        broken: Broken::CallsNobody,
        violates: Some(FIRST_ARE_ACTIVE),
        ..CONTROL
    },
    Setup {
        name: "NOT: the first is not called",
        requests: [1, 1, 1, 1],
        permits: 2,
        active: 2,
        modest: 2,
        broken: Broken::CallsOnlyTheLast,
        violates: Some(FIRST_ARE_ACTIVE),
        ..CONTROL
    },
    Setup {
        name: "NOT: the one behind is called",
        requests: [1, 1, 1, 1],
        permits: 1,
        active: 2,
        broken: Broken::CallsTheNext,
        violates: Some(FIRST_ARE_ACTIVE),
        ..CONTROL
    },
    Setup {
        name: "NOT: no checks",
        faults: Faults {
            lost_calls: 1,
            ..NO_FAULTS
        },
        broken: Broken::NoChecks,
        violates: Some(CHECKS_HELP),
        ..CONTROL
    },
    Setup {
        name: "NOT: a place is taken to ask",
        broken: Broken::AsksByJoining,
        violates: Some(NOBODY_IS_FORGOTTEN),
        ..CONTROL
    },
    Setup {
        name: "NOT: answers to an earlier wait count",
        broken: Broken::OldAnswersBelieved,
        requests: [2, 2, 2, 0],
        violates: Some(ONLY_FIRST),
        ..CONTROL
    },
    Setup {
        name: "NOT: calls are ignored before the answer",
        broken: Broken::CallsIgnoredWhileJoining,
        violates: Some(FIRST_ARE_ACTIVE),
        ..CONTROL
    },
    Setup {
        name: "NOT: calls count before the answer",
        requests: [2, 2, 1, 0],
        broken: Broken::CallsBelievedWhileJoining,
        violates: Some(ONLY_FIRST),
        ..CONTROL
    },
    Setup {
        name: "NOT: answers overtake calls",
        requests: [2, 2, 1, 0],
        broken: Broken::AnswersOvertakeCalls,
        violates: Some(ONLY_FIRST),
        ..CONTROL
    },
    Setup {
        name: "NOT: new connections are ignored",
        faults: Faults {
            restarts: 1,
            ..NO_FAULTS
        },
        broken: Broken::ConnectionsIgnored,
        violates: Some(NOBODY_IS_FORGOTTEN),
        ..CONTROL
    },
    Setup {
        name: "NOT: others are not let in",
        requests: [4, 1, 0, 0],
        broken: Broken::OthersNotLetIn,
        violates: Some(BOUND),
        ..CONTROL
    },
    Setup {
        name: "one comes back twice",
        requests: [3, 1, 1, 0],
        ..CALM
    },
];

impl Setup {
    /// Returns whether a process may try behind so many others.
    pub(crate) fn may_try(&self, process: usize, ahead: usize) -> bool {
        ahead == 0 || (ahead < self.active as usize && self.tries_among_first(process))
    }

    pub(crate) fn tries_among_first(&self, process: usize) -> bool {
        process >= self.modest
    }

    /// Returns how many processes want anything.
    pub(crate) fn processes(&self) -> usize {
        self.requests.iter().filter(|it| **it > 0).count()
    }
}

/// Two looks for each process that is dead or whose farewell was lost, and one more for a call that was lost.
fn rounds(setup: &Setup) -> u32 {
    let ghosts = setup.faults.deaths + setup.faults.unanswered;
    2 * u32::from(ghosts) + 2
}

/// Newcomers try before they stand in the line, each once, and permits let the active overtake each other.
fn is_within_bound(setup: &Setup, world: &World) -> bool {
    let slack = setup.processes() - 1 + setup.permits - 1;
    let waiting = world.line.iter().map(|it| &world.processes[*it]);
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
        let is_stuck = world.is_stuck(self);
        let faults = world.faults;
        for (process, it) in world.processes.iter().enumerate() {
            match &it.state {
                State::Idle if it.requests > 0 => actions.push(Action::Begin(process)),
                State::Placed(place) => {
                    if place.is_active() && world.is_free(self) {
                        actions.push(Action::Try(process));
                    }
                    actions.push(Action::GiveUp(process));
                    if it.requests > 1 {
                        actions.push(Action::Pause(process));
                    }
                    let may_check = is_stuck || faults.early_checks > 0;
                    if self.broken != Broken::NoChecks && may_check && world.can_check(process) {
                        actions.push(Action::Check(process));
                    }
                }
                State::Holding { asks: false } => actions.push(Action::End(process)),
                _ => {}
            }
            let mut add_if =
                |is_possible, action| actions.extend(Some(action).filter(|_| is_possible));
            add_if(!it.to_node.is_empty(), Action::Arrive(process));
            let is_next =
                |it: &Answer| *it != Answer::Call || self.broken == Broken::AnswersOvertakeCalls;
            let is_answered = it.answers.front().is_some_and(is_next);
            add_if(is_answered, Action::Answer(process));
            let may_lose = faults.unanswered > 0 && !it.to_node.is_empty();
            add_if(may_lose, Action::LoseRequest(process));
            if it.call().is_some() {
                add_if(true, Action::Call(process));
                add_if(faults.lost_calls > 0, Action::LoseCall(process));
                add_if(faults.doubled_calls > 0, Action::DoubleCall(process));
            }
            let lives = !matches!(it.state, State::Idle | State::Dead);
            add_if(lives && faults.deaths > 0, Action::Die(process));
        }
        if !world.line.is_empty() {
            actions.extend((faults.losses > 0).then_some(Action::LoseLine));
            actions.extend((faults.restarts > 0).then_some(Action::Restart));
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
            Property::always(CHECKS_HELP, |setup: &Self, it: &World| {
                let rounds_left = it.rounds_until_tried(setup);
                rounds_left.is_some_and(|it| it <= rounds(setup))
            }),
            Property::always(FIRST_ARE_ACTIVE, |setup: &Self, it: &World| {
                it.is_disturbed || !it.is_quiet() || it.first_are_active(setup)
            }),
            Property::always(ONLY_FIRST, |setup: &Self, it: &World| {
                it.is_disturbed || !it.is_quiet() || it.only_first_are_active(setup)
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
        format!("{step:?}, the line is {:?}", world.line)
    }

    fn describe_end(world: &World) -> String {
        format!("holders {:?}, the line {:?}", world.holders, world.line)
    }
}

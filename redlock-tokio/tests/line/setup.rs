//! The worlds that are explored, and what must be true in them.

use stateright::{Model, Property};

use crate::{
    check::Checked,
    world::{
        Action, Answer,
        Fault::{self, Death, DoubledCall, EarlyCheck, Loss, LostCall, Restart, Unanswered},
        PROCESSES, State, World,
    },
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
    /// The faults that may happen, each as often as it stands here.
    pub(crate) faults: &'static [Fault],
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
    faults: &[],
    broken: Broken::Nothing,
    violates: None,
    sometimes: &[ALL_STAND, OVERTAKEN, ALONE, CALLED, OVERTAKING],
};

/// Two permits, for as many processes as can be.
const PERMITS: Setup = Setup {
    permits: 2,
    active: 2,
    requests: [1, 1, 1, 1],
    sometimes: &[ALL_STAND],
    ..CALM
};

/// A world in which calls are lost and processes die needs checks.
const fn disturbed(name: &'static str, faults: &'static [Fault]) -> Setup {
    Setup {
        name,
        faults,
        sometimes: &[ALL_STAND, STUCK],
        ..CALM
    }
}

/// A world without a rule.
const fn control(name: &'static str, broken: Broken, violates: &'static str) -> Setup {
    Setup {
        name,
        broken,
        violates: Some(violates),
        sometimes: &[],
        ..CALM
    }
}

/// The worlds of the most states, which a debug build leaves out.
pub(crate) const LARGE: &[&str] = &[
    "checks at the wrong time",
    "one comes back twice",
    "NOT: calls count before the answer",
    "NOT: answers overtake calls",
];

pub(crate) const ALL: [Setup; 23] = [
    CALM,
    Setup {
        name: "two permits",
        ..PERMITS
    },
    Setup {
        name: "two permits, two processes that try only as the first",
        modest: 2,
        sometimes: &[ALL_STAND, CALLED],
        ..PERMITS
    },
    disturbed("lost and doubled calls", &[LostCall, DoubledCall]),
    Setup {
        sometimes: &[ALL_STAND],
        ..disturbed("an empty restart of the node", &[Restart])
    },
    disturbed("a line that is lost without a word", &[Loss]),
    disturbed("two deaths", &[Death, Death]),
    disturbed("a death and a lost call", &[Death, LostCall]),
    disturbed(
        "checks at the wrong time",
        &[EarlyCheck, EarlyCheck, EarlyCheck, LostCall],
    ),
    disturbed(
        "requests that are not answered",
        &[Unanswered, Unanswered, LostCall],
    ),
    Setup {
        name: "two permits, two deaths",
        faults: &[Death, Death],
        sometimes: &[],
        ..PERMITS
    },
    control(
        "NOT: a place is kept by a process that has the lock",
        Broken::LeaveForgotten,
        CHECKS_HELP,
    ),
    control(
        "NOT: nobody is called",
        Broken::CallsNobody,
        FIRST_ARE_ACTIVE,
    ),
    Setup {
        permits: 2,
        active: 2,
        modest: 2,
        requests: [1, 1, 1, 1],
        ..control(
            "NOT: the first is not called",
            Broken::CallsOnlyTheLast,
            FIRST_ARE_ACTIVE,
        )
    },
    Setup {
        faults: &[LostCall],
        ..control("NOT: no checks", Broken::NoChecks, CHECKS_HELP)
    },
    control(
        "NOT: a place is taken to ask",
        Broken::AsksByJoining,
        NOBODY_IS_FORGOTTEN,
    ),
    Setup {
        requests: [2, 2, 2, 0],
        ..control(
            "NOT: answers to an earlier wait count",
            Broken::OldAnswersBelieved,
            ONLY_FIRST,
        )
    },
    control(
        "NOT: calls are ignored before the answer",
        Broken::CallsIgnoredWhileJoining,
        FIRST_ARE_ACTIVE,
    ),
    Setup {
        requests: [2, 2, 1, 0],
        ..control(
            "NOT: calls count before the answer",
            Broken::CallsBelievedWhileJoining,
            ONLY_FIRST,
        )
    },
    Setup {
        requests: [2, 2, 1, 0],
        ..control(
            "NOT: answers overtake calls",
            Broken::AnswersOvertakeCalls,
            ONLY_FIRST,
        )
    },
    Setup {
        faults: &[Restart],
        ..control(
            "NOT: new connections are ignored",
            Broken::ConnectionsIgnored,
            NOBODY_IS_FORGOTTEN,
        )
    },
    Setup {
        requests: [4, 1, 0, 0],
        ..control("NOT: others are not let in", Broken::OthersNotLetIn, BOUND)
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
    let is_ghost = |it: &&Fault| matches!(it, Death | Unanswered);
    2 * setup.faults.iter().filter(is_ghost).count() as u32 + 2
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
        let may = |fault| world.faults_left.contains(&fault);
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
                    let may_check = is_stuck || may(EarlyCheck);
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
            let may_lose = may(Unanswered) && !it.to_node.is_empty();
            add_if(may_lose, Action::LoseRequest(process));
            if it.call().is_some() {
                add_if(true, Action::Call(process));
                add_if(may(LostCall), Action::LoseCall(process));
                add_if(may(DoubledCall), Action::DoubleCall(process));
            }
            let lives = !matches!(it.state, State::Idle | State::Dead);
            add_if(lives && may(Death), Action::Die(process));
        }
        if !world.line.is_empty() {
            actions.extend(may(Loss).then_some(Action::LoseLine));
            actions.extend(may(Restart).then_some(Action::Restart));
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

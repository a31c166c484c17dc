//! The worlds that are explored.

use crate::{
    event::Fault::{
        self, Becomes, DoubledCall, EarlyCheck, GoesOn, Hang, Loss, LostCall, Reset, Restart,
        Unanswered,
    },
    process::Health::{CutOff, Killed, NoMajority, Stopped},
    world::{PROCESSES, World},
};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) name: &'static str,
    /// How many processes may hold the lock at a time.
    pub(crate) permits: usize,
    /// How many of the line may try at a time.
    pub(crate) active: u32,
    /// So many of the processes try only as the first.
    pub(crate) modest: usize,
    /// So many of the processes, from the first on, wait for another key too, and never get it.
    pub(crate) of_several: usize,
    /// So many of the processes, from the first on, stand in line at another node than the others.
    pub(crate) elsewhere: usize,
    /// How many requests each process makes.
    pub(crate) requests: [u8; PROCESSES],
    /// Clients that stand in no line keep the key busy for ever.
    pub(crate) is_busy: bool,
    /// All processes wait for other keys at the same node.
    pub(crate) always_beats: bool,
    /// The faults that may happen, each as often as it stands here.
    pub(crate) faults: &'static [Fault],
    /// How many seconds may pass while all this happens.
    pub(crate) seconds: u8,
    pub(crate) broken: Broken,
    /// The property that must be violated, in a control.
    pub(crate) violates: Option<&'static str>,
    pub(crate) sometimes: &'static [Sometimes],
}

pub(crate) type Sometimes = (&'static str, fn(&Setup, &World) -> bool);

/// A rule that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    Nothing,
    LeaveForgotten,
    CallsNobody,
    CallsOnlyTheLast,
    NoBeats,
    NoChecks,
    AsksByJoining,
    OldAnswersBelieved,
    CallsIgnoredWhileJoining,
    CallsBelievedWhileJoining,
    AnswersOvertakeCalls,
    OthersNotLetIn,
    ConnectionsIgnored,
    OneRemoval,
    BeatsByClock,
    CountsByElapsedTime,
    RemovesOnlyIfFree,
    NobodyHears,
    PlaceOfNobody,
    StaysWithoutMajority,
    LivesIgnored,
    NeverStepsBack,
    AsksElsewhere,
    OneLineForAll,
}

pub(crate) const NOBODY_IS_FORGOTTEN: &str =
    "nobody needs a beat or a look while nothing goes wrong";
pub(crate) const BEATS_HELP: &str = "after each fault somebody is active within three beats";
pub(crate) const CHECKS_HELP: &str = "beats and looks help after each fault";
pub(crate) const KILLED_COST_NOTHING: &str =
    "after a call somebody is active, whoever was killed before";
pub(crate) const LIVING_KEEP_PLACES: &str = "a process that beats each second keeps its place";
pub(crate) const FIRST_ARE_ACTIVE: &str =
    "the first of the line are active as soon as all messages are there";
pub(crate) const ONLY_FIRST: &str = "nobody behind the first is active once all messages are there";
pub(crate) const ORDER_RETURNS: &str =
    "nobody behind the first is active once the active have asked";
pub(crate) const BOUND: &str = "no more streaks of others than stood before";

const ALL_STAND: Sometimes = ("all others stand in the line", |setup, it| {
    let stand: usize = it.node.lines.iter().map(Vec::len).sum();
    stand + setup.permits == setup.processes()
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
const STUCK: Sometimes = ("only beats or looks help", |setup, it| it.is_stuck(setup));

const CALM: Setup = Setup {
    name: "calm",
    permits: 1,
    active: 1,
    modest: 0,
    of_several: 0,
    elsewhere: 0,
    requests: [2, 1, 1, 0],
    is_busy: false,
    always_beats: false,
    faults: &[],
    seconds: 0,
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

/// Clients that stand in no line always have the key.
const BUSY: Setup = Setup {
    is_busy: true,
    requests: [1, 1, 1, 0],
    sometimes: &[STUCK],
    ..CALM
};

const ELSEWHERE: Setup = Setup {
    name: "one stands in line at another node",
    elsewhere: 1,
    requests: [3, 1, 1, 0],
    sometimes: &[],
    ..CALM
};

const OF_SEVERAL: Setup = Setup {
    name: "two processes wait for another key, too",
    of_several: 2,
    requests: [1, 1, 1, 1],
    sometimes: &[],
    ..CALM
};

/// A world in which calls are lost and processes die needs beats, or looks.
const fn disturbed(name: &'static str, faults: &'static [Fault]) -> Setup {
    Setup {
        name,
        faults,
        sometimes: &[ALL_STAND, STUCK],
        ..CALM
    }
}

const fn busy(name: &'static str, faults: &'static [Fault]) -> Setup {
    Setup {
        name,
        faults,
        ..BUSY
    }
}

/// A world without a rule.
const fn control(name: &'static str, broken: Broken, violates: &'static str) -> Setup {
    without(CALM, name, broken, violates)
}

const fn without(
    setup: Setup,
    name: &'static str,
    broken: Broken,
    violates: &'static str,
) -> Setup {
    Setup {
        name,
        broken,
        violates: Some(violates),
        sometimes: &[],
        ..setup
    }
}

/// The worlds of the most states, which a debug build leaves out.
pub(crate) const LARGE: &[&str] = &[
    "a line that is lost without a word",
    "a request to leave is lost with its connection",
    "checks at the wrong time",
    "lost and doubled calls",
    "one comes back twice",
    "one has no majority",
    "one is killed, and a call is lost",
    "one is stopped, one is cut off",
    "requests that are not answered",
    "two are killed",
    "NOT: answers overtake calls",
];

pub(crate) const ALL: [Setup; 47] = [
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
    ELSEWHERE,
    OF_SEVERAL,
    Setup {
        name: "a second passes at any time",
        requests: [2, 1, 0, 0],
        seconds: 2,
        sometimes: &[ALL_STAND, ALONE],
        ..CALM
    },
    disturbed("lost and doubled calls", &[LostCall, DoubledCall]),
    Setup {
        requests: [1, 1, 1, 0],
        sometimes: &[ALL_STAND],
        ..disturbed("an empty restart of the node", &[Restart])
    },
    disturbed("a line that is lost without a word", &[Loss]),
    disturbed("two are killed", &[Becomes(Killed), Becomes(Killed)]),
    disturbed(
        "one is stopped, one is cut off",
        &[Becomes(Stopped), Becomes(CutOff)],
    ),
    disturbed("one has no majority", &[Becomes(NoMajority)]),
    disturbed(
        "one is killed, and a call is lost",
        &[Becomes(Killed), LostCall],
    ),
    busy("busy, two are killed", &[Becomes(Killed), Becomes(Killed)]),
    busy(
        "busy, two are stopped",
        &[Becomes(Stopped), Becomes(Stopped)],
    ),
    busy(
        "busy, two of three kinds",
        &[Becomes(Killed), Becomes(Stopped), Becomes(CutOff)],
    ),
    busy("busy, two have no majority", &[Becomes(NoMajority); 2]),
    Setup {
        seconds: 3,
        requests: [1, 1, 0, 0],
        ..busy(
            "busy, one is stopped for a while",
            &[Becomes(Stopped), GoesOn],
        )
    },
    Setup {
        seconds: 2,
        requests: [1, 1, 0, 0],
        sometimes: &[],
        ..busy("busy, the node hangs", &[Hang])
    },
    Setup {
        always_beats: true,
        sometimes: &[],
        ..disturbed("a request to leave is lost with its connection", &[Reset])
    },
    disturbed(
        "checks at the wrong time",
        &[EarlyCheck, EarlyCheck, EarlyCheck, LostCall],
    ),
    disturbed(
        "requests that are not answered",
        &[Unanswered, Unanswered, LostCall],
    ),
    Setup {
        name: "two permits, two are killed",
        faults: &[Becomes(Killed), Becomes(Killed)],
        sometimes: &[],
        ..PERMITS
    },
    control(
        "NOT: a place is kept by a process that has the lock",
        Broken::LeaveForgotten,
        FIRST_ARE_ACTIVE,
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
        ..control("NOT: no looks", Broken::NoChecks, CHECKS_HELP)
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
            FIRST_ARE_ACTIVE,
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
            FIRST_ARE_ACTIVE,
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
    without(
        busy("", &[Becomes(Killed)]),
        "NOT: nobody beats, one is killed",
        Broken::NoBeats,
        BEATS_HELP,
    ),
    without(
        disturbed("", &[Becomes(Stopped)]),
        "NOT: nobody beats, one is stopped",
        Broken::NoBeats,
        BEATS_HELP,
    ),
    without(
        busy("", &[Becomes(Stopped), Becomes(Stopped)]),
        "NOT: one is removed at a time",
        Broken::OneRemoval,
        BEATS_HELP,
    ),
    Setup {
        seconds: 2,
        requests: [1, 1, 0, 0],
        ..without(
            busy("", &[Hang]),
            "NOT: the clock tells who is dead",
            Broken::BeatsByClock,
            LIVING_KEEP_PLACES,
        )
    },
    Setup {
        seconds: 2,
        ..without(
            busy("", &[Becomes(Stopped)]),
            "NOT: the count rises a second after it has risen",
            Broken::CountsByElapsedTime,
            BEATS_HELP,
        )
    },
    without(
        busy("", &[Becomes(Stopped)]),
        "NOT: the dead are removed while the key is free",
        Broken::RemovesOnlyIfFree,
        BEATS_HELP,
    ),
    without(
        disturbed("", &[Becomes(Killed)]),
        "NOT: calls that nobody hears are ignored",
        Broken::NobodyHears,
        KILLED_COST_NOTHING,
    ),
    Setup {
        always_beats: true,
        ..without(
            disturbed("", &[Reset]),
            "NOT: a place that nobody wants stays",
            Broken::PlaceOfNobody,
            BEATS_HELP,
        )
    },
    without(
        busy("", &[Becomes(NoMajority)]),
        "NOT: a process without a majority stays",
        Broken::StaysWithoutMajority,
        BEATS_HELP,
    ),
    without(
        busy("", &[Loss]),
        "NOT: a place of an earlier life counts",
        Broken::LivesIgnored,
        BEATS_HELP,
    ),
    without(
        busy("", &[Restart]),
        "NOT: one that is not the first goes on trying",
        Broken::NeverStepsBack,
        ORDER_RETURNS,
    ),
    without(
        ELSEWHERE,
        "NOT: a process asks at another node than the others",
        Broken::AsksElsewhere,
        BOUND,
    ),
    without(
        OF_SEVERAL,
        "NOT: those for several keys stand in the same line",
        Broken::OneLineForAll,
        NOBODY_IS_FORGOTTEN,
    ),
];

impl Setup {
    /// Returns whether a process may try behind so many others.
    pub(crate) fn may_try(&self, process: usize, ahead: usize) -> bool {
        ahead == 0 || (ahead < self.active as usize && self.tries_among_first(process))
    }

    pub(crate) fn tries_among_first(&self, process: usize) -> bool {
        process >= self.modest
    }

    /// Returns whether a process could have the lock.
    pub(crate) fn is_ready(&self, process: usize) -> bool {
        process >= self.of_several
    }

    pub(crate) fn is_elsewhere(&self, process: usize) -> bool {
        process < self.elsewhere
    }

    /// Returns which line a process stands in.
    pub(crate) fn line_of(&self, process: usize) -> usize {
        let is_apart = !self.is_ready(process) && self.broken != Broken::OneLineForAll;
        usize::from(is_apart || self.is_elsewhere(process))
    }

    /// Returns how many processes want anything.
    pub(crate) fn processes(&self) -> usize {
        self.requests.iter().filter(|it| **it > 0).count()
    }

    /// Returns whether some fault can be mended by nothing but a look.
    pub(crate) fn needs_looks(&self) -> bool {
        let mut faults = self.faults.iter();
        faults.any(|it| matches!(it, LostCall | Unanswered | EarlyCheck))
    }
}

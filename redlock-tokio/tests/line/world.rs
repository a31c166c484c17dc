//! Processes that want one key or some permits, the node of their line, and the messages between them.

use std::{collections::VecDeque, time::Duration};

use redlock_core::Timestamp;

use crate::{
    node::Member,
    place::{Place, Step},
    setup::{Broken, Setup},
};

/// The most processes of a world.
pub(crate) const PROCESSES: usize = 4;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    /// The processes that have the lock or a permit.
    pub(crate) holders: Vec<usize>,
    /// The line, as its node has it.
    pub(crate) line: Vec<usize>,
    pub(crate) processes: Vec<Process>,
    /// The faults that may still happen.
    pub(crate) faults_left: Vec<Fault>,
    /// Whether a fault has happened, so that a check may be what helps.
    pub(crate) is_disturbed: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Process {
    pub(crate) state: State,
    /// How many requests it still makes.
    pub(crate) requests: u8,
    /// The number of its wait, so that it knows an answer to an earlier one.
    wait: u8,
    /// Whether it has tried, or knows its place. Else it takes a place only behind others.
    has_tried: bool,
    knows_place: bool,
    /// The messages on their way to the node of the line, and back, each in their order. But a call may overtake answers,
    /// since another task delivers these.
    pub(crate) to_node: VecDeque<Message>,
    pub(crate) answers: VecDeque<Answer>,
    /// How many stood before it when it got its place.
    pub(crate) ahead: u8,
    /// How many streaks of others have begun since.
    pub(crate) overtaken: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum State {
    Idle,
    Placed(Place),
    Holding { asks: bool },
    Dead,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Message {
    Join {
        wait: u8,
        evicts: Option<Member>,
        only_behind_others: bool,
    },
    Ask {
        wait: u8,
    },
    Leave,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Answer {
    Place { wait: u8, ahead: u32, first: Member },
    Others { wait: u8, count: usize },
    Call,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Fault {
    LostCall,
    DoubledCall,
    /// The node loses its lines, and tells nobody.
    Loss,
    /// The node loses its lines, and all connections end.
    Restart,
    Death,
    EarlyCheck,
    /// A request to the node is not answered.
    Unanswered,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    /// Tries without a place, and takes one if the key is taken.
    Begin(usize),
    Try(usize),
    /// The next request takes the place over, if there is one.
    GiveUp(usize),
    /// Gives up, and the next request comes later.
    Pause(usize),
    /// Ends a streak, or first asks whether others wait if it has more requests.
    End(usize),
    Arrive(usize),
    Answer(usize),
    Call(usize),
    LoseCall(usize),
    DoubleCall(usize),
    /// Looks whether the key lies free. This stands for the time that passes until then.
    Check(usize),
    LoseLine,
    Restart,
    Die(usize),
    /// A request is lost, and its process learns that there is no answer.
    LoseRequest(usize),
}

impl Process {
    /// Returns which of the answers is the next call.
    pub(crate) fn call(&self) -> Option<usize> {
        self.answers.iter().position(|it| *it == Answer::Call)
    }

    /// Returns whether the next call finds this process behind others.
    pub(crate) fn is_called_behind(&self) -> bool {
        let is_behind = matches!(&self.state, State::Placed(it) if it.timeout().is_some());
        self.call() == Some(0) && is_behind && !self.is_active()
    }

    fn is_active(&self) -> bool {
        matches!(&self.state, State::Placed(place) if place.is_active())
    }

    fn take_call(&mut self) {
        self.call().map(|it| self.answers.remove(it));
    }
}

impl World {
    pub(crate) fn new(setup: &Setup) -> Self {
        let process = |requests| Process {
            state: State::Idle,
            requests,
            wait: 0,
            has_tried: false,
            knows_place: false,
            to_node: VecDeque::new(),
            answers: VecDeque::new(),
            ahead: 0,
            overtaken: 0,
        };
        Self {
            holders: Vec::new(),
            line: Vec::new(),
            processes: setup.requests.map(process).to_vec(),
            faults_left: setup.faults.to_vec(),
            is_disturbed: false,
        }
    }

    pub(crate) fn is_free(&self, setup: &Setup) -> bool {
        self.holders.len() < setup.permits
    }

    /// Returns whether the key is free, and some wait, but nobody will try unless a check shows it.
    pub(crate) fn is_stuck(&self, setup: &Setup) -> bool {
        self.is_free(setup) && self.waits() && self.is_quiet() && !self.is_tried()
    }

    /// Returns whether one that takes a place only behind others learns that there are none.
    pub(crate) fn comes_back_alone(&self) -> bool {
        self.processes.iter().any(|it| {
            let is_alone = matches!(it.answers.front(), Some(Answer::Others { count: 0, .. }));
            is_alone && matches!(it.state, State::Placed(_))
        })
    }

    /// Returns whether no message is on its way.
    pub(crate) fn is_quiet(&self) -> bool {
        self.next_message().is_none()
    }

    pub(crate) fn first_are_active(&self, setup: &Setup) -> bool {
        let mut line = self.line.iter().enumerate();
        line.all(|(ahead, it)| !setup.may_try(*it, ahead) || self.processes[*it].is_active())
    }

    pub(crate) fn only_first_are_active(&self, setup: &Setup) -> bool {
        let mut line = self.line.iter().enumerate();
        line.all(|(ahead, it)| setup.may_try(*it, ahead) || !self.processes[*it].is_active())
    }

    pub(crate) fn waits(&self) -> bool {
        self.processes
            .iter()
            .any(|it| matches!(it.state, State::Placed(_)))
    }

    pub(crate) fn can_check(&self, process: usize) -> bool {
        matches!(&self.processes[process].state, State::Placed(it) if it.timeout().is_some())
    }

    fn is_tried(&self) -> bool {
        self.processes.iter().any(Process::is_active)
    }

    fn next_message(&self) -> Option<Action> {
        let mut all = self.processes.iter().enumerate();
        all.find_map(|(index, it)| match it {
            it if !it.to_node.is_empty() => Some(Action::Arrive(index)),
            it if it.answers.front() == Some(&Answer::Call) => Some(Action::Call(index)),
            it if !it.answers.is_empty() => Some(Action::Answer(index)),
            _ => None,
        })
    }

    /// Returns how many rounds of checks it takes until somebody may try, if nothing else goes wrong.
    pub(crate) fn rounds_until_tried(&self, setup: &Setup) -> Option<u32> {
        let mut world = self.clone();
        for rounds in 0..10 {
            while let Some(message) = world.next_message() {
                world.step(message, setup);
            }
            if !world.is_stuck(setup) {
                return Some(rounds);
            }
            for process in 0..PROCESSES {
                if setup.broken != Broken::NoChecks {
                    world.check(process, setup);
                }
            }
        }
        None
    }

    pub(crate) fn step(&mut self, action: Action, setup: &Setup) {
        match action {
            Action::Begin(it) if self.is_free(setup) => self.take(it),
            Action::Begin(it) => self.join(it, true, setup),
            Action::Try(it) => {
                self.take(it);
                self.leave(it, setup);
            }
            Action::GiveUp(it) => {
                let process = &mut self.processes[it];
                if process.requests == 1 {
                    return self.step(Action::Pause(it), setup);
                }
                process.requests -= 1;
                process.wait += 1;
                process.has_tried = false;
                if let State::Placed(place) = &mut process.state
                    && let Some(step) = place.inherit()
                {
                    self.carry_out(it, step, setup);
                }
            }
            Action::Pause(it) => {
                let process = &mut self.processes[it];
                process.requests -= 1;
                process.state = State::Idle;
                self.leave(it, setup);
            }
            Action::End(it) => self.end(it, setup),
            Action::Arrive(it) => self.arrive(it, setup),
            Action::Answer(it) => self.answer(it, setup),
            Action::Call(it) => {
                self.processes[it].take_call();
                if let State::Placed(place) = &mut self.processes[it].state {
                    let is_joining = !place.is_active() && place.timeout().is_none();
                    let step = match setup.broken {
                        Broken::CallsIgnoredWhileJoining if is_joining => None,
                        Broken::CallsBelievedWhileJoining if is_joining => {
                            place.handle_standing(Timestamp::ZERO, true, Member(it as u64), true)
                        }
                        _ => place.handle_call(Timestamp::ZERO, setup.tries_among_first(it)),
                    };
                    if let Some(step) = step {
                        self.carry_out(it, step, setup);
                    }
                }
            }
            Action::LoseCall(it) => {
                self.processes[it].take_call();
                self.use_up(Fault::LostCall);
            }
            Action::DoubleCall(it) => {
                if let Some(at) = self.processes[it].call() {
                    self.processes[it].answers.insert(at, Answer::Call);
                }
                self.use_up(Fault::DoubledCall);
            }
            Action::Check(it) => {
                if !self.is_stuck(setup) {
                    self.use_up(Fault::EarlyCheck);
                }
                self.check(it, setup);
            }
            Action::LoseRequest(it) => {
                self.use_up(Fault::Unanswered);
                let process = &mut self.processes[it];
                if let Some(Message::Join { wait, .. }) = process.to_node.pop_front()
                    && wait == process.wait
                    && let State::Placed(place) = &mut process.state
                {
                    place.handle_failure(Timestamp::ZERO);
                }
            }
            Action::LoseLine => {
                self.line.clear();
                self.use_up(Fault::Loss);
            }
            Action::Restart => {
                self.line.clear();
                self.use_up(Fault::Restart);
                for process in 0..PROCESSES {
                    self.reconnect(process, setup);
                }
            }
            Action::Die(it) => {
                self.use_up(Fault::Death);
                self.holders.retain(|holder| *holder != it);
                let process = &mut self.processes[it];
                process.state = State::Dead;
                process.requests = 0;
                process.to_node.clear();
                process.answers.clear();
            }
        }
    }

    fn take(&mut self, process: usize) {
        self.holders.push(process);
        self.processes[process].state = State::Holding { asks: false };
        self.begin_streak(process);
    }

    fn use_up(&mut self, fault: Fault) {
        let at = self.faults_left.iter().position(|it| *it == fault);
        self.faults_left.remove(at.expect("it may happen"));
        self.is_disturbed |= !matches!(fault, Fault::DoubledCall | Fault::Restart);
    }

    fn begin_streak(&mut self, process: usize) {
        self.processes[process].requests -= 1;
        let line = self.line.clone();
        for other in line.into_iter().filter(|it| *it != process) {
            self.processes[other].overtaken += 1;
        }
    }

    fn join(&mut self, process: usize, has_tried: bool, setup: &Setup) {
        let (place, step) = Place::join(Duration::ZERO);
        let it = &mut self.processes[process];
        it.wait += 1;
        (it.has_tried, it.knows_place) = (has_tried, false);
        it.state = State::Placed(place);
        self.carry_out(process, step, setup);
    }

    fn leave(&mut self, process: usize, setup: &Setup) {
        if setup.broken != Broken::LeaveForgotten {
            self.processes[process].to_node.push_back(Message::Leave);
        }
    }

    /// Ends a streak. A process that has more requests asks whether others wait: if so, it takes a place before it
    /// releases the lock, and otherwise its streak goes on.
    fn end(&mut self, process: usize, setup: &Setup) {
        let it = &mut self.processes[process];
        if it.requests == 0 {
            it.state = State::Idle;
            self.holders.retain(|holder| *holder != process);
            return;
        }
        it.wait += 1;
        let wait = it.wait;
        it.state = State::Holding { asks: true };
        it.to_node.push_back(match setup.broken {
            Broken::AsksByJoining => Message::Join {
                wait,
                evicts: None,
                only_behind_others: false,
            },
            _ => Message::Ask { wait },
        });
    }

    /// Ends a connection with all that is on its way, and opens another one.
    fn reconnect(&mut self, process: usize, setup: &Setup) {
        let it = &mut self.processes[process];
        it.to_node.clear();
        it.answers.clear();
        match &mut it.state {
            State::Placed(place) => {
                // Its question, or the answer, was on its way.
                if !place.is_active() && place.timeout().is_none() {
                    place.handle_failure(Timestamp::ZERO);
                }
                if setup.broken != Broken::ConnectionsIgnored
                    && let Some(step) = place.handle_connection()
                {
                    self.carry_out(process, step, setup);
                }
            }
            State::Holding { asks: true } => self.decide(process, true, setup),
            _ => {}
        }
    }

    fn carry_out(&mut self, process: usize, step: Step, setup: &Setup) {
        match step {
            Step::Join { evicts } => {
                let process = &mut self.processes[process];
                process.to_node.push_back(Message::Join {
                    wait: process.wait,
                    evicts,
                    only_behind_others: !process.has_tried && !process.knows_place,
                });
            }
            Step::Look => {
                let is_free = self.is_free(setup);
                if let State::Placed(place) = &mut self.processes[process].state
                    && let Some(step) = place.handle_look(Timestamp::ZERO, is_free)
                {
                    self.carry_out(process, step, setup);
                }
            }
        }
    }

    fn check(&mut self, process: usize, setup: &Setup) {
        let late = Timestamp::ZERO.saturating_add(Duration::from_secs(1 << 20));
        if let State::Placed(place) = &mut self.processes[process].state
            && let Some(step) = place.handle_timeout(late)
        {
            self.carry_out(process, step, setup);
        }
    }

    // The node of the line.

    fn arrive(&mut self, process: usize, setup: &Setup) {
        let Some(message) = self.processes[process].to_node.pop_front() else {
            return;
        };
        let others = self.line.iter().filter(|it| **it != process).count();
        match message {
            Message::Join {
                wait,
                only_behind_others: true,
                ..
            } if self.line.is_empty() => {
                let answer = Answer::Others { wait, count: 0 };
                self.processes[process].answers.push_back(answer);
            }
            Message::Join { wait, evicts, .. } => {
                if let Some(first) = self.line.first().copied()
                    && evicts == Some(Member(first as u64))
                {
                    self.line.remove(0);
                    self.call(0, setup);
                }
                if !self.line.contains(&process) {
                    self.line.push(process);
                    self.processes[process].ahead = others as u8;
                    self.processes[process].overtaken = 0;
                }
                let ahead = self.line.iter().take_while(|it| **it != process).count();
                let first = Member(self.line[0] as u64);
                let ahead = ahead as u32;
                let answer = Answer::Place { wait, ahead, first };
                self.processes[process].answers.push_back(answer);
            }
            Message::Ask { wait } => {
                let answer = Answer::Others {
                    wait,
                    count: others,
                };
                self.processes[process].answers.push_back(answer);
            }
            Message::Leave => {
                if let Some(at) = self.line.iter().position(|it| *it == process) {
                    self.line.remove(at);
                    self.call(at, setup);
                }
            }
        }
    }

    /// Calls the first, and the last of those that may try, if they have moved up because one has left this place.
    fn call(&mut self, left: usize, setup: &Setup) {
        let active = setup.active as usize;
        let ranks = match setup.broken {
            Broken::CallsNobody => Vec::new(),
            Broken::CallsOnlyTheLast => vec![active - 1],
            _ if active == 1 => vec![0],
            _ => vec![0, active - 1],
        };
        let is_behind = |rank: &usize| left <= *rank;
        for next in ranks.iter().filter(|rank| is_behind(rank)) {
            if let Some(next) = self.line.get(*next) {
                self.processes[*next].answers.push_back(Answer::Call);
            }
        }
    }

    fn answer(&mut self, process: usize, setup: &Setup) {
        let it = &mut self.processes[process];
        let at = it.answers.iter().position(|it| *it != Answer::Call);
        let Some(answer) = at.and_then(|at| it.answers.remove(at)) else {
            return;
        };
        let is_old = |wait: u8| wait != it.wait && setup.broken != Broken::OldAnswersBelieved;
        match (answer, &mut it.state) {
            // Nobody else waits, so it tries without a place.
            (Answer::Others { wait, .. }, State::Placed(_)) if !is_old(wait) => {
                it.state = State::Idle;
            }
            (Answer::Place { wait, ahead, first }, State::Placed(place)) if !is_old(wait) => {
                it.knows_place = true;
                let may_try = setup.may_try(process, ahead as usize);
                if let Some(step) = place.handle_standing(Timestamp::ZERO, may_try, first, true) {
                    self.carry_out(process, step, setup);
                }
            }
            (Answer::Place { wait, ahead, .. }, State::Holding { asks: true }) if !is_old(wait) => {
                self.decide(process, ahead > 0, setup);
            }
            (Answer::Others { wait, count }, State::Holding { asks: true }) if !is_old(wait) => {
                self.decide(process, count > 0, setup);
            }
            _ => {}
        }
    }

    fn decide(&mut self, process: usize, others_wait: bool, setup: &Setup) {
        if others_wait && setup.broken != Broken::OthersNotLetIn {
            self.join(process, false, setup);
            self.holders.retain(|it| *it != process);
        } else {
            self.processes[process].state = State::Holding { asks: false };
            self.begin_streak(process);
        }
    }
}

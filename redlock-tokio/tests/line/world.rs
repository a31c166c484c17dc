//! Processes that want one key or some permits, the node of their line, and what may happen to them.

use std::{collections::VecDeque, time::Duration};

use redlock_core::Timestamp;
use redlock_tokio::node::Standing;

use crate::{
    event::{Action, Fault},
    line_node::{LineNode, Request},
    place::{Place, Step},
    process::{Answer, Health, Message, Process, State},
    setup::{Broken, Setup},
};

/// The most processes of a world.
pub(crate) const PROCESSES: usize = 4;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    /// The processes that have the lock or a permit.
    pub(crate) holders: Vec<usize>,
    pub(crate) node: LineNode,
    pub(crate) processes: Vec<Process>,
    /// The faults that may still happen.
    pub(crate) faults_left: Vec<Fault>,
    /// How many more seconds may pass while all this happens.
    pub(crate) seconds_left: u8,
    /// Whether a fault has happened, so that it takes beats or looks until the first ones are active.
    pub(crate) is_disturbed: bool,
    /// Whether a process has died since the node has called the first of the line.
    pub(crate) has_died_since_call: bool,
    /// Whether the node has declared a process dead that was alive and not late.
    pub(crate) has_buried_alive: bool,
}

impl World {
    pub(crate) fn new(setup: &Setup) -> Self {
        let process = |requests| Process {
            state: State::Idle,
            health: Health::Well,
            requests,
            wait: 0,
            has_tried: false,
            knows_place: false,
            without_majority: 0,
            owes_leave: None,
            to_node: VecDeque::new(),
            answers: VecDeque::new(),
            ahead: 0,
            overtaken: 0,
        };
        Self {
            holders: Vec::new(),
            node: LineNode::default(),
            processes: setup.requests.map(process).to_vec(),
            faults_left: setup.faults.to_vec(),
            seconds_left: setup.seconds,
            is_disturbed: false,
            has_died_since_call: false,
            has_buried_alive: false,
        }
    }

    pub(crate) fn is_free(&self, setup: &Setup) -> bool {
        !setup.is_busy && self.holders.len() < setup.permits
    }

    /// Returns whether some wait that could have the lock, but nobody will try unless something else happens.
    pub(crate) fn is_stuck(&self, setup: &Setup) -> bool {
        let could_have = |it: &usize| {
            setup.is_ready(*it) && self.processes[*it].health == Health::Well && self.waits(*it)
        };
        let waiting: Vec<_> = (0..PROCESSES).filter(could_have).collect();
        let is_held = self
            .holders
            .iter()
            .any(|it| self.processes[*it].health == Health::Well);
        let is_tried = waiting.iter().any(|it| self.processes[*it].is_active());
        self.is_quiet() && !waiting.is_empty() && !is_tried && (!is_held || setup.is_busy)
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
        let mut line = self.node.lines[0].iter().enumerate();
        line.all(|(ahead, it)| !setup.may_try(it.1, ahead) || self.processes[it.1].is_active())
    }

    pub(crate) fn only_first_are_active(&self, setup: &Setup) -> bool {
        let mut line = self.node.lines[0].iter().enumerate();
        line.all(|(ahead, it)| setup.may_try(it.1, ahead) || !self.processes[it.1].is_active())
    }

    fn waits(&self, process: usize) -> bool {
        matches!(self.processes[process].state, State::Placed(_))
    }

    pub(crate) fn can_check(&self, process: usize) -> bool {
        let process = &self.processes[process];
        let is_due = matches!(&process.state, State::Placed(it) if it.timeout().is_some());
        is_due && process.runs()
    }

    fn next_message(&self) -> Option<Action> {
        let mut all = self.processes.iter().enumerate();
        all.find_map(|(index, it)| match it {
            it if !it.to_node.is_empty() => Some(Action::Arrive(index)),
            it if !it.runs() || it.health == Health::CutOff => None,
            it if it.answers.front() == Some(&Answer::Call) => Some(Action::Call(index)),
            it if !it.answers.is_empty() => Some(Action::Answer(index)),
            _ => None,
        })
    }

    /// Returns how many seconds pass until somebody may try, if nothing else goes wrong. In each of them all beat, and
    /// `looks` if they do.
    pub(crate) fn seconds_until_tried(&self, setup: &Setup, looks: bool) -> Option<u32> {
        let mut world = self.clone();
        for seconds in 0..10 {
            world.deliver_all(setup);
            if !world.is_stuck(setup) {
                return Some(seconds);
            }
            world.pass_second(setup);
            for process in 0..PROCESSES {
                if looks && world.can_check(process) {
                    world.check(process, setup);
                }
            }
        }
        None
    }

    /// Returns the world in which all that may try have asked whether they may.
    pub(crate) fn when_all_have_asked(&self, setup: &Setup) -> Self {
        let mut world = self.clone();
        for _ in 0..2 {
            world.deliver_all(setup);
            world.pass_second(setup);
            world.deliver_all(setup);
            for process in 0..PROCESSES {
                if world.processes[process].is_active() && world.can_check(process) {
                    world.check(process, setup);
                }
            }
        }
        world.deliver_all(setup);
        world
    }

    fn deliver_all(&mut self, setup: &Setup) {
        while let Some(message) = self.next_message() {
            self.step(message, setup);
        }
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
                            let standing = Standing {
                                ahead: 0,
                                number: 0,
                                life: 0,
                                is_called: true,
                            };
                            place.handle_standing(Timestamp::ZERO, true, standing)
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
            Action::Second => {
                self.seconds_left -= 1;
                self.pass_second(setup);
            }
            Action::Check(it) => {
                self.use_up(Fault::EarlyCheck);
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
                self.node.forget();
                self.use_up(Fault::Loss);
            }
            Action::Restart => {
                self.node.forget();
                self.use_up(Fault::Restart);
                for process in 0..PROCESSES {
                    self.reconnect(process, setup);
                }
            }
            Action::Hang => {
                self.node.hung_for = 9;
                self.use_up(Fault::Hang);
            }
            Action::Reset(it) => {
                self.use_up(Fault::Reset);
                self.reconnect(it, setup);
            }
            Action::Becomes(it, health) => {
                self.has_died_since_call |= health == Health::Killed;
                let process = &mut self.processes[it];
                self.holders
                    .retain(|holder| *holder != it || health == Health::NoMajority);
                process.health = health;
                if matches!(health, Health::Killed | Health::CutOff) {
                    process.to_node.clear();
                    process.answers.clear();
                }
                if matches!(health, Health::Killed) {
                    process.state = State::Idle;
                    process.requests = 0;
                }
                let is_back = health == Health::Well;
                self.use_up(if is_back {
                    Fault::GoesOn
                } else {
                    Fault::Becomes(health)
                });
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
        self.is_disturbed |= !matches!(fault, Fault::DoubledCall | Fault::Restart | Fault::Hang);
    }

    fn begin_streak(&mut self, process: usize) {
        self.processes[process].requests -= 1;
        let line = self.node.lines[0].clone();
        for (_, other) in line.into_iter().filter(|it| it.1 != process) {
            self.processes[other].overtaken += 1;
        }
    }

    fn join(&mut self, process: usize, has_tried: bool, setup: &Setup) {
        let (place, step) = Place::join(Duration::ZERO, Duration::ZERO);
        let it = &mut self.processes[process];
        it.wait += 1;
        (it.has_tried, it.knows_place) = (has_tried, false);
        it.state = State::Placed(place);
        it.owes_leave = None;
        self.carry_out(process, step, setup);
    }

    fn leave(&mut self, process: usize, setup: &Setup) {
        if setup.broken != Broken::LeaveForgotten {
            let it = &mut self.processes[process];
            let wait = it.wait;
            it.owes_leave = setup.faults.contains(&Fault::Reset).then_some(wait);
            it.send(Message::Leave { wait });
        }
    }

    /// Ends a streak. A process that has more requests asks whether others wait: if so, it takes a place before it
    /// releases the lock, and otherwise its streak goes on. One that stands elsewhere assumes that others wait.
    fn end(&mut self, process: usize, setup: &Setup) {
        let is_elsewhere = setup.is_elsewhere(process);
        let it = &mut self.processes[process];
        if it.requests == 0 {
            it.state = State::Idle;
            self.holders.retain(|holder| *holder != process);
            return;
        }
        it.wait += 1;
        let wait = it.wait;
        it.state = State::Holding { asks: true };
        if is_elsewhere && setup.broken != Broken::AsksElsewhere {
            return self.decide(process, true, setup);
        }
        it.send(match setup.broken {
            Broken::AsksByJoining => Message::Join {
                wait,
                number: None,
                only_behind_others: false,
            },
            _ => Message::Ask { wait },
        });
    }

    /// A second passes. Each process that has a place beats, unless its last beat was not answered.
    fn pass_second(&mut self, setup: &Setup) {
        self.node.is_new_second = true;
        for process in 0..PROCESSES {
            let stands = self.waits(process) || setup.always_beats;
            let it = &mut self.processes[process];
            if !it.runs() || !stands || setup.broken == Broken::NoBeats {
                continue;
            }
            let leaves = setup.broken != Broken::StaysWithoutMajority;
            if it.health == Health::NoMajority && leaves {
                it.without_majority = (it.without_majority + 1).min(3);
            }
            if it.without_majority < 3 {
                it.send(Message::Beat {
                    leaves_all: it.without_majority == 2,
                });
            }
        }
    }

    /// Ends a connection with all that is on its way, and opens another one. On that one it leaves the line first, if it
    /// does not know whether it has.
    fn reconnect(&mut self, process: usize, setup: &Setup) {
        let it = &mut self.processes[process];
        it.to_node.clear();
        it.answers.clear();
        if let Some(wait) = it.owes_leave
            && setup.broken != Broken::PlaceOfNobody
        {
            it.send(Message::Leave { wait });
        }
        match &mut it.state {
            State::Placed(place) => {
                place.handle_failure(Timestamp::ZERO);
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
            Step::Join => {
                let it = &mut self.processes[process];
                let State::Placed(place) = &it.state else {
                    return;
                };
                let number = place.number();
                let only_behind_others = !it.has_tried && !it.knows_place;
                // It takes no place without a majority.
                if it.without_majority < 2 {
                    it.send(Message::Join {
                        wait: it.wait,
                        number,
                        only_behind_others,
                    });
                }
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
        let mut request = Request {
            setup,
            hears: std::array::from_fn(|it| self.processes[it].health != Health::Killed),
            is_free: self.is_free(setup),
            called: Vec::new(),
            buried: Vec::new(),
        };
        let at = setup.line_of(process);
        let node = &mut self.node;
        let answer = match message {
            Message::Join {
                wait,
                number,
                only_behind_others,
            } => {
                node.remove_dead_heads(at, process, setup);
                if only_behind_others && node.lines[at].is_empty() {
                    Some(Answer::Others { wait, count: 0 })
                } else {
                    let is_new = node.place(at, process).is_none();
                    let number = number.map(|it| it as u8);
                    let standing = node.join(at, process, number, &mut request);
                    if is_new && number.is_none() {
                        self.processes[process].ahead = standing.ahead as u8;
                        self.processes[process].overtaken = 0;
                    }
                    Some(Answer::Place { wait, standing })
                }
            }
            Message::Ask { wait } => {
                node.remove_dead_heads(at, process, setup);
                let others = node.lines[at].iter().filter(|it| it.1 != process);
                let count = others.count();
                Some(Answer::Others { wait, count })
            }
            Message::Leave { wait } => {
                node.leave(at, process);
                node.call(at, &mut request);
                setup
                    .faults
                    .contains(&Fault::Reset)
                    .then_some(Answer::Left { wait })
            }
            Message::CallNext => {
                node.call(at, &mut request);
                None
            }
            Message::Beat { leaves_all: true } => {
                node.bury(process, &mut request);
                request.buried.retain(|it| *it != process);
                None
            }
            Message::Beat { .. } => {
                if node.life(process).is_some() {
                    node.beat(process, &mut request);
                }
                let life = node.life(process);
                Some(Answer::Alive { life })
            }
        };
        if matches!(message, Message::Leave { .. } | Message::CallNext) {
            self.has_died_since_call = false;
        }
        let Request { called, buried, .. } = request;
        let is_alive = |it: &usize| self.processes[*it].health == Health::Well && self.waits(*it);
        self.has_buried_alive |= buried.iter().any(is_alive);
        for it in called {
            if self.processes[it].health != Health::CutOff {
                self.processes[it].answers.push_back(Answer::Call);
            }
        }
        let it = &mut self.processes[process];
        if !matches!(it.health, Health::CutOff | Health::Killed) {
            it.answers.extend(answer);
        }
    }

    fn answer(&mut self, process: usize, setup: &Setup) {
        let it = &mut self.processes[process];
        let at = it.answers.iter().position(|it| *it != Answer::Call);
        let Some(answer) = at.and_then(|at| it.answers.remove(at)) else {
            return;
        };
        let is_old = |wait: u8| wait != it.wait && setup.broken != Broken::OldAnswersBelieved;
        let step = match (answer, &mut it.state) {
            // Nobody else waits, so it tries without a place.
            (Answer::Others { wait, .. }, State::Placed(_)) if !is_old(wait) => {
                it.state = State::Idle;
                None
            }
            (Answer::Place { wait, standing }, State::Placed(place)) if !is_old(wait) => {
                it.knows_place = true;
                let may_try = setup.may_try(process, standing.ahead as usize);
                let goes_on = setup.broken == Broken::NeverStepsBack && place.is_active();
                place.handle_standing(Timestamp::ZERO, may_try || goes_on, standing)
            }
            (Answer::Place { wait, standing }, State::Holding { asks: true }) if !is_old(wait) => {
                return self.decide(process, standing.ahead > 0, setup);
            }
            (Answer::Others { wait, count }, State::Holding { asks: true }) if !is_old(wait) => {
                return self.decide(process, count > 0, setup);
            }
            (Answer::Left { wait }, _) => {
                it.owes_leave.take_if(|it| *it == wait);
                None
            }
            (Answer::Alive { life }, State::Placed(place))
                if setup.broken != Broken::LivesIgnored =>
            {
                place.handle_life(life)
            }
            _ => None,
        };
        if let Some(step) = step {
            self.carry_out(process, step, setup);
        }
    }

    fn decide(&mut self, process: usize, others_wait: bool, setup: &Setup) {
        if others_wait && setup.broken != Broken::OthersNotLetIn {
            self.join(process, false, setup);
            if setup.faults.contains(&Fault::Becomes(Health::Killed)) {
                self.processes[process].send(Message::CallNext);
            }
            self.holders.retain(|it| *it != process);
        } else {
            self.processes[process].state = State::Holding { asks: false };
            self.begin_streak(process);
        }
    }
}

//! A process that wants the key, and the messages between it and the node of the line.

use std::collections::VecDeque;

use redlock_tokio::node::Standing;

use crate::place::Place;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Process {
    pub(crate) state: State,
    pub(crate) health: Health,
    /// How many requests it still makes.
    pub(crate) requests: u8,
    /// The number of its wait, so that it knows an answer to an earlier one.
    pub(crate) wait: u8,
    /// Whether it has tried, or knows its place. Else it takes a place only behind others.
    pub(crate) has_tried: bool,
    pub(crate) knows_place: bool,
    /// How many seconds it has had no majority. It leaves all lines at the second beat.
    pub(crate) without_majority: u8,
    /// The wait after which it has left the line, until that is answered.
    pub(crate) owes_leave: Option<u8>,
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
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Health {
    Well,
    /// It can talk to the node of the line, but to no majority.
    NoMajority,
    /// Its messages are lost, and its connection seems to be there.
    CutOff,
    Stopped,
    /// Its connection is closed.
    Killed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Message {
    Join {
        wait: u8,
        number: Option<u64>,
        only_behind_others: bool,
    },
    Ask {
        wait: u8,
    },
    Leave {
        wait: u8,
    },
    /// The release of a lock for which others wait.
    CallNext,
    Beat {
        leaves_all: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Answer {
    Place { wait: u8, standing: Standing },
    Others { wait: u8, count: usize },
    Left { wait: u8 },
    Alive { life: Option<u64> },
    Call,
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

    /// Returns whether it does anything.
    pub(crate) fn runs(&self) -> bool {
        !matches!(self.health, Health::Stopped | Health::Killed)
    }

    pub(crate) fn is_active(&self) -> bool {
        matches!(&self.state, State::Placed(place) if place.is_active())
    }

    pub(crate) fn take_call(&mut self) {
        self.call().map(|it| self.answers.remove(it));
    }

    pub(crate) fn send(&mut self, message: Message) {
        if self.health != Health::CutOff {
            self.to_node.push_back(message);
        }
    }
}

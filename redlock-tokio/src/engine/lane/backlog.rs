use std::{collections::VecDeque, mem};

use super::{limits::SMALL, requester::Origin};
use crate::{engine::shrink, node::Command};

/// The requests that a lane has taken from its inbox and not sent yet.
///
/// Small requests and large ones wait apart, so that a lock of one key does not wait behind all locks of many keys. The
/// requests of one lease have the same keys, so they stay in order.
pub(super) struct Backlog<R> {
    small: Line<R>,
    large: Line<R>,
}

/// Requests in the order in which they came.
type Line<R> = VecDeque<Request<R>>;

pub(super) type Request<R> = (Command, Origin<R>);

impl<R> Backlog<R> {
    pub(super) const fn new() -> Self {
        Self {
            small: VecDeque::new(),
            large: VecDeque::new(),
        }
    }

    pub(super) fn push(&mut self, command: Command, origin: Origin<R>) {
        let line = if command.key_count() <= SMALL {
            &mut self.small
        } else {
            &mut self.large
        };
        line.push_back((command, origin));
    }

    /// Takes the oldest small request.
    pub(super) fn pop_small(&mut self) -> Option<Request<R>> {
        pop(&mut self.small)
    }

    /// Takes the oldest large request.
    pub(super) fn pop_large(&mut self) -> Option<Request<R>> {
        pop(&mut self.large)
    }

    /// Takes all requests.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Request<R>> + use<R> {
        let Self { small, large } = mem::replace(self, Self::new());
        small.into_iter().chain(large)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.small.is_empty() && self.large.is_empty()
    }
}

fn pop<R>(line: &mut Line<R>) -> Option<Request<R>> {
    let request = line.pop_front();
    shrink::deque(line);
    request
}

//! A lane without connections and timers, for the tests of threads.
//!
//! The requests, the batches in flight, the answers and the owed releases are those of a real lane.

use std::{mem, ops::ControlFlow, sync::Arc, time::Duration};

use redlock_core::{Eligibility, NodeId};
use tokio::sync::mpsc::UnboundedReceiver;

use super::{
    beats::Beats,
    handle::{Counters, LaneHandle},
    in_flight::{Completed, InFlight},
    inbox::{Inbox, yield_to_ready},
    status::StatusBoard,
};
use crate::{Clock, NodeError, engine::requests::Link, node::Session};

/// The news that a real lane gets from its timers and its inspector.
#[derive(Debug)]
pub(crate) enum Order {
    /// All that is in flight is late.
    TimeOut,
    /// Owed releases are due, and those whose keys have expired are forgotten.
    Retry,
}

pub(crate) struct StandIn {
    inbox: Inbox,
    in_flight: InFlight,
    session: Box<dyn Session>,
    orders: UnboundedReceiver<Order>,
    /// Whether the session has failed since the last request.
    is_broken: bool,
}

impl StandIn {
    pub(crate) fn new(
        node: NodeId,
        address: &str,
        clock: Clock,
        session: Box<dyn Session>,
        orders: UnboundedReceiver<Order>,
        link: Link,
    ) -> (LaneHandle, Self) {
        let beats = Beats::new(clock.clone(), link.clone());
        let board = StatusBoard::new(NodeError::Silent, link.clone());
        board.answering(Eligibility::ALWAYS);
        let handle = LaneHandle::new(address, link.clone(), board);
        let counters = Arc::clone(&handle.counters);
        let lane = Self {
            in_flight: in_flight(&counters),
            inbox: Inbox::new(node, clock, counters, beats, link),
            session,
            orders,
            is_broken: false,
        };
        (handle, lane)
    }

    /// Runs until the client is gone and the node is owed nothing.
    pub(crate) async fn run(mut self) {
        loop {
            let owed_releases = &mut self.inbox.answers.owed_releases;
            owed_releases.send_due(&mut self.in_flight, &mut *self.session);
            if self.in_flight.is_empty() && self.inbox.has_ended() {
                return;
            }
            tokio::select! {
                biased;
                completed = self.in_flight.next_completed() => self.deliver(completed),
                () = self.inbox.receive() => self.handle_requests().await,
                Some(order) = self.orders.recv() => self.obey(order),
            }
        }
    }

    fn deliver(&mut self, completed: Completed) {
        let answers = &mut self.inbox.answers;
        if let ControlFlow::Break(error) = answers.deliver(completed, Eligibility::ALWAYS) {
            let broken = mem::replace(&mut self.in_flight, in_flight(&self.inbox.counters));
            for batch in broken.into_batches() {
                answers.deliver_error(batch, &error);
            }
            self.is_broken = true;
        }
    }

    fn obey(&mut self, order: Order) {
        let answers = &mut self.inbox.answers;
        match order {
            Order::TimeOut => self
                .in_flight
                .time_out(|batch| answers.report_late(batch, Duration::ZERO)),
            Order::Retry => {
                answers.forget_expired();
                answers.owed_releases.become_due();
            }
        }
    }

    async fn handle_requests(&mut self) {
        if mem::take(&mut self.is_broken) {
            // As on a new session of a real lane, the owed releases go ahead of all requests.
            let owed_releases = &mut self.inbox.answers.owed_releases;
            owed_releases.become_due();
            owed_releases.send_due(&mut self.in_flight, &mut *self.session);
        }
        if self.in_flight.is_silent() {
            self.inbox.refuse(&NodeError::Silent);
        } else {
            yield_to_ready().await;
            let mut has_more = true;
            while has_more {
                let batch;
                (batch, _, has_more) = self.inbox.take_batch();
                self.in_flight.send(&mut *self.session, batch);
            }
        }
    }
}

/// Creates a queue in which a batch is late as soon as the lane is told to look.
fn in_flight(counters: &Arc<Counters>) -> InFlight {
    InFlight::new(Duration::ZERO, Arc::clone(counters))
}

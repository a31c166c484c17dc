//! The way from a lane to the requests of its client.
//!
//! A server does not notify the connection that has made a change. So when a node has carried out a release, for a request or by
//! force, its lane tells the requests of this process that watch the key or hold it.

use std::{
    collections::BTreeSet,
    mem,
    sync::{Arc, Weak},
};

use redlock_core::{Eligibility, NodeId, RoundId, Timestamp, Withdrawal};

use super::{Client, Cx, Engine, RequestId};
use crate::{
    Key,
    client_name::ClientName,
    engine::{
        lane::{LineNews, LineQuestion, Outbox, Whom},
        queue::Role,
    },
    key::SlotKeys,
    node::{Answer, Command, FreedNotifier, LineAnswer, Member, Notice},
    sync::Mutex,
};
#[cfg(test)]
use {crate::random::Random, redlock_core::Quorum};

/// The process remembers at most this many keys for which it was called and does not wait. Usually the call has crossed its
/// request to leave the line. Others are noted with their next call.
const MOST_UNWANTED: usize = 64;

/// The way by which a lane reaches its outbox, and the requests of its client, while there is one.
#[derive(Clone)]
pub(crate) struct Link {
    client: Weak<Client>,
    /// It has the outbox of the lane, which may outlive the client.
    engine: Arc<Mutex<Engine>>,
    node: NodeId,
    /// This process in the lines of keys.
    pub(crate) member: Member,
    pub(crate) client_name: ClientName,
}

/// What a node has answered to a command.
pub(crate) enum News {
    /// An answer to a request, or why there is none.
    Answer(RequestId, RoundId, Answer),
    /// An answer of the node of a line, if there is one.
    OfLine(RequestId, LineQuestion, Option<LineAnswer>),
    /// It has carried out a release, for this request or by force, and late or not.
    Released {
        command: Command,
        by: Whom,
        is_late: bool,
    },
}

impl Link {
    pub(crate) fn new(
        client: &Weak<Client>,
        engine: &Arc<Mutex<Engine>>,
        node: NodeId,
        member: Member,
        client_name: &ClientName,
    ) -> Self {
        Self {
            client: Weak::clone(client),
            engine: Arc::clone(engine),
            node,
            member,
            client_name: client_name.clone(),
        }
    }

    /// Returns one of a client that is gone.
    #[cfg(test)]
    pub(crate) fn to_nobody(node: NodeId) -> Self {
        let quorum = Quorum::majority(node.index() + 1).expect("there are nodes");
        let engine = Engine::new(0, quorum.all(), &Random::system());
        let engine = Arc::new(Mutex::new(engine));
        Self::new(&Weak::new(), &engine, node, Member(0), &ClientName::NONE)
    }

    /// Takes something out of the outbox of the lane.
    pub(crate) fn outbox<T>(&self, take: impl FnOnce(&mut Outbox) -> T) -> T {
        take(&mut self.engine.lock().outboxes[self.node.index()])
    }

    /// Puts something in the outbox of the lane, and wakes the lane.
    pub(crate) fn give<T>(&self, give: impl FnOnce(&mut Outbox) -> T) -> T {
        let (given, lane) = self.outbox(|outbox| (give(outbox), outbox.lane_to_wake()));
        if let Some(lane) = lane {
            lane.wake();
        }
        given
    }

    /// Passes on what the node has answered to a batch, in order. Its votes are worth this much.
    pub(crate) fn deliver(&self, now: Timestamp, news: &mut Vec<News>, eligibility: Eligibility) {
        let node = self.node;
        // Without the client there are no requests.
        let Some(client) = self.client.upgrade().filter(|_| !news.is_empty()) else {
            return news.clear();
        };
        client.change(now, |engine, cx| {
            for news in news.drain(..) {
                match news {
                    News::Answer(id, round, answer) => {
                        engine.handle_answer(cx, id, (round, node), answer, eligibility);
                    }
                    News::Released {
                        command,
                        by,
                        is_late,
                    } => engine.handle_release(cx, node, &command, &by, is_late),
                    News::OfLine(id, question, answer) => {
                        engine.handle_line_answer(cx, id, question, answer);
                    }
                }
            }
        });
    }

    /// Returns what the session is to report.
    pub(crate) fn freed_notifier(&self) -> FreedNotifier {
        let link = self.clone();
        FreedNotifier::new(move |notice| link.notice(notice))
    }

    fn notice(&self, notice: Notice<'_>) {
        let node = self.node;
        self.change(|engine, cx| match notice {
            Notice::Freed(key) => engine.tell_of_key(cx, node, key, None),
            Notice::Called { key, is_taken } => {
                let called = engine.queue.turns_at(key);
                let unwanted = &mut engine.outboxes[node.index()].unwanted;
                if called.is_empty() && unwanted.len() < MOST_UNWANTED {
                    unwanted.extend(Key::new(key));
                }
                for (id, _) in called {
                    engine.handle_call(cx, id, node, key, is_taken);
                }
            }
            Notice::AllFreed => {
                for id in engine.queue.turns() {
                    engine.handle_flush(cx, id, node);
                }
            }
        });
    }

    pub(crate) fn withdrawn(&self, withdrawal: Withdrawal) {
        self.change(|engine, cx| engine.handle_withdrawal(cx, self.node, withdrawal));
    }

    /// There is a new connection, and the node may vote. A server reports a key as gone only on the connection that has
    /// probed the key.
    pub(crate) fn connected(&self) {
        self.change(|engine, cx| {
            for id in engine.queue.turns() {
                engine.handle_connection(cx, id, self.node);
            }
        });
    }

    /// The node may have lost its vote. Requests that fail fast look whether a majority is left.
    pub(crate) fn lost_vote(&self) {
        self.change(|engine, _| engine.wake_to_look());
    }

    /// Passes on news that concern all places of this process at the node.
    pub(crate) fn line_news(&self, news: LineNews) {
        self.change(|engine, cx| {
            for id in engine.queue.turns() {
                engine.handle_line_news(cx, id, self.node, news);
            }
        });
    }

    /// Returns the keys for which the node has called the process, and which it neither wants nor has.
    pub(crate) fn take_unwanted(&self) -> BTreeSet<Key> {
        let mut engine = self.engine.lock();
        let mut unwanted = mem::take(&mut engine.outboxes[self.node.index()].unwanted);
        unwanted.retain(|key| engine.queue.turns_at(key.as_bytes()).is_empty());
        unwanted
    }

    /// Returns whether the process can get any lock now.
    pub(crate) fn has_majority(&self, now: Timestamp) -> bool {
        self.client.upgrade().is_none_or(|client| {
            let voting = client.lanes.iter().filter(|it| it.board.is_voting(now));
            voting.count() >= client.quorum.votes()
        })
    }

    fn change(&self, change: impl FnOnce(&mut Engine, Cx<'_>)) {
        // Without the client there are no requests.
        if let Some(client) = self.client.upgrade() {
            client.change(client.clock.now(), change);
        }
    }
}

impl Engine {
    fn handle_release(
        &mut self,
        cx: Cx<'_>,
        node: NodeId,
        command: &Command,
        by: &Whom,
        is_late: bool,
    ) {
        let by = match by {
            Whom::Request(id, role) => Some((*id, *role)),
            Whom::Forced(_) => None,
        };
        // Those that come after a plain lock ask after its release, unless a node gets it late.
        let by_lock = by.is_some_and(|(_, role)| role == Role::Lock);
        for key in command.keys().map(Key::as_bytes) {
            if !by_lock || is_late || SlotKeys::parse(key).is_some() {
                self.tell_of_key(cx, node, key, by);
            }
        }
    }

    /// Tells the requests that watch a key, or hold it, that it is gone from a node or was changed there: by a request of this
    /// process, if there is one.
    fn tell_of_key(&mut self, cx: Cx<'_>, node: NodeId, key: &[u8], by: Option<(RequestId, Role)>) {
        let by_sharer = by.is_some_and(|(_, role)| role.is_reader() || role == Role::Writer);
        for (id, slot) in self.queue.turns_at(key) {
            match slot {
                _ if by.is_some_and(|(by, _)| by == id) => {}
                Some(slot) => self.handle_slot_freed(cx, id, node, slot),
                // Other readers may still be there. A writer may have become one.
                None if by_sharer => {
                    self.update(cx, id, |_, request| request.lease.probe_again(node));
                }
                None => self.handle_freed(cx, id, node),
            }
        }
    }
}

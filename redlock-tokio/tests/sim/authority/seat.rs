//! A process's side of an authority: the driver's `Node` and `Authority` over the simulated network.

use std::sync::Arc;

use futures::{
    FutureExt, StreamExt,
    future::{BoxFuture, join_all},
    stream::FuturesUnordered,
};
use redlock_core::{MemberReport, Tenure, Timestamp};
use redlock_tokio::{
    NodeError,
    node::{Authority, AuthorityKind, NamedBy, Node, Reports, Session},
};
use tokio::{sync::oneshot, time::sleep};

use super::{
    council::{Reign, Word, member_id},
    layout::Layout,
    owners::{Kind, Owners, Rule},
};
use crate::{
    host::Host,
    network::SharedNetwork,
    node::{Client, SimulatedNode},
    seen::Seen,
};

/// A node of the lock whose server an authority names.
pub(crate) struct Seat {
    address: String,
    /// The position among the seats of the authority.
    index: usize,
    authority: Arc<SimulatedAuthority>,
}

/// An authority, as one process sees it.
#[derive(Clone)]
struct SimulatedAuthority {
    owners: Owners,
    /// Whether slots that share a server may both vote.
    may_share_server: bool,
    layout: Layout,
    council: usize,
    seats: Vec<usize>,
    client: Client,
    host: Arc<Host>,
    network: SharedNetwork,
}

/// The watch of one process.
struct Watch {
    authority: Arc<SimulatedAuthority>,
    reports: Reports,
}

impl Seat {
    /// Returns all nodes of a process.
    pub(crate) fn all(
        owners: Owners,
        is_first_start: bool,
        client: Client,
        host: &Arc<Host>,
        network: &SharedNetwork,
    ) -> Vec<Self> {
        let layout = Layout::new(owners.kind);
        let mut all = Vec::new();
        for council in 0..layout.councils() {
            let seats = layout.seats_of(council);
            let authority = Arc::new(SimulatedAuthority {
                owners,
                // Half of the processes refuse that, so that both are seen. None of these could start again while two
                // slots share a server.
                may_share_server: host.process.is_multiple_of(2) || !is_first_start,
                layout,
                council,
                seats: seats.clone(),
                client,
                host: Arc::clone(host),
                network: network.clone(),
            });
            all.extend(seats.into_iter().enumerate().map(|(index, seat)| Self {
                address: format!("seat-{seat}"),
                index,
                authority: Arc::clone(&authority),
            }));
        }
        all
    }
}

impl Node for Seat {
    fn address(&self) -> &str {
        &self.address
    }

    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Session>, NodeError>> {
        async { Err(NodeError::Unreachable("an authority names it".into())) }.boxed()
    }

    fn named_by(&self) -> Option<NamedBy> {
        let kind = match self.authority.owners.kind {
            Kind::Sentinels { .. } => AuthorityKind::Sentinels,
            Kind::Cluster => AuthorityKind::Cluster {
                slot: self.index as u16,
                may_share_server: self.authority.may_share_server,
            },
        };
        let authority: Arc<dyn Authority> = Arc::clone(&self.authority) as _;
        let named_by = NamedBy::new(authority, self.index, kind);
        // A cluster's nodes know each other, and a sentinel may have lost its state.
        Some(match kind {
            AuthorityKind::Sentinels => {
                named_by.with_fewest_members(self.authority.layout.members())
            }
            _ => named_by,
        })
    }
}

impl Authority for SimulatedAuthority {
    fn watch(&self, reports: Reports) -> BoxFuture<'static, ()> {
        let watch = Watch {
            authority: Arc::new(self.clone()),
            reports,
        };
        async move {
            let members = 0..watch.authority.layout.members();
            join_all(members.map(|member| watch.ask_again_and_again(member))).await;
        }
        .boxed()
    }

    fn connect(
        &self,
        index: usize,
        tenure: &Tenure,
    ) -> BoxFuture<'_, Result<Box<dyn Session>, NodeError>> {
        let (seat, reign) = (self.seats[index], Reign::of(tenure));
        let server = self.layout.server(seat, reign.machine);
        {
            let network = &mut *self.network.lock();
            if network.authority().latest[seat] != reign {
                network.seen.note(Seen::OldOwnerConnected);
            }
        }
        let node = SimulatedNode::new(server, self.client, &self.host, &self.network);
        async move { node.connect().await }.boxed()
    }
}

impl SimulatedAuthority {
    fn ask(&self, member: usize) -> oneshot::Receiver<Vec<Word>> {
        let mut network = self.network.lock();
        network.ask_member(&self.host, self.council, member)
    }
}

impl Watch {
    /// Asks a member each interval, whether or not it has answered. Answers may come late, and in any order.
    async fn ask_again_and_again(&self, member: usize) {
        let mut answers = FuturesUnordered::new();
        let mut last = Vec::new();
        loop {
            let asked_at = self.reports.now();
            if self.authority.owners.without == Some(Rule::Window) {
                // As if the member had just said that again.
                self.deliver(asked_at, member, &last);
            }
            let answer = self.authority.ask(member);
            answers.push(async move { (asked_at, answer.await) });
            let mut pause = Box::pin(sleep(self.reports.interval()));
            loop {
                tokio::select! {
                    biased;
                    Some((asked_at, words)) = answers.next() => {
                        let Ok(words) = words else { continue };
                        self.deliver(asked_at, member, &words);
                        last = words;
                        self.reports.end_roll_call(asked_at);
                    }
                    () = &mut pause => break,
                }
            }
        }
    }

    fn deliver(&self, asked_at: Timestamp, member: usize, words: &[Word]) {
        let SimulatedAuthority { council, seats, .. } = &*self.authority;
        for word in words {
            let members = word.members.iter();
            let report = MemberReport {
                asked_at,
                member: member_id(*council, member),
                members: members.map(|it| member_id(*council, *it)).collect(),
                tenure: Some(word.reign.tenure()),
                age: word.age,
            };
            let index = seats.iter().position(|it| *it == word.seat);
            self.reports
                .deliver(index.expect("a seat of the authority"), report);
        }
    }
}

//! A process's side of an authority: the driver's `Node` and `Authority` over the simulated network.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{
    FutureExt, StreamExt,
    future::{BoxFuture, join_all},
    stream::FuturesUnordered,
};
use redlock_core::{MemberReport, OwnerRule, Tenure, Timestamp};
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
    clock::HOUR,
    host::Host,
    network::SharedNetwork,
    node::{Client, SimulatedNode},
    rng::Rng,
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
    detour: Option<Detour>,
    client: Client,
    host: Arc<Host>,
    network: SharedNetwork,
}

/// How many addresses a group of sentinels has.
const ADDRESSES: usize = 3;

/// Some addresses of a group lead to the sentinels of another group for a while, as one process sees them.
#[derive(Clone, Debug)]
struct Detour {
    /// By address. At least one leads to its own group.
    is_astray: [bool; ADDRESSES],
    during: Range<u64>,
}

/// The watch of one process.
struct Watch {
    authority: Arc<SimulatedAuthority>,
    reports: Reports,
    /// When each member was last asked that has answered.
    answered: Mutex<BTreeMap<usize, Timestamp>>,
}

impl Seat {
    /// Returns all nodes of a process.
    pub(crate) fn all(
        owners: Owners,
        is_first_start: bool,
        client: Client,
        host: &Arc<Host>,
        network: &SharedNetwork,
        rng: &mut Rng,
        max_ttl: Duration,
    ) -> Vec<Self> {
        let layout = Layout::new(owners.kind);
        let detour = owners
            .has_detours
            .then(|| Detour::draw(rng, host, max_ttl.as_nanos() as u64));
        let mut all = Vec::new();
        for (council, seats) in layout.councils().into_iter().enumerate() {
            let authority = Arc::new(SimulatedAuthority {
                owners,
                // Half of the processes refuse that, so that both are seen. None of these could start again while two
                // slots share a server.
                may_share_server: host.process.is_multiple_of(2) || !is_first_start,
                layout,
                council,
                seats: seats.clone(),
                detour: detour.clone(),
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
        if owners.without == Some(Rule::Replicas) || owners.has_detours {
            // One slot has the only vote, so that one mistake is enough.
            all.truncate(1);
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
        let Owners { kind, without, .. } = self.authority.owners;
        let kind = match kind {
            Kind::Sentinels { .. } => AuthorityKind::Sentinels,
            Kind::Cluster => AuthorityKind::Cluster {
                may_share_server: self.authority.may_share_server,
            },
        };
        let authority: Arc<dyn Authority> = Arc::clone(&self.authority) as _;
        let named_by = NamedBy::new(authority, self.index, kind);
        // A cluster's nodes know each other, and a sentinel may have lost its state.
        let is_alone = matches!(
            without,
            Some(Rule::FewestMembers | Rule::Majority | Rule::AllMembers)
        );
        Some(match kind {
            AuthorityKind::Sentinels if !is_alone => {
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
            answered: Mutex::default(),
        };
        async move {
            let members = watch.members_to_ask();
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
        if self.network.lock().is_old_owner(seat, reign) {
            self.network.lock().seen.note(Seen::OldOwnerConnected);
        }
        let node = SimulatedNode::new(server, self.client, &self.host, &self.network);
        async move { node.connect().await }.boxed()
    }
}

impl Detour {
    /// Draws one that begins when the process starts, or while it runs.
    fn draw(rng: &mut Rng, host: &Host, max_ttl: u64) -> Self {
        let mut is_astray = [true; ADDRESSES];
        is_astray[rng.usize(..ADDRESSES)] = false;
        if rng.bool() {
            is_astray[rng.usize(..ADDRESSES)] = false;
        }
        let from = if rng.bool() {
            host.now()
        } else {
            host.now() + rng.around(5 * max_ttl)
        };
        Self {
            is_astray,
            during: from..from + rng.around(max_ttl),
        }
    }

    fn leads_astray(&self, at: u64, address: usize) -> bool {
        self.during.contains(&at) && self.is_astray[address]
    }
}

impl SimulatedAuthority {
    /// Asks the member at an address of the authority. Returns which authority it is of.
    fn ask(&self, member: usize) -> (usize, oneshot::Receiver<Vec<Word>>) {
        let mut network = self.network.lock();
        let at = self.host.now();
        let detour = self.detour.as_ref().filter(|_| !network.is_calm);
        let is_astray = detour.is_some_and(|it| it.leads_astray(at, member));
        let council = if is_astray {
            network.seen.note(Seen::Astray);
            self.council + 1
        } else {
            self.council
        };
        (council, network.ask_member(&self.host, council, member))
    }
}

impl Watch {
    fn members_to_ask(&self) -> impl Iterator<Item = usize> + use<> {
        let SimulatedAuthority {
            owners,
            layout,
            host,
            ..
        } = &*self.authority;
        let members = layout.members();
        let only = (owners.without == Some(Rule::Majority)).then_some(host.process % members);
        (0..members).filter(move |it| only.is_none_or(|only| only == *it))
    }

    /// Asks a member each interval, whether or not it has answered. Answers may come late, and in any order.
    async fn ask_again_and_again(&self, member: usize) {
        let mut answers = FuturesUnordered::new();
        let mut last: BTreeMap<usize, Word> = BTreeMap::new();
        loop {
            let asked_at = self.reports.now();
            if self.authority.owners.without == Some(Rule::Window) {
                // As if the member had just said that again.
                for word in last.values() {
                    self.deliver(asked_at, self.authority.council, member, word);
                }
            }
            let (council, answer) = self.authority.ask(member);
            answers.push(async move { (asked_at, council, answer.await) });
            let mut pause = Box::pin(sleep(self.reports.interval()));
            loop {
                tokio::select! {
                    biased;
                    Some((asked_at, council, words)) = answers.next() => {
                        let Ok(words) = words else { continue };
                        for word in words {
                            self.deliver(asked_at, council, member, &word);
                            last.insert(word.seat, word);
                        }
                        self.call_the_roll(asked_at, member);
                    }
                    () = &mut pause => break,
                }
            }
        }
    }

    /// Ends the roll call, if what another member says next cannot matter. Where addresses may lead to another
    /// authority, that takes an answer from each of them, and none counts as silent: nobody could know of it.
    fn call_the_roll(&self, asked_at: Timestamp, member: usize) {
        let mut answered = self.answered.lock().expect("nobody panics with it");
        answered.insert(member, asked_at);
        if self.authority.detour.is_none() {
            return self.reports.end_roll_call(asked_at);
        }
        if self.members_to_ask().all(|it| answered.contains_key(&it)) {
            let oldest = answered.values().min();
            self.reports
                .end_roll_call(*oldest.expect("there are members"));
        }
    }

    /// Returns the members that have answered within the usual window.
    fn answering(&self, asked_at: Timestamp, member: usize) -> Vec<usize> {
        let mut answered = self.answered.lock().expect("nobody panics with it");
        answered.insert(member, asked_at);
        let is_recent =
            |at: &Timestamp| asked_at.saturating_duration_since(*at) <= OwnerRule::DEFAULT_WINDOW;
        let recent = answered.iter().filter(|(_, at)| is_recent(at));
        recent.map(|(member, _)| *member).collect()
    }

    fn deliver(&self, asked_at: Timestamp, council: usize, member: usize, word: &Word) {
        let SimulatedAuthority {
            owners,
            council: own,
            seats,
            ..
        } = &*self.authority;
        let members = match owners.without {
            Some(Rule::Majority) => &[],
            Some(Rule::AllMembers) => &*self.answering(asked_at, member),
            Some(Rule::Replicas) if !word.masters.contains(&member) => return,
            Some(Rule::Replicas) => &*word.masters,
            _ => &*word.members,
        };
        let age = match owners.without {
            Some(Rule::Ages) => Duration::from_nanos(HOUR),
            _ => word.age,
        };
        let report = MemberReport {
            asked_at,
            member: member_id(council, member),
            members: members.iter().map(|it| member_id(council, *it)).collect(),
            tenure: Some(word.reign.tenure()),
            age,
        };
        let seat = if council == *own { word.seat } else { seats[0] };
        let index = seats.iter().position(|it| *it == seat);
        self.reports
            .deliver(index.expect("a seat of the authority"), report);
    }
}

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use redlock_core::{MemberId, MemberReport, Owner, Tenure};
use redlock_tokio::{
    MemoryNode, NodeError,
    node::{Authority, AuthorityKind, NamedBy, Node, Reports, Session},
};

/// An authority in memory: a test decides what each of its members says. Clones are the same authority.
#[derive(Clone)]
pub(crate) struct Council(Arc<State>);

#[derive(Default)]
struct State {
    members: Mutex<Vec<Member>>,
    servers: Mutex<BTreeMap<String, MemoryNode>>,
    objection: Mutex<Option<NodeError>>,
    panics: AtomicBool,
    /// How many watches run, and how many were started.
    watching: AtomicUsize,
    watches: AtomicUsize,
    connections: Mutex<Vec<Tenure>>,
}

#[derive(Clone, Default)]
struct Member {
    /// What the member says of each node.
    tenures: BTreeMap<usize, Tenure>,
    is_silent: bool,
}

/// A node whose server an authority names.
pub(crate) struct Seat {
    pub(crate) address: String,
    pub(crate) authority: Arc<dyn Authority>,
    pub(crate) index: usize,
    pub(crate) kind: AuthorityKind,
}

impl Council {
    pub(crate) fn new(members: usize) -> Self {
        Self(Arc::new(State {
            members: Mutex::new(vec![Member::default(); members]),
            ..State::default()
        }))
    }

    /// Three members, which name `a`, `b` and `c` as the masters of three nodes.
    pub(crate) fn of_three() -> Self {
        let council = Self::new(3);
        for (node, owner) in ["a", "b", "c"].into_iter().enumerate() {
            council.name(0..3, node, owner, 1);
        }
        council
    }

    /// Returns nodes whose servers this council names.
    pub(crate) fn seats(&self, count: usize) -> Vec<Seat> {
        let authority: Arc<dyn Authority> = Arc::new(self.clone());
        let seat = |index| Seat {
            address: format!("seat-{index}"),
            authority: Arc::clone(&authority),
            index,
            // Its epochs last, and its servers have markers of tenures.
            kind: AuthorityKind::Cluster {
                may_share_server: true,
            },
        };
        (0..count).map(seat).collect()
    }

    /// Makes these members name the owner of the node at `index`.
    pub(crate) fn name(
        &self,
        members: impl IntoIterator<Item = usize>,
        index: usize,
        owner: &str,
        epoch: u64,
    ) {
        let owner = Owner::new(owner);
        let tenure = Tenure { owner, epoch };
        let mut all = self.members();
        for member in members {
            all[member].tenures.insert(index, tenure.clone());
        }
    }

    /// Makes these members silent, and the others not.
    pub(crate) fn silence(&self, members: &[usize]) {
        for (index, member) in self.members().iter_mut().enumerate() {
            member.is_silent = members.contains(&index);
        }
    }

    pub(crate) fn object(&self, objection: NodeError) {
        *self.0.objection.lock().unwrap() = Some(objection);
    }

    /// Makes the authority panic in all that it does, or not any more.
    pub(crate) fn set_panics(&self, panics: bool) {
        self.0.panics.store(panics, SeqCst);
    }

    /// Returns the server that is called `owner`.
    pub(crate) fn server(&self, owner: &str) -> MemoryNode {
        let mut servers = self.0.servers.lock().unwrap();
        servers.entry(owner.into()).or_default().clone()
    }

    /// Returns the tenures in which a server was connected to.
    pub(crate) fn connections(&self) -> Vec<(String, u64)> {
        let connections = self.0.connections.lock().unwrap();
        let pair = |tenure: &Tenure| (tenure.owner.to_string(), tenure.epoch);
        connections.iter().map(pair).collect()
    }

    /// Returns how many watches run now.
    pub(crate) fn watching(&self) -> usize {
        self.0.watching.load(SeqCst)
    }

    /// Returns how many watches were started.
    pub(crate) fn watches(&self) -> usize {
        self.0.watches.load(SeqCst)
    }

    fn members(&self) -> MutexGuard<'_, Vec<Member>> {
        self.0.members.lock().unwrap()
    }
}

/// Counts a watch that runs.
struct Running(Arc<State>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.watching.fetch_sub(1, SeqCst);
    }
}

fn member_id(index: usize) -> MemberId {
    let letter = b'a' + u8::try_from(index).unwrap();
    MemberId::new([letter; MemberId::LEN])
}

impl Authority for Council {
    fn watch(&self, reports: Reports) -> BoxFuture<'static, ()> {
        self.0.panic_if_told();
        let state = Arc::clone(&self.0);
        async move {
            state.watches.fetch_add(1, SeqCst);
            state.watching.fetch_add(1, SeqCst);
            let running = Running(state);
            loop {
                running.0.report(&reports);
                tokio::time::sleep(reports.interval()).await;
            }
        }
        .boxed()
    }

    fn connect(
        &self,
        _: usize,
        tenure: &Tenure,
    ) -> BoxFuture<'_, Result<Box<dyn Session>, NodeError>> {
        self.0.panic_if_told();
        self.0.connections.lock().unwrap().push(tenure.clone());
        let node = self.server(tenure.owner.as_str());
        async move { node.connect().await }.boxed()
    }

    fn objection(&self, _: usize) -> Option<NodeError> {
        self.0.panic_if_told();
        self.0.objection.lock().unwrap().clone()
    }
}

impl State {
    fn panic_if_told(&self) {
        assert!(
            !self.panics.load(SeqCst),
            "this authority panics on purpose"
        );
    }

    fn report(&self, reports: &Reports) {
        self.panic_if_told();
        let asked_at = reports.now();
        let all = self.members.lock().unwrap().clone();
        for (index, member) in all.iter().enumerate() {
            if member.is_silent {
                continue;
            }
            for (node, tenure) in &member.tenures {
                let report = MemberReport {
                    asked_at,
                    member: member_id(index),
                    members: (0..all.len()).map(member_id).collect(),
                    tenure: Some(tenure.clone()),
                    age: Duration::ZERO,
                };
                reports.deliver(*node, report);
            }
        }
        reports.end_roll_call(asked_at);
    }
}

impl Node for Seat {
    fn address(&self) -> &str {
        &self.address
    }

    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Session>, NodeError>> {
        async { panic!("a node with an authority is not connected to by itself") }.boxed()
    }

    fn named_by(&self) -> Option<NamedBy> {
        let authority = Arc::clone(&self.authority);
        Some(NamedBy::new(authority, self.index, self.kind))
    }
}

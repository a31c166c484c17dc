//! Asking the sentinels of a group.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use deadpool_redis::redis::aio::MultiplexedConnection;
use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use redlock_core::{MemberId, MemberReport, Tenure, Timestamp};
use tokio::{
    sync::Notify,
    time::{Instant, sleep, timeout},
};

use super::{
    question::{SentinelAnswer, question, read},
    roster::Roster,
};
use crate::{
    log,
    node::{
        Authority, AuthorityKind, NamedBy, NodeError, Reports, Session,
        redis::{
            address::{AddressMap, Endpoint},
            connect::{ConnectionSettings, send},
            key_tag::KeyTag,
            roll_call::RollCall,
            server_error::{connect_error_at, disconnected},
            session::RedisSession,
        },
    },
    sync::Mutex,
};

/// The channel on which a sentinel publishes that a group has another master.
const SWITCHES: &str = "+switch-master";

/// The master of a group that sentinels watch, and the authority that names it. A watch keeps a part of it.
#[derive(Clone)]
pub(in crate::node::redis) struct SentinelNode(pub(super) Arc<Group>);

pub(in crate::node::redis) struct Group {
    pub(super) name: String,
    /// The sentinels that were given.
    pub(super) listed: Vec<Endpoint>,
    pub(super) sentinel_settings: ConnectionSettings,
    pub(super) server_settings: ConnectionSettings,
    pub(super) map: Option<AddressMap>,
    /// Why sentinels name no master, by their addresses.
    pub(super) objections: Mutex<BTreeMap<Endpoint, NodeError>>,
    /// The reports of the sentinels on each other.
    pub(super) roster: Mutex<Roster>,
}

struct GroupWatch {
    group: Arc<Group>,
    reports: Reports,
    roll_call: RollCall,
    /// Told by any sentinel that there may be another master.
    hint: Arc<Notify>,
}

/// The last news of one sentinel.
#[derive(Default)]
struct Memory {
    last: Option<(MemberId, Option<Tenure>)>,
    /// When the sentinel was first heard to name this master, if it named another one before.
    changed_at: Option<Timestamp>,
}

impl SentinelNode {
    /// Returns what logs call the node.
    pub(in crate::node::redis) fn address(&self) -> String {
        let addresses: Vec<_> = self.0.listed.iter().map(Endpoint::to_string).collect();
        let database = match self.0.server_settings.redis().db() {
            0 => String::new(),
            database => format!("/{database}"),
        };
        format!("{}{database}@{}", self.0.name, addresses.join(","))
    }

    pub(in crate::node::redis) fn named_by(&self) -> NamedBy {
        let authority = Arc::new(self.clone());
        let named_by = NamedBy::new(authority, 0, AuthorityKind::Sentinels);
        named_by.with_fewest_members(self.0.listed.len())
    }
}

impl Authority for SentinelNode {
    fn watch(&self, reports: Reports) -> BoxFuture<'static, ()> {
        let watch = GroupWatch {
            group: Arc::clone(&self.0),
            reports,
            roll_call: RollCall::new(&self.0.listed),
            hint: Arc::default(),
        };
        async move { watch.run().await }.boxed()
    }

    fn connect(
        &self,
        _: usize,
        tenure: &Tenure,
    ) -> BoxFuture<'_, Result<Box<dyn Session>, NodeError>> {
        let endpoint = self.0.endpoint(tenure.owner.as_str());
        async move {
            let endpoint = endpoint?;
            let session = async {
                let opened = self.0.server_settings.open(&endpoint).await?;
                RedisSession::open(opened, KeyTag::NONE, None).await
            };
            let session = session
                .await
                .map_err(|error| connect_error_at(&endpoint, error))?;
            Ok(Box::new(session) as Box<dyn Session>)
        }
        .boxed()
    }

    fn objection(&self, _: usize) -> Option<NodeError> {
        self.0.objection()
    }

    fn name_of(&self, member: MemberId) -> String {
        let address = self.0.roster.lock().address_of(member);
        address.unwrap_or_else(|| member.to_string())
    }
}

impl Group {
    /// Returns where the server or sentinel is that announces this address.
    fn endpoint(&self, announced: &str) -> Result<Endpoint, NodeError> {
        Endpoint::announced(announced, self.map.as_ref())
    }

    fn objection(&self) -> Option<NodeError> {
        let objections = self.objections.lock();
        let mut listed = self.listed.iter().map(|address| objections.get(address));
        let all_refuse = listed.all(|error| error.is_some_and(NodeError::is_refusal));
        let texts: Vec<_> = objections
            .iter()
            .map(|(address, error)| format!("sentinel {address}: {}", without_kind(error)))
            .collect();
        if texts.is_empty() {
            return None;
        }
        let texts = texts.join("; ");
        Some(if all_refuse {
            NodeError::Misconfigured(texts.into())
        } else {
            let text = format!("no majority of its sentinels names a master ({texts})");
            NodeError::Unreachable(text.into())
        })
    }

    async fn ask(
        &self,
        connection: &mut MultiplexedConnection,
    ) -> Result<SentinelAnswer, NodeError> {
        let question = question(&self.name);
        let replies = send(connection, &question).await;
        read(&self.name, replies.map_err(|error| disconnected(&error))?)
    }

    /// Opens a connection on which the sentinel also reports switches, if it speaks RESP3.
    async fn open(
        &self,
        endpoint: &Endpoint,
        hint: &Arc<Notify>,
    ) -> Result<MultiplexedConnection, NodeError> {
        let hint = Arc::clone(hint);
        let settings = &self.sentinel_settings;
        let connection = settings.open_listening(endpoint, move || hint.notify_waiters());
        let mut connection = connection.await?;
        // Without RESP3, or without the right to subscribe, the next question finds the new master.
        let _ = connection.subscribe(SWITCHES).await;
        Ok(connection)
    }
}

impl GroupWatch {
    /// Asks all sentinels, those that were given and those that they know.
    async fn run(&self) {
        let mut asked: BTreeSet<_> = self.group.listed.iter().cloned().collect();
        let mut all: FuturesUnordered<BoxFuture<'_, Endpoint>> = FuturesUnordered::new();
        for endpoint in &self.group.listed {
            all.push(self.attend(endpoint.clone(), true).boxed());
        }
        loop {
            tokio::select! {
                biased; // Each member that ends was added by the other branch, so the ends cannot starve it.
                Some(forgotten) = all.next() => {
                    asked.remove(&forgotten);
                }
                () = sleep(self.reports.interval()) => {
                    for endpoint in self.missing() {
                        if asked.insert(endpoint.clone()) {
                            all.push(self.attend(endpoint, false).boxed());
                        }
                    }
                }
            }
        }
    }

    /// Returns the sentinels that others know and that do not answer at any address that is asked.
    fn missing(&self) -> Vec<Endpoint> {
        let now = Instant::now();
        let announced = self.group.roster.lock().missing(now, self.limit());
        let announced = announced.iter();
        announced
            .filter_map(|address| self.group.endpoint(address).ok())
            .collect()
    }

    /// Asks one sentinel again and again. Ends if the sentinel was not given, and no other one knows it any more.
    async fn attend(&self, endpoint: Endpoint, is_listed: bool) -> Endpoint {
        let mut memory = Memory::default();
        let mut connection = None;
        let interval = self.reports.interval();
        // However many hints come, a sentinel is asked at most ten times as often as without.
        let pause = interval / 10;
        loop {
            // A hint during the question counts too: the answer may be from before.
            let hinted = self.hint.notified();
            let look = self.report(&endpoint, &mut connection, &mut memory);
            let late = || Err(NodeError::TimedOut(self.limit()));
            let outcome = timeout(self.limit(), look).await.unwrap_or_else(|_| late());
            let mut asked_at = self.reports.now();
            if let Ok(report) = &outcome {
                asked_at = report.asked_at;
                self.reports.deliver(0, report.clone());
            }
            self.roll_call.note(&self.reports, &endpoint, asked_at);
            self.note(&endpoint, outcome.as_ref().err());
            if outcome.is_err() {
                connection = None;
                if !is_listed && !self.is_told_of(&endpoint) {
                    self.group.objections.lock().remove(&endpoint);
                    self.group.roster.lock().forget(&endpoint);
                    return endpoint;
                }
            }
            sleep(pause).await;
            tokio::select! {
                biased; // Any order would do: either ends the pause.
                () = hinted => {}
                () = sleep(interval - pause) => {}
            }
        }
    }

    fn limit(&self) -> Duration {
        // An answer that is older than the window counts for nothing. A connection may take longer.
        (3 * self.reports.interval()).max(Duration::from_secs(1))
    }

    /// Returns whether other sentinels know one at this address.
    fn is_told_of(&self, endpoint: &Endpoint) -> bool {
        let told = self.group.roster.lock().told();
        let mut told = told.iter().map(|announced| self.group.endpoint(announced));
        told.any(|told| told.as_ref() == Ok(endpoint))
    }

    /// Notes why a sentinel names no master, or that it does.
    fn note(&self, sentinel: &Endpoint, objection: Option<&NodeError>) {
        let mut objections = self.group.objections.lock();
        let before = match objection {
            Some(error) => objections.insert(sentinel.clone(), error.clone()),
            None => objections.remove(sentinel),
        };
        drop(objections);
        let group = &self.group.name;
        let address = sentinel.to_string();
        match (before.as_ref(), objection) {
            (before, Some(error)) if before == Some(error) => {}
            (_, Some(error)) if error.is_refusal() => {
                log::warn!(%group, sentinel = %address, %error, "a sentinel answers, but names no master");
            }
            (_, Some(error)) => {
                log::warn!(%group, sentinel = %address, %error, "a sentinel does not answer");
            }
            (Some(_), None) => {
                log::info!(%group, sentinel = %address, "a sentinel names the master again");
            }
            (None, None) => {}
        }
    }

    /// Asks a sentinel once, over a new connection if there is none. Returns its report.
    async fn report(
        &self,
        endpoint: &Endpoint,
        connection: &mut Option<MultiplexedConnection>,
        memory: &mut Memory,
    ) -> Result<MemberReport, NodeError> {
        let connection = match connection {
            Some(connection) => connection,
            None => connection.insert(self.group.open(endpoint, &self.hint).await?),
        };
        let asked_at = self.reports.now();
        let answer = self.group.ask(connection).await?;
        let now = Instant::now();
        self.group.roster.lock().note(now, endpoint, &answer);
        let age = memory.age(self.reports.now(), &answer);
        Ok(MemberReport {
            asked_at,
            member: answer.id,
            members: answer.others.iter().map(|other| other.id).collect(),
            tenure: answer.tenure,
            age,
        })
    }
}

impl Memory {
    /// Returns for how long a sentinel has named this master, at least.
    ///
    /// A sentinel that was cut off while the master was a replica for a moment has missed that, and reports an age from
    /// before. So an age counts at most from when a change was heard.
    fn age(&mut self, now: Timestamp, answer: &SentinelAnswer) -> Duration {
        match &self.last {
            Some((id, tenure)) if *id == answer.id => {
                if *tenure != answer.tenure {
                    self.changed_at = Some(now);
                }
            }
            _ => self.changed_at = None,
        }
        self.last = Some((answer.id, answer.tenure.clone()));
        let heard_for = self.changed_at.map(|at| now.saturating_duration_since(at));
        heard_for.map_or(answer.age, |most| answer.age.min(most))
    }
}

/// Returns the text of an error that is part of another one.
fn without_kind(error: &NodeError) -> String {
    match error {
        NodeError::Misconfigured(text) | NodeError::Unreachable(text) => text.to_string(),
        other => other.to_string(),
    }
}

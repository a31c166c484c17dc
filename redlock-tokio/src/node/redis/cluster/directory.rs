use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::Arc,
    time::Duration,
};

use redlock_core::MemberId;
use tokio::{sync::Notify, time::Instant};

use super::layout::Layout;
use crate::{
    node::{
        NodeError,
        redis::{
            address::{AddressMap, Endpoint},
            key_slot::KeySlot,
        },
    },
    sync::Mutex,
};

/// For how long after the newest answer of any node the last answer of a node is kept.
const KEPT_FOR: Duration = Duration::from_secs(60);

/// How old an answer may be to show that its node answers now.
const FRESH_FOR: Duration = Duration::from_secs(3);

/// How many silent nodes a message names.
const MOST_NAMED: usize = 10;

/// Where the nodes of a cluster are, and what they said last.
pub(super) struct Directory {
    pub(super) seeds: Vec<Endpoint>,
    uses_tls: bool,
    map: Option<AddressMap>,
    heard: Mutex<Heard>,
    /// Notified when there may be other addresses to ask.
    pub(super) changed: Notify,
}

/// Two voters that are slots of one server, by their positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SharedServer {
    pub(super) first: usize,
    pub(super) second: usize,
    pub(super) member: MemberId,
}

/// The worth of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is of a node of the cluster.
    Own,
    /// A seed leads to another cluster. Its other nodes are not asked. But it must be known that there are two.
    Foreign,
    /// An address that was once announced leads to a node that no other one knows. The answer does not count.
    Unknown,
}

#[derive(Default)]
struct Heard {
    answers: BTreeMap<MemberId, Answered>,
    /// The nodes of other clusters to which seeds lead.
    foreign: BTreeMap<Endpoint, MemberId>,
    /// Why there was no answer from an address the last time.
    failures: BTreeMap<Endpoint, NodeError>,
    /// Everything that the nodes have announced.
    announced: BTreeSet<Endpoint>,
    /// Whether an answer has changed since the owners were last compared.
    has_changed: bool,
    /// Whether too few nodes answered when this was last looked at.
    is_short: bool,
    /// The voters on one server that the log has named last.
    named: Option<SharedServer>,
}

/// The last answer of a node.
#[derive(Clone)]
struct Answered {
    at: Instant,
    from: Endpoint,
    layout: Arc<Layout>,
    places: Arc<Places>,
}

/// Where this client reaches the nodes that an answer names.
#[derive(Default, PartialEq, Eq)]
struct Places {
    endpoints: BTreeSet<Endpoint>,
    failure: Option<NodeError>,
}

impl Directory {
    pub(super) fn new(seeds: Vec<Endpoint>, uses_tls: bool, map: Option<AddressMap>) -> Self {
        Self {
            seeds,
            uses_tls,
            map,
            heard: Mutex::default(),
            changed: Notify::new(),
        }
    }

    /// Returns all addresses to ask: the seeds, and what the nodes have announced.
    pub(super) fn endpoints(&self) -> BTreeSet<Endpoint> {
        let heard = self.heard.lock();
        let seeds = self.seeds.iter();
        seeds.chain(&heard.announced).cloned().collect()
    }

    pub(super) fn has(&self, endpoint: &Endpoint) -> bool {
        self.seeds.contains(endpoint) || self.heard.lock().announced.contains(endpoint)
    }

    /// Notes an answer. Returns what it is worth: an address may lead to a node of another cluster by now.
    pub(super) fn note_answer(&self, from: &Endpoint, layout: &Arc<Layout>) -> Standing {
        // Before the lock, since a function of the user may be called.
        let places = self.places_in(from, layout);
        let mut heard = self.heard.lock();
        if !self.seeds.contains(from) && !heard.is_member(layout.myself) {
            return Standing::Unknown;
        }
        if heard.is_foreign(layout) {
            heard.foreign.insert(from.clone(), layout.myself);
            return Standing::Foreign;
        }
        heard.foreign.remove(from);
        heard.failures.remove(from);
        let at = Instant::now();
        let answered = Answered {
            at,
            from: from.clone(),
            layout: Arc::clone(layout),
            places: heard.shared(places),
        };
        let earlier = heard.answers.insert(layout.myself, answered.clone());
        let count = heard.answers.len();
        heard.answers.retain(|_, it| at - it.at <= KEPT_FOR);
        if earlier.is_none_or(|answer| !answer.says_the_same(&answered))
            || heard.answers.len() != count
        {
            heard.has_changed = true;
            heard.announced = heard.endpoints();
            self.changed.notify_one();
        }
        Standing::Own
    }

    /// Notes why an address gave no answer. Returns whether that is news.
    pub(super) fn note_failure(&self, from: &Endpoint, error: NodeError) -> bool {
        let mut heard = self.heard.lock();
        let earlier = heard.failures.insert(from.clone(), error.clone());
        earlier != Some(error)
    }

    /// Forgets an address that is asked no more, so that a cluster whose addresses change leaves nothing behind.
    pub(super) fn forget(&self, from: &Endpoint) {
        self.heard.lock().failures.remove(from);
    }

    /// Returns whether the node answers at another address too, which it has announced. Then the seed need not
    /// be asked.
    pub(super) fn is_redundant(&self, from: &Endpoint, member: MemberId) -> bool {
        let heard = self.heard.lock();
        heard.answers.get(&member).is_some_and(|answered| {
            let announced = self.endpoint_in(answered, member).and_then(Result::ok);
            let is_announced = announced.as_ref() == Some(&answered.from);
            answered.from != *from && is_announced && answered.is_fresh()
        })
    }

    /// Returns where a node can be reached, by the newest answer that says so.
    ///
    /// # Errors
    ///
    /// [`NodeError::Misconfigured`] if the map of addresses does not return one.
    pub(super) fn endpoint_of(&self, member: MemberId) -> Option<Result<Endpoint, NodeError>> {
        let heard = self.heard.lock();
        let known = |answered: &&Answered| self.endpoint_in(answered, member).is_some();
        let newest = heard
            .answers
            .values()
            .filter(known)
            .max_by_key(|answer| answer.at)?;
        self.endpoint_in(newest, member)
    }

    /// Returns what messages call a node: its address, or its id while no address is known.
    pub(super) fn name_of(&self, member: MemberId) -> String {
        let foreign = || {
            let heard = self.heard.lock();
            let mut nodes = heard.foreign.iter();
            let (address, _) = nodes.find(|(_, it)| **it == member)?;
            Some(address.clone())
        };
        self.endpoint_of(member)
            .and_then(Result::ok)
            .or_else(foreign)
            .map_or_else(|| member.to_string(), |endpoint| endpoint.to_string())
    }

    /// Returns two voters that are on one server, if the log has not named them.
    pub(super) fn newly_shared(&self, slots: &[KeySlot]) -> Option<SharedServer> {
        let mut heard = self.heard.lock();
        if !heard.has_changed {
            return None;
        }
        let owners = slots.iter().map(|slot| heard.owner(*slot));
        let shared = SharedServer::among(&owners.collect::<Option<Vec<_>>>()?);
        heard.has_changed = false;
        let is_new = heard.named != shared;
        heard.named = shared;
        shared.filter(|_| is_new)
    }

    /// Returns why no owner of the slot is confirmed.
    pub(super) fn objection(&self, slot: KeySlot) -> Option<NodeError> {
        let silent = self.silent();
        let heard = self.heard.lock();
        let objection = heard.objection(slot, &silent)?;
        // A node whose address the map does not translate cannot be asked.
        let places = heard.answers.values().map(|answer| &answer.places);
        let mut failures = places.filter_map(|places| places.failure.clone());
        Some(failures.next().unwrap_or(objection))
    }

    /// Returns why no owner is confirmed, if that is since too few nodes answer, and the log has not said it.
    pub(super) fn newly_short(&self, slot: KeySlot) -> Option<NodeError> {
        let silent = self.silent();
        let mut heard = self.heard.lock();
        let answering = heard.fresh().count();
        let is_short = answering < heard.majority();
        let was_short = mem::replace(&mut heard.is_short, is_short);
        if !is_short || was_short {
            return None;
        }
        heard.objection(slot, &silent)
    }

    /// Returns what messages call the nodes that do not answer.
    fn silent(&self) -> String {
        let silent = self.heard.lock().silent();
        let named = silent
            .iter()
            .take(MOST_NAMED)
            .map(|place| self.name_of(*place));
        let mut text = named.collect::<Vec<_>>().join(", ");
        if silent.len() > MOST_NAMED {
            text += &format!(" and {} more", silent.len() - MOST_NAMED);
        }
        text
    }

    /// Returns where the nodes of an answer are. If the answer is the same as the last one, asks only the user's
    /// function anew: it may know more by now. If the function fails, the earlier places stay.
    fn places_in(&self, from: &Endpoint, layout: &Arc<Layout>) -> Arc<Places> {
        let last = self.heard.lock().answers.get(&layout.myself).cloned();
        let last = last.filter(|last| last.layout == *layout && last.from == *from);
        if self.map.is_none()
            && let Some(last) = last
        {
            return last.places;
        }
        let answered = Answered {
            at: Instant::now(),
            from: from.clone(),
            layout: Arc::clone(layout),
            places: Arc::default(),
        };
        let mut places = Places::default();
        for member in layout.members() {
            match self.endpoint_in(&answered, member) {
                Some(Ok(endpoint)) => _ = places.endpoints.insert(endpoint),
                Some(Err(error)) => places.failure = Some(error),
                None => {}
            }
        }
        if places.failure.is_some()
            && let Some(last) = last
        {
            places
                .endpoints
                .extend(last.places.endpoints.iter().cloned());
        }
        Arc::new(places)
    }

    fn endpoint_in(
        &self,
        answered: &Answered,
        member: MemberId,
    ) -> Option<Result<Endpoint, NodeError>> {
        let announced = answered.layout.announced(member)?;
        let is_own = answered.layout.myself == member;
        let reached = is_own.then_some(&answered.from);
        let address = announced.endpoint(self.uses_tls, reached)?;
        if announced.lacks_host() || self.map.is_none() {
            // The address by which a node was reached is no announced one.
            return Some(Ok(address));
        }
        Some(Endpoint::announced(&address.to_string(), self.map.as_ref()))
    }
}

impl SharedServer {
    /// Returns the first two voters with the same owner.
    fn among(owners: &[MemberId]) -> Option<Self> {
        owners.iter().enumerate().find_map(|(second, &member)| {
            let mut earlier = owners[..second].iter();
            Some(Self {
                first: earlier.position(|it| *it == member)?,
                second,
                member,
            })
        })
    }
}

impl Heard {
    /// Returns the same places as another answer has, if there is one. Most answers have the same.
    fn shared(&self, places: Arc<Places>) -> Arc<Places> {
        let mut known = self.answers.values().map(|answer| &answer.places);
        known
            .find(|known| **known == places)
            .cloned()
            .unwrap_or(places)
    }

    /// Returns where all nodes are, by all answers.
    fn endpoints(&self) -> BTreeSet<Endpoint> {
        let mut places: Vec<_> = self.answers.values().map(|answer| &answer.places).collect();
        places.dedup_by(|a, b| Arc::ptr_eq(a, b));
        let endpoints = places.into_iter().flat_map(|endpoint| &endpoint.endpoints);
        endpoints.cloned().collect()
    }

    /// Returns whether another node that answers knows this one.
    fn is_member(&self, member: MemberId) -> bool {
        let others = self.answers.iter().filter(|(id, _)| **id != member);
        others.into_iter().any(|(_, it)| it.layout.knows(member))
    }

    fn fresh(&self) -> impl Iterator<Item = &Answered> + Clone {
        self.answers.values().filter(|answer| answer.is_fresh())
    }

    /// Returns whether the answer names none of the nodes that the others name. The last of the others are kept until
    /// their cluster answers again, so the first cluster stays the own one.
    fn is_foreign(&self, layout: &Layout) -> bool {
        let names_one = |it: &Answered| it.layout.members().any(|member| layout.knows(member));
        !self.answers.is_empty() && !self.answers.values().any(names_one)
    }

    /// Returns all nodes that the answering ones know.
    fn all(&self) -> BTreeSet<MemberId> {
        self.fresh()
            .flat_map(|answer| answer.layout.members())
            .collect()
    }

    fn majority(&self) -> usize {
        self.all().len() / 2 + 1
    }

    /// Returns the nodes that others know and that do not answer.
    fn silent(&self) -> Vec<MemberId> {
        let mut all = self.all();
        for answered in self.fresh() {
            all.remove(&answered.layout.myself);
        }
        all.into_iter().collect()
    }

    /// Returns the node that a majority names as the owner of the slot.
    fn owner(&self, slot: KeySlot) -> Option<MemberId> {
        let mut votes = BTreeMap::<_, usize>::new();
        for owner in self.fresh().filter_map(|answer| answer.layout.owner(slot)) {
            *votes.entry(owner).or_default() += 1;
        }
        let majority = self.majority();
        let (owner, _) = votes.into_iter().find(|(_, votes)| *votes >= majority)?;
        Some(owner)
    }

    fn objection(&self, slot: KeySlot, silent: &str) -> Option<NodeError> {
        let number = slot.number();
        let failures = || {
            let failures = self.failures.iter();
            let shown: Vec<_> = failures
                .map(|(at, error)| format!("{at}: {error}"))
                .collect();
            shown.join("; ")
        };
        let (answering, majority) = (self.fresh().count(), self.majority());
        if answering == 0 {
            let text = format!("no node of the cluster answers ({})", failures());
            let is_refused = |error: &NodeError| error.is_refusal();
            return match self.failures.len() {
                0 => None,
                _ if self.failures.values().all(is_refused) => {
                    Some(NodeError::Misconfigured(text.into()))
                }
                _ => Some(NodeError::Unreachable(text.into())),
            };
        }
        if answering < majority {
            let all = self.all().len();
            let text = format!(
                "{answering} of {all} nodes of the cluster answer, including replicas, and {majority} are needed to \
                 confirm the owner of slot {number}; silent: {silent}. Forget nodes that are gone: CLUSTER FORGET on \
                 each of the others ({})",
                failures()
            );
            return Some(NodeError::Unreachable(text.into()));
        }
        if self
            .fresh()
            .all(|answer| answer.layout.owner(slot).is_none())
        {
            let text = format!("no node of the cluster owns slot {number}: assign the slot to one");
            return Some(NodeError::Misconfigured(text.into()));
        }
        if self.owner(slot).is_none() {
            let text =
                format!("the nodes of the cluster do not agree on the owner of slot {number}");
            return Some(NodeError::Unreachable(text.into()));
        }
        None
    }
}

impl Answered {
    fn says_the_same(&self, other: &Self) -> bool {
        self.layout == other.layout && self.from == other.from && self.places == other.places
    }

    fn is_fresh(&self) -> bool {
        self.at.elapsed() <= FRESH_FOR
    }
}

#[cfg(test)]
mod tests;

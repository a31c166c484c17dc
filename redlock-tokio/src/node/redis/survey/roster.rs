use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::Arc,
    time::Duration,
};

use redlock_core::{MemberId, Tenure};
use tokio::time::Instant;

use super::view::{Place, View};
use crate::{
    node::{
        NodeError,
        redis::address::{AddressMap, Endpoint},
    },
    sync::Mutex,
};

/// For how long after the newest answer of any member the last answer of a member is kept.
const KEPT_FOR: Duration = Duration::from_secs(60);

/// How old an answer may be to show that its member answers now.
const FRESH_FOR: Duration = Duration::from_secs(3);

/// How many silent members a message names.
const MOST_NAMED: usize = 10;

/// Where the members of an authority are, and what they said last.
pub(in crate::node::redis) struct Roster {
    listed: Vec<Endpoint>,
    map: Option<AddressMap>,
    heard: Mutex<Heard>,
}

/// What is known of the members while no majority names the owner of a node.
#[derive(Default)]
pub(in crate::node::redis) struct Poll {
    /// Why there was no answer from an address the last time.
    pub(in crate::node::redis) failures: BTreeMap<Endpoint, NodeError>,
    /// Whether each configured address refuses to answer.
    pub(in crate::node::redis) is_refused: bool,
    /// Why the map of addresses did not return one.
    pub(in crate::node::redis) map_failure: Option<NodeError>,
    /// How many members answer.
    pub(in crate::node::redis) answering: usize,
    /// How many members those know.
    pub(in crate::node::redis) all: usize,
    /// What messages call the members that do not answer.
    pub(in crate::node::redis) silent: String,
    /// How many members name the same owner. Zero if nobody names one.
    pub(in crate::node::redis) agreeing: usize,
}

/// The worth of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is of a member of the authority.
    Own,
    /// A configured address leads to another authority. Its other members are not asked. But it must be known that
    /// there are two.
    Foreign,
    /// An address that was once announced leads to a member that no other one knows. The answer does not count.
    Unknown,
}

#[derive(Default)]
struct Heard {
    answers: BTreeMap<MemberId, Answer>,
    /// Why there was no answer from an address the last time.
    failures: BTreeMap<Endpoint, NodeError>,
    /// Whether too few members answered when this was last looked at.
    is_short: bool,
}

/// The last answer of a member.
struct Answer {
    at: Instant,
    from: Endpoint,
    /// Whether it is of another authority.
    is_foreign: bool,
    tenures: Vec<Option<Tenure>>,
    places: Arc<Places>,
}

/// Where this client reaches the members that an answer names.
#[derive(PartialEq, Eq)]
struct Places {
    members: BTreeMap<MemberId, Option<Endpoint>>,
    failure: Option<NodeError>,
}

impl Roster {
    pub(super) fn new(listed: Vec<Endpoint>, map: Option<AddressMap>) -> Self {
        Self {
            listed,
            map,
            heard: Mutex::default(),
        }
    }

    /// Returns the configured addresses.
    pub(in crate::node::redis) fn listed(&self) -> &[Endpoint] {
        &self.listed
    }

    /// Returns where this client reaches the server that announces this address.
    ///
    /// # Errors
    ///
    /// As for [`Endpoint::announced`].
    pub(in crate::node::redis) fn reached(&self, announced: &str) -> Result<Endpoint, NodeError> {
        Endpoint::announced(announced, self.map.as_ref())
    }

    /// Notes an answer. Returns what it is worth: an address may lead to a member of another authority by now.
    pub(super) fn note_answer(&self, from: &Endpoint, view: &View) -> Standing {
        // Before the lock, since a function of the user may be called.
        let places = self.places_in(view);
        let mut heard = self.heard.lock();
        if !self.listed.contains(from) && !heard.is_member(view.myself) {
            return Standing::Unknown;
        }
        let at = Instant::now();
        let is_foreign = heard.is_foreign(view);
        let answer = Answer {
            at,
            from: from.clone(),
            is_foreign,
            tenures: view.tenures.clone(),
            places: heard.shared(places),
        };
        heard.answers.insert(view.myself, answer);
        if is_foreign {
            return Standing::Foreign;
        }
        heard.answers.retain(|_, it| at - it.at <= KEPT_FOR);
        Standing::Own
    }

    /// Notes why an address gave no answer, or that it did. Returns whether that is news.
    pub(super) fn note_outcome(&self, at: &Endpoint, error: Option<NodeError>) -> bool {
        let mut heard = self.heard.lock();
        match error {
            Some(error) => heard.failures.insert(at.clone(), error.clone()) != Some(error),
            None => heard.failures.remove(at).is_some(),
        }
    }

    /// Returns whether to ask at an address: it is a configured one, or announced by some member.
    pub(super) fn has(&self, at: &Endpoint) -> bool {
        let is_there = |places: &Places| places.members.values().flatten().any(|it| it == at);
        self.listed.contains(at) || self.heard.lock().places().any(is_there)
    }

    /// Forgets an address that is asked no more, so that an authority whose addresses change leaves nothing behind.
    pub(super) fn forget(&self, at: &Endpoint) {
        self.heard.lock().failures.remove(at);
    }

    /// Returns where members are that others know, and that do not answer at any address.
    pub(super) fn missing(&self) -> BTreeSet<Endpoint> {
        let heard = self.heard.lock();
        let answers = |member| heard.answers.get(member).is_some_and(Answer::is_fresh);
        let members = heard.places().flat_map(|places| &places.members);
        let missing = members.filter(|(member, _)| !answers(member));
        missing.filter_map(|(_, place)| place.clone()).collect()
    }

    /// Returns where a member can be reached, by the newest answer that says so. `None` if no member knows the address.
    ///
    /// # Errors
    ///
    /// [`NodeError::Misconfigured`] if the map of addresses does not return one.
    pub(in crate::node::redis) fn place_of(
        &self,
        member: MemberId,
    ) -> Result<Option<Endpoint>, NodeError> {
        let heard = self.heard.lock();
        match (heard.place_of(member), heard.map_failure()) {
            (None, Some(failure)) => Err(failure.clone()),
            (place, _) => Ok(place.cloned()),
        }
    }

    /// Returns what messages call a member: its address, or its id while no address is known.
    pub(super) fn name_of(&self, member: MemberId) -> String {
        self.heard.lock().name_of(member)
    }

    /// Returns what is known of the owner of the node at `index`.
    pub(super) fn poll(&self, index: usize) -> Poll {
        let heard = self.heard.lock();
        let mut votes = BTreeMap::<_, usize>::new();
        let tenures = heard.fresh().filter_map(|it| it.tenures.get(index));
        for tenure in tenures.flatten() {
            *votes.entry(&tenure.owner).or_default() += 1;
        }
        let mut failures = self.listed.iter().map(|at| heard.failures.get(at));
        Poll {
            is_refused: failures.all(|it| it.is_some_and(NodeError::is_refusal)),
            failures: heard.failures.clone(),
            map_failure: heard.map_failure().cloned(),
            answering: heard.fresh().count(),
            all: heard.all().len(),
            silent: heard.silent(),
            agreeing: votes.into_values().max().unwrap_or(0),
        }
    }

    /// Returns whether too few members answer, and did not when this was last called.
    pub(super) fn has_become_short(&self) -> bool {
        let mut heard = self.heard.lock();
        let is_short = heard.fresh().count() <= heard.all().len() / 2;
        !mem::replace(&mut heard.is_short, is_short) && is_short
    }

    /// Returns where the members of an answer are. Asks the user's function each time: it may know more by now. If the
    /// function fails, the earlier places stay.
    fn places_in(&self, view: &View) -> Places {
        let last = self
            .heard
            .lock()
            .answers
            .get(&view.myself)
            .map(|it| Arc::clone(&it.places));
        let mut failure = None;
        let mut reached = |member: MemberId, announced: &Endpoint| {
            let reached = match self.map {
                None => return Some(announced.clone()),
                Some(_) => self.reached(&announced.to_string()),
            };
            reached
                .inspect_err(|error| failure = Some(error.clone()))
                .ok()
                .or_else(|| last.as_ref()?.members.get(&member)?.clone())
        };
        let place = |(member, place): (&MemberId, &Option<Place>)| {
            let place = match place {
                Some(Place::Announced(at)) => reached(*member, at),
                Some(Place::Reached(at)) => Some(at.clone()),
                None => None,
            };
            (*member, place)
        };
        let members = view.members.iter().map(place).collect();
        Places { members, failure }
    }
}

impl Heard {
    /// Returns the answers of the authority's own members.
    fn own(&self) -> impl Iterator<Item = (&MemberId, &Answer)> + Clone {
        self.answers.iter().filter(|(_, it)| !it.is_foreign)
    }

    /// Returns those of members that answer now.
    fn fresh(&self) -> impl Iterator<Item = &Answer> + Clone {
        let answers = self.own().map(|(_, answer)| answer);
        answers.filter(|answer| answer.is_fresh())
    }

    /// Returns where all members are, by all answers. Most answers have the same places.
    fn places(&self) -> impl Iterator<Item = &Places> {
        let mut places: Vec<_> = self.own().map(|(_, answer)| &answer.places).collect();
        places.dedup_by(|a, b| Arc::ptr_eq(a, b));
        places.into_iter().map(|places| &**places)
    }

    /// Returns the same places as another answer has, if there is one.
    fn shared(&self, places: Places) -> Arc<Places> {
        let mut known = self.answers.values().map(|answer| &answer.places);
        let known = known.find(|known| ***known == places).cloned();
        known.unwrap_or_else(|| Arc::new(places))
    }

    /// Returns whether another member that answers knows this one.
    fn is_member(&self, member: MemberId) -> bool {
        let mut others = self.own().filter(|(id, _)| **id != member);
        others.any(|(_, it)| it.places.members.contains_key(&member))
    }

    /// Returns whether the answer names none of the members that the others name. The last answers of the others are
    /// kept until their authority answers again, so the first authority stays the own one.
    fn is_foreign(&self, view: &View) -> bool {
        let knows = |member: &MemberId| view.myself == *member || view.members.contains_key(member);
        let mut own = self.own().peekable();
        own.peek().is_some()
            && !own.any(|(id, it)| knows(id) || it.places.members.keys().any(knows))
    }

    /// Returns all members that the answering ones know.
    fn all(&self) -> BTreeSet<MemberId> {
        let own = self.own().filter(|(_, it)| it.is_fresh());
        own.flat_map(|(id, it)| it.places.members.keys().chain([id]))
            .copied()
            .collect()
    }

    /// Returns what messages call the members that others know and that do not answer.
    fn silent(&self) -> String {
        let all = self.all();
        let is_silent = |id: &&MemberId| !self.answers.get(id).is_some_and(Answer::is_fresh);
        let silent: Vec<_> = all.iter().filter(is_silent).collect();
        let named = silent.iter().take(MOST_NAMED).map(|it| self.name_of(**it));
        let mut text = named.collect::<Vec<_>>().join(", ");
        if silent.len() > MOST_NAMED {
            text += &format!(" and {} more", silent.len() - MOST_NAMED);
        }
        text
    }

    fn place_of(&self, member: MemberId) -> Option<&Endpoint> {
        let answers = self.own().map(|(_, answer)| answer);
        let known =
            answers.filter_map(|it| Some((it.at, it.places.members.get(&member)?.as_ref()?)));
        let (_, place) = known.max_by_key(|(at, _)| *at)?;
        Some(place)
    }

    fn name_of(&self, member: MemberId) -> String {
        let answered = || Some(&self.answers.get(&member)?.from);
        let place = self.place_of(member).or_else(answered);
        place.map_or_else(|| member.to_string(), Endpoint::to_string)
    }

    /// Returns why the map of addresses did not return one.
    fn map_failure(&self) -> Option<&NodeError> {
        self.own()
            .find_map(|(_, answer)| answer.places.failure.as_ref())
    }
}

impl Answer {
    fn is_fresh(&self) -> bool {
        self.at.elapsed() <= FRESH_FOR
    }
}

#[cfg(test)]
mod tests;

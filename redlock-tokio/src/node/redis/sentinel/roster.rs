use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use redlock_core::MemberId;
use tokio::time::Instant;

use super::question::SentinelAnswer;
use crate::node::redis::address::Endpoint;

/// How long a sentinel is still asked after all others have ceased to list it.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// The reports of a group's sentinels on each other.
#[derive(Default)]
pub(super) struct Roster {
    /// The last report of each sentinel, by the address at which it was asked.
    heard: BTreeMap<Endpoint, Heard>,
    /// When a sentinel was last told of, and its address.
    told: BTreeMap<MemberId, (String, Instant)>,
}

struct Heard {
    id: Option<MemberId>,
    others: BTreeSet<MemberId>,
    at: Instant,
}

impl Roster {
    /// Notes the answer of the sentinel at `address`. Returns its id, if that is known.
    ///
    /// Sentinels before Redis 6.2 do not report their id. Then the id is the only one that others know and the sentinel
    /// does not: no sentinel lists itself. If a sentinel at another address has that id, this one is a newcomer that
    /// no other knows yet. Under the id of another it would take back what that one has said.
    pub(super) fn note(
        &mut self,
        now: Instant,
        address: &Endpoint,
        answer: &SentinelAnswer,
    ) -> Option<MemberId> {
        let others: BTreeSet<_> = answer.others.iter().map(|other| other.id).collect();
        let id = answer
            .id
            .or_else(|| self.only_unlisted(now, address, &others));
        if !self.is_foreign(address, id, &others) {
            for other in &answer.others {
                self.told.insert(other.id, (other.address.clone(), now));
            }
        }
        let heard = Heard {
            id,
            others,
            at: now,
        };
        self.heard.insert(address.clone(), heard);
        id
    }

    /// Returns the addresses of the sentinels that others know and that have not answered for as long as `silence`.
    pub(super) fn missing(&mut self, now: Instant, silence: Duration) -> Vec<String> {
        self.told
            .retain(|_, (_, at)| now.duration_since(*at) < FORGOTTEN_AFTER);
        let is_heard = |id: &MemberId| {
            let mut heard = self.heard.values();
            heard.any(|sentinel| {
                sentinel.id == Some(*id) && now.duration_since(sentinel.at) < silence
            })
        };
        self.told
            .iter()
            .filter(|(id, _)| !is_heard(id))
            .map(|(_, (address, _))| address.clone())
            .collect()
    }

    /// Returns where a sentinel was asked, or where another one has told that it is.
    pub(super) fn address_of(&self, member: MemberId) -> Option<String> {
        let mut heard = self.heard.iter();
        let asked = heard.find(|(_, it)| it.id == Some(member));
        let asked = asked.map(|(address, _)| address.to_string());
        let told = || self.told.get(&member).map(|(address, _)| address.clone());
        asked.or_else(told)
    }

    /// Returns the addresses of the sentinels that others list.
    pub(super) fn told(&self) -> Vec<String> {
        let told = self.told.values().map(|(address, _)| address.clone());
        told.collect()
    }

    pub(super) fn forget(&mut self, address: &Endpoint) {
        self.heard.remove(address);
    }

    /// Returns whether a sentinel and those that it knows are none of those that are heard of at other addresses. Its
    /// address may lead to another group, and the sentinels of that group are not asked.
    fn is_foreign(
        &self,
        address: &Endpoint,
        id: Option<MemberId>,
        others: &BTreeSet<MemberId>,
    ) -> bool {
        let known: BTreeSet<_> = self.elsewhere(address).flat_map(Heard::known).collect();
        let is_among_them = id.is_some_and(|id| known.contains(&id));
        !known.is_empty() && !is_among_them && known.is_disjoint(others)
    }

    fn only_unlisted(
        &self,
        now: Instant,
        address: &Endpoint,
        listed: &BTreeSet<MemberId>,
    ) -> Option<MemberId> {
        let known: BTreeSet<_> = self.elsewhere(address).flat_map(Heard::known).collect();
        let mut unlisted = known.difference(listed);
        let only = *unlisted.next().filter(|_| unlisted.next().is_none())?;
        let is_of_another = self.elsewhere(address).any(|sentinel| {
            sentinel.id == Some(only) && now.duration_since(sentinel.at) < FORGOTTEN_AFTER
        });
        (!is_of_another).then_some(only)
    }

    fn elsewhere(&self, address: &Endpoint) -> impl Iterator<Item = &Heard> {
        let elsewhere = self.heard.iter().filter(move |(at, _)| *at != address);
        elsewhere.map(|(_, heard)| heard)
    }
}

impl Heard {
    /// Returns the sentinel, if its id is known, and the others that it knows.
    fn known(&self) -> impl Iterator<Item = MemberId> {
        self.others.iter().chain(&self.id).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::redis::sentinel::question::Other;

    const SILENCE: Duration = Duration::from_secs(3);

    fn id(letter: u8) -> MemberId {
        MemberId::new([letter; MemberId::LEN])
    }

    fn at(host: &str) -> Endpoint {
        Endpoint::tcp(host, 1).unwrap()
    }

    /// An answer of a sentinel that knows these others.
    fn answer(own: Option<u8>, others: &[u8]) -> SentinelAnswer {
        let other = |letter: &u8| Other {
            id: id(*letter),
            address: format!("{}:1", char::from(*letter)),
        };
        SentinelAnswer {
            id: own.map(id),
            tenure: None,
            age: Duration::ZERO,
            others: others.iter().map(other).collect(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_sentinel_that_is_told_of_is_missing_until_it_answers() {
        let mut roster = Roster::default();
        let start = Instant::now();
        roster.note(start, &at("listed"), &answer(Some(b'a'), b"bc"));
        assert_eq!(roster.missing(start, SILENCE), ["b:1", "c:1"]);
        // The same sentinel under another address.
        roster.note(start, &at("alias"), &answer(Some(b'b'), b"ac"));
        assert_eq!(roster.missing(start, SILENCE), ["c:1"]);
        let later = start + SILENCE;
        assert_eq!(roster.missing(later, SILENCE), ["a:1", "b:1", "c:1"]);
        let much_later = start + FORGOTTEN_AFTER;
        assert!(roster.missing(much_later, SILENCE).is_empty());
        assert!(roster.told().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_sentinel_that_does_not_tell_its_id_is_the_one_that_it_does_not_list() {
        let mut roster = Roster::default();
        let now = Instant::now();
        let mut note = |host, own, others: &[u8]| roster.note(now, &at(host), &answer(own, others));
        assert_eq!(note("1", None, b"bc"), None);
        assert_eq!(note("2", None, b"ac"), Some(id(b'b')));
        assert_eq!(note("1", None, b"bc"), Some(id(b'a')));
        assert_eq!(note("3", None, b""), None, "it could be any of them");
        assert_eq!(note("3", Some(b'c'), b""), Some(id(b'c')));
    }

    #[tokio::test(start_paused = true)]
    async fn a_newcomer_that_does_not_tell_its_id_is_not_taken_for_another() {
        let mut roster = Roster::default();
        let now = Instant::now();
        let mut note =
            |now, host, others: &[u8]| roster.note(now, &at(host), &answer(None, others));
        note(now, "1", b"bc");
        assert_eq!(note(now, "2", b"ac"), Some(id(b'b')));
        assert_eq!(note(now, "3", b"ab"), Some(id(b'c')));
        assert_eq!(note(now, "4", b"ab"), None, "c is at 3");
        let later = now + FORGOTTEN_AFTER;
        assert_eq!(note(later, "4", b"ab"), Some(id(b'c')), "moved");
    }
}

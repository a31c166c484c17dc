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
    id: MemberId,
    others: BTreeSet<MemberId>,
    at: Instant,
}

impl Roster {
    /// Notes the answer of the sentinel at `address`.
    pub(super) fn note(&mut self, now: Instant, address: &Endpoint, answer: &SentinelAnswer) {
        let heard = Heard {
            id: answer.id,
            others: answer.others.iter().map(|other| other.id).collect(),
            at: now,
        };
        if !self.is_foreign(address, &heard) {
            for other in &answer.others {
                self.told.insert(other.id, (other.address.clone(), now));
            }
        }
        self.heard.insert(address.clone(), heard);
    }

    /// Returns the addresses of the sentinels that others know and that have not answered for as long as `silence`.
    pub(super) fn missing(&mut self, now: Instant, silence: Duration) -> Vec<String> {
        self.told
            .retain(|_, (_, at)| now.duration_since(*at) < FORGOTTEN_AFTER);
        let is_heard = |id: &MemberId| {
            let mut heard = self.heard.values();
            heard.any(|sentinel| sentinel.id == *id && now.duration_since(sentinel.at) < silence)
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
        let asked = heard.find(|(_, it)| it.id == member);
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
    fn is_foreign(&self, address: &Endpoint, sentinel: &Heard) -> bool {
        let elsewhere = self.heard.iter().filter(|(at, _)| *at != address);
        let known: BTreeSet<_> = elsewhere.flat_map(|(_, heard)| heard.known()).collect();
        !known.is_empty() && !sentinel.known().any(|id| known.contains(&id))
    }
}

impl Heard {
    /// Returns the sentinel and the others that it knows.
    fn known(&self) -> impl Iterator<Item = MemberId> {
        self.others.iter().copied().chain([self.id])
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
    fn answer(own: u8, others: &[u8]) -> SentinelAnswer {
        let other = |letter: &u8| Other {
            id: id(*letter),
            address: format!("{}:1", char::from(*letter)),
        };
        SentinelAnswer {
            id: id(own),
            tenure: None,
            age: Duration::ZERO,
            others: others.iter().map(other).collect(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_sentinel_that_is_told_of_is_missing_until_it_answers() {
        let mut roster = Roster::default();
        let start = Instant::now();
        roster.note(start, &at("listed"), &answer(b'a', b"bc"));
        assert_eq!(roster.missing(start, SILENCE), ["b:1", "c:1"]);
        // The same sentinel under another address.
        roster.note(start, &at("alias"), &answer(b'b', b"ac"));
        assert_eq!(roster.missing(start, SILENCE), ["c:1"]);
        let later = start + SILENCE;
        assert_eq!(roster.missing(later, SILENCE), ["a:1", "b:1", "c:1"]);
        let much_later = start + FORGOTTEN_AFTER;
        assert!(roster.missing(much_later, SILENCE).is_empty());
        assert!(roster.told().is_empty());
    }
}

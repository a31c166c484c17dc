//! Properties of the rounds, tried on random replies. The properties of a verdict, whatever the
//! order of the replies. Let every node have replied once, all at one time within the validity:
//!
//! - each round has given exactly one verdict (an extension may have none if nodes answer it with
//!   `Outbid`, which no node does);
//! - it is a success (`Acquired`, `Extended`, `Released` by votes) iff a majority
//!   granted: a majority that grants and a minority that makes one impossible cannot both be, so an
//!   early failure never forestalls a success;
//! - *which* failure it is may depend on the order, because a verdict does not wait for the replies
//!   that would name another; so may `Outbid`, which does not wait for slower nodes to accept.

extern crate std;

use core::{fmt::Debug, time::Duration};
use std::{collections::BTreeMap, vec::Vec};

use proptest::{
    collection::vec,
    prelude::*,
    test_runner::{Config, TestCaseResult, TestRunner},
};

use super::{
    Acquire, AcquireFailure, AcquireVerdict, Extend, ExtendVerdict, Release, ReleaseVerdict,
};
use crate::{
    Drift, FencingToken, NodeId, Quorum, Reply, Timestamp, Ttl, Validity,
    said::{Said, node, quarantined},
    tally::Tally,
};

impl Said {
    /// Whether the node did what was asked, and has a vote in a round that starts then.
    fn grants_at(self, start: Timestamp) -> bool {
        self.reply == Reply::Granted && self.eligibility.covers(start)
    }

    /// The counter that is ahead, if the node says so.
    fn counter(self) -> Option<FencingToken> {
        match self.reply {
            Reply::Outbid { counter } => Some(counter),
            _ => None,
        }
    }

    /// Whether the node agrees, but has no vote in a round that starts then.
    fn is_held_back_at(self, start: Timestamp) -> bool {
        let agrees = self.reply == Reply::Granted || self.counter().is_some();
        agrees && !self.eligibility.covers(start)
    }
}

/// Checks a property on `cases` random inputs. A failure prints the smallest input that shows it.
fn check<S>(cases: u32, inputs: &S, property: impl Fn(S::Value) -> TestCaseResult)
where
    S: Strategy,
    S::Value: Debug,
{
    let config = Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    };
    if let Err(error) = TestRunner::new(config).run(inputs, property) {
        panic!("{error}");
    }
}

const START: Timestamp = Timestamp::from_nanos(1_000_000);
const FENCE: FencingToken = FencingToken::new(50);

fn validity() -> Validity {
    let ttl = Ttl::new(Duration::from_secs(1)).expect("a second");
    Validity::new(ttl, Drift::default()).expect("longer than its drift")
}

fn until_around_start() -> impl Strategy<Value = Timestamp> {
    (0..=2 * START.as_nanos()).prop_map(Timestamp::from_nanos)
}

fn replies() -> impl Strategy<Value = Said> {
    let outbid = (50..60u64).prop_map(|counter| Reply::Outbid {
        counter: FencingToken::new(counter),
    });
    let reply = prop_oneof![
        6 => Just(Reply::Granted),
        3 => Just(Reply::Denied),
        1 => Just(Reply::Refused),
        1 => Just(Reply::Unknown),
        1 => outbid,
    ];
    let votes_from = prop_oneof![6 => Just(Timestamp::ZERO), 1 => until_around_start()];
    (reply, votes_from).prop_map(|(reply, votes_from)| quarantined(reply, votes_from))
}

/// Replies of all of some nodes, each once, in a random order.
fn ballots() -> impl Strategy<Value = Vec<(usize, Said)>> {
    prop_oneof![9 => 1..=9usize, 1 => 60..=64usize]
        .prop_flat_map(|nodes| vec(replies(), nodes))
        .prop_map(|replies| replies.into_iter().enumerate().collect::<Vec<_>>())
        .prop_shuffle()
}

/// The four rounds behind one face.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Round {
    Acquire(Acquire),
    Extend(Extend),
    Fence(Acquire),
    Release(Release),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Acquire(AcquireVerdict),
    Extend(ExtendVerdict),
    Fence(AcquireVerdict),
    Release(ReleaseVerdict),
}

impl Round {
    fn all(nodes: usize) -> [Self; 5] {
        let quorum = Quorum::majority(nodes).expect("1 to 64");
        let until = validity().until(START);
        let acquire = |fence| Acquire::new(quorum, validity(), fence, START);
        [
            Self::Acquire(acquire(None)),
            Self::Acquire(acquire(Some(FENCE))),
            Self::Extend(Extend::new(quorum, validity(), until, START)),
            Self::Fence(acquire(None).propose(FENCE, START)),
            Self::Release(Release::new(quorum)),
        ]
    }

    fn reply(&mut self, now: Timestamp, node: NodeId, said: Said) -> Option<Verdict> {
        let (reply, worth) = (said.reply, said.eligibility);
        match self {
            Self::Acquire(round) => {
                let verdict = round.handle_reply(now, node, reply, worth);
                verdict.map(Verdict::Acquire)
            }
            Self::Extend(round) => {
                let verdict = round.handle_reply(now, node, reply, worth);
                verdict.map(Verdict::Extend)
            }
            Self::Fence(round) => {
                let verdict = round.handle_reply(now, node, reply, worth);
                verdict.map(Verdict::Fence)
            }
            Self::Release(round) => round.confirm(node, reply).map(Verdict::Release),
        }
    }

    fn tally(&self) -> &Tally {
        match self {
            Self::Acquire(round) => round.tally(),
            Self::Extend(round) => round.tally(),
            Self::Fence(round) => round.tally(),
            Self::Release(round) => round.tally(),
        }
    }

    /// Replies to everything; returns the verdict and after how many replies it came.
    fn vote(&mut self, now: Timestamp, ballots: &[(usize, Said)]) -> Option<(Verdict, usize)> {
        let mut verdict = None;
        for (count, (index, reply)) in ballots.iter().enumerate() {
            if let Some(given) = self.reply(now, node(*index), *reply) {
                assert!(verdict.is_none(), "a second verdict");
                verdict = Some((given, count + 1));
            }
        }
        verdict
    }

    /// Whether this reply is a vote for the round.
    fn is_vote(&self, said: Said) -> bool {
        match said.reply {
            Reply::Granted => matches!(self, Self::Release(_)) || said.eligibility.covers(START),
            Reply::Outbid { .. } => {
                matches!(self, Self::Acquire(_)) && said.eligibility.covers(START)
            }
            _ => false,
        }
    }
}

/// Whether `yes` nodes of `all` are a majority.
fn majority(yes: usize, all: usize) -> bool {
    2 * yes > all
}

fn count(ballots: &[(usize, Said)], test: impl Fn(Said) -> bool) -> usize {
    ballots.iter().filter(|(_, said)| test(*said)).count()
}

fn is_success(verdict: Verdict) -> bool {
    matches!(
        verdict,
        Verdict::Acquire(AcquireVerdict::Acquired { .. } | AcquireVerdict::Outbid { .. })
            | Verdict::Extend(ExtendVerdict::Extended { .. })
            | Verdict::Fence(AcquireVerdict::Acquired { .. })
            | Verdict::Release(ReleaseVerdict::Released)
    )
}

#[test]
fn a_success_is_a_majority_of_votes_in_any_order() {
    let inputs = ballots().prop_flat_map(|ballots| {
        let shuffled = Just(ballots.clone()).prop_shuffle();
        (Just(ballots), shuffled)
    });
    check(1500, &inputs, |(ballots, shuffled)| {
        let nodes = ballots.len();
        for mut round in Round::all(nodes) {
            let votes = count(&ballots, |said| round.is_vote(said));
            let one = round
                .clone()
                .vote(START, &ballots)
                .map(|(verdict, _)| verdict);
            let other = round.vote(START, &shuffled).map(|(verdict, _)| verdict);
            for verdict in [one, other] {
                // A release also ends well when all nodes replied and none blocked it.
                match verdict {
                    Some(Verdict::Release(_)) if !majority(votes, nodes) => {}
                    Some(verdict) => prop_assert_eq!(is_success(verdict), majority(votes, nodes)),
                    None => {
                        prop_assert!(matches!(round, Round::Extend(_)));
                        let outbid = |said: Said| said.counter().is_some();
                        prop_assert!(count(&ballots, outbid) > 0);
                        prop_assert!(!majority(votes, nodes));
                    }
                }
            }
            if let (Round::Acquire(round), Some(Verdict::Acquire(verdict))) = (&round, other) {
                // With a fence, acceptance needs a majority of its own.
                let granted = count(&ballots, |said| said.grants_at(START));
                if let AcquireVerdict::Acquired { valid_until, fence } = verdict {
                    prop_assert_eq!(valid_until, validity().until(START));
                    prop_assert_eq!(valid_until, round.valid_until());
                    prop_assert!(fence.is_none() || majority(granted, nodes));
                }
            }
        }
        Ok(())
    });
}

#[test]
fn a_verdict_comes_as_soon_as_it_is_certain_and_no_sooner() {
    check(1000, &ballots(), |ballots| {
        let nodes = ballots.len();
        for mut round in Round::all(nodes) {
            let is_vote = |said| round.is_vote(said);
            let certain = (1..=nodes).find(|so_far| {
                let votes = count(&ballots[..*so_far], is_vote);
                // The votes that the undecided nodes could still bring.
                majority(votes, nodes) || !majority(votes + nodes - so_far, nodes)
            });
            let early = matches!(round, Round::Acquire(_) | Round::Fence(_));
            let given = round.clone().vote(START, &ballots).map(|(_, after)| after);
            if early {
                prop_assert_eq!(given, certain, "{:?}", round);
            } else {
                // Extend tells lost keys from failed nodes, and a release waits for the last word
                // when deletions and denials are divided: they never speak *before* it is certain.
                prop_assert!(given.is_none_or(|given| certain.is_some_and(|at| at <= given)));
            }
            round.vote(START, &ballots);
            prop_assert!(
                round.tally().undecided().is_empty(),
                "late votes are recorded"
            );
        }
        Ok(())
    });
}

#[test]
fn without_a_fence_a_full_vote_names_the_same_culprits() {
    let inputs = ballots().prop_flat_map(|ballots| {
        let shuffled = Just(ballots.clone()).prop_shuffle();
        (Just(ballots), shuffled)
    });
    check(1000, &inputs, |(ballots, shuffled)| {
        for mut round in Round::all(ballots.len()) {
            let mut other = round.clone();
            round.vote(START, &ballots);
            other.vote(START, &shuffled);
            let (one, other) = (round.tally(), other.tally());
            prop_assert_eq!(one, other, "the tally does not remember an order");
        }
        Ok(())
    });
}

#[test]
fn failures_name_what_stood_in_the_way() {
    check(1500, &ballots(), |ballots| {
        let nodes = ballots.len();
        for mut round in Round::all(nodes) {
            let Some((verdict, after)) = round.vote(START, &ballots) else {
                continue;
            };
            let so_far = &ballots[..after];
            let blocks =
                |test: &dyn Fn(Said) -> bool| !majority(nodes - count(so_far, test), nodes);
            let down = |said: Said| matches!(said.reply, Reply::Refused | Reply::Unknown);
            let denied = |said: Said| said.reply == Reply::Denied;
            match verdict {
                Verdict::Acquire(AcquireVerdict::Failed(failure)) => match failure {
                    AcquireFailure::NoQuorum => prop_assert!(blocks(&down)),
                    AcquireFailure::Contended => prop_assert!(count(so_far, denied) > 0),
                    AcquireFailure::Quarantined { until } => {
                        prop_assert!(until > START);
                        let held_back = |said: Said| said.is_held_back_at(START);
                        let named =
                            |said: Said| held_back(said) && said.eligibility.starts_at() == until;
                        prop_assert!(count(so_far, named) > 0);
                        let earlier =
                            |said: Said| held_back(said) && said.eligibility.starts_at() < until;
                        prop_assert_eq!(count(so_far, earlier), 0);
                        prop_assert!(!blocks(&down));
                    }
                    other => prop_assert!(false, "{:?} within the validity", other),
                },
                Verdict::Extend(ExtendVerdict::KeysLost)
                | Verdict::Release(ReleaseVerdict::NotHeld) => prop_assert!(blocks(&denied)),
                Verdict::Release(ReleaseVerdict::Unconfirmed) => prop_assert!(blocks(&down)),
                Verdict::Acquire(AcquireVerdict::Outbid { counter })
                | Verdict::Fence(AcquireVerdict::Outbid { counter }) => {
                    let named = |said: Said| said.counter() == Some(counter);
                    prop_assert!(count(so_far, named) > 0);
                    let larger = |said: Said| said.counter() > Some(counter);
                    prop_assert_eq!(count(so_far, larger), 0);
                }
                _ => {}
            }
        }
        Ok(())
    });
}

#[test]
fn nothing_is_won_once_the_validity_is_over() {
    let late = (0..u64::MAX / 2).prop_map(|after| {
        validity()
            .until(START)
            .saturating_add(Duration::from_nanos(after))
    });
    check(1000, &(ballots(), late), |(ballots, late)| {
        for mut round in Round::all(ballots.len()) {
            match round.vote(late, &ballots) {
                // Releasing is always in time.
                None | Some((Verdict::Release(_), _)) => {}
                Some((verdict, _)) => prop_assert!(!is_success(verdict), "{:?}", verdict),
            }
        }
        Ok(())
    });
}

#[test]
fn repeated_replies_and_strangers_change_nothing() {
    let inputs = (ballots(), vec((0..64usize, replies()), 1..20));
    check(1000, &inputs, |(ballots, noise)| {
        for mut round in Round::all(ballots.len()) {
            let mut first = BTreeMap::new();
            for (index, reply) in &ballots {
                round.reply(START, node(*index), *reply);
                first.insert(*index, *reply);
                let before = round.clone();
                for (index, reply) in &noise {
                    if first.contains_key(index) || *index >= ballots.len() {
                        prop_assert_eq!(round.reply(START, node(*index), *reply), None);
                    }
                }
                prop_assert_eq!(&round, &before);
            }
        }
        Ok(())
    });
}

#[test]
fn giving_up_is_a_verdict_unless_there_was_one() {
    check(1000, &(ballots(), 0..64usize), |(ballots, so_far)| {
        let nodes = ballots.len();
        let so_far = &ballots[..so_far.min(nodes)];
        for mut round in Round::all(nodes) {
            let had = round.vote(START, so_far).is_some();
            let gave = match &mut round {
                Round::Acquire(round) => round.give_up(START, None).map(|verdict| {
                    assert!(matches!(verdict, AcquireVerdict::Failed(_)));
                }),
                Round::Release(round) => round.give_up().map(|verdict| {
                    assert_eq!(verdict, ReleaseVerdict::Unconfirmed);
                }),
                Round::Extend(_) | Round::Fence(_) => continue,
            };
            prop_assert_eq!(gave.is_none(), had);
            let rest = round.vote(START, &ballots);
            prop_assert_eq!(rest, None, "one verdict, and no other after it");
        }
        Ok(())
    });
}

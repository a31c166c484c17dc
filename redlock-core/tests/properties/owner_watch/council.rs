//! Authorities whose members turn from one tenure to the next, at times of their own, and never back.

use std::collections::BTreeMap;

use proptest::{collection::vec, prelude::*};
use redlock_core::{MemberReport, OwnerRule, OwnerWatch, Tenure, Timestamp};

use super::reports::{TTL, at, member, millis, tenures};

pub(super) const TENURES: usize = 4;

/// Two clients that ask the members.
#[derive(Clone, Debug)]
pub(super) struct Council {
    /// When each member turned to each tenure after the first.
    turned: Vec<[u64; TENURES - 1]>,
    asks: Vec<Ask>,
}

/// One question and its answer, which may come again.
#[derive(Clone, Debug)]
struct Ask {
    client: usize,
    member: usize,
    asked: u64,
    answered: u64,
    arrives: Vec<u64>,
    /// The part of its age that the member tells, in halves. Zero after a restart.
    age: u64,
    reads_marker: bool,
}

/// The votes of one client.
pub(super) struct Client {
    watch: OwnerWatch,
    votes: Vec<Vote>,
}

/// The rounds of a client in which the votes of a tenure count, by their start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Vote {
    pub(super) tenure: usize,
    first: Timestamp,
    last: Timestamp,
}

pub(super) fn councils() -> impl Strategy<Value = Council> {
    let lag = prop_oneof![2 => Just(0), 1 => 0..6_u64];
    let members = 3..=4_usize;
    members.prop_flat_map(move |members| {
        let failovers = [0..20_u64, 0..20, 0..20];
        let lags = vec([lag.clone(), lag.clone(), lag.clone()], members);
        (failovers, lags, vec(ask(members), 20..90))
            .prop_map(|(gaps, lags, asks)| council(gaps, &lags, asks))
    })
}

fn ask(members: usize) -> impl Strategy<Value = Ask> {
    let way = || prop_oneof![4 => Just(0), 2 => Just(1), 1 => 0..5_u64];
    let again = vec(0..6_u64, 0..2);
    let times = (0..60_u64, way(), way(), again);
    (0..2_usize, 0..members, times, 0..=2_u64, any::<bool>()).prop_map(
        |(client, member, (asked, there, back, again), age, reads_marker)| {
            let answered = asked + there;
            let mut arrives = vec![answered + back];
            arrives.extend(again.iter().map(|it| answered + back + it));
            Ask {
                client,
                member,
                asked,
                answered,
                arrives,
                age,
                reads_marker,
            }
        },
    )
}

fn council(gaps: [u64; TENURES - 1], lags: &[[u64; TENURES - 1]], asks: Vec<Ask>) -> Council {
    let turned = lags.iter().map(|lags| {
        let (mut begun, mut earlier) = (0, 0);
        [0, 1, 2].map(|it| {
            begun += gaps[it];
            earlier = (begun + lags[it]).max(earlier);
            earlier
        })
    });
    Council {
        turned: turned.collect(),
        asks,
    }
}

impl Council {
    /// Lets two clients hear all answers. Each has a rule of its own.
    pub(super) fn clients(&self, rule: impl Fn(usize) -> OwnerRule) -> [Client; 2] {
        let mut clients = [0, 1].map(|client| Client {
            watch: OwnerWatch::new(rule(client)),
            votes: Vec::new(),
        });
        let mut marked_at = BTreeMap::<Tenure, Timestamp>::new();
        let arrivals = self
            .asks
            .iter()
            .flat_map(|ask| ask.arrives.iter().map(move |it| (*it, ask)));
        let mut arrivals: Vec<_> = arrivals.collect();
        arrivals.sort_by_key(|(time, _)| *time);
        for (time, ask) in arrivals {
            let now = at(time);
            let client = &mut clients[ask.client];
            let report = self.answer(ask);
            let asked_at = report.asked_at;
            client.watch.handle_report(now, report);
            // As if it had no other address.
            client.watch.handle_roll_call(now, asked_at);
            if let Some(tenure) = client.watch.tenure().cloned() {
                let marked_at = *marked_at.entry(tenure.clone()).or_insert(now);
                if ask.reads_marker {
                    let age = now.saturating_duration_since(marked_at);
                    client.watch.handle_marker(now, &tenure, age);
                }
            }
            client.note_votes();
        }
        clients
    }

    /// What a member answers, and for how long it has known that.
    fn answer(&self, ask: &Ask) -> MemberReport {
        let turned = &self.turned[ask.member];
        let tenure = turned.iter().filter(|it| **it <= ask.answered).count();
        let since = tenure.checked_sub(1).map_or(0, |it| turned[it]);
        MemberReport {
            asked_at: at(ask.asked),
            member: member(ask.member),
            members: (0..self.turned.len()).map(member).collect(),
            tenure: Some(tenures()[tenure].clone()),
            age: millis((ask.answered - since) * ask.age / 2),
        }
    }
}

impl Client {
    pub(super) fn votes(&self) -> &[Vote] {
        &self.votes
    }

    fn note_votes(&mut self) {
        let Some(tenure) = self.watch.tenure() else {
            return;
        };
        let eligibility = self.watch.eligibility(tenure);
        let (first, last) = (eligibility.starts_at(), eligibility.ends_at());
        if first <= last {
            let tenure = tenures().iter().position(|it| it == tenure);
            self.votes.push(Vote {
                tenure: tenure.expect("one of them"),
                first,
                last,
            });
        }
    }
}

/// Returns two votes of different tenures for locks that may be held at the same time.
pub(super) fn overlap(clients: &[Client]) -> Option<(Vote, Vote)> {
    let votes = || clients.iter().flat_map(|it| &it.votes);
    let mut pairs = votes().flat_map(|it| votes().map(move |other| (*it, *other)));
    pairs.find(|(earlier, later)| {
        let is_over = earlier.last.saturating_add(millis(TTL)) <= later.first;
        earlier.tenure < later.tenure && !is_over
    })
}

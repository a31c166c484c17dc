//! Authorities of five members, of which three say the truth, and two say anything.

use proptest::{collection::vec, prelude::*};
use redlock_core::{MemberReport, OwnerRule};

use super::{
    reference::Verdict,
    reports::{NODE, at, electorate, member, millis, tenures},
};

pub(super) const MEMBERS: usize = 5;

/// The members with lower numbers are a majority, and name the first tenure.
const LOYAL: usize = 3;

#[derive(Clone, Debug)]
pub(super) struct Disturbed(Vec<Heard>);

#[derive(Clone, Debug)]
struct Heard {
    pause: u64,
    member: usize,
    tenure: Option<usize>,
    delay: u64,
    age: u64,
    /// The members that a disturber knows.
    knows: usize,
}

pub(super) fn disturbed() -> impl Strategy<Value = Disturbed> {
    let pause = prop_oneof![6 => Just(0), 3 => Just(1), 1 => 2..9_u64];
    let tenure = proptest::option::weighted(0.9, 0..tenures().len());
    let heard = (pause, 0..MEMBERS, tenure, 0..6_u64, 0..30_u64, 0..=MEMBERS);
    let heard = heard.prop_map(|(pause, member, tenure, delay, age, knows)| Heard {
        pause,
        member,
        tenure,
        delay,
        age,
        knows,
    });
    vec(heard, 1..60).prop_map(Disturbed)
}

impl Disturbed {
    /// Returns what a watch says after each report of a loyal member. `strangers` are further members that the
    /// disturbers know.
    pub(super) fn watch(
        &self,
        rule: OwnerRule,
        hears_disturbers: bool,
        strangers: usize,
    ) -> Vec<Verdict> {
        let mut watch = electorate(rule);
        let (mut time, mut verdicts) = (20, Vec::new());
        for heard in &self.0 {
            time += heard.pause;
            let is_loyal = heard.member < LOYAL;
            if !is_loyal && !hears_disturbers {
                continue;
            }
            let known = if is_loyal { MEMBERS } else { heard.knows };
            let strangers = if is_loyal { 0 } else { strangers };
            let known = (0..known).chain(MEMBERS..MEMBERS + strangers);
            let tenure = if is_loyal { Some(0) } else { heard.tenure };
            let report = MemberReport {
                asked_at: at(time - heard.delay),
                member: member(heard.member),
                members: known.map(member).collect(),
                tenure: tenure.map(|it| tenures()[it].clone()),
                age: millis(heard.age),
            };
            let asked_at = report.asked_at;
            watch.handle_report(at(time), NODE, report);
            if is_loyal {
                watch.handle_roll_call(at(time), NODE, asked_at);
            }
            if is_loyal {
                verdicts.push(Verdict::of(&watch));
            }
        }
        verdicts
    }
}

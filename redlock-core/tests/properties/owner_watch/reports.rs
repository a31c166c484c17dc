//! Random reports: late, repeated and stale ones, members that restart, and epochs that go back.

use std::time::Duration;

use proptest::{collection::vec, prelude::*, sample::Index};
use redlock_core::{
    Drift, Electorate, MemberId, MemberReport, NodeId, NodeKind, Owner, OwnerRule, Quarantine,
    Tenure, Timestamp, Ttl, Voter,
};

/// In milliseconds, as all times here.
const TTL: u64 = 5;

pub(super) const WINDOW: u64 = 3;

/// The node that the authority is about.
pub(super) const NODE: NodeId = NodeId::new(0).expect("the first");

const MEMBERS: usize = 5;

/// What a watch hears, and when.
#[derive(Clone, Debug)]
pub(super) struct Story {
    pub(super) fewest: usize,
    pub(super) log: Vec<(Timestamp, Input)>,
}

#[derive(Clone, Debug)]
pub(super) enum Input {
    Report(MemberReport),
    /// The roll call of this date is over.
    RollCall(Timestamp),
    Marker(Tenure, Duration),
}

#[derive(Clone, Debug)]
struct Step {
    pause: u64,
    /// How long the driver waited for the watch after it had read the clock.
    wait: u64,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    Report {
        member: usize,
        /// The members that it knows, one bit each.
        knows: u8,
        tenure: Option<usize>,
        /// For how long the answer was on its way.
        delay: u64,
        age: u64,
    },
    /// An earlier report comes again.
    Again(Index),
    RollCall {
        /// How long ago it began.
        ago: u64,
    },
    Marker {
        tenure: usize,
        age: u64,
    },
}

/// A rule for clocks without drift.
pub(super) fn rule() -> OwnerRule {
    let ttl = Ttl::new(millis(TTL)).expect("within range");
    OwnerRule::new(ttl, Drift::new(0, Duration::ZERO), millis(WINDOW))
}

/// An electorate whose only node loses no vote but by this rule.
pub(super) fn electorate(rule: OwnerRule) -> Electorate {
    let ttl = Ttl::new(millis(TTL)).expect("within range");
    let voter = Voter::trusted(Quarantine::new(ttl, Drift::default()));
    let mut electorate = Electorate::new(voter);
    let may_share_server = false;
    electorate.set_kind(
        NODE,
        NodeKind::ClusterSlot {
            rule,
            may_share_server,
        },
    );
    electorate
}

/// Three failovers. The epoch goes back once, and one server is the owner twice.
pub(super) fn tenures() -> [Tenure; 4] {
    [("a", 5), ("b", 6), ("a", 2), ("c", 3)].map(|(owner, epoch)| Tenure {
        owner: Owner::new(owner),
        epoch,
    })
}

pub(super) fn member(index: usize) -> MemberId {
    let letter = b'a' + u8::try_from(index).expect("a few members");
    MemberId::new([letter; MemberId::LEN])
}

pub(super) fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(super) fn at(time: u64) -> Timestamp {
    Timestamp::ZERO.saturating_add(millis(1000 + time))
}

pub(super) fn stories() -> impl Strategy<Value = Story> {
    let tenure = prop_oneof![6 => Just(0), 5 => Just(1), 4 => Just(2), 1 => Just(3)];
    // Three members most of the time, so that there are majorities.
    let who = prop_oneof![8 => 0..3_usize, 1 => 3..MEMBERS];
    let knows = prop_oneof![8 => Just(0b111), 1 => 0..1_u8 << MEMBERS];
    let named = proptest::option::weighted(0.95, tenure.clone());
    let delay = prop_oneof![4 => 0..=1_u64, 1 => 0..=WINDOW + 2];
    let age = prop_oneof![2 => Just(0), 1 => 0..30_u64];
    let report = (who, knows, named, delay, age);
    let report = report.prop_map(|(member, knows, tenure, delay, age)| What::Report {
        member,
        knows,
        tenure,
        delay,
        age,
    });
    let ago = prop_oneof![4 => Just(0), 1 => 0..=WINDOW + 2];
    let marker = (tenure, 0..30_u64).prop_map(|(tenure, age)| What::Marker { tenure, age });
    let what = prop_oneof![
        12 => report,
        2 => any::<Index>().prop_map(What::Again),
        4 => ago.prop_map(|ago| What::RollCall { ago }),
        4 => marker,
    ];
    let pause = prop_oneof![12 => Just(0), 8 => 1..=2_u64, 1 => 3..20_u64];
    let wait = prop_oneof![4 => Just(0), 1 => 0..=2_u64];
    let step = (pause, wait, what).prop_map(|(pause, wait, what)| Step { pause, wait, what });
    let fewest = prop_oneof![3 => Just(1), 1 => 1..=MEMBERS + 1];
    (fewest, vec(step, 1..60)).prop_map(|(fewest, steps)| story(fewest, steps))
}

fn story(fewest: usize, steps: Vec<Step>) -> Story {
    let (mut log, mut reports) = (Vec::new(), Vec::<MemberReport>::new());
    let mut time = 20;
    for Step { pause, wait, what } in steps {
        time += pause;
        let now = at(time - wait);
        let input = match what {
            What::Report {
                member: index,
                knows,
                tenure,
                delay,
                age,
            } => {
                let known = (0..MEMBERS).filter(|it| knows >> it & 1 == 1);
                let report = MemberReport {
                    asked_at: at(time - wait - delay),
                    member: member(index),
                    members: known.map(member).collect(),
                    tenure: tenure.map(|it| tenures()[it].clone()),
                    age: millis(age),
                };
                reports.push(report.clone());
                Input::Report(report)
            }
            What::Again(_) if reports.is_empty() => continue,
            What::Again(index) => Input::Report(index.get(&reports).clone()),
            What::RollCall { ago } => Input::RollCall(at(time - wait - ago)),
            What::Marker { tenure, age } => Input::Marker(tenures()[tenure].clone(), millis(age)),
        };
        log.push((now, input));
    }
    Story { fewest, log }
}

//! How many leases are refused that would have been served within their wait, by shape of hold times: by the queue, and
//! by a simpler estimate as a control.
//!
//! ```sh
//! cargo test -p redlock-tokio --lib wrong_refusals -- --nocapture   # prints the table
//! ```

use std::collections::{BTreeSet, VecDeque};

use fastrand::Rng;

use super::*;

const SEED: u64 = 7;

/// A lease that asks for the lock.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    at: Timestamp,
    hold: Duration,
}

fn arrival(seconds: f64, hold: f64) -> Arrival {
    Arrival {
        at: Timestamp::ZERO.saturating_add(Duration::from_secs_f64(seconds)),
        hold: Duration::from_secs_f64(hold),
    }
}

/// The control: a mean that starts with the first hold.
#[derive(Debug, Default)]
struct MeanFromFirst(Option<Duration>);

impl MeanFromFirst {
    fn note(&mut self, hold: Duration) {
        let mean = self.0.map(|mean| (mean * 7).saturating_add(hold) / 8);
        self.0 = Some(mean.unwrap_or(hold));
    }

    fn refuses(&self, waiting: usize) -> bool {
        let ahead = 1 + waiting as u32;
        self.0.is_some_and(|mean| mean * ahead > WAIT)
    }
}

const WAIT: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Control,
    Queue,
}

#[derive(Clone, Copy, Debug, Default)]
struct Outcome {
    refused: usize,
    /// The refused leases that would have had their turn within their wait.
    wrongly: usize,
    /// The leases that waited and were not served.
    timed_out: usize,
}

struct Simulation {
    by: By,
    queue: Queue<usize>,
    control: MeanFromFirst,
    policy: QueuePolicy,
    arrivals: Vec<Arrival>,
    /// The lease that holds the lock, and since when.
    holder: Option<(usize, Timestamp)>,
    /// The leases that wait or hold.
    inside: BTreeSet<usize>,
    deadlines: VecDeque<usize>,
    refused: VecDeque<usize>,
    outcome: Outcome,
}

impl Simulation {
    fn run(by: By, mut arrivals: Vec<Arrival>) -> Outcome {
        arrivals.sort_by_key(|it| it.at);
        let mut simulation = Self {
            by,
            queue: queue(),
            control: MeanFromFirst::default(),
            policy: QueuePolicy {
                wait: WAIT,
                max_waiters_per_key: usize::MAX,
                refuses_long_waits: by == By::Queue,
                ..POLICY
            },
            arrivals,
            holder: None,
            inside: BTreeSet::new(),
            deadlines: VecDeque::new(),
            refused: VecDeque::new(),
            outcome: Outcome::default(),
        };
        for index in 0..simulation.arrivals.len() {
            simulation.pass_time_until(simulation.arrivals[index].at);
            simulation.arrive(index);
        }
        simulation.pass_time_until(Timestamp::ZERO.saturating_add(Duration::from_secs(1_000_000)));
        assert!(simulation.inside.is_empty() && simulation.refused.is_empty());
        simulation.outcome
    }

    /// Lets time pass until `limit`: holds end, and waiters give up.
    fn pass_time_until(&mut self, limit: Timestamp) {
        loop {
            let end = self.holder.map(|(index, since)| {
                let hold = self.arrivals[index].hold;
                (since.saturating_add(hold), index)
            });
            let gives_up = self
                .deadlines
                .front()
                .map(|index| (self.deadline(*index), *index));
            let is_end = end.is_some_and(|end| gives_up.is_none_or(|it| end.0 < it.0));
            let Some((now, index)) = (if is_end { end } else { gives_up }) else {
                return;
            };
            if now > limit {
                return;
            }
            if is_end {
                self.end_hold(index, now);
            } else {
                self.deadlines.pop_front();
                let waits = self.holder.is_none_or(|(holder, _)| holder != index);
                if waits && self.inside.contains(&index) {
                    self.outcome.timed_out += 1;
                    self.leave(index, now, None);
                }
            }
            self.count_refused(now);
        }
    }

    fn arrive(&mut self, index: usize) {
        let now = self.arrivals[index].at;
        let control_refuses =
            self.holder.is_some() && self.control.refuses(self.queue.size().waiting);
        if self.by == By::Control && control_refuses {
            return self.refuse(index);
        }
        match join_at(&self.queue, &key(), index, now, &self.policy) {
            Ok(JoinOutcome::Turn { .. }) => self.holder = Some((index, now)),
            Ok(JoinOutcome::Waiting { .. }) => self.deadlines.push_back(index),
            Err(_) => return self.refuse(index),
        }
        self.inside.insert(index);
    }

    fn refuse(&mut self, index: usize) {
        self.outcome.refused += 1;
        self.refused.push_back(index);
    }

    fn end_hold(&mut self, index: usize, now: Timestamp) {
        let since = self.holder.take().map(|(_, since)| since);
        self.control.note(self.arrivals[index].hold);
        self.leave(index, now, since);
        if self.inside.is_empty() {
            self.control = MeanFromFirst::default();
        }
    }

    fn leave(&mut self, index: usize, now: Timestamp, held: Option<Timestamp>) {
        self.inside.remove(&index);
        let next = leave_at(&self.queue, &key(), index, now, held, &self.policy);
        if let Some(FollowUp::StartTurn { waiter, .. }) = next {
            self.holder = Some((waiter, now));
        }
    }

    /// Counts the refused leases that would have their turn now, because all leases before them are gone.
    fn count_refused(&mut self, now: Timestamp) {
        while let Some(first) = self.refused.front().copied() {
            if self.inside.first().is_some_and(|inside| *inside < first) {
                return;
            }
            self.refused.pop_front();
            self.outcome.wrongly += usize::from(now <= self.deadline(first));
        }
    }

    fn deadline(&self, index: usize) -> Timestamp {
        self.arrivals[index].at.saturating_add(WAIT)
    }
}

/// Returns arrivals at random, at a rate per second.
fn at_random(rate: f64, mut hold: impl FnMut(&mut Rng) -> f64) -> Vec<Arrival> {
    let mut rng = Rng::with_seed(SEED);
    let mut seconds = 0.0;
    let next = |_| {
        seconds -= (1.0 - rng.f64()).ln() / rate;
        arrival(seconds, hold(&mut rng))
    };
    (0..4000).map(next).collect()
}

/// Returns twenty bursts of arrivals, each long after the one before.
fn bursts(arrivals: impl Fn(f64, &mut Rng) -> Vec<Arrival>) -> Vec<Arrival> {
    let mut rng = Rng::with_seed(SEED);
    let starts = (0..20).map(|burst| f64::from(burst) * 40.0);
    starts.flat_map(|start| arrivals(start, &mut rng)).collect()
}

/// Returns `count` arrivals from `start` on.
fn many(count: u32, start: f64, every: f64, hold: f64) -> impl Iterator<Item = Arrival> {
    (0..count).map(move |index| arrival(start + f64::from(index) * every, hold))
}

fn shapes() -> Vec<(&'static str, Vec<Arrival>)> {
    let exponential = |rng: &mut Rng| -0.02 * (1.0 - rng.f64()).ln();
    let heavy = |rng: &mut Rng| 0.008 * (1.0 - rng.f64()).powf(-1.0 / 1.5);
    let either = |share: f64, one: f64, other: f64| {
        move |rng: &mut Rng| if rng.f64() < share { one } else { other }
    };
    let long_first = bursts(|start, _| {
        let first = [arrival(start, 2.0)].into_iter();
        let all = first.chain(many(25, start + 0.01, 0.001, 0.02));
        all.chain(many(10, start + 2.05, 0.01, 0.02)).collect()
    });
    let slow_first = bursts(|start, _| {
        let first = [arrival(start, 0.035)].into_iter();
        first
            .chain(many(1000, start + 0.001, 0.0003, 0.001))
            .collect()
    });
    let uneven = bursts(|start, rng| {
        let hold = |index: u32| arrival(start + f64::from(index) * 0.0002, 0.04 * rng.f64());
        (0..600).map(hold).collect()
    });
    let long_job = bursts(|start, _| {
        let job = many(10, start, 2.1, 2.0);
        job.chain(many(200, start + 30.0, 0.001, 0.005)).collect()
    });
    let phases = (0..100_u32).flat_map(|phase| {
        let hold = if phase % 2 == 0 { 0.005 } else { 0.2 };
        many(40, f64::from(phase) * 0.8, 0.02, hold)
    });
    vec![
        ("constant 20 ms, load 0.9", at_random(45.0, |_| 0.02)),
        ("constant 20 ms, load 1.5", at_random(75.0, |_| 0.02)),
        ("exponential 20 ms, load 1.2", at_random(60.0, exponential)),
        ("heavy tail, mean 24 ms, load 1.2", at_random(50.0, heavy)),
        (
            "500 ms each tenth, else 10 ms",
            at_random(18.0, either(0.1, 0.5, 0.01)),
        ),
        (
            "100 ms three of five, else 1 ms",
            at_random(25.0, either(0.6, 0.1, 0.001)),
        ),
        (
            "100 ms four of five, else 1 ms",
            at_random(20.0, either(0.8, 0.1, 0.001)),
        ),
        ("2 s, then short ones", long_first),
        ("burst of 1000 of 1 ms, the first slow", slow_first),
        ("burst of 600 of 0 to 40 ms", uneven),
        ("ten of 2 s, then a burst of 5 ms", long_job),
        ("40 of 5 ms, 40 of 200 ms, in turns", phases.collect()),
    ]
}

#[test]
fn wrong_refusals_are_fewer_than_by_a_mean() {
    println!(
        "| shape of holds | asked | by a mean: refused, wrongly | by the queue: refused, wrongly, timed out |"
    );
    println!("|---|---|---|---|");
    let (mut all_by_mean, mut all_by_queue) = (0, 0);
    for (shape, arrivals) in shapes() {
        let [control, queue] =
            [By::Control, By::Queue].map(|by| Simulation::run(by, arrivals.clone()));
        println!(
            "| {shape} | {} | {}, {} | {}, {}, {} |",
            arrivals.len(),
            control.refused,
            control.wrongly,
            queue.refused,
            queue.wrongly,
            queue.timed_out
        );
        assert!(queue.wrongly <= control.wrongly, "{shape}, seed {SEED}");
        all_by_mean += control.wrongly;
        all_by_queue += queue.wrongly;
        let is_even = shape.starts_with("constant") || shape.contains("short ones");
        if is_even || shape.contains("1 ms, the first slow") {
            assert_eq!(queue.wrongly, 0, "{shape}, seed {SEED}");
        }
    }
    println!("In all: {all_by_mean} by a mean, {all_by_queue} by the queue.");
    assert!(all_by_mean > 0, "the control is seen to refuse wrongly");
}

#[test]
fn a_wait_that_is_as_long_as_the_shortest_possible_one_is_admitted() {
    let queue = queue();
    let join = |who, millis, policy: &QueuePolicy| join_at(&queue, &key(), who, at(millis), policy);
    assert_eq!(join(0, 0, &ROOMY), TURN);
    for who in 0..8 {
        let start = 100 * who as u64;
        // A queue that is never empty, so that the holds are of one kind.
        assert_eq!(join(who + 1, start, &ROOMY), WAITING);
        leave_at(
            &queue,
            &key(),
            who,
            at(start + 100),
            Some(at(start)),
            &ROOMY,
        );
    }
    assert_eq!(join(9, 800, &ROOMY), WAITING);
    let of = |millis| QueuePolicy {
        wait: Duration::from_millis(millis),
        refuses_long_waits: true,
        ..ROOMY
    };
    assert_eq!(join(10, 800, &of(100)), WAITING);
    let refusal = Refusal::TooLong {
        waiting: 2,
        expected: Duration::from_millis(200),
        limit: Duration::from_millis(199),
    };
    assert_eq!(join(11, 800, &of(199)), refused(refusal));
}

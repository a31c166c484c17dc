//! What the algorithm itself costs: whole lives of a lease on five nodes, in time and
//! allocations. Everything the network does comes on top.

use std::{hint::black_box, time::Duration};

use divan::{AllocProfiler, Bencher};
use redlock_core::{
    Drift, Eligibility, Event, KeepAlive, Lease, LeaseConfig, NodeId, Nonce, Quorum, Reply,
    RetrySchedule, RoundId, Timestamp, Ttl, Validity,
};

#[global_allocator]
static ALLOC: AllocProfiler = AllocProfiler::system();

const NODES: usize = 5;
const NONCE: Nonce = Nonce::new(0x0123_4567_89ab_cdef);
const START: Timestamp = Timestamp::from_nanos(1_000_000_000);
const DEADLINE: Timestamp = Timestamp::from_nanos(6_000_000_000);
const LATER: Timestamp = Timestamp::from_nanos(1_000_300_000);

fn main() {
    divan::main();
}

fn config() -> LeaseConfig {
    let ttl = Ttl::new(Duration::from_secs(10)).expect("ten seconds are a ttl");
    let validity = Validity::new(ttl, Drift::default()).expect("longer than its drift");
    let delay = Duration::from_millis(20)..=Duration::from_millis(200);
    let interval = KeepAlive::default_interval(validity);
    LeaseConfig::new(
        Quorum::majority(NODES).expect("five nodes have a majority"),
        validity,
        RetrySchedule::new(delay).expect("not empty"),
        KeepAlive::every(interval, Duration::from_secs(60), validity)
            .expect("shorter than the validity"),
    )
}

/// Polls what a driver polls after a command, and returns the round to reply to.
fn drain(lease: &mut Lease) -> Option<RoundId> {
    let mut round = None;
    while let Some(transmit) = lease.poll_transmit() {
        round = Some(black_box(transmit).round);
    }
    black_box(lease.poll_timeout());
    round
}

/// Lets the first `count` nodes grant the round, polling for events after each as a driver does.
fn grant(lease: &mut Lease, round: RoundId, count: usize) -> Option<Event> {
    let mut event = None;
    for index in 0..count {
        let node = NodeId::new(index).expect("below 64");
        lease.handle_reply(
            black_box(LATER),
            round,
            node,
            black_box(Reply::Granted),
            black_box(Eligibility::ALWAYS),
        );
        event = lease.poll_event().or(event);
    }
    event
}

fn acquired(config: LeaseConfig) -> Lease {
    let mut lease = Lease::new(config, black_box(NONCE));
    lease.acquire(black_box(START), black_box(DEADLINE));
    let round = drain(&mut lease).expect("it asks the nodes");
    let event = grant(&mut lease, round, 3);
    assert!(matches!(event, Some(Event::Acquired { .. })));
    lease
}

/// From the command to the event: a new lease, the requests, three grants.
#[divan::bench]
fn lease_acquire(bencher: Bencher<'_, '_>) {
    let config = config();
    bencher.bench(|| acquired(config.clone()));
}

/// What each lock costs that is not extended: acquire, five replies, release, five replies, drop.
#[divan::bench]
fn lease_cycle(bencher: Bencher<'_, '_>) {
    let config = config();
    bencher.bench(|| {
        let mut lease = Lease::new(config.clone(), black_box(NONCE));
        lease.acquire(black_box(START), black_box(DEADLINE));
        let round = drain(&mut lease).expect("it asks the nodes");
        grant(&mut lease, round, NODES);
        lease.release(black_box(LATER));
        let round = drain(&mut lease).expect("it tells the nodes");
        let event = grant(&mut lease, round, NODES);
        assert!(matches!(event, Some(Event::Released(_))));
    });
}

/// What keeping a lock costs: one extension of a held lease, three grants.
#[divan::bench]
fn lease_extend(bencher: Bencher<'_, '_>) {
    bencher
        .with_inputs(|| acquired(config()))
        .bench_local_refs(|lease| {
            assert!(lease.extend(black_box(LATER)));
            let round = drain(lease).expect("it asks the nodes");
            let event = grant(lease, round, 3);
            assert!(matches!(event, Some(Event::Extended { .. })));
        });
}

/// One attempt that fails for a foreign key: three denials, the release, the wait.
#[divan::bench]
fn lease_contended(bencher: Bencher<'_, '_>) {
    let config = config();
    bencher.bench(|| {
        let mut lease = Lease::new(config.clone(), black_box(NONCE));
        lease.acquire(black_box(START), black_box(DEADLINE));
        let round = drain(&mut lease).expect("it asks the nodes");
        for index in 0..3 {
            let node = NodeId::new(index).expect("below 64");
            lease.handle_reply(
                black_box(LATER),
                round,
                node,
                black_box(Reply::Denied),
                black_box(Eligibility::ALWAYS),
            );
        }
        drain(&mut lease).expect("it releases what it may have set");
        lease
    });
}

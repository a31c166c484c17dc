//! Jobs that one host of the fleet runs, over nodes in memory, by tokio's clock. The hosts' wall clocks differ.

use std::{
    future::pending,
    panic::AssertUnwindSafe,
    time::{Duration, UNIX_EPOCH},
};

use futures::{FutureExt, future::join_all};
use redlock_tokio::{MemoryNode, Once, OnceOutcome, Redlock};
use tokio::time::{Instant, sleep, sleep_until};

use crate::support::{
    MS,
    in_memory::{over, three_nodes},
};

/// The default ttl less its drift allowance.
const SPAN: Duration = Duration::from_millis(9898);

/// When all wall clocks are about to show the fire time.
const BEFORE: Duration = Duration::from_secs(1_700_000_000);

/// The time of the first run, some time after `BEFORE`.
const FIRE_TIME: Duration = Duration::from_secs(1_700_000_060);

/// A host whose wall clock is late by this time. A host that is early has a smaller one.
async fn host(nodes: &[MemoryNode], late: Duration) -> Redlock {
    let zero = Instant::now();
    let wall_clock = move || BEFORE + zero.elapsed() - late;
    over(nodes).wall_clock(wall_clock).build().await.unwrap()
}

/// Two hosts with exact clocks.
async fn hosts() -> [Redlock; 2] {
    let nodes = three_nodes();
    [host(&nodes, MS(0)).await, host(&nodes, MS(0)).await]
}

fn job(host: &Redlock) -> Once {
    host.once("report", UNIX_EPOCH + FIRE_TIME)
}

/// Lets a host for each of these delays come to run the job. Its clock is late by the first one, and by its own clock it comes
/// too late by the second one. Returns how many hosts have run the job.
async fn runs(delays: &[(Duration, Duration)]) -> usize {
    let nodes = three_nodes();
    let hosts = join_all(delays.iter().map(|(late, _)| host(&nodes, *late))).await;
    let zero = Instant::now();
    let comes = hosts.iter().zip(delays).map(async |(host, (late, delay))| {
        sleep_until(zero + (FIRE_TIME - BEFORE) + *late + *delay).await;
        let outcome = job(host).run(async |_| ()).await.unwrap();
        outcome == OnceOutcome::Ran(())
    });
    let have_run = join_all(comes).await;
    have_run.into_iter().filter(|has_run| *has_run).count()
}

#[tokio::test(start_paused = true)]
async fn a_short_job_runs_once_while_clocks_and_delays_differ_by_half_of_the_span_each() {
    let (zero, half) = (Duration::ZERO, SPAN / 2);
    let late = half - MS(1);
    for (delays, expected) in [
        (vec![(zero, zero), (half, late)], 1),
        (
            vec![
                (zero, late),
                (half, zero),
                (half / 2, half / 3),
                (half, late),
            ],
            1,
        ),
        // The control: a clock beyond the tolerance.
        (vec![(zero, zero), (half + MS(20), late)], 2),
    ] {
        assert_eq!(runs(&delays).await, expected, "{delays:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_waits_for_the_fire_time_and_leaves_the_job_if_it_comes_too_late() {
    let [on_time, late] = hosts().await;
    let begun = Instant::now();
    let ran = job(&on_time).run(async |_| begun.elapsed()).await.unwrap();
    let OnceOutcome::Ran(after) = ran else {
        panic!("{ran:?}");
    };
    let wait = FIRE_TIME - BEFORE;
    assert!((wait..wait + MS(50)).contains(&after), "{after:?}");
    sleep(SPAN).await;
    let missed = job(&late).run(async |_| ()).await.unwrap();
    assert!(matches!(missed, OnceOutcome::Missed { late } if late >= SPAN));
    // The next fire time is a run of its own.
    let next = late.once("report", UNIX_EPOCH + FIRE_TIME + SPAN);
    assert_eq!(next.run(async |_| ()).await.unwrap(), OnceOutcome::Ran(()));
}

#[tokio::test(start_paused = true)]
async fn nobody_takes_over_from_a_host_that_stops_half_way() {
    for panics in [false, true] {
        let [first, second] = hosts().await;
        sleep(FIRE_TIME - BEFORE).await;
        let stops = job(&first).run(async |_| {
            sleep(MS(100)).await;
            assert!(!panics, "this job panics on purpose");
            pending::<()>().await;
        });
        let stops = AssertUnwindSafe(tokio::time::timeout(MS(200), stops)).catch_unwind();
        let waits = job(&second).run(async |_| ());
        let (stopped, outcome) = tokio::join!(stops, waits);
        assert_eq!(stopped.is_err(), panics);
        let elsewhere = |it: &OnceOutcome<()>| matches!(it, OnceOutcome::RunElsewhere(_));
        assert!(elsewhere(&outcome.unwrap()));
        sleep(MS(3500)).await;
        assert!(elsewhere(&job(&second).run(async |_| ()).await.unwrap()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_takes_long_is_not_run_again() {
    let [first, second] = hosts().await;
    sleep(FIRE_TIME - BEFORE).await;
    // Longer than the default of `max_hold`.
    let long = job(&first).run(async |_| sleep(MS(300_000)).await);
    let others = async {
        let mut runs = 0;
        for _ in 0..400 {
            let outcome = job(&second).run(async |_| ()).await.unwrap();
            runs += usize::from(outcome == OnceOutcome::Ran(()));
            sleep(MS(1000)).await;
        }
        runs
    };
    let (long, others) = tokio::join!(long, others);
    assert_eq!((long.unwrap(), others), (OnceOutcome::Ran(()), 0));
}

//! Nodes whose masters an authority names, by a council in memory, in paused time.

use std::time::Duration;

use redlock_tokio::{
    BuildError, Durability, LockError, LockOptions, NodeError, NodeState, Redlock, RedlockBuilder,
    Ttl,
    errors::{NotReady, OptionsError},
};
use tokio::time::{Instant, sleep, timeout};

use crate::support::{
    MS, assert_says, built, council::Council, scripted::over_custom, states::state,
};

const TTL: Duration = Duration::from_secs(10);
const WINDOW: Duration = Duration::from_secs(3);

/// The ttl, the window, and a hundredth and two milliseconds of both.
const SETTLING: Duration = Duration::from_millis(13_132);

/// Three members, which name `a` as the master of one node.
fn council() -> Council {
    let council = Council::new(3);
    council.name(0..3, 0, "a", 1);
    council
}

fn builder(council: &Council) -> RedlockBuilder {
    let builder = over_custom(council.seats(1));
    builder.ttl(TTL).wait(Duration::ZERO)
}

/// Returns a client whose node votes.
async fn settled(council: &Council) -> Redlock {
    let redlock = built(builder(council)).await;
    redlock.ready(Duration::from_secs(60)).await.unwrap();
    redlock
}

#[tokio::test(start_paused = true)]
async fn a_named_server_votes_when_it_has_settled() {
    let council = council();
    let start = Instant::now();
    let redlock = builder(&council).build().await.unwrap();
    let error = redlock.lock("k").await.unwrap_err();
    let LockError::Quarantined { remaining, .. } = &error else {
        panic!("{error}");
    };
    assert!(*remaining > SETTLING - MS(100), "{remaining:?}");
    assert_says(&error, "seat-0: not known to have been up");
    redlock.ready(Duration::from_secs(60)).await.unwrap();
    let settled = start.elapsed();
    let in_time = SETTLING..SETTLING + MS(100);
    assert!(in_time.contains(&settled), "{settled:?}");
    drop(redlock.lock("k").await.unwrap());
    assert_eq!(council.connections(), [("a".into(), 1)]);

    // A new owner waits as long, once a majority has named it.
    let failover = Instant::now();
    council.name(0..2, 0, "b", 2);
    sleep(WINDOW).await;
    redlock.ready(Duration::from_secs(60)).await.unwrap();
    let settled = failover.elapsed();
    let in_time = SETTLING..SETTLING + MS(1100);
    assert!(in_time.contains(&settled), "{settled:?}");
    drop(redlock.lock("k").await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_no_longer_confirmed_has_no_vote_until_it_is_confirmed_again() {
    let council = council();
    let redlock = settled(&council).await;
    let guard = redlock.lock("k").await.unwrap();
    council.silence(&[1]);
    sleep(2 * WINDOW).await;
    assert_eq!(state(&redlock, 0), NodeState::Voting, "two of three");
    council.silence(&[0, 1]);
    sleep(WINDOW + MS(1)).await;
    assert_eq!(state(&redlock, 0), NodeState::Unconfirmed);
    let error = assert_refused!(redlock.lock("other").await, LockError::NoQuorum(_));
    assert!(error.to_string().contains("not confirmed"), "{error}");
    let error = redlock.ready(MS(10)).await.unwrap_err();
    assert!(error.to_string().contains("not confirmed"), "{error}");
    let NotReady::NoQuorum { remaining, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(remaining, None);
    let lost = timeout(TTL, guard.lost()).await;
    lost.expect("without the vote it is not extended");

    council.silence(&[]);
    redlock.ready(WINDOW).await.expect("no second settling");
    drop(redlock.lock("k").await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn an_authority_is_watched_once_for_all_its_nodes_and_until_the_last_lane_ends() {
    let council = Council::of_three();
    let redlock = built(over_custom(council.seats(3))).await;
    redlock.ready(Duration::from_secs(60)).await.unwrap();
    assert_eq!((council.watches(), council.watching()), (1, 1));
    let guard = redlock.lock("k").await.unwrap();
    for owner in ["a", "b", "c"] {
        assert!(council.server(owner).contains("k"), "{owner}");
    }
    drop((guard, redlock));
    sleep(Duration::from_secs(60)).await;
    assert_eq!(council.watching(), 0);
}

#[tokio::test(start_paused = true)]
async fn without_a_named_master_a_client_starts_and_says_why_it_cannot_lock() {
    let council = Council::new(3);
    let start = Instant::now();
    let build = || builder(&council).connect_timeout(MS(700)).build();
    let redlock = build().await.unwrap();
    assert!(start.elapsed() < MS(750), "{:?}", start.elapsed());
    let error = redlock.lock("k").await.unwrap_err();
    assert_says(&error, "no majority of its cluster nodes names a master");

    let refusal = NodeError::Misconfigured("the sentinel s1 knows no group".into());
    council.object(refusal.clone());
    let error = assert_refused!(build().await, BuildError::Refused { .. });
    assert!(error.to_string().contains("knows no group"), "{error}");
    sleep(Duration::from_secs(3)).await;
    assert_eq!(state(&redlock, 0), NodeState::Refused(refusal));

    council.name([0, 2], 0, "a", 1);
    let start = Instant::now();
    redlock.ready(Duration::from_secs(60)).await.unwrap();
    assert!(start.elapsed() < SETTLING + MS(1200), "no pause of its own");
}

#[tokio::test(start_paused = true)]
async fn a_master_that_cannot_be_connected_to_is_named() {
    let council = council();
    council.server("a").set_down(true);
    let redlock = builder(&council).build().await.unwrap();
    let NodeState::Reconnecting(error) = state(&redlock, 0) else {
        panic!("{:?}", redlock.nodes());
    };
    assert!(error.to_string().contains("the node is down"), "{error}");
    sleep(Duration::from_secs(100)).await;
    // The pauses between attempts are long by now, and another master ends them.
    council.name(0..3, 0, "b", 2);
    sleep(MS(1010)).await;
    let last = council.connections().pop();
    assert_eq!(last, Some(("b".into(), 2)));
}

#[tokio::test(start_paused = true)]
async fn a_ttl_shorter_than_three_windows_is_refused_where_an_authority_names_a_master() {
    let council = council();
    let short = LockOptions::new().ttl(MS(8999));
    let error = builder(&council).options(short).build().await.unwrap_err();
    let expected = OptionsError::ShorterThanThreeWindows {
        ttl: MS(8999),
        window: WINDOW,
    };
    assert_eq!(error, BuildError::Options(expected));
    assert!(error.to_string().contains("confirmation_window"), "{error}");
    let redlock = built(builder(&council)).await;
    let error = redlock.lock("k").options(short).await.unwrap_err();
    assert!(matches!(error, LockError::InvalidOptions(it) if it == expected));
    let fits = builder(&council).confirmation_window(MS(2999));
    assert!(fits.options(short).build().await.is_ok());
    for window in [Duration::ZERO, Duration::MAX] {
        let error = builder(&council).confirmation_window(window).build();
        let error = error.await.unwrap_err();
        assert_says(&error, "confirmation_window");
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_hears_of_a_free_key_from_the_master_that_took_over() {
    let council = council();
    let ttl = Ttl::new(Duration::from_secs(60)).unwrap();
    for owner in ["a", "b"] {
        council.server(owner).insert("k", "of another client", ttl);
    }
    // So long that only a notification is in time.
    let retry = LockOptions::new().retry_delay(MS(5000), MS(9000));
    let builder = builder(&council)
        .durability(Durability::LosslessFailovers)
        .options(retry);
    let redlock = builder.build().await.unwrap();
    redlock.ready(Duration::from_secs(60)).await.unwrap();
    let waiter = async { redlock.lock("k").wait(Duration::from_secs(40)).await };
    let failover = async {
        sleep(MS(1000)).await;
        council.name(0..3, 0, "b", 2);
        sleep(MS(2000)).await;
        assert_eq!(council.connections().pop(), Some(("b".into(), 2)));
        assert!(council.server("b").remove("k"));
        Instant::now()
    };
    let (guard, freed_at) = tokio::join!(waiter, failover);
    drop(guard.unwrap());
    let waited = freed_at.elapsed();
    assert!(waited < MS(100), "{waited:?}");
}

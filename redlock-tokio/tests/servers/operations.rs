//! The view of people on call: who has a lock, and how to free it, over real servers.

use std::{
    cell::Cell,
    collections::BTreeMap,
    time::{Duration, Instant},
};

use futures::future::join_all;
use redlock_kit::RedisServers;
use redlock_tokio::{Hold, Holder, LockOptions, Redlock, RedlockBuilder, Verdict};

use crate::{
    fleet::{clis, each, fleet},
    support::{Cli, MS, acquired, assert_says, built, eventually, trusting},
};

/// Shows a verdict without its times, which differ.
fn said(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Held { by, remaining } => {
            assert!(*remaining <= Duration::from_secs(10), "{remaining:?}");
            format!("held by {by}")
        }
        Verdict::Shared { readers } => {
            let mut names: Vec<_> = readers.iter().map(|(it, _)| it.to_string()).collect();
            // The set of readers is in the order of their random tokens.
            names.sort();
            format!("shared by {}", names.join(", "))
        }
        other => other.to_string(),
    }
}

async fn verdict(redlock: &Redlock, key: &str) -> String {
    said(&redlock.inspect(key).await.unwrap().verdict())
}

async fn waits_for_readers(redlock: &Redlock) -> bool {
    let catalogue = redlock.inspect("catalogue").await.unwrap();
    catalogue.has_waiting_writer()
}

/// Three clients of the same nodes, each with a label.
async fn three(nodes: impl Fn() -> RedlockBuilder) -> [Redlock; 3] {
    let client = |label| built(nodes().client_name(label).wait(Duration::from_secs(20)));
    let clients = join_all(["web-1", "web-2", "web-3"].map(client)).await;
    clients.try_into().expect("three")
}

#[tokio::test]
async fn inspections_show_who_holds_what() {
    let servers = RedisServers::spawn(3).unwrap();
    let [one, two, three] = three(|| servers.builder()).await;
    assert_eq!(verdict(&two, "order:42").await, "free");
    let _order = one.lock("order:42").await.unwrap();
    assert_eq!(verdict(&two, "order:42").await, "held by web-1");

    let catalogues = [&one, &two, &three].map(|it| it.rw_lock("catalogue"));
    let [first, second, third] = &catalogues;
    let reading = acquired([first.read(), second.read()]).await;
    assert_eq!(verdict(&one, "catalogue").await, "shared by web-1, web-2");
    assert!(!waits_for_readers(&one).await);
    let writing = tokio::spawn(third.write().into_future());
    let started = Instant::now();
    while !waits_for_readers(&one).await {
        assert!(started.elapsed() < Duration::from_secs(10), "no mark");
        tokio::time::sleep(MS(20)).await;
    }
    drop(reading);
    let _writer = writing.await.unwrap().unwrap();
    assert_eq!(verdict(&two, "catalogue").await, "held by web-3");

    let exports = two.semaphore("exports", 3);
    let permits = acquired([exports.acquire(), exports.acquire()]).await;
    let inspection = one.inspect("exports").await.unwrap();
    assert_eq!(said(&inspection.verdict()), "2 permits are taken");
    let slots = inspection.permits();
    assert_eq!(slots.len(), 2);
    for permit in &permits {
        let verdict = &slots[&permit.slot().unwrap()];
        assert_eq!(said(verdict), "held by web-2");
    }
}

#[tokio::test]
async fn an_inspection_tells_what_is_no_lock_and_what_it_cannot_tell() {
    let servers = RedisServers::spawn(5).unwrap();
    let redlock = built(servers.builder().node_timeout(MS(200))).await;
    let clis = clis(&servers);
    each(&clis, &["SET", "endless", "another library"]);
    each(&clis, &["LPUSH", "list", "one"]);
    each(&clis, &["SET", "foreign", "another library", "PX", "60000"]);
    for (number, cli) in clis.iter().enumerate() {
        let client = format!("client {}", number % 3);
        cli.run(&["SET", "split", &client, "PX", "60000"]);
    }
    each(&clis[..2], &["SET", "rest", "late", "PX", "60000"]);
    let not_a_lock = Verdict::NotALock.to_string();
    assert_eq!(verdict(&redlock, "endless").await, not_a_lock);
    assert_eq!(verdict(&redlock, "list").await, not_a_lock);
    let by = Holder::new(*b"another library");
    let foreign = redlock.inspect("foreign").await.unwrap();
    assert!(matches!(foreign.verdict(), Verdict::Held { by: it, .. } if it == by));
    assert_eq!(verdict(&redlock, "split").await, Verdict::Split.to_string());
    assert_eq!(verdict(&redlock, "rest").await, Verdict::Free.to_string());
    for down in 0..3 {
        servers.get(down).freeze();
    }
    let inspection = redlock.inspect("nothing").await.unwrap();
    for down in 0..3 {
        servers.get(down).thaw();
    }
    assert_eq!(inspection.verdict(), Verdict::Unknown, "{inspection}");
    let answered = inspection.nodes().iter().filter(|it| it.state.is_ok());
    assert_eq!(answered.count(), 2, "{inspection}");
    assert!(redlock.inspect("").await.is_err());
}

#[tokio::test]
async fn force_unlock_frees_single_readers_and_permits() {
    let servers = RedisServers::spawn(3).unwrap();
    let [one, two, _] = three(|| servers.builder()).await;
    let hung = one.rw_lock("catalogue").read().await.unwrap();
    let works = two.rw_lock("catalogue").read().await.unwrap();
    let mut inspection = two.inspect("catalogue").await.unwrap();
    assert_eq!(inspection.holders().len(), 2, "{inspection}");
    inspection.retain(|holder| holder.client_name() == Some("web-1"));
    two.force_unlock(&inspection).await;
    assert!(hung.extend().await.is_err());
    assert!(works.extend().await.is_ok());

    let exports = one.semaphore("exports", 2);
    let permits = acquired([exports.acquire(), exports.acquire()]).await;
    let mut inspection = two.inspect("exports").await.unwrap();
    let first = permits[0].value();
    inspection.retain(|holder| holder.value() == first.as_bytes());
    two.force_unlock(&inspection).await;
    let outcomes = [
        permits[0].extend().await.is_ok(),
        permits[1].extend().await.is_ok(),
    ];
    assert_eq!(outcomes, [false, true]);
}

/// As the release of a lock is.
#[tokio::test]
async fn a_node_that_hangs_is_owed_a_forced_release() {
    let servers = RedisServers::spawn(3).unwrap();
    let impatient = || servers.builder().node_timeout(MS(200));
    let unrenewed = LockOptions::new().no_renewal();
    let [one, two, _] = three(|| impatient().options(unrenewed)).await;
    let _hung = one.lock("order:42").await.unwrap();
    let cli = Cli::of(servers.get(0));
    eventually("it is on all nodes", || cli.get("order:42").is_some()).await;
    let inspection = two.inspect("order:42").await.unwrap();
    servers.get(0).freeze();
    let report = two.force_unlock(&inspection).await;
    let answered: Vec<_> = report.nodes.iter().map(|it| it.deleted.is_ok()).collect();
    servers.get(0).thaw();
    assert_eq!(answered, [false, true, true], "{report}");
    eventually("it is gone", || cli.get("order:42").is_none()).await;
}

#[tokio::test]
async fn an_error_names_the_client_that_has_the_lock() {
    let servers = RedisServers::spawn(3).unwrap();
    let [one, two, _] = three(|| servers.builder()).await;
    let _held = one.lock("order:42").await.unwrap();
    for request in [two.lock("order:42"), two.rw_lock("order:42").read()] {
        let error = request.wait(MS(300)).await.unwrap_err();
        assert_says(&error, "held by web-1 for another");
        let taken_by = error.attempts().and_then(|it| it.taken_by.as_ref());
        let remaining = taken_by.expect("it has looked").remaining;
        assert!(remaining > Some(Duration::from_secs(5)));
    }
    let error = two.lock("order:42").wait(Duration::ZERO).await.unwrap_err();
    let taken_by = &error.attempts().unwrap().taken_by;
    assert!(taken_by.is_none(), "it has not looked");
    each(&clis(&servers), &["SET", "job", "nightly"]);
    let error = two.lock("job").wait(MS(300)).await.unwrap_err();
    assert_says(&error, "held by nightly, without an end");
    let taken_by = error.attempts().and_then(|it| it.taken_by.as_ref());
    assert_eq!(taken_by.expect("it has looked").remaining, None);
}

#[tokio::test]
async fn what_this_process_holds_is_listed() {
    let (_servers, [redlock]) = fleet(3).await;
    assert!(redlock.held().is_empty());
    let order = redlock.lock("order:42").label("payment").await.unwrap();
    let permit = redlock.semaphore("exports", 2).acquire().await.unwrap();
    let reader = redlock.rw_lock("catalogue").read().await.unwrap();
    let waiting = [(); 2].map(|()| tokio::spawn(redlock.lock("order:42").into_future()));
    eventually("two wait", || redlock.held()[0].waiting == 2).await;
    let held = redlock.held();
    let holds: BTreeMap<_, _> = held
        .iter()
        .map(|it| (it.keys[0].as_bytes(), (it.hold.as_ref().unwrap(), it.label)))
        .collect();
    let seen = |key: &str, guard: &Hold| {
        let (hold, label) = holds[key.as_bytes()];
        assert_eq!(hold.token, guard.token());
        assert!(hold.remaining > Duration::from_secs(5) && hold.age < Duration::from_secs(5));
        (hold.slot, hold.is_reader, label)
    };
    assert_eq!(seen("order:42", &order), (None, false, Some("payment")));
    assert_eq!(seen("exports", &permit), (permit.slot(), false, None));
    assert_eq!(seen("catalogue", &reader), (None, true, None));
    drop(order);
    for waiter in waiting {
        drop(waiter.await.unwrap().unwrap());
    }
    drop((permit, reader));
    redlock.shutdown(None).await;
    assert!(redlock.held().is_empty());
}

/// The procedure for a different list of nodes, while all processes work: from three nodes to four, and to three others.
#[tokio::test]
async fn the_list_of_nodes_changes_by_one_node_at_a_time_under_load() {
    const STEP: Duration = Duration::from_millis(2100);
    let servers = RedisServers::spawn(4).unwrap();
    let over = |list: &[usize]| {
        let urls = list.iter().map(|it| servers.get(*it).url());
        built(trusting(urls).ttl(MS(500)))
    };
    let [first, between, last] = [&[0, 1, 2][..], &[0, 1, 2, 3], &[1, 2, 3]];
    let start = Instant::now();
    let (is_held, entries) = (Cell::new(false), Cell::new(0));
    let process = async |number: u32| {
        for (list, step) in [first, between, last].into_iter().zip(1..) {
            let redlock = over(list).await;
            // One process after the other.
            let end = start + STEP * step + MS(200) * number;
            while Instant::now() < end {
                let guard = redlock.lock("k").await.unwrap();
                assert!(!is_held.replace(true), "two holders");
                tokio::time::sleep(MS(1)).await;
                is_held.set(false);
                entries.set(entries.get() + 1);
                guard.release().await;
            }
            redlock.shutdown(None).await;
        }
    };
    join_all((0..3).map(process)).await;
    assert!(entries.get() > 100, "{} entries", entries.get());

    // The rule taken out: one node is replaced at once.
    let lock_without = async |list, away: usize| {
        servers.get(away).freeze();
        let guard = over(list).await.try_lock("k").await;
        servers.get(away).thaw();
        guard
    };
    let _first = lock_without(first, 2).await.unwrap();
    drop(lock_without(last, 1).await.expect("two holders"));
}

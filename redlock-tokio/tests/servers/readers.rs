//! Readers and writers over real servers.

use std::time::Instant;

use redlock_kit::RedisServers;
use redlock_tokio::LockOptions;

use crate::{
    fleet::{clients, fleet, work_while_servers_restart},
    support::{Cli, MS, eventually},
};

#[tokio::test]
async fn a_server_shows_the_readers_of_a_key() {
    let (servers, [one, other]) = fleet(3).await;
    let readers = [
        one.rw_lock("catalogue").read().await.unwrap(),
        other.rw_lock("catalogue").read().await.unwrap(),
    ];
    let cli = Cli::of(servers.get(0));
    let members = || cli.run(&["ZCARD", "redlock:readers:{catalogue}"]) == "2";
    eventually("both are there", members).await;
    assert_eq!(cli.get("catalogue").as_deref(), Some("redlock:shared"));
    drop(readers);
    eventually("nothing is left", || cli.run(&["DBSIZE"]) == "0").await;
}

/// A reader costs a script, one that joins it nothing, and a writer as much as a lock.
#[tokio::test]
async fn the_commands_of_readers_and_writers() {
    let servers = RedisServers::spawn(1).unwrap();
    let redlock = servers.builder().handover_for(MS(60_000)).build().await;
    let catalogue = redlock.unwrap().rw_lock("catalogue");
    let cli = Cli::of(servers.get(0));
    let calls = || [cli.calls("evalsha"), cli.calls("set"), cli.calls("pttl")];
    // The first connection has asked about its rights.
    let [_, _, before] = calls();
    let first = catalogue.read().await.unwrap();
    assert_eq!(cli.calls("evalsha"), 1);
    for _ in 0..100 {
        drop(catalogue.read().await.unwrap());
    }
    assert_eq!(cli.calls("evalsha"), 1, "they join");
    first.extend().await.unwrap();
    first.release().await;
    assert_eq!(cli.calls("evalsha"), 3);
    let [_, sets, _] = calls();
    let writer = catalogue.write().await.unwrap();
    assert_eq!(cli.calls("set"), sets + 1);
    writer.downgrade().await.unwrap();
    writer.release().await;
    assert_eq!(cli.calls("evalsha"), 5);
    let [_, _, after] = calls();
    println!("{} PTTL, of the scripts", after - before);
}

/// Servers notify a writer of the last reader that leaves, and a reader of the writer.
#[tokio::test]
async fn those_that_wait_are_notified() {
    let (_servers, [one, other]) = fleet(5).await;
    let (ours, theirs) = (one.rw_lock("catalogue"), other.rw_lock("catalogue"));
    let mut waits = Vec::new();
    for _ in 0..5 {
        let reader = ours.read().await.unwrap();
        let waiting = tokio::spawn(theirs.write().wait(MS(20_000)).into_future());
        // Long enough that the next look without a notification is a second away.
        tokio::time::sleep(MS(1500)).await;
        let begin = Instant::now();
        reader.release().await;
        let writer = waiting.await.unwrap().expect("the reader is gone");
        waits.push(begin.elapsed());
        let waiting = tokio::spawn(ours.read().wait(MS(20_000)).into_future());
        tokio::time::sleep(MS(1500)).await;
        let begin = Instant::now();
        writer.release().await;
        drop(waiting.await.unwrap().expect("the writer is gone"));
        waits.push(begin.elapsed());
    }
    waits.sort_unstable();
    assert!(waits[5] < MS(100), "{waits:?}");
}

/// Without notifications, those that wait look from time to time.
#[tokio::test]
async fn readers_and_writers_over_resp2() {
    let servers = RedisServers::spawn(3).unwrap();
    let mut clients = Vec::new();
    for _ in 0..2 {
        let urls = servers.urls().into_iter();
        let urls = urls.map(|url| format!("{url}?protocol=resp2"));
        clients.push(crate::support::trusting(urls).build().await.unwrap());
    }
    let [one, other] = [0, 1].map(|it: usize| clients[it].rw_lock("catalogue"));
    for _ in 0..3 {
        let readers = [one.read().await.unwrap(), other.read().await.unwrap()];
        let waiting = tokio::spawn(other.write().into_future());
        tokio::time::sleep(MS(300)).await;
        assert!(
            one.try_read().await.is_err() && !waiting.is_finished(),
            "it has marked the key"
        );
        drop(readers);
        let writer = waiting.await.unwrap().expect("the readers are gone");
        let waiting = tokio::spawn(one.read().into_future());
        tokio::time::sleep(MS(300)).await;
        assert!(!waiting.is_finished());
        writer.downgrade().await.unwrap();
        drop(waiting.await.unwrap().expect("readers may come"));
        writer.release().await;
    }
}

/// A mark lives for up to two seconds. Readers do not wait for its end.
#[tokio::test]
async fn readers_are_notified_of_a_writer_that_gives_up() {
    let (servers, [one, other, third]) = fleet(5).await;
    let servers: Vec<_> = servers.iter().map(Cli::of).collect();
    let is_marked = |server: &Cli| server.run(&["EXISTS", "redlock:wait:{catalogue}"]) == "1";
    let held = one.rw_lock("catalogue").read().await.unwrap();
    let mut waits = Vec::new();
    for _ in 0..10 {
        let writer = other.rw_lock("catalogue").write().wait(MS(20_000));
        let writer = tokio::spawn(writer.into_future());
        let waits_at_all = || servers.iter().all(is_marked);
        eventually("the writer waits", waits_at_all).await;
        let reader = third.rw_lock("catalogue").read().wait(MS(20_000));
        let reader = tokio::spawn(reader.into_future());
        // Long enough that the looks of both are a second apart.
        tokio::time::sleep(MS(4000)).await;
        // A mark outlives the time of the next look by 0.1 s. On a busy machine the writer may look later.
        let was_kept_out = !reader.is_finished();
        let begin = Instant::now();
        writer.abort();
        drop(reader.await.unwrap().expect("nobody keeps it out"));
        if was_kept_out {
            waits.push(begin.elapsed());
        }
        if waits.len() == 3 {
            break;
        }
    }
    assert_eq!(waits.len(), 3, "readers that a writer kept out");
    waits.sort_unstable();
    assert!(waits[1] < MS(100), "{waits:?}");
    assert!(held.is_valid());
}

/// Somebody has taken away the end of a key that readers share.
#[tokio::test]
async fn a_writer_that_gives_up_deletes_no_key_of_readers() {
    let servers = RedisServers::spawn(1).unwrap();
    let server = Cli::of(servers.get(0));
    let [one, other] = clients(&servers).await;
    let reader = one.rw_lock("catalogue").read().await.unwrap();
    let waiting = tokio::spawn(other.rw_lock("catalogue").write().into_future());
    let is_marked = || server.run(&["EXISTS", "redlock:wait:{catalogue}"]) == "1";
    eventually("the writer waits", is_marked).await;
    assert_eq!(server.run(&["PERSIST", "catalogue"]), "1");
    waiting.abort();
    eventually("the writer has given up", || !is_marked()).await;
    assert_eq!(server.get("catalogue").as_deref(), Some("redlock:shared"));
    assert!(other.rw_lock("catalogue").try_write().await.is_err());
    assert!(reader.is_valid());
}

/// A server does not notify the connection that has made a change, so those of one process are told by each other.
#[tokio::test]
async fn a_plain_lock_and_readers_of_one_process_follow_each_other() {
    let (_servers, [redlock]) = fleet(3).await;
    let catalogue = redlock.rw_lock("catalogue");
    let mut waits = Vec::new();
    for _ in 0..3 {
        let reader = catalogue.read().await.unwrap();
        let waiting = tokio::spawn(redlock.lock("catalogue").wait(MS(20_000)).into_future());
        tokio::time::sleep(MS(1500)).await;
        let begin = Instant::now();
        drop(reader);
        let plain = waiting.await.unwrap().unwrap();
        waits.push(begin.elapsed());
        let waiting = tokio::spawn(catalogue.read().wait(MS(20_000)).into_future());
        tokio::time::sleep(MS(1500)).await;
        let begin = Instant::now();
        drop(plain);
        drop(waiting.await.unwrap().unwrap());
        waits.push(begin.elapsed());
    }
    waits.sort_unstable();
    assert!(waits[3] < MS(100), "{waits:?}");
}

/// The process of a reader ends, while another reader is renewed.
#[tokio::test]
async fn a_reader_that_dies_keeps_a_writer_out_for_its_own_ttl() {
    let (servers, [alive, writer]) = fleet(3).await;
    let urls = servers.urls();
    let dead = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let guard = runtime.unwrap().block_on(async {
            let redlock = crate::support::trusting(urls).build().await.unwrap();
            let options = LockOptions::new().ttl(MS(3000));
            redlock
                .rw_lock("catalogue")
                .read()
                .options(options)
                .await
                .unwrap()
        });
        let at = Instant::now();
        // Without its runtime, it neither renews nor releases anything.
        drop(guard);
        at
    });
    let died = dead.join().unwrap();
    let other = alive
        .rw_lock("catalogue")
        .read()
        .ttl(MS(1000))
        .await
        .unwrap();
    tokio::time::sleep(MS(1500)).await;
    other.release().await;
    let waiting = writer.rw_lock("catalogue").write().wait(MS(20_000)).await;
    let waited = died.elapsed();
    drop(waiting.expect("the ttl is over"));
    assert!(waited > MS(2800) && waited < MS(4500), "{waited:?}");
}

/// When somebody was in, and whether it was a writer.
type Stay = (Instant, Instant, bool);

/// Reads and writes while servers restart. `share` says whether readers take a share.
async fn use_while_servers_restart(share: bool) -> Vec<Stay> {
    work_while_servers_restart(move |task, client| async move {
        let is_writer = task < 3;
        let catalogue = client.rw_lock("catalogue");
        let mut stays = Vec::new();
        for _ in 0..60 {
            let request = match (is_writer, share) {
                (true, _) => catalogue.write(),
                (false, true) => catalogue.read(),
                (false, false) => client.rw_lock(format!("own:{task}")).read(),
            };
            let Ok(guard) = request.await else {
                continue;
            };
            let begin = Instant::now();
            tokio::time::sleep(MS(20)).await;
            let end = Instant::now();
            if guard.is_valid() {
                stays.push((begin, end, is_writer));
            }
            drop(guard);
            tokio::time::sleep(MS(10)).await;
        }
        stays
    })
    .await
}

/// Returns how many pairs were in at once: readers, and a writer beside another.
fn pairs(stays: &[Stay]) -> (usize, usize) {
    let (mut readers, mut overlaps) = (0, 0);
    for (index, (begin, end, is_writer)) in stays.iter().enumerate() {
        for (other_begin, other_end, other_writes) in &stays[..index] {
            if begin < other_end && other_begin < end {
                if *is_writer || *other_writes {
                    overlaps += 1;
                } else {
                    readers += 1;
                }
            }
        }
    }
    (readers, overlaps)
}

#[tokio::test]
async fn no_writer_is_in_beside_anybody_while_servers_restart() {
    let stays = use_while_servers_restart(true).await;
    let writers = stays.iter().filter(|stay| stay.2).count();
    let (readers, overlaps) = pairs(&stays);
    println!(
        "{} stays, {writers} of writers, {readers} pairs of readers",
        stays.len()
    );
    assert!(
        writers > 40 && stays.len() - writers > 100,
        "{writers} of {}",
        stays.len()
    );
    assert!(readers > 100, "{readers} pairs of readers");
    assert_eq!(overlaps, 0);
}

#[tokio::test]
async fn the_check_finds_readers_that_take_no_share() {
    let stays = use_while_servers_restart(false).await;
    let (_, overlaps) = pairs(&stays);
    assert!(overlaps > 0);
}

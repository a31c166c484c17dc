//! Locks that one process gives away and another adopts: over real servers, with late messages of the giver, and a
//! giver that dies.

use std::process;

use redlock_kit::RedisServers;
use redlock_tokio::{LockOptions, LockTicket, errors::AdoptError};

use crate::{
    fleet::{clients, clis, each},
    support::{
        self, MS,
        bed::{Bed, LONG_TTL},
        eventually, trusting,
    },
};

#[tokio::test]
async fn a_lock_outlives_the_process_that_has_given_it_away() {
    const TEST: &str = "faults::transfer::a_lock_outlives_the_process_that_has_given_it_away";
    if let Some(servers) = support::role() {
        let giver = trusting(servers.split(','));
        let giver = giver.client_name("giver").build().await.unwrap();
        let ticket = giver.lock("k").fenced(true).await.unwrap().into_ticket();
        println!("{}", serde_json::to_string(&ticket.unwrap()).unwrap());
        process::abort();
    }
    let servers = RedisServers::spawn(3).unwrap();
    let output = support::to_its_end_in_another_process(TEST, &servers.urls().join(","));
    assert!(!output.status.success(), "it was aborted");
    let output = String::from_utf8(output.stdout).unwrap();
    let sent = output.lines().find(|it| it.starts_with('{'));
    let ticket: LockTicket = serde_json::from_str(sent.expect("it has sent a ticket")).unwrap();
    assert_eq!(ticket.giver().client_name(), Some("giver"));

    let [worker] = clients(&servers).await;
    assert!(worker.try_lock("k").await.unwrap_err().is_contended());
    let guard = worker.adopt(ticket.clone()).await.unwrap();
    assert!(guard.fencing_token() > ticket.fencing_token());
    assert_eq!(each(&clis(&servers), &["GET", "k"]), [&*guard.value(); 3]);
    assert_refused!(worker.adopt(ticket).await, AdoptError::Gone(_));
    guard.extend().await.unwrap();
    guard.release().await;
    assert!(worker.try_lock("k").await.is_ok());
}

/// The extension is on its way when the lock is given away, and arrives under the adopter.
#[tokio::test]
async fn a_late_extension_of_the_giver_does_not_touch_the_adopted_lock() {
    let bed = Bed::new(3);
    let (giver, worker) = (bed.redlock().await, bed.bystander().await);
    let guard = giver.lock("k").await.unwrap();
    let everywhere = || (0..3).all(|it| bed.cli(it).get("k").is_some());
    eventually("all have the key", everywhere).await;
    for proxy in &bed.proxies {
        proxy.requests().hold();
    }
    let hold = guard.hold().view();
    let extension = tokio::spawn(async move { hold.extend().await });
    for proxy in &bed.proxies {
        let is_held = || proxy.requests().waiting() > 0;
        eventually("the extension is held", is_held).await;
    }
    let ticket = guard.into_ticket().unwrap();
    let options = LockOptions::new().ttl(MS(30_000)).no_renewal();
    let adopted = worker.adopt(ticket).options(options).await.unwrap();
    let before: Vec<_> = (0..3).map(|it| bed.cli(it).comparisons()).collect();
    for proxy in &bed.proxies {
        proxy.requests().pass();
    }
    for (index, before) in before.into_iter().enumerate() {
        let cli = bed.cli(index);
        let arrived = || cli.comparisons() > before;
        eventually("the extension has arrived", arrived).await;
        assert_eq!(cli.get("k"), Some(adopted.value()));
        assert!(cli.pttl("k") <= 30_000, "it would live for {LONG_TTL:?}");
    }
    assert!(extension.await.unwrap().is_err());
    adopted.extend().await.unwrap();
    adopted.release().await;
    bed.no_key_is_left().await;
}

/// The giver's request to set the key reaches one node after the lock was adopted, and released.
#[tokio::test]
async fn a_late_set_of_the_giver_does_not_let_a_second_client_adopt() {
    let bed = Bed::new(3);
    let (giver, worker) = (bed.redlock().await, bed.bystander().await);
    let (cli, proxy) = (bed.cli(0), &bed.proxies[0]);
    proxy.requests().hold();
    let ticket = giver.lock("k").await.unwrap().into_ticket().unwrap();
    let unrenewed = LockOptions::new().no_renewal();
    let adopted = worker.adopt(ticket.clone()).options(unrenewed);
    let adopted = adopted.await.expect("two of three have it");
    assert_eq!(cli.get("k"), None);
    proxy.requests().pass();
    let is_back = || {
        cli.get("k")
            .is_some_and(|it| it.as_bytes() == ticket.giver().value())
    };
    eventually("the giver's token is on one node", is_back).await;
    assert_refused!(worker.adopt(ticket.clone()).await, AdoptError::Gone(_));
    adopted.extend().await.unwrap();
    adopted.release().await;
    assert_refused!(worker.adopt(ticket).await, AdoptError::Gone(_));
    // The node is of no use until the ttl is over. Two others are enough.
    assert!(worker.try_lock("k").await.is_ok());
}

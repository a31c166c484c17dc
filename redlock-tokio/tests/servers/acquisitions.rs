//! What a guard says of how its lock was acquired.

use redlock_tokio::{Acquisition, Redlock};

use crate::{
    fleet::fleet,
    support::{
        MS,
        in_memory::{blocked, over, three_nodes},
    },
};

#[tokio::test]
async fn a_guard_names_the_nodes_that_granted_its_lock() {
    let (servers, [redlock]) = fleet(3).await;
    servers.get(1).kill();
    let guard = redlock.lock("k").await.unwrap();
    let acquisition = guard.acquisition();
    let Acquisition::Granted {
        granted_by,
        votes_needed,
        nodes_total,
        attempts,
        waited,
        ..
    } = &acquisition
    else {
        panic!("{acquisition}");
    };
    let up = [0, 2].map(|index| servers.get(index).address().to_string());
    assert_eq!(granted_by.iter().map(|it| &**it).collect::<Vec<_>>(), up);
    assert_eq!((*votes_needed, *nodes_total, *attempts), (2, 3, 1));
    assert!(*waited < MS(5000));
    let line = acquisition.to_string();
    let start = format!(
        "granted by 2 of 3 nodes ({}) with 1 attempt in ",
        up.join(", ")
    );
    assert!(line.starts_with(&start), "{line}");
    // Renewals and losses do not change what was.
    guard.extend().await.unwrap();
    assert_eq!(guard.acquisition(), acquisition);
}

#[tokio::test(start_paused = true)]
async fn the_time_and_the_attempts_before_the_lock_count() {
    let nodes = three_nodes();
    let (one, other) = (over(&nodes).build().await, over(&nodes).build().await);
    let (one, other) = (one.unwrap(), other.unwrap());
    let held = one.lock("k").await.unwrap();
    let waiting = tokio::spawn(other.lock("k").into_future());
    tokio::time::sleep(MS(1000)).await;
    drop(held);
    let guard = waiting.await.unwrap().unwrap();
    let Acquisition::Granted {
        attempts, waited, ..
    } = guard.acquisition()
    else {
        panic!("{}", guard.acquisition());
    };
    assert!(attempts >= 2, "{attempts}");
    assert!((MS(1000)..MS(1010)).contains(&waited), "{waited:?}");
    assert_eq!(guard.acquisition().waited(), waited);
}

#[tokio::test(start_paused = true)]
async fn a_guard_says_that_its_lock_was_handed_over() {
    let builder = Redlock::builder().embedded().handover_for(MS(5000));
    let redlock = builder.build().await.unwrap();
    let first = redlock.lock("k").await.unwrap();
    assert!(matches!(first.acquisition(), Acquisition::Granted { .. }));
    let waiting = blocked(redlock.lock("k")).await;
    tokio::time::sleep(MS(300)).await;
    drop(first);
    let second = waiting.await.unwrap().unwrap();
    let acquisition = second.acquisition();
    assert!(matches!(acquisition, Acquisition::HandedOver { .. }));
    assert_eq!(acquisition.waited(), MS(300));
    assert_eq!(
        acquisition.to_string(),
        "handed over within this process in 300 ms"
    );
}

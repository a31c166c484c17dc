//! What a guard says of how its lock was acquired.

use redlock_tokio::{Acquisition, Redlock};

use crate::{
    fleet::fleet,
    support::{MS, assert_says, in_memory::blocked},
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
        ..
    } = &acquisition
    else {
        panic!("{acquisition}");
    };
    let up = [0, 2].map(|index| servers.get(index).address().to_string());
    assert_eq!(granted_by.iter().map(|it| &**it).collect::<Vec<_>>(), up);
    assert_eq!((*votes_needed, *nodes_total, *attempts), (2, 3, 1));
    let by = up.join(", ");
    assert_says(
        &acquisition,
        &format!("granted by 2 of 3 nodes ({by}) with 1 attempt in "),
    );
    // Renewals and losses do not change what was.
    guard.extend().await.unwrap();
    assert_eq!(guard.acquisition(), acquisition);
}

#[tokio::test(start_paused = true)]
async fn a_guard_says_that_its_lock_was_handed_over() {
    let builder = Redlock::builder().embedded().handover_for(MS(5000));
    let redlock = builder.build().await.unwrap();
    let first = redlock.lock("k").await.unwrap();
    let waiting = blocked(redlock.lock("k")).await;
    tokio::time::sleep(MS(300)).await;
    drop(first);
    let acquisition = waiting.await.unwrap().unwrap().acquisition();
    assert!(matches!(acquisition, Acquisition::HandedOver { .. }));
    assert_eq!(
        acquisition.to_string(),
        "handed over within this process in 300 ms"
    );
}

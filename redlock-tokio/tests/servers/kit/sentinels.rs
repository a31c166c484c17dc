//! The test kit's Sentinel groups, which the [topologies](crate::topologies) use in all other ways.

use redlock_kit::{RedisServer, Sentinels};

#[tokio::test]
async fn a_minority_of_sentinels_names_no_master() {
    let group = Sentinels::spawn().unwrap();
    group.sentinel(0).freeze();
    group.sentinel(1).kill();
    assert_eq!(group.master(), None, "one of three is no majority");
    group.sentinel(0).thaw();
    assert_eq!(group.master(), Some(0));
}

#[tokio::test]
async fn no_process_outlives_its_group() {
    let group = Sentinels::spawn().unwrap();
    let servers = (0..group.server_count()).map(|it| group.server(it));
    let sentinels = (0..group.sentinel_count()).map(|it| group.sentinel(it));
    let pids: Vec<_> = servers.chain(sentinels).map(RedisServer::pid).collect();
    assert_eq!(pids.len(), 6);
    drop(group);
    for pid in pids {
        assert!(!std::fs::exists(format!("/proc/{pid}")).unwrap());
    }
}

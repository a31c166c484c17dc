//! The rules of `DEPLOYMENTS.md` for resharding while locks are held.

use std::time::{Duration, Instant};

use redlock_kit::Cluster;
use redlock_tokio::{
    BuildError, LockGuard, LockOptions, LossReason, NodeState, Redlock, RedlockBuilder,
};

use super::ready;
use crate::support::{
    Cli, MS,
    shards::{cluster, slot, strict, trusting, url},
    states::{all_vote, votes},
};

const TTL: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(60);

/// A slot of the first shard that is no voter.
const OTHER: u16 = 100;

fn builder(cluster: &Cluster) -> RedlockBuilder {
    let builder = strict(&(url(cluster) + "?allow_shared_servers=true")).ttl(TTL);
    builder.confirmation_window(MS(1500))
}

/// Three shards with a voter each, and so many more, a client, and locks that it holds.
struct Fleet {
    cluster: Cluster,
    redlock: Redlock,
    guards: Vec<LockGuard>,
}

impl Fleet {
    async fn new(shards: usize) -> Self {
        let cluster = cluster().shards(shards).replicas(0).full_coverage(false);
        let cluster = cluster.spawn().unwrap();
        let redlock = ready(builder(&cluster)).await;
        all_vote(&redlock).await;
        let mut guards = Vec::new();
        for number in 0..8 {
            let lock = redlock.lock(format!("long:{number}"));
            guards.push(lock.max_hold(10 * PATIENCE).await.unwrap());
        }
        Self {
            cluster,
            redlock,
            guards,
        }
    }

    /// Moves slots, and waits until the voter has lost its vote and has it again. No other voter loses its own.
    async fn move_and_wait(&self, slots: std::ops::RangeInclusive<u16>, to: usize, waits: usize) {
        tokio::task::block_in_place(|| self.cluster.move_slots(slots, to)).unwrap();
        let deadline = Instant::now() + PATIENCE;
        let mut has_waited = false;
        loop {
            assert!(Instant::now() < deadline, "{:?}", self.redlock.nodes());
            let waiting = self.waiting();
            assert!(waiting.is_empty() || waiting == [waits], "{waiting:?}");
            has_waited |= !waiting.is_empty();
            if has_waited && (0..3).all(|voter| votes(&self.redlock, voter)) {
                break;
            }
            tokio::time::sleep(MS(20)).await;
        }
        self.assert_all_are_held();
    }

    /// Returns the voters that wait because their server has changed.
    fn waiting(&self) -> Vec<usize> {
        let nodes = self.redlock.nodes();
        let is_waiting = |voter: &usize| {
            let state = &nodes[*voter].state;
            matches!(state, NodeState::Quarantined { .. })
        };
        (0..nodes.len()).filter(is_waiting).collect()
    }

    fn assert_all_are_held(&self) {
        assert!(self.guards.iter().all(|it| it.is_valid()), "a lock is lost");
    }

    /// Returns whether a server has the newest epoch, so that it gets no other with another slot.
    fn has_newest_epoch(&self, shard: usize) -> bool {
        let master = self.cluster.master_of(shard).expect("it has a master");
        let info = Cli::of(self.cluster.node(master)).run(&["CLUSTER", "INFO"]);
        let field = |name: &str| {
            let value = info.lines().find_map(|it| it.strip_prefix(name));
            value.expect("the field is there").trim().to_owned()
        };
        field("cluster_my_epoch:") == field("cluster_current_epoch:")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_45_a_shard_is_added_while_locks_are_held() {
    let fleet = Fleet::new(4).await;
    // Shards of four, of which the second has no voter.
    assert_eq!(fleet.cluster.owner_of(slot(1)), Some(2));
    fleet.move_and_wait(slot(0)..=slot(0), 1, 0).await;
    // The slots of other voters follow one by one, and only to this shard.
    fleet.move_and_wait(slot(2)..=slot(2), 1, 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_45_slots_move_to_a_shard_with_a_voter_while_locks_are_held() {
    let fleet = Fleet::new(3).await;
    assert!(!fleet.has_newest_epoch(1));
    fleet.move_and_wait(OTHER..=OTHER, 1, 1).await;
    assert!(fleet.has_newest_epoch(1));
    fleet.move_and_wait(slot(0)..=slot(0), 1, 0).await;
    // No voter waits for the rest of the slots, of which a part is enough here.
    tokio::task::block_in_place(|| fleet.cluster.move_slots(0..=199, 1)).unwrap();
    assert!(fleet.has_newest_epoch(1));
    let deadline = Instant::now() + 2 * TTL;
    while Instant::now() < deadline {
        assert_eq!(fleet.waiting(), [0; 0]);
        tokio::time::sleep(MS(20)).await;
    }
    fleet.assert_all_are_held();

    // A process that starts now needs an option, and no other keys.
    let newcomer = ready(builder(&fleet.cluster)).await;
    assert!(newcomer.try_lock("long:0").await.is_err(), "it is held");
    let error = strict(&url(&fleet.cluster)).build().await.unwrap_err();
    assert!(matches!(error, BuildError::SharedServer { .. }), "{error}");
}

/// The rule taken out: both voters of the server wait, and the third is no majority.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_45_a_voters_slot_that_joins_another_voter_at_once_loses_all_locks() {
    let fleet = Fleet::new(3).await;
    assert!(!fleet.has_newest_epoch(1));
    tokio::task::block_in_place(|| fleet.cluster.move_slots(slot(0)..=slot(0), 1)).unwrap();
    for guard in &fleet.guards {
        let lost = tokio::time::timeout(PATIENCE, guard.lost()).await.unwrap();
        assert_eq!(lost, LossReason::Expired);
    }
}

/// Tries to take a lock whose key has moved to another server in a move that was given up. Returns whether there are two
/// holders.
async fn gives_a_lock_to_two_after_a_move_that_was_given_up(voters: usize) -> bool {
    let cluster = cluster().replicas(0).spawn().unwrap();
    let build = || {
        let builder = trusting(&format!("{}?voters={voters}", url(&cluster))).ttl(PATIENCE);
        builder.options(LockOptions::new().no_renewal()).build()
    };
    let [holder, other] = [build().await.unwrap(), build().await.unwrap()];
    for client in [&holder, &other] {
        all_vote(client).await;
    }
    let guard = holder.lock("k").await.unwrap();
    let slot = slot(1);
    tokio::task::block_in_place(|| {
        let moves = cluster.start_move(slot..=slot, 0).unwrap();
        for slots in moves {
            assert!(slots.move_keys(usize::MAX).unwrap() > 0);
        }
    });
    let owner = cluster.owner_of(slot).expect("the slot has an owner");
    let stable = ["CLUSTER", "SETSLOT", &slot.to_string(), "STABLE"];
    assert_eq!(Cli::of(cluster.node(owner)).run(&stable), "OK");
    let second = other.lock("k").wait(MS(2000)).await;
    assert!(guard.is_valid());
    second.is_ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn known_limit_with_one_voter_a_move_that_was_given_up_gives_a_lock_to_two() {
    assert!(gives_a_lock_to_two_after_a_move_that_was_given_up(1).await);
    assert!(!gives_a_lock_to_two_after_a_move_that_was_given_up(3).await);
}

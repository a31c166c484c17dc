/// How much nodes still know of the locks that they granted, after a restart or a failover.
///
/// Passed to [`RedlockBuilder::durability`](crate::RedlockBuilder::durability). A node that has forgotten a lock grants
/// it to a second holder. If in doubt, keep [`Volatile`](Self::Volatile), the default: it costs time, and the others
/// cost mutual exclusion where they are not true.
///
/// | | after a restart, a node votes | after a failover, the new master votes |
/// |---|---|---|
/// | [`Volatile`](Self::Volatile) | after about [`max_ttl`](crate::RedlockBuilder::max_ttl) | after about `max_ttl` |
/// | [`FsyncAlways`](Self::FsyncAlways) | at once | after about `max_ttl` |
/// | [`LosslessFailovers`](Self::LosslessFailovers) | at once | at once |
/// | [`AssumedForTests`](Self::AssumedForTests) | at once | at once |
///
/// A master that sentinels or the nodes of a cluster name must be confirmed by a majority of them first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// A node may forget locks when it restarts, and a replica may lack them when it is promoted. The default.
    ///
    /// Such a node has no vote until every lock that it may have forgotten has expired. The cost: while a majority of
    /// the nodes waits, no lock is granted.
    #[default]
    Volatile,
    /// A node forgets nothing when it restarts, because it writes to disk before it answers: `appendonly yes` and
    /// `appendfsync always`.
    ///
    /// The risk: with `appendfsync everysec` a node that crashes forgets the locks of the last second, and votes at
    /// once. This client warns of a node with `appendonly no`, and does not see the other setting.
    ///
    /// Give such nodes no replicas. A replica that was promoted behind the same address may lack keys. This client
    /// detects that only if the server was seen as a replica, or has been up for longer than the connection was down.
    /// Then the node must wait. A replica that restarts during its promotion is not detected.
    ///
    /// For Sentinel groups and clusters this is the same as [`Volatile`](Self::Volatile): their failovers lose keys
    /// that are on the disk of the old master.
    FsyncAlways,
    /// A server that takes the place of a master has every key that the master confirmed. Amazon `MemoryDB` is such a
    /// service, according to the vendor.
    ///
    /// The risk: Redis and Valkey lose keys in failovers, even with an append-only file, with `WAIT` and with
    /// `min-replicas-to-write`. Over them, a lock can get a second holder in each failover.
    LosslessFailovers,
    /// A node may forget locks as a [`Volatile`](Self::Volatile) one does, and votes all the same. *For tests only*:
    /// the servers of a test have never granted a lock when they start.
    ///
    /// The risk: a lock can get a second holder whenever nodes restart or fail over.
    AssumedForTests,
}

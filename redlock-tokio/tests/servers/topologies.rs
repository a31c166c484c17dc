//! Locks over a group of sentinels, and over a cluster.

mod cluster;
mod cluster_faults;
mod resharding;
mod rights;
mod sentinel;
mod sentinel_faults;
mod two_authorities;

//! The fault matrix: what locks do when nodes, networks, holders and keys fail.

mod cancellation;
mod delivery;
mod fencing_restarts;
mod holders;
mod keys;
mod nodes;
mod operations;
mod page;
mod promotion;
mod rights;
mod servers;
mod transfer;
mod vetting;

//! Nodes whose server an authority names: the real `Electorate`, `OwnerWatch` and `Lease` of two clients,
//! one node, the members of its authority, and two or three servers that may be its owner.
//!
//! A failover begins at one member, and the others turn to it one by one, at any time. The new owner has
//! none of the keys. The old owner stays within reach of each client that takes it for the owner: it is
//! partitioned from the authority, and from nobody else. In each tick a client asks some of the members, at
//! any moment, or nobody. So a member lags behind for a client that does not ask it.
//!
//! The worlds are small: a window of one tick, a ttl of one or two, and one attempt of each client. Clients
//! are alike, so the first of them is the one that begins first. In the worlds with more faults than a
//! failover, each client reaches two of the three members.

mod apply;
mod clients;
mod configurations;
mod next_steps;
mod properties;
mod setup;
mod steps;
mod world;

pub(crate) use configurations::all;

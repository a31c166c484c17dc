//! Authorities that name the masters: sentinels and cluster nodes that lag, restart, disagree and are cut off, and
//! failovers that lose keys.
//!
//! A *seat* is a node of the lock: a group of sentinels, or a slot of the cluster. A *machine* runs one server. In a
//! cluster a machine may serve several seats. The keys of each seat are apart, so the world has one
//! [`Server`](crate::server::Server) for each machine and seat.

mod answering;
mod calm;
mod council;
mod failovers;
mod layout;
mod members;
mod owners;
mod seat;
mod state;
mod worlds;

pub(crate) use self::{
    layout::Layout,
    owners::Owners,
    seat::Seat,
    state::Authorities,
    worlds::{CONTROLS, WITHIN},
};

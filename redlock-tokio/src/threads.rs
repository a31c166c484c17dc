//! Tests that run the threads of one process in many orders: `make threads`.
//!
//! A scenario starts a few threads that use one `Redlock`, and checks how it ends. Shuttle runs one thread at a time,
//! and decides at each lock of a mutex, each use of an atomic and each notification which thread goes on. One run of a
//! scenario is a *schedule*. Half of the schedules choose each thread at random. The other half give the threads
//! priorities that change at a few random points (PCT), which finds what random choices seldom do: one thread that
//! stands still while the others run to their ends.
//!
//! What the engine does is one step for these threads, as it has one mutex. Tests in virtual time make such steps in each
//! order. Here are the threads around it: wake-ups, drops, the end of tasks, code of the user, answers of nodes.
//!
//! The engine, the timers, the requests of lanes and the nodes in memory are the real code, over the
//! primitives of [`sync`](crate::sync). A lane has no connection and no timers of its own
//! ([`StandIn`](crate::engine::lane::stand_in::StandIn)), and the clock moves only when a scenario says so.

mod ending;
mod explore;
mod locking;
mod observers;
mod time;
mod wakers;
mod wire;
mod world;

pub(crate) use self::time::Time;

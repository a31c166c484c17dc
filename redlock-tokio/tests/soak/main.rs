//! A soak test: hundreds of tasks in several processes lock a few dozen keys over five real `redis-server`
//! processes. Meanwhile up to a minority of the servers fails in every way of the fault matrix, workers are stopped for
//! longer than their locks live, and processes that wait are killed or stopped. The tasks lock one key or several, with
//! fences or without. Foreign clients lock the same keys.
//!
//! ```text
//! make soak MINUTES=10
//! make soak MINUTES=1 SEED=42     # the same faults, at the same times, to the same servers
//! SOAK_BREAK=no-lock SOAK_SECONDS=5 cargo test -p redlock-tokio --all-features --test soak
//! ```
//!
//! `SOAK_TOPOLOGY` chooses what the locks are over: five `masters`, the master of a `sentinel` group, or the slots
//! of a `cluster`. In a group and in a cluster, masters fail over, one after the other, in all ways: by order, after
//! a crash, after a pause, and behind a partition on both sides of which clients write. Slots move, too. Such a run
//! goes on until each kind of fault has occurred, and after each fault until locks are granted again.
//!
//! `SOAK_SECONDS` sets the duration of the faults, and `SOAK_SEED` chooses them. The seed decides what the tasks
//! do, too, but not when. With `SOAK_TRACE`, faults are printed as they happen.
//!
//! # What must hold
//!
//! | invariant | how it is checked |
//! |---|---|
//! | no two tasks hold a key at once, but for readers | Each hold is reported to the [judge](judge::Judge), which the simulator shares, by `CLOCK_BOOTTIME`, which all processes share. The hold begins after the lock was granted, and ends before the release or at the end of the validity that its holder saw. |
//! | fencing tokens grow from hold to hold of a key | The judge compares them. |
//! | a holder is told of a loss in time | The judge compares the time at which `lost()` returned with the end of validity. A holder that finds its lock over waits for that news, longer than the judge tolerates, before it drops the guard. The time in which the process stood still does not count. |
//! | waiters that fail do not keep a key from the others | While all nodes are well, some waiters are killed and others stopped. The [waits](waits::Waits) of the others are compared with the holds of the key: it must not lie free, or be held by later ones, for longer than the bound. |
//! | no update is lost | Under the lock, a task reads a counter in another `redis-server`, pauses, and writes it. A task with several keys does so for each. In the end each counter must equal the number of its writes. |
//! | no read is torn | Under the lock of a reader, a task reads a counter, pauses, and reads it again. |
//! | the store refuses no token of a valid lock | Some keys are only locked with fences. The store remembers the largest token of each, and refuses the others. |
//! | no key is left | After the shutdown of all workers and one more ttl, no node has the key of a lock. A shutdown takes no longer than about a ttl. |
//! | nothing leaks | The descriptors and the memory of each worker are compared between early and late in the run. After the last handle was dropped, no socket is left. |
//! | no task hangs | No step of a task takes longer than [`worker::STEP_LIMIT`], and each worker ends on request. |
//! | locks fail and end only as they may | Each error, each loss and each end of a release is one of the [known](events::is_known) ones. |
//! | the run tested something | Contention, losses, cancelled acquisitions, locks of several keys, fences and each kind of fault were seen. Each foreign client held keys. After each fault of a group or a cluster, locks were granted. |
//!
//! A holder can be stopped between its call of `is_valid()` and its write, which is a documented limit of
//! every lock without a fence. So each write carries the end of the validity, and the store refuses it after
//! that. The soak then checks the promise: no other task holds the lock *within its validity*. The store and
//! the workers share a wall clock, which must not be set during the run.
//!
//! The counters of keys that are only locked with fences have no such deadline: a late holder still tries to write,
//! and the token refuses the write if a later holder has come. Nodes lose the counters of fences in restarts and in
//! failovers. Tokens still grow, because each proposal is at least the wall clock, so the judge makes no exception.
//!
//! # Foreign clients
//!
//! Two [clients of other implementations](foreign) take part over independent masters, in processes of their own. They
//! report their holds to the same judge, and know nothing of fences or losses. npm and pip install them into
//! `target/foreign`, once. Where that is not possible, the run prints `NOT RUN: .. because ..` and goes on without them.
//!
//! Foreign clients have no quarantine. After an early restart, a node would vote for them although it has forgotten a
//! lock. That is a known limit, and no fault of this crate. So the run stops the foreign processes before the restart,
//! and resumes them when the forgotten locks are over. They then find their own locks expired.
//!
//! # Negative controls
//!
//! `SOAK_BREAK` [breaks one thing](settings::Breakage), and the run fails unless it finds the damage. Without
//! `SOAK_SECONDS`, as in a plain `cargo test`, the `no-lock` control runs for two seconds.

mod bed;
mod clock;
mod crew;
mod events;
mod failovers;
mod fault;
mod faults;
mod findings;
mod foreign;
#[path = "../judge/judge.rs"]
mod judge;
mod leftovers;
mod line;
#[path = "../../benches/shared/packages.rs"]
mod packages;
mod plan;
mod report;
mod run;
mod settings;
#[path = "../support/mod.rs"]
mod support;
mod topology;
mod usage;
mod waits;
mod worker;

use std::{env, error::Error, process::ExitCode};

use settings::Settings;
use worker::Order;

/// A result whose error is a failure of the test bed, in words.
type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let outcome = match &arguments[..] {
        [flag, order] if flag == Order::FLAG => Order::parse(order).and_then(worker::work),
        _ if !is_selected(&arguments) => Ok(()),
        _ => Settings::from_env().and_then(|it| run::run(&it)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let source = error.source().map(|it| format!(": {it}"));
            eprintln!("soak: {error}{}", source.unwrap_or_default());
            ExitCode::FAILURE
        }
    }
}

/// Returns whether `cargo test` with these arguments selects the soak. It does not if it asks for a list or for
/// a test of another name.
fn is_selected(arguments: &[String]) -> bool {
    let is_other = |it: &String| it == "--list" || !(it.starts_with('-') || "soak".contains(&**it));
    Settings::are_given() || !arguments.iter().any(is_other)
}

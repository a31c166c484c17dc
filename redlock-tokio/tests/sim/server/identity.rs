//! Which server it is, by its own words.

use std::time::Duration;

use redlock_core::AgeMarker;
use redlock_tokio::{
    Role, ServerInfo,
    node::{Origin, Replication, ReplicationId, RunId, Server as Described},
};

use crate::{clock::SECOND, message::refused, rng::Rng};

/// How long ago each process of a server has started at the beginning of a run. A fleet that has just started is a
/// fault of its own.
pub(crate) const UP_FOR: u64 = 100_000 * SECOND;

/// The master of a replica that does not reach it.
pub(crate) const NOWHERE: usize = 9999;

/// The process of a server, and the history of its keys.
#[derive(Debug)]
pub(crate) struct Identity {
    /// The names that it had, of processes and of histories. No other server has the same ones.
    names: u32,
    run_id: u32,
    /// When the process started, on the server's clock.
    started_at: u64,
    pub(crate) history: u32,
    /// The history that its own one continues.
    origin: Option<u32>,
    /// When the marker of its history was written, in milliseconds of its clock.
    pub(crate) marked_at: Option<u64>,
    /// The server that it follows.
    pub(crate) master: Option<usize>,
    pub(crate) withholds: Option<Withheld>,
    pub(crate) in_cluster: bool,
}

/// What a server does not say of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Withheld {
    /// The client has no right to `INFO`.
    Everything,
    RunId,
    Uptime,
    Origin,
    Role,
}

impl Withheld {
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        rng.pick(&[
            Self::Everything,
            Self::RunId,
            Self::Uptime,
            Self::Origin,
            Self::Role,
        ])
    }
}

impl Identity {
    pub(crate) fn new(number: u32) -> Self {
        let names = (number + 1) * 1_000_000;
        Self {
            names,
            run_id: names,
            started_at: 0,
            history: names,
            origin: None,
            marked_at: None,
            master: None,
            withholds: None,
            in_cluster: false,
        }
    }

    /// Another process starts, as what it was before. `keeps_keys` says whether it reads a history from its disk.
    pub(crate) fn restart(&mut self, local: u64, keeps_keys: bool) {
        self.started_at = local;
        self.run_id = self.name();
        self.begin_history(keeps_keys.then_some(self.history));
    }

    /// A history of its own begins.
    pub(crate) fn begin_history(&mut self, origin: Option<u32>) {
        self.history = self.name();
        self.origin = origin;
        self.marked_at = None;
    }

    /// It becomes the master of keys that had this history.
    pub(crate) fn promote(&mut self, before: u32) {
        self.master = None;
        self.begin_history(Some(before));
    }

    /// Returns what the server says of itself at this time of its clock. One that `is_cut_off` has a master that it does
    /// not reach.
    pub(crate) fn describe(&self, local: u64, is_cut_off: bool) -> Described {
        if self.withholds == Some(Withheld::Everything) {
            return Described::Withheld(refused("NOPERM", "no right to INFO"));
        }
        // The difference of two whole seconds, as `INFO` has it.
        let uptime = (local / SECOND).checked_sub(self.started_at / SECOND);
        let known = Duration::from_secs(uptime.unwrap_or_default());
        let mut info = ServerInfo::new(RunId::new(digits(self.run_id)), known);
        if uptime.is_none() {
            // A clock that was set back to before the start: Redis says a negative number, which no client takes.
            info.uptime = None;
        }
        let name = |number| ReplicationId::new(digits(number));
        info.replication = Some(Replication {
            id: name(self.history),
            origin: match self.origin {
                _ if self.withholds == Some(Withheld::Origin) => Origin::Withheld,
                None => Origin::Own,
                Some(before) => Origin::Continues(name(before)),
            },
        });
        info.in_cluster = self.in_cluster;
        if let Some(master) = self.master.or(is_cut_off.then_some(NOWHERE)) {
            info.role = Role::ReplicaOf(format!("server-{master}"));
        }
        match self.withholds {
            Some(Withheld::RunId) => info.run_id = None,
            Some(Withheld::Uptime) => info.uptime = None,
            Some(Withheld::Role) => info.role = Role::Withheld,
            Some(Withheld::Origin | Withheld::Everything) | None => {}
        }
        Described::Known(info)
    }

    fn name(&mut self) -> u32 {
        self.names += 1;
        self.names
    }
}

/// Returns the age that a marker tells which was written at this time.
pub(crate) fn age_of_marker(written: u64, now: u64) -> Duration {
    // The clock may have been set back since.
    let passed = now.saturating_sub(written);
    let left = AgeMarker::TTL_MILLIS.saturating_sub(passed);
    let marker = AgeMarker::read(b"0", i64::try_from(left).expect("a day"));
    marker.map(AgeMarker::age).unwrap_or_default()
}

/// Forty digits that tell this number from all others.
fn digits(number: u32) -> [u8; 40] {
    let text = format!("{number:040}");
    text.as_bytes().try_into().expect("forty digits")
}

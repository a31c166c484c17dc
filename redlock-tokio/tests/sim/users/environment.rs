//! What the code of a process knows of its world.

use std::{
    fmt,
    hash::Hash,
    sync::{Arc, MutexGuard},
    time::Duration,
};

use redlock_tokio::Token;

use crate::{
    clock::SECOND,
    configuration::Configuration,
    host::Host,
    network::{SharedNetwork, Witness},
    process::{Stage, Stages},
    quiet::{CALM_WORK, Quiet},
    registry::Registry,
    requests::{Requests, ServiceId},
    rng::Rng,
    scale::Scale,
    seen::Seen,
    services::Services,
    shared::Shared,
    trace::Seconds,
    users::{
        fleet::Runs,
        kept::Kept,
        outliving::{Fate, Outliving},
        transfers::Tickets,
    },
};

/// What all processes share, beside the network.
#[derive(Clone, Default)]
pub(crate) struct Records {
    pub(crate) registry: Shared<Registry>,
    pub(crate) requests: Shared<Requests>,
    pub(crate) services: Shared<Services>,
    pub(crate) quiet: Shared<Quiet>,
    pub(crate) outliving: Shared<Outliving>,
    pub(crate) tickets: Shared<Tickets>,
    pub(crate) runs: Shared<Runs>,
}

/// Attempts with such a ttl may be too slow although each answer is in time.
const SHORT_TTL: Duration = Duration::from_millis(200);

/// One process, as its code sees it.
#[derive(Clone)]
pub(crate) struct Environment {
    pub(crate) host: Arc<Host>,
    pub(crate) network: SharedNetwork,
    pub(crate) records: Records,
    pub(crate) scale: Scale,
    pub(crate) configuration: Configuration,
    pub(crate) stages: Stages,
}

impl Environment {
    pub(crate) fn registry(&self) -> MutexGuard<'_, Registry> {
        self.records.registry.lock()
    }

    /// Returns whether the world is quiet since this time at least.
    pub(crate) fn is_quiet(&self, since: u64) -> bool {
        self.records.quiet.lock().since(since)
    }

    /// Takes the guards of the process of which this is true, and that no user has any more.
    pub(crate) fn take_outliving(&self, is_wanted: impl Fn(Fate, &Kept) -> bool) -> Vec<Kept> {
        let mut outliving = self.records.outliving.lock();
        outliving.take(&self.host, is_wanted)
    }

    /// Drops forgotten guards whose locks have ended by themselves.
    pub(crate) fn drop_ended(&self) {
        let has_ended =
            |fate, guard: &Kept| fate == Fate::Forgotten && guard.view().has_ended_by_itself();
        for guard in self.take_outliving(has_ended) {
            self.note(Seen::ForgottenEnded);
            drop(guard);
        }
    }

    /// Returns the true time.
    pub(crate) fn now(&self) -> u64 {
        self.host.now()
    }

    /// Returns whether the voters are not the servers themselves, but what an authority names.
    pub(crate) fn has_owners(&self) -> bool {
        self.configuration.owners.is_some()
    }

    pub(crate) fn max_ttl(&self) -> u64 {
        self.scale.max_ttl.as_nanos() as u64
    }

    /// Returns whether the process stood still after this time.
    pub(crate) fn stood_still_since(&self, since: u64) -> bool {
        self.host.stood_still_since(since)
    }

    pub(crate) fn note(&self, what: Seen) {
        self.network.lock().seen.note(what);
    }

    /// Notes in the trace what a user sees.
    pub(crate) fn tell(&self, what: impl Hash + fmt::Debug) {
        let (process, life, at) = (self.host.process, self.host.life, self.now());
        let text = format!("{} {what:?}", self.host.name());
        let mut network = self.network.lock();
        network.trace.note(at, (process, life, what), || text);
    }

    /// Notes something that must not happen.
    pub(crate) fn fail(&self, text: impl fmt::Display) {
        let (at, process) = (Seconds(self.now()), self.host.name());
        self.registry().fail(format!("{at} {process}: {text}"));
    }

    /// Returns whether the nodes may be the reason why something fails that a `Redlock` was asked for at this time:
    /// since then, more nodes than there are to spare could not vote, or have not answered each command in time. A
    /// short ttl is over before an answer is late.
    pub(crate) fn nodes_may_fail(
        &self,
        service: ServiceId,
        spare: usize,
        ttl: Duration,
        since: u64,
    ) -> bool {
        if self.is_quiet(since) {
            return false;
        }
        // What a member of an authority says is not known here, and neither is which answers the driver believes.
        if self.has_owners() || self.has_senseless_answers() || ttl < SHORT_TTL {
            return true;
        }
        let witness = Witness {
            host: &self.host,
            service,
            since,
            unchanged_since: since.saturating_sub(self.max_ttl() * 11 / 10 + 3 * SECOND),
        };
        let servers = self.scale.servers;
        self.network.lock().unreliable_servers(witness, servers) > spare
    }

    /// Returns whether some answers make no sense now.
    pub(crate) fn has_senseless_answers(&self) -> bool {
        self.network.lock().weather.has_senseless_answers()
    }

    /// Notes that a lock is released by force from now on.
    pub(crate) fn force(&self, token: Token) {
        self.registry().force(token, self.now());
        self.network.lock().releases.force(token);
    }

    pub(crate) fn is_calm(&self) -> bool {
        self.stages.has_come(Stage::Calm)
    }

    /// Returns how long a user keeps a lock now, on average.
    pub(crate) fn work(&self) -> Duration {
        if self.is_calm() {
            self.scale.work.min(CALM_WORK)
        } else {
            self.scale.work
        }
    }

    /// Waits for about this time, or until all processes are told to end.
    pub(crate) async fn pause(&self, rng: &mut Rng, mean: Duration) {
        let pause = Duration::from_nanos(rng.around(mean.as_nanos() as u64));
        tokio::select! {
            biased;
            () = self.stages.come(Stage::End) => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

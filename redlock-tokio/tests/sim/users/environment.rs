//! What the code of a process knows of its world.

use std::{fmt, hash::Hash, sync::Arc, time::Duration};

use crate::{
    host::Host,
    network::SharedNetwork,
    process::{Stage, Stages},
    quiet::{CALM_WORK, Quiet},
    registry::Registry,
    requests::Requests,
    rng::Rng,
    scale::Scale,
    seen::Seen,
    services::Services,
    users::outliving::Outliving,
};

/// What all processes share, beside the network.
#[derive(Clone)]
pub(crate) struct Records {
    pub(crate) registry: Registry,
    pub(crate) requests: Requests,
    pub(crate) services: Services,
    pub(crate) quiet: Quiet,
    pub(crate) outliving: Outliving,
}

/// One process, as its code sees it.
#[derive(Clone)]
pub(crate) struct Environment {
    pub(crate) host: Arc<Host>,
    pub(crate) network: SharedNetwork,
    pub(crate) records: Records,
    pub(crate) scale: Scale,
    /// The voters are not the servers themselves, but what an authority names.
    pub(crate) has_owners: bool,
    pub(crate) stages: Stages,
}

impl Records {
    pub(crate) fn new() -> Self {
        Self {
            registry: Registry::new(),
            requests: Requests::default(),
            services: Services::default(),
            quiet: Quiet::new(),
            outliving: Outliving::default(),
        }
    }

    /// Drops the guards of a process whose runtime has gone. None of them is valid. Returns how many there were.
    pub(crate) fn drop_outliving(&self, host: &Arc<Host>) -> usize {
        let guards = self.outliving.take(host);
        let count = guards.len();
        for dropping in guards {
            if let Err(text) = dropping() {
                self.registry.fail(text);
            }
        }
        count
    }
}

impl Environment {
    /// Returns the true time.
    pub(crate) fn now(&self) -> u64 {
        self.host.now()
    }

    pub(crate) fn max_ttl(&self) -> u64 {
        self.scale.max_ttl.as_nanos() as u64
    }

    pub(crate) fn note(&self, what: Seen) {
        self.network.lock().seen.note(what);
    }

    /// Notes in the trace what a user sees.
    pub(crate) fn tell(&self, what: impl Hash + fmt::Debug) {
        let (process, life, at) = (self.host.process, self.host.life, self.now());
        let text = format!("{what:?}");
        let mut network = self.network.lock();
        network.trace.note(at, (process, life, what), || {
            format!("process {process} (life {life}) {text}")
        });
    }

    /// Notes something that must not happen.
    pub(crate) fn fail(&self, text: impl fmt::Display) {
        let (process, life, at) = (self.host.process, self.host.life, self.now());
        let at = crate::trace::Seconds(at);
        let registry = &self.records.registry;
        registry.fail(format!("{at} process {process} (life {life}): {text}"));
    }

    /// Returns whether some answers make no sense now.
    pub(crate) fn has_senseless_answers(&self) -> bool {
        self.network.lock().weather.rubbish > 0
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

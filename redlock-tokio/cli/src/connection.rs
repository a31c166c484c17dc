use std::{
    ffi::{OsStr, OsString},
    fs,
    os::unix::ffi::OsStrExt,
    time::Duration,
};

use redlock_core::{Ttl, Validity};
use redlock_tokio::{Drift, Durability, Lock, LockOptions, Redlock, RedlockBuilder, TlsOptions};

use crate::{
    args::{self, Connection, LockArgs},
    exit::{Failure, Result},
};

/// The ttl of locks for which none is set.
const DEFAULT_TTL: Duration = Duration::from_secs(10);

impl Connection {
    /// Returns the ttl of locks, if this is what the arguments say.
    pub(crate) fn ttl(&self, ttl: Option<Duration>) -> Duration {
        ttl.unwrap_or(DEFAULT_TTL.min(self.max_ttl))
    }

    pub(crate) fn client_name(&self) -> Option<&String> {
        given(self.client_name.as_ref())
    }

    /// Connects to the nodes for a look.
    pub(crate) async fn look(&self) -> Result<Redlock> {
        self.connect(self.ttl(None)).await
    }

    pub(crate) async fn connect(&self, ttl: Duration) -> Result<Redlock> {
        if ttl > self.max_ttl {
            let max = self.max_ttl;
            let message = format!("the ttl of {ttl:?} is longer than --max-ttl, which is {max:?}");
            return Err(Failure::usage(message));
        }
        let nodes = given(self.nodes.as_ref()).ok_or_else(|| {
            Failure::usage("there are no nodes: use --nodes or --config, or set REDLOCK_NODES")
        })?;
        let builder = self.builder()?.ttl(ttl).nodes(nodes);
        Ok(builder.build().await?)
    }

    /// Checks that no node forgets a lock that is kept for so long.
    pub(crate) fn check_keep(&self, keep: Duration) -> Result<()> {
        let validity = Ttl::new(self.max_ttl).ok();
        let validity = validity.and_then(|ttl| Validity::new(ttl, Drift::default()).ok());
        let needed = validity.and_then(|it| it.lasting(keep).ok());
        let needed = needed.map_or(Duration::MAX, |it| it.ttl().as_duration());
        if needed > self.max_ttl {
            return Err(Failure::usage(format_args!(
                "--keep-for {keep:?} needs a --max-ttl of {needed:?}, and the same in all programs that use these nodes"
            )));
        }
        Ok(())
    }

    /// Returns a builder without nodes, with what the arguments say.
    fn builder(&self) -> Result<RedlockBuilder> {
        let durability = match self.durability {
            args::Durability::Volatile => Durability::Volatile,
            args::Durability::FsyncAlways => Durability::FsyncAlways,
            args::Durability::LosslessFailovers => Durability::LosslessFailovers,
        };
        let mut builder = Redlock::builder()
            .prefix(&self.prefix)
            .max_ttl(self.max_ttl)
            .durability(durability)
            .confirmation_window(self.confirmation_window)
            .node_timeout(self.node_timeout);
        if self.allow_unvetted_nodes {
            builder = builder.allow_unvetted_nodes();
        }
        if let Some(name) = self.client_name() {
            builder = builder.client_name(name);
        }
        Ok(match self.tls()? {
            Some(tls) => builder.tls(tls),
            None => builder,
        })
    }

    fn tls(&self) -> Result<Option<TlsOptions>> {
        let ca = given(self.tls_ca.as_ref());
        let name = given(self.tls_server_name.as_ref());
        let certificate = given(self.tls_cert.as_ref()).zip(given(self.tls_key.as_ref()));
        let has_either = [&self.tls_cert, &self.tls_key].map(|it| given(it.as_ref()).is_some());
        if certificate.is_none() && has_either.contains(&true) {
            return Err(Failure::usage(
                "a client certificate has two files: set --tls-cert and --tls-key",
            ));
        }
        let mut options = TlsOptions::new();
        if let Some(ca) = ca {
            options = options.ca_certificates(read(ca)?);
        }
        if let Some((certificate, key)) = certificate {
            options = options.client_certificate(read(certificate)?, read(key)?);
        }
        if let Some(name) = name {
            options = options.server_name(name);
        }
        let is_set = ca.is_some() || certificate.is_some() || name.is_some();
        Ok(is_set.then_some(options))
    }
}

/// Returns a value that is not empty. An option that is empty takes back the value of a variable, or of a file.
fn given<T: AsRef<OsStr>>(value: Option<&T>) -> Option<&T> {
    value.filter(|it| !it.as_ref().is_empty())
}

fn read(file: &OsStr) -> Result<Vec<u8>> {
    let bytes = fs::read(file);
    bytes.map_err(|error| Failure::usage(format_args!("{}: {error}", file.display())))
}

impl LockArgs {
    /// Checks that this kind of lock can have so many keys.
    pub(crate) fn check(&self, keys: &[OsString]) -> Result<()> {
        if keys.len() > 1 && (self.shared || self.writer || self.permits.is_some()) {
            return Err(Failure::usage(
                "several keys are locked as plain locks: leave out --shared, --writer and --permits, or name one key",
            ));
        }
        Ok(())
    }

    /// Returns the request for the lock of this key, or of all of these together.
    pub(crate) fn lock(&self, redlock: &Redlock, keys: &[OsString]) -> Lock {
        let lock = match (keys, self.permits) {
            ([key], Some(permits)) => {
                let semaphore = redlock.semaphore(key.as_bytes(), permits.into());
                semaphore.acquire()
            }
            ([key], None) if self.shared => redlock.rw_lock(key.as_bytes()).read(),
            ([key], None) if self.writer => redlock.rw_lock(key.as_bytes()).write(),
            ([key], None) => redlock.lock(key.as_bytes()),
            _ => redlock.lock_all(keys.iter().map(|it| it.as_bytes())),
        };
        if self.fenced {
            lock.options(LockOptions::new().fenced(true))
        } else {
            lock
        }
    }
}

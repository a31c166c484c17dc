use std::{ffi::OsStr, fmt, fs, os::unix::ffi::OsStrExt, path::Path, time::Duration};

use redlock_core::{Ttl, Validity};
use redlock_tokio::{
    BuildError, Drift, Durability, Lock, LockOptions, Redlock, RedlockBuilder, TlsOptions,
};

use crate::{
    args::{self, Connection, LockArgs},
    exit::Failure,
    nodes_file::{self, Listed},
};

/// The ttl of locks for which none is set.
const DEFAULT_TTL: Duration = Duration::from_secs(10);

impl Connection {
    /// Returns the ttl of locks, if this is what the arguments say.
    pub(crate) fn ttl(&self, ttl: Option<Duration>) -> Duration {
        ttl.unwrap_or(DEFAULT_TTL.min(self.max_ttl))
    }

    /// Connects to the nodes for a look.
    pub(crate) async fn look(&self) -> Result<Redlock, Failure> {
        self.connect(self.ttl(None)).await
    }

    pub(crate) async fn connect(&self, ttl: Duration) -> Result<Redlock, Failure> {
        if ttl > self.max_ttl {
            let max = self.max_ttl;
            let message = format!("the ttl of {ttl:?} is longer than --max-ttl, which is {max:?}");
            return Err(Failure::usage(message));
        }
        let nodes = self.nodes()?;
        let builder = self.builder()?.ttl(ttl);
        let builder = match &nodes {
            Nodes::List(list) => builder.node_list(list),
            Nodes::File(_, listed) => builder.nodes(listed.iter().map(|it| &it.url)),
        };
        let built = builder.build().await;
        built.map_err(|error| nodes.failure(error))
    }

    /// Checks that no node forgets a lock that is kept for so long.
    pub(crate) fn check_keep(&self, keep: Duration) -> Result<(), Failure> {
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
    fn builder(&self) -> Result<RedlockBuilder, Failure> {
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
        if let Some(label) = given(self.label.as_ref()) {
            builder = builder.client_label(label);
        }
        Ok(match self.tls()? {
            Some(tls) => builder.tls(tls),
            None => builder,
        })
    }

    fn tls(&self) -> Result<Option<TlsOptions>, Failure> {
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

    fn nodes(&self) -> Result<Nodes<'_>, Failure> {
        let list = given(self.nodes.as_ref());
        let file = given(self.nodes_file.as_ref());
        match (list, file) {
            (Some(list), None) => Ok(Nodes::List(list)),
            (None, Some(file)) => {
                let text = String::from_utf8(read(file)?)
                    .map_err(|_| Failure::usage(in_file(file, "it is not text in UTF-8")))?;
                Ok(Nodes::File(file, nodes_file::parse(&text)))
            }
            (None, None) => Err(Failure::usage(
                "there are no nodes: use --nodes or --nodes-file, or set REDLOCK_NODES",
            )),
            (Some(_), Some(_)) => Err(Failure::usage(
                "there are two lists of nodes: use one of --nodes and --nodes-file, and one of REDLOCK_NODES and \
                 REDLOCK_NODES_FILE",
            )),
        }
    }
}

/// The nodes as they were given.
enum Nodes<'a> {
    List(&'a str),
    File(&'a OsStr, Vec<Listed>),
}

impl Nodes<'_> {
    /// Says which line of the file is wrong.
    fn failure(&self, error: BuildError) -> Failure {
        let Self::File(file, listed) = self else {
            return error.into();
        };
        let in_line = |position: usize, error: &dyn fmt::Display| {
            let line = listed.get(position - 1).map_or(0, |it| it.line);
            Failure::usage(format_args!("{}, line {line}: {error}", file.display()))
        };
        match &error {
            BuildError::Url { position, error } => in_line(*position, error),
            BuildError::Tls { position, error } => in_line(*position, error),
            BuildError::Quorum(_) => Failure::usage(in_file(file, error)),
            _ => error.into(),
        }
    }
}

fn in_file(file: &OsStr, error: impl fmt::Display) -> String {
    format!("{}: {error}", file.display())
}

/// Returns a value that is not empty. An empty variable is as good as none.
fn given<T: AsRef<OsStr>>(value: Option<&T>) -> Option<&T> {
    value.filter(|it| !it.as_ref().is_empty())
}

fn read(file: &OsStr) -> Result<Vec<u8>, Failure> {
    fs::read(Path::new(file)).map_err(|error| Failure::usage(in_file(file, error)))
}

impl LockArgs {
    pub(crate) fn lock(&self, redlock: &Redlock, key: &OsStr) -> Lock {
        let key = key.as_bytes();
        let lock = match self.permits {
            Some(permits) => redlock.semaphore(key, permits.into()).acquire(),
            None if self.shared => redlock.rw_lock(key).read(),
            None if self.writer => redlock.rw_lock(key).write(),
            None => redlock.lock(key),
        };
        if self.fenced {
            lock.options(LockOptions::new().fenced())
        } else {
            lock
        }
    }
}

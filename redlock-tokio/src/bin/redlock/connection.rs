use std::{ffi::OsStr, fs, os::unix::ffi::OsStrExt, time::Duration};

use redlock_tokio::{ClusterNodes, Durability, Lock, LockOptions, Redlock, RedlockBuilder};

use crate::{
    args::{self, Connection, LockArgs},
    exit::Failure,
};

impl Connection {
    /// Returns the ttl of locks, if this is what the arguments say.
    pub(crate) fn ttl(&self, ttl: Option<Duration>) -> Duration {
        ttl.unwrap_or(DEFAULT_TTL.min(self.max_ttl))
    }

    /// Connects to the nodes, for locks with this ttl.
    pub(crate) async fn connect(&self, ttl: Duration) -> Result<Redlock, Failure> {
        Ok(self.builder(ttl)?.build().await?)
    }

    /// Connects to the nodes for a look.
    pub(crate) async fn look(&self) -> Result<Redlock, Failure> {
        self.connect(self.ttl(None)).await
    }

    /// Returns a builder over the nodes, for locks with this ttl.
    pub(crate) fn builder(&self, ttl: Duration) -> Result<RedlockBuilder, Failure> {
        let durability = match self.durability {
            args::Durability::Volatile => Durability::Volatile,
            args::Durability::FsyncAlways => Durability::FsyncAlways,
            args::Durability::LosslessFailovers => Durability::LosslessFailovers,
        };
        if ttl > self.max_ttl {
            let max = self.max_ttl;
            let message = format!("the ttl of {ttl:?} is longer than --max-ttl, which is {max:?}");
            return Err(Failure::usage(message));
        }
        let mut builder = self.nodes()?;
        if let Some(label) = &self.label {
            builder = builder.client_label(label);
        }
        Ok(builder
            .prefix(&self.prefix)
            .ttl(ttl)
            .max_ttl(self.max_ttl)
            .durability(durability)
            .node_timeout(self.node_timeout))
    }

    fn nodes(&self) -> Result<RedlockBuilder, Failure> {
        let is_set = |it: &&String| !it.is_empty();
        let list = self.nodes.as_ref().filter(is_set);
        let cluster = self.cluster.as_ref().filter(is_set);
        let file = self.nodes_file.as_ref();
        let file = file.filter(|it| !it.as_os_str().is_empty());
        let builder = Redlock::builder();
        match (list, file, cluster) {
            (Some(list), None, None) => Ok(builder.node_list(list)),
            (None, Some(file), None) => {
                let text = fs::read_to_string(file)
                    .map_err(|error| Failure::usage(format!("{}: {error}", file.display())))?;
                let lines = text
                    .lines()
                    .filter(|line| !line.trim_start().starts_with('#'));
                Ok(builder.node_list(&lines.collect::<Vec<_>>().join("\n")))
            }
            (None, None, Some(seeds)) => Ok(builder.cluster(ClusterNodes::new(seeds.split(',')))),
            (None, None, None) => Err(Failure::usage(
                "there are no nodes: use --nodes, --nodes-file or --cluster, or set REDLOCK_NODES",
            )),
            _ => Err(Failure::usage(
                "there are two lists of nodes: use one of --nodes, --nodes-file and --cluster, and one of \
                 REDLOCK_NODES, REDLOCK_NODES_FILE and REDLOCK_CLUSTER",
            )),
        }
    }
}

/// The ttl of locks for which none is set.
const DEFAULT_TTL: Duration = Duration::from_secs(10);

impl LockArgs {
    /// Returns the request for a lock.
    pub(crate) fn lock(&self, redlock: &Redlock, key: &OsStr) -> Lock {
        let key = key.as_bytes();
        let lock = match (self.shared, self.permits) {
            (true, _) => redlock.rw_lock(key).read(),
            (false, Some(permits)) => redlock.semaphore(key, permits).acquire(),
            (false, None) => redlock.lock(key),
        };
        if self.fenced {
            lock.options(LockOptions::new().fenced())
        } else {
            lock
        }
    }
}

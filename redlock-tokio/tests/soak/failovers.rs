use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use fastrand::Rng;
use redlock_kit::{Cluster, RedisServer, SlotMove};

use crate::{
    Result,
    bed::Ground,
    clock,
    crew::{Crew, WORKERS, some_waiters},
    fault::{CALM, Fault, Kind},
    settings::Settings,
    support::{MS, shards},
    topology::Topology,
};

/// How long the first lock may take that the votes of a new owner made possible.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long workers go on between two faults.
const PEACE: Duration = Duration::from_secs(1);

/// How long a partition lasts that must break exclusion: about the rest of a lock's validity.
const HARM: Duration = Duration::from_millis(1500);

/// How often the faults that must break exclusion occur.
const HARMS: usize = 4;

/// Causes failovers, one after the other. After each, locks must be granted again.
pub(crate) struct Failovers<'a> {
    pub(crate) ground: &'a Ground,
    pub(crate) settings: &'a Settings,
    pub(crate) crew: &'a Crew,
    /// When the latest hold began that was reported, in nanoseconds of the workers' clock.
    pub(crate) latest: &'a AtomicU64,
}

impl Failovers<'_> {
    /// Causes all kinds of faults in turn, in random order, until the time is up and each has occurred.
    pub(crate) fn carry_out(&self) -> Result<()> {
        let start = Instant::now();
        let mut rng = Rng::with_seed(self.settings.seed);
        if self.settings.breakage.is_some() {
            let harm = |_| self.cause(Kind::CutOffAndFailOver, start, &mut rng);
            return (0..HARMS).try_for_each(harm);
        }
        let mut is_complete = false;
        loop {
            let mut kinds = Kind::usual(self.settings.topology);
            rng.shuffle(&mut kinds);
            for kind in kinds {
                if is_complete && start.elapsed() > self.settings.length + CALM {
                    return Ok(());
                }
                self.cause(kind, start, &mut rng)?;
            }
            is_complete = true;
        }
    }

    /// Causes one fault, and waits until locks are granted after it.
    fn cause(&self, kind: Kind, start: Instant, rng: &mut Rng) -> Result<()> {
        thread::sleep(PEACE);
        let (ground, breaks) = (self.ground, self.settings.breakage.is_some());
        let master = match breaks {
            // Of a cluster, the slot in the middle votes alone.
            true => ground.masters() / 2,
            false => rng.usize(..ground.masters()),
        };
        let old = ground.master(master).ok_or("there is no master")?;
        let victims = match kind {
            Kind::FailWaiters => some_waiters(rng),
            _ => vec![old],
        };
        self.crew.tell(Fault {
            at: start.elapsed(),
            kind,
            length: Duration::ZERO,
            victims: victims.clone(),
        });
        let (server, worker) = (ground.server(old), [rng.usize(..WORKERS)]);
        match kind {
            Kind::Crash => server.kill(),
            Kind::Freeze => server.freeze(),
            Kind::CutOff | Kind::CutOffAndFailOver => ground.cut_off(old, rng),
            Kind::StopWorkerAndFailOver => self.crew.fail(&worker)?,
            Kind::FailWaiters => self.crew.fail(&victims)?,
            Kind::FailOver => {}
            kind => ground.cause(kind, rng)?,
        }
        match kind {
            Kind::Crash | Kind::Freeze | Kind::CutOff => ground.wait_for_other_master(old)?,
            Kind::FailOver | Kind::StopWorkerAndFailOver => ground.fail_over(master, false)?,
            Kind::CutOffAndFailOver => ground.fail_over(master, true)?,
            Kind::FailWaiters => thread::sleep(CALM),
            _ => {}
        }
        let named = clock::now();
        // The old master returns before, while or after the new one gets its vote.
        thread::sleep(if breaks { HARM } else { MS(rng.u64(..3500)) });
        match kind {
            Kind::StopWorkerAndFailOver => self.crew.thaw(&worker),
            Kind::FailWaiters => self.crew.thaw(&victims),
            Kind::Crash => server.restart()?,
            Kind::Freeze => server.thaw(),
            Kind::CutOff | Kind::CutOffAndFailOver => ground.heal(),
            _ => {}
        }
        if breaks {
            return Ok(());
        }
        let settling = u64::try_from(Topology::SETTLING.as_nanos())?;
        let deadline = Instant::now() + PATIENCE;
        while self.latest.load(Relaxed) < named + settling {
            if Instant::now() > deadline {
                return Err(format!("no lock was granted within {PATIENCE:?}").into());
            }
            thread::sleep(MS(10));
        }
        Ok(())
    }
}

/// Servers whose masters fail over, unless they are independent.
impl Ground {
    /// How many masters there are.
    pub(crate) fn masters(&self) -> usize {
        match self {
            Self::Masters(masters) => masters.servers.len(),
            Self::Sentinel(_) => 1,
            Self::Cluster(cluster) => cluster.shard_count(),
        }
    }

    /// Returns the server that is this master now.
    pub(crate) fn master(&self, master: usize) -> Option<usize> {
        match self {
            Self::Masters(_) => Some(master),
            Self::Sentinel(group) => group.master(),
            Self::Cluster(cluster) => cluster.master_of(master),
        }
    }

    pub(crate) fn server(&self, number: usize) -> &RedisServer {
        match self {
            Self::Masters(masters) => masters.servers.get(number),
            Self::Sentinel(group) => group.server(number),
            Self::Cluster(cluster) => cluster.node(number),
        }
    }

    /// Orders a failover, with the old master or without its help.
    fn fail_over(&self, master: usize, without: bool) -> Result<()> {
        match self {
            Self::Masters(_) => {}
            Self::Sentinel(group) => drop(group.fail_over()?),
            Self::Cluster(cluster) if without => drop(cluster.force_fail_over(master)?),
            Self::Cluster(cluster) => drop(cluster.fail_over(master)?),
        }
        Ok(())
    }

    fn wait_for_other_master(&self, old: usize) -> Result<()> {
        match self {
            Self::Masters(_) => {}
            Self::Sentinel(group) => drop(group.wait_for_other_master(old)?),
            Self::Cluster(cluster) => drop(cluster.wait_for_other_master(old)?),
        }
        Ok(())
    }

    /// Cuts a server off from its peers.
    fn cut_off(&self, server: usize, rng: &mut Rng) {
        match self {
            Self::Masters(_) => {}
            Self::Sentinel(group) => {
                // Sometimes a minority of the sentinels is on the old master's side.
                let sentinel = rng.bool().then(|| rng.usize(1..group.sentinel_count()));
                group.cut_off(&[server], sentinel.as_slice());
            }
            Self::Cluster(cluster) => cluster.cut_off(&[server]),
        }
    }

    fn heal(&self) {
        match self {
            Self::Masters(_) => {}
            Self::Sentinel(group) => group.heal(),
            Self::Cluster(cluster) => cluster.heal(),
        }
    }

    /// Causes a fault that only this topology has.
    fn cause(&self, kind: Kind, rng: &mut Rng) -> Result<()> {
        match self {
            Self::Sentinel(group) if kind == Kind::RestartSentinel => {
                let sentinel = group.sentinel(rng.usize(..group.sentinel_count()));
                sentinel.kill();
                thread::sleep(MS(rng.u64(..1000)));
                Ok(sentinel.restart()?)
            }
            Self::Cluster(cluster) => move_slot(cluster, kind == Kind::CrashTarget, rng),
            _ => Err(format!("{kind:?} is no fault of this topology").into()),
        }
    }
}

/// Moves the slot of a voter to another shard. The target crashes meanwhile, or sometimes one of both fails over.
fn move_slot(cluster: &Cluster, crashes: bool, rng: &mut Rng) -> Result<()> {
    let shards = cluster.shard_count();
    let slot = shards::slot(rng.usize(..shards));
    let owner = cluster.owner_of(slot).ok_or("the slot has no owner")?;
    let from = cluster.shard_of(owner);
    let to = (from + 1) % shards;
    let target = cluster.master_of(to).ok_or("there is no master")?;
    let moves = cluster.start_move(slot..=slot, to)?;
    for slot_move in &moves {
        slot_move.move_keys(rng.usize(..5))?;
        thread::sleep(MS(rng.u64(..300)));
        if crashes {
            cluster.node(target).kill();
            cluster.wait_for_other_master(target)?;
        } else if rng.bool() {
            cluster.fail_over([from, to][rng.usize(..2)])?;
        }
    }
    moves.into_iter().try_for_each(SlotMove::finish)?;
    if crashes {
        // Valkey 9.1 remembers the move, and can take its shard over without a vote and without its keys.
        cluster.node(target).restart()?;
    }
    Ok(())
}

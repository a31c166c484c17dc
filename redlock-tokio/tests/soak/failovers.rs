use std::{
    sync::{
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::Sender,
    },
    thread,
    time::{Duration, Instant},
};

use fastrand::Rng;
use redlock_kit::{Cluster, RedisServer, Sentinels, SlotMove};

use crate::{
    Result, clock,
    crew::{Crew, WORKERS},
    fault::{Fault, Kind},
    news::{News, OwnerChange},
    settings::{Breakage, Settings},
    support::MS,
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
    pub(crate) settings: &'a Settings,
    pub(crate) crew: &'a Crew,
    pub(crate) inbox: &'a Sender<News>,
    /// When the latest hold began that was reported, in nanoseconds of the workers' clock.
    pub(crate) latest: &'a AtomicU64,
}

/// Servers whose masters fail over.
pub(crate) trait FailsOver {
    /// How many masters there are.
    fn masters(&self) -> usize;

    /// Returns the master that votes alone in a run that must break exclusion.
    fn sole_voter(&self) -> usize;

    /// Returns the server that is this master now.
    fn master(&self, master: usize) -> Option<usize>;

    fn server(&self, number: usize) -> &RedisServer;

    /// Orders a failover, with the old master or without its help.
    fn fail_over(&self, master: usize, without: bool) -> Result<()>;

    fn wait_for_other_master(&self, old: usize) -> Result<()>;

    /// Cuts a server off from its peers.
    fn cut_off(&self, server: usize, rng: &mut Rng);

    fn heal(&self);

    /// Causes a fault that only this topology has. Returns whether a node has another owner then.
    fn cause(&self, kind: Kind, rng: &mut Rng) -> Result<bool>;
}

impl Failovers<'_> {
    /// Causes all kinds of faults in turn, in random order, until the time is up and each has occurred.
    pub(crate) fn carry_out(&self, ground: &impl FailsOver) -> Result<()> {
        let start = Instant::now();
        let mut rng = Rng::with_seed(self.settings.seed);
        match self.settings.breakage {
            None => {}
            Some(Breakage::Trust) => return self.harm(ground, &mut rng),
            Some(_) => {
                thread::sleep(self.settings.length);
                return Ok(());
            }
        }
        let mut is_complete = false;
        loop {
            let mut kinds = self.settings.kinds().to_vec();
            rng.shuffle(&mut kinds);
            for kind in kinds {
                if is_complete && start.elapsed() > self.settings.length {
                    return Ok(());
                }
                thread::sleep(PEACE);
                self.cause(ground, kind, start.elapsed(), &mut rng)?;
            }
            is_complete = true;
        }
    }

    /// Causes one fault, and waits until locks are granted after it.
    fn cause(
        &self,
        ground: &impl FailsOver,
        kind: Kind,
        at: Duration,
        rng: &mut Rng,
    ) -> Result<()> {
        let master = rng.usize(..ground.masters());
        let old = ground.master(master).ok_or("there is no master")?;
        self.tell(kind, at, old)?;
        let began = clock::now();
        let server = ground.server(old);
        let worker = rng.usize(..WORKERS);
        let changes = match kind {
            Kind::FailOver => ground.fail_over(master, false).map(|()| true),
            Kind::StopWorkerAndFailOver => {
                self.crew.stop(worker);
                ground.fail_over(master, false).map(|()| true)
            }
            Kind::CrashMaster => {
                server.kill();
                ground.wait_for_other_master(old).map(|()| true)
            }
            Kind::FreezeMaster => {
                server.freeze();
                ground.wait_for_other_master(old).map(|()| true)
            }
            Kind::CutOff => {
                ground.cut_off(old, rng);
                ground.wait_for_other_master(old).map(|()| true)
            }
            Kind::CutOffAndFailOver => {
                ground.cut_off(old, rng);
                ground.fail_over(master, true).map(|()| true)
            }
            kind => ground.cause(kind, rng),
        }?;
        let named = clock::now();
        if changes {
            self.inbox
                .send(News::OwnerChange(OwnerChange { kind, began, named }))?;
        }
        // The old master returns before, while or after the new one gets its vote.
        thread::sleep(MS(rng.u64(..3500)));
        match kind {
            Kind::StopWorkerAndFailOver => self.crew.resume(worker),
            Kind::CrashMaster => server.restart()?,
            Kind::FreezeMaster => server.thaw(),
            Kind::CutOff | Kind::CutOffAndFailOver => ground.heal(),
            _ => {}
        }
        self.wait_for_locks_after(named)
    }

    /// Fails over while a partition separates the old master, where new locks must not be granted at once.
    fn harm(&self, ground: &impl FailsOver, rng: &mut Rng) -> Result<()> {
        let start = Instant::now();
        for _ in 0..HARMS {
            thread::sleep(PEACE);
            let voter = ground.sole_voter();
            let old = ground.master(voter).ok_or("there is no master")?;
            self.tell(Kind::CutOffAndFailOver, start.elapsed(), old)?;
            ground.cut_off(old, rng);
            ground.fail_over(voter, true)?;
            thread::sleep(HARM);
            ground.heal();
        }
        Ok(())
    }

    fn wait_for_locks_after(&self, named: u64) -> Result<()> {
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

    fn tell(&self, kind: Kind, at: Duration, victim: usize) -> Result<()> {
        self.inbox.send(News::Fault(Fault {
            at,
            kind,
            length: Duration::ZERO,
            victims: vec![victim],
        }))?;
        Ok(())
    }
}

impl FailsOver for Sentinels {
    fn masters(&self) -> usize {
        1
    }

    fn sole_voter(&self) -> usize {
        0
    }

    fn master(&self, _: usize) -> Option<usize> {
        Self::master(self)
    }

    fn server(&self, number: usize) -> &RedisServer {
        Self::server(self, number)
    }

    fn fail_over(&self, _: usize, _: bool) -> Result<()> {
        Self::fail_over(self)?;
        Ok(())
    }

    fn wait_for_other_master(&self, old: usize) -> Result<()> {
        Self::wait_for_other_master(self, old)?;
        Ok(())
    }

    fn cut_off(&self, server: usize, rng: &mut Rng) {
        // Sometimes a minority of the sentinels is on the old master's side.
        let sentinel = rng.bool().then(|| rng.usize(1..self.sentinel_count()));
        let sentinels: Vec<_> = sentinel.into_iter().collect();
        Self::cut_off(self, &[server], &sentinels);
    }

    fn heal(&self) {
        Self::heal(self);
    }

    fn cause(&self, kind: Kind, rng: &mut Rng) -> Result<bool> {
        debug_assert_eq!(kind, Kind::RestartSentinel);
        let sentinel = self.sentinel(rng.usize(..self.sentinel_count()));
        sentinel.kill();
        thread::sleep(MS(rng.u64(..1000)));
        sentinel.restart()?;
        Ok(false)
    }
}

impl FailsOver for Cluster {
    fn masters(&self) -> usize {
        self.shard_count()
    }

    fn sole_voter(&self) -> usize {
        let owner = self.owner_of(slot_of_voter(0, 1));
        owner.map_or(0, |it| self.shard_of(it))
    }

    fn master(&self, master: usize) -> Option<usize> {
        self.master_of(master)
    }

    fn server(&self, number: usize) -> &RedisServer {
        self.node(number)
    }

    fn fail_over(&self, master: usize, without: bool) -> Result<()> {
        if without {
            self.force_fail_over(master)?;
        } else {
            Self::fail_over(self, master)?;
        }
        Ok(())
    }

    fn wait_for_other_master(&self, old: usize) -> Result<()> {
        Self::wait_for_other_master(self, old)?;
        Ok(())
    }

    fn cut_off(&self, server: usize, _: &mut Rng) {
        Self::cut_off(self, &[server]);
    }

    fn heal(&self) {
        Self::heal(self);
    }

    fn cause(&self, kind: Kind, rng: &mut Rng) -> Result<bool> {
        debug_assert!(matches!(kind, Kind::MoveSlot | Kind::CrashTarget));
        let voter = rng.usize(..self.shard_count());
        let slot = slot_of_voter(voter, self.shard_count());
        let owner = self.owner_of(slot).ok_or("the slot has no owner")?;
        let from = self.shard_of(owner);
        let to = (from + 1) % self.shard_count();
        let target = self.master_of(to).ok_or("there is no master")?;
        let moves = self.start_move(slot..=slot, to)?;
        for slot_move in &moves {
            slot_move.move_keys(rng.usize(..5))?;
            thread::sleep(MS(rng.u64(..300)));
            match kind {
                Kind::CrashTarget => {
                    self.node(target).kill();
                    Self::wait_for_other_master(self, target)?;
                }
                _ if rng.bool() => {
                    let half = [from, to][rng.usize(..2)];
                    Self::fail_over(self, half)?;
                }
                _ => {}
            }
        }
        moves.into_iter().try_for_each(SlotMove::finish)?;
        if kind == Kind::CrashTarget {
            // Valkey 9.1 remembers the move, and can take its shard over without a vote and without its keys.
            self.node(target).restart()?;
        }
        Ok(true)
    }
}

/// Returns the slot in the middle of the voter's part.
fn slot_of_voter(voter: usize, voters: usize) -> u16 {
    let slot = (2 * voter + 1) * 16_384 / (2 * voters);
    u16::try_from(slot).expect("a slot")
}

//! What is checked: the configurations, and the mutations that must be caught.

use std::{ops::Range, time::Duration};

use redlock_core::{
    Drift, Eligibility, FencingToken, KeepAlive, Lease, LeaseConfig, Nonce, Permits, Quarantine,
    Quorum, RetrySchedule, Share, Ttl, Validity,
};

use crate::{
    masters::slot,
    steps::Step,
    world::{Client, Counter, Faults, MASTERS, MICROS_PER_TICK, Master, Phase, World},
};

const MS: fn(u64) -> Duration = Duration::from_millis;

/// The ttl of every lock, in ticks.
pub(crate) const TTL: u8 = 3;

/// One configuration of the world.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) name: &'static str,
    pub(crate) clients: usize,
    /// The keys that each of them wants.
    pub(crate) keys: fn(usize) -> Range<usize>,
    /// Whether the keys are the slots of a semaphore. Then this is the slot that each client prefers.
    pub(crate) preferred: Option<fn(usize) -> usize>,
    /// Whether a client is a reader.
    pub(crate) reads: fn(usize) -> bool,
    /// Whether a writer that begins must get in.
    pub(crate) lets_writers_in: bool,
    /// Whether a client adopts the lock that the first client gives away, and does not ask for a free one.
    pub(crate) adopts: fn(usize) -> bool,
    /// Whether a client that holds the lock alone may become a reader.
    pub(crate) downgrades: bool,
    /// Whether a client may set the release of its lock to the end of its validity.
    pub(crate) releases_later: bool,
    /// How often a client may try.
    pub(crate) attempts: u32,
    /// For how many ticks a lock is renewed; 0 for not at all.
    pub(crate) max_hold: u8,
    /// The last tick at which a client may begin.
    pub(crate) begin_by: u8,
    /// Whether messages from one client to one master keep their order.
    pub(crate) fifo: bool,
    pub(crate) fenced: bool,
    pub(crate) counters: Counters,
    pub(crate) wall_clocks: WallClocks,
    pub(crate) faults: Faults,
    /// The allowance for drift, in ticks.
    pub(crate) drift: u8,
    /// How long a master that restarted has no vote, in ticks.
    pub(crate) quarantine: u8,
    pub(crate) mutation: Option<Mutation>,
    /// The assumption that the world breaks, if any, so that two clients may hold the lock.
    pub(crate) beyond: Option<Beyond>,
    /// Where faults may strike, and what clients may do; everything, unless the world would be too
    /// large.
    pub(crate) allows: fn(&World, &Step) -> bool,
    /// The `sometimes` properties that must be reached.
    pub(crate) reaches: &'static [&'static str],
    /// The property that must be violated, in a negative control.
    pub(crate) violates: Option<&'static str>,
}

/// What becomes of fencing counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counters {
    /// They are on disk.
    Durable,
    /// A restart loses them with the keys.
    Lost,
    /// They expire so many ticks after the last raise.
    Expire { after: u8 },
    /// As `Lost`, and at first they are as large as the smallest proposal.
    AheadAndLost,
}

/// What clients propose first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WallClocks {
    /// Always the same: the client that begins later has the slower clock.
    Apart,
    /// The time, in microseconds.
    Agree,
    /// The same, but the first client's clock is so many ticks ahead.
    FirstAhead(u8),
}

/// An assumption that does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beyond {
    /// Clocks differ by more than the allowance.
    Clocks,
    /// Masters that forgot their keys vote at once.
    Restarts,
}

/// A driver that breaks one of the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// All attempts of a client use the same token.
    TokenReused,
    /// Votes for EXTEND count in quarantine.
    ExtendNotGated,
    /// The driver ignores that a master was promoted.
    PromotionsIgnored,
    /// Any marker is taken to be old.
    MarkerAgeIgnored,
    /// What a master has voted that was replaced is not taken back.
    NothingWithdrawn,
    /// What fences are agreed on by counts in quarantine: counters that are ahead, and accepts.
    FenceNotGated,
    /// One vote of each round is made up: a quorum that is one short.
    QuorumOneShort,
    /// A failed extension releases the keys.
    FailedExtendReleases,
    /// A failed attempt is released only where it was granted so far.
    ReleaseOnlyGranted,
    /// Fencing counters that are ahead are taken for accepts.
    CountersIgnored,
    /// Every attempt proposes what the first did.
    ProposalKept,
    /// A repair brings the key back without its counter.
    RepairWithoutCounter,
    /// Nothing is repaired before the first extension that succeeds.
    RepairedOnlyOnceExtended,
    /// Counters beside a key that is there are not raised again.
    CountersNotRaisedAgain,
    /// A master agrees that has set a part of the keys.
    PartOfTheKeys,
    /// Masters choose a slot themselves, so that they only count the holders of permits.
    PermitsCounted,
    /// Masters let a reader repair its token beside a writer's.
    RepairBesideWriter,
    /// Masters let any reader in beside a writer.
    JoinBesideWriter,
    /// Masters let a writer in beside readers.
    WriterBesideReaders,
    /// All readers on a master expire together.
    RenewedAsAWhole,
    /// Masters let those that adopt a lock have the giver's token.
    AdoptedWithoutANewToken,
    /// Masters agree to an adoption where no key is.
    AdoptedWithoutAKey,
    /// A client that gives its lock away goes on as before.
    GiverGoesOn,
    /// A lock may be adopted at any time.
    AdoptedAfterItsEnd,
    /// A driver that ends releases the locks that are to be released later.
    ReleasedTooEarly,
    /// Timers never fire.
    TimersIgnored,
}

impl Setup {
    /// Two clients, one lock, nothing goes wrong.
    pub(crate) const CALM: Self = Self {
        name: "calm",
        clients: 2,
        keys: |_| 0..1,
        preferred: None,
        reads: |_| false,
        lets_writers_in: false,
        adopts: |_| false,
        downgrades: false,
        releases_later: false,
        attempts: 2,
        max_hold: 0,
        begin_by: 3,
        fifo: true,
        fenced: false,
        counters: Counters::Durable,
        wall_clocks: WallClocks::Apart,
        faults: Faults::NONE,
        drift: 1,
        quarantine: TTL,
        mutation: None,
        beyond: None,
        allows: |_, _| true,
        reaches: &["contended"],
        violates: None,
    };

    /// A negative control: in this world two clients can hold the lock.
    pub(crate) const fn control(mut self, name: &'static str) -> Self {
        self.name = name;
        self.violates = Some("one holder");
        self.reaches = &[];
        self
    }

    /// A negative control: the same because of the driver.
    pub(crate) const fn broken(mut self, mutation: Mutation, name: &'static str) -> Self {
        self.mutation = Some(mutation);
        self.control(name)
    }

    /// The negative control violates this property instead.
    pub(crate) const fn violating(mut self, property: &'static str) -> Self {
        self.violates = Some(property);
        self
    }

    pub(crate) fn world(&self) -> World {
        World {
            // An inspection of a master is a moment before what happens in the same tick.
            now: u8::from(self.faults.promotions > 0),
            masters: core::array::from_fn(|_| self.master()),
            clients: (0..self.clients).map(|it| self.client(it)).collect(),
            faults: self.faults,
            fences: Vec::new(),
            given: None,
        }
    }

    /// Whether locks are given away.
    pub(crate) fn transfers(&self) -> bool {
        (0..self.clients).any(self.adopts)
    }

    /// The tick by which every lease has ended, whatever happens: the last begin, all attempts with
    /// a delay after each, the hold with its last validity, and the ticks that clocks have missed.
    pub(crate) fn end(&self) -> u8 {
        let attempts = self.attempts as u8 * (TTL + 1);
        self.begin_by + attempts + self.max_hold + TTL + self.faults.stalls
    }

    /// The smallest proposal.
    pub(crate) fn proposal() -> FencingToken {
        FencingToken::new(1)
    }

    /// What a client proposes first that begins at this tick.
    pub(crate) fn proposal_at(&self, client: usize, now: u8) -> FencingToken {
        let wall = match self.wall_clocks {
            WallClocks::Apart => 0,
            WallClocks::FirstAhead(ticks) if client == 0 => now + ticks,
            WallClocks::Agree | WallClocks::FirstAhead(_) => now,
        };
        FencingToken::new(Self::proposal().get() + MICROS_PER_TICK * u64::from(wall))
    }

    fn master(&self) -> Master {
        let is_ahead = self.counters == Counters::AheadAndLost;
        Master {
            counter: is_ahead.then(|| Counter {
                fence: Self::proposal(),
                expires_at: u8::MAX,
            }),
            ..Master::default()
        }
    }

    fn client(&self, index: usize) -> Client {
        let mut lease = Lease::new(self.lease_config(), Nonce::new(index as u128 + 1));
        let keys = (self.keys)(index);
        if let Some(preferred) = self.preferred {
            let permits = Permits::new(keys.len()).expect("one of the keys");
            lease.set_share(Share::Permit(permits));
            lease.prefer_slots([slot(preferred(index))].into_iter().collect());
        } else if keys.len() > 1 {
            lease.set_several_keys();
        }
        let reads = (self.reads)(index);
        if reads {
            lease.set_share(Share::Reader);
        }
        Client {
            lease,
            reads,
            keys,
            phase: Phase::Idle,
            lag: 0,
            paused: None,
            eligibility: [Eligibility::ALWAYS; MASTERS],
            kept: None,
            sights: None,
            links: Default::default(),
            extended: false,
            release_at: None,
        }
    }

    pub(crate) fn quarantine(&self) -> Quarantine {
        let length = Ttl::new(MS(self.quarantine.into())).expect("a ttl");
        Quarantine::new(length, Drift::new(0, Duration::ZERO))
    }

    fn lease_config(&self) -> LeaseConfig {
        let [ttl, drift, max_hold] = [TTL, self.drift, self.max_hold].map(|it| MS(it.into()));
        let mut config = lease_config(MASTERS, ttl, drift, max_hold);
        config.retry = config.retry.with_max_attempts(self.attempts);
        if self.preferred.is_some() {
            config.retry = config.retry.with_probes();
        }
        config
    }
}

/// The configuration of a lease that is renewed each millisecond for so long, or not at all, and tries again after a
/// millisecond.
pub(crate) fn lease_config(
    masters: usize,
    ttl: Duration,
    drift: Duration,
    max_hold: Duration,
) -> LeaseConfig {
    let ttl = Ttl::new(ttl).expect("a ttl");
    let validity = Validity::new(ttl, Drift::new(0, drift)).expect("longer than the drift");
    let keep_alive = if max_hold.is_zero() {
        KeepAlive::on_demand(max_hold)
    } else {
        KeepAlive::every(MS(1), max_hold, validity).expect("within the validity")
    };
    LeaseConfig::new(
        Quorum::majority(masters).expect("a quorum"),
        validity,
        RetrySchedule::new(MS(1)..=MS(1)).expect("a delay"),
        keep_alive,
    )
}

//! What a run has seen: faults injected and situations reached.

use std::ops::AddAssign;

macro_rules! seen {
    ($($title:literal { $($kind:ident = $name:literal,)* })*) => {
        /// Something that must have happened, or the runs have tested nothing.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub(crate) enum Seen { $($($kind,)*)* }

        impl Seen {
            const COUNT: usize = [$($(Self::$kind,)*)*].len();

            /// All of them by their kinds.
            pub(crate) const GROUPS: &[Group] = &[$(
                Group { title: $title, members: &[$((Self::$kind, $name),)*] },
            )*];
        }
    };
}

/// Things of one kind.
pub(crate) struct Group {
    pub(crate) title: &'static str,
    pub(crate) members: &'static [(Seen, &'static str)],
}

impl Group {
    /// Returns whether no world within the assumptions has these things.
    pub(crate) fn is_beyond(&self) -> bool {
        self.title == "faults beyond the assumptions"
    }
}

seen! {
    "faults of connections" {
        Slow = "slow messages",
        VeryLate = "answers held back for seconds",
        ResetBefore = "connections reset before a request was carried out",
        ResetAfter = "connections reset after a request was carried out",
        ConnectHangs = "connections that never open",
        ConnectRefused = "connections refused",
        ConnectSlow = "connections slow in their first answer",
        HalfOpen = "connections left half-open by a restart",
        AnswersMissing = "batches with too few answers",
        AnswersDoubled = "batches with too many answers",
        Rubbish = "answers that make no sense",
        CalledInLine = "processes that were called to the front of a line",
        InvalidationLost = "invalidations lost",
        InvalidationLate = "invalidations late",
        InvalidationDoubled = "invalidations doubled",
        InvalidationInvented = "invalidations invented",
        InvalidationUnasked = "invalidations of keys that nobody asked for",
        MarkLost = "marks lost",
        MarkLate = "marks late",
        MarkRepeated = "marks repeated",
        Stall = "routes that stall with the connection open",
        RequestLost = "requests lost on a connection that stays open",
        AnswerLost = "answers lost on a connection that stays open",
        SilentGivenUp = "connections given up after that",
    }
    "faults of servers" {
        ServerEnd = "servers that restart empty",
        ServerEndKeeping = "servers that restart with their keys",
        ColdFleet = "all servers restart at once",
        RollingFleet = "all servers restart one after the other",
        ServerPause = "servers that stand still",
        SlowServer = "servers that answer late for a while",
        RefusedOom = "commands refused with OOM",
        RefusedBusy = "commands refused with BUSY",
        RefusedLoading = "commands refused with LOADING",
        RefusedNoPerm = "commands refused with NOPERM",
        RefusedReadOnly = "commands refused with READONLY by a master",
        RefusedMisConf = "commands refused with MISCONF",
        RefusedNoAuth = "commands refused with NOAUTH",
        RefusedMasterDown = "commands refused with MASTERDOWN",
        RefusedNoReplicas = "commands refused with NOREPLICAS",
        ConnectionRefusedNoAuth = "connections that need a password",
        MarkerRefused = "markers that a server refused to keep",
        Reticence = "servers that do not say what they are",
        Promotion = "promotions of replicas that lag behind",
        Demotion = "masters that become replicas while connected",
        ClockStepWhileDown = "clock steps of servers that are down",
        ClockSetBack = "clocks of servers set back",
    }
    "foreign clients" {
        ForeignSet = "keys set by foreign clients",
        ForeignDenied = "keys that foreign clients found taken",
        ForeignRelease = "keys deleted by the foreign clients that had set them",
        ForeignDelete = "keys of locks deleted by foreign clients",
        ForeignOverwrite = "keys of locks overwritten by foreign clients",
    }
    "faults of processes" {
        Pause = "processes that stand still",
        Stutter = "processes that stand still many times",
        Crash = "processes that crash",
        RuntimeDrop = "runtimes dropped without a shutdown",
        WallClockSet = "wall clocks set",
        BootedAgain = "processes that shut down and boot again",
    }
    "faults beyond the assumptions" {
        AnswersOutOfStep = "batches whose answers are out of step",
        TornRestart = "servers that restart without their last second",
        UnseenDemotion = "masters that lose their keys as replicas for a moment",
        TwoMasters = "two masters behind one address",
        Eviction = "keys evicted",
        Flush = "FLUSHALLs",
        ClockStep = "clock steps of servers",
        ClockStepInQuarantine = "clock steps of servers that have just restarted",
        Suspension = "processes that stand still, and their clocks with them",
    }
    "faults of authorities" {
        Failover = "failovers",
        FailoverLosesLock = "failovers that lose a lock",
        OwnerCrash = "owners that crash before their failover",
        MachineStandsStill = "owners that stand still and go on after their failover",
        Flapping = "failovers back and forth within a moment",
        SlotMove = "slots that move",
        ClusterDown = "commands refused with CLUSTERDOWN, because of another shard",
        MemberRestart = "members that restart",
        MemberLags = "members that lag",
        MemberLosesState = "members that lose their state",
        Split = "questions to members on the other side of a split",
        SplitOwners = "failovers while the old owner is cut off with some processes",
        QuestionLost = "questions to members that are lost",
        MemberLate = "answers of members that are late",
    }
    "situations" {
        NoStart = "starts of processes that failed",
        StartCancelled = "starts of processes that were cancelled",
        Refused = "commands refused",
        AnswerLate = "answers later than node_timeout",
        AnswerTooLate = "answers later than the silence limit",
        MarkerFound = "histories with a marker",
        MarkerUnknown = "markers that a session does not know",
        MarkerForbidden = "markers that a client has no right to",
        PollingSession = "sessions that hear of no freed key",
        SetAfterRelease = "keys set after their release was sent",
        ReleasedLater = "keys deleted by a release that was sent again",
        Mark = "marks of writers that wait",
        ReaderInsisted = "readers let in in spite of a mark",
    }
    "requests" {
        Acquired = "acquisitions",
        LockedAllFenced = "locks of several keys with a fencing token",
        LockedAlone = "locks of a key that nobody else wants",
        PermitOfAnotherSlot = "permits of another slot",
        ReadJoined = "readers that joined one of their process",
        ReadBesideRead = "readers beside a reader of another process",
        WriteAfterRead = "locks of writers that waited for readers",
        HandedOver = "locks handed over",
        TimedOut = "requests that gave up waiting",
        Cancelled = "requests cancelled",
        ReadyCancelled = "waits for a majority cancelled",
        NoQuorum = "requests that found no quorum",
        TooSlow = "requests that were too slow",
        Quarantined = "requests that found servers in quarantine",
        QueueFull = "requests that found a full queue",
        RefusedByShutdown = "requests refused by a shutdown",
        RefusedAsInvalid = "requests refused as invalid",
    }
    "operations" {
        InspectedFree = "inspections of a free key",
        InspectedHeld = "inspections of a lock",
        InspectedShared = "inspections of a key that readers share",
        InspectedPermits = "inspections of permits",
        InspectedWithoutMajority = "inspections in which nothing had a majority",
        Forced = "locks released by force",
        ForcedTooLate = "forced releases of what was gone",
        ForcedUnconfirmed = "forced releases that some node did not confirm",
        ForcedCancelled = "forced releases cancelled",
    }
    "jobs and elections" {
        RanOnce = "jobs run at their fire time",
        RunElsewhere = "jobs run by another process",
        RunMissed = "jobs missed",
        Resigned = "leaders that resigned",
        CampaignCancelled = "candidates that left",
    }
    "holds" {
        Downgraded = "downgrades",
        DowngradeCancelled = "downgrades cancelled",
        DowngradeFailed = "downgrades that failed",
        Extended = "extensions",
        ExtensionFailed = "extensions without a quorum",
        ExtensionAfterMaxHold = "extensions after max_hold",
        ExtensionTooLate = "extensions of a lost lock",
        ExtensionInvalid = "extensions by too much",
        ExtensionCancelled = "extensions cancelled",
        FencedWrite = "writes with a fencing token",
        StaleWrite = "writes refused by their fencing token",
        Adopted = "locks adopted",
        AdoptionCancelled = "adoptions cancelled",
        AdoptionFailed = "adoptions that found no quorum",
        TicketExpired = "tickets that had expired",
        TicketUsed = "tickets of which another client had made use",
        Lost = "locks lost by their end",
        LostByMaxHold = "locks lost by max_hold",
        LostKeys = "locks lost with their keys",
        LostVotes = "locks lost with their votes",
        WorkDone = "work done under a lock",
        LossWatchCancelled = "waits for a loss cancelled",
        WorkDropped = "work dropped with its lock",
        WorkCancelled = "work under a lock cancelled",
    }
    "ends of holds, and of processes" {
        DroppedTooLate = "guards dropped after the loss",
        ReleaseConfirmed = "releases confirmed",
        ReleaseUnconfirmed = "releases unconfirmed",
        ReleaseHandedOver = "releases that handed the lock over",
        ReleaseTooLate = "releases of a lost lock",
        ReleaseCancelled = "releases cancelled",
        ForgottenEnded = "locks of forgotten guards that ended by themselves",
        ToBeReleasedLater = "locks to be released later",
        ReleasedLaterThanDue = "locks to be released at a time that was over",
        NotReleasedLater = "locks that could not be kept until a later release",
        LaterReleaseCancelled = "calls for a later release cancelled",
        LockedAfterLaterRelease = "locks that were locked again soon after a later release",
        Outlived = "guards dropped after their runtime",
        ShutDownInTheMiddle = "shutdowns in the middle",
        ShutdownWhileHeld = "shutdowns while locks are held",
        ShutdownDelivered = "shutdowns in the middle that delivered all releases",
        ShutdownTimedOut = "shutdowns that reached their limit",
        ShutdownCancelled = "shutdowns cancelled",
        ShutdownWhileForgotten = "shutdowns while locks of forgotten guards are held",
    }
    "votes by authorities" {
        OldOwnerServes = "requests that an old owner carried out",
        OldOwnerConnected = "connections to an old owner",
        NotTheOwner = "requests that a former owner refused",
        MemberBehind = "answers of members that do not know the latest owner",
        MarkerOfTenure = "markers of a tenure that told an age",
        SharedServer = "voters that share a server",
    }
    "commands that servers carried out or refused" {
        SetCommand = "to set keys",
        FenceCommand = "to raise a counter",
        AdoptCommand = "to adopt a key",
        ExtendCommand = "to extend",
        ReleaseCommand = "to release",
        ProbeCommand = "to probe",
    }
}

/// How often each was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tally([u64; Seen::COUNT]);

impl Default for Tally {
    fn default() -> Self {
        Self([0; Seen::COUNT])
    }
}

impl Tally {
    pub(crate) fn note(&mut self, what: Seen) {
        self.0[what as usize] += 1;
    }

    pub(crate) fn get(&self, what: Seen) -> u64 {
        self.0[what as usize]
    }
}

impl AddAssign<&Self> for Tally {
    fn add_assign(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine += theirs;
        }
    }
}

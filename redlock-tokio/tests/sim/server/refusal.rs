//! What a server refuses for a while, although it is there.

use redlock_tokio::{
    NodeError,
    node::{Access, Command, Operation},
};

use crate::{message::refused, rng::Rng, seen::Seen};

/// Why a server refuses commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Refusal {
    /// Its memory is full: nothing new is stored.
    Oom,
    /// It runs a long script, and answers nothing else.
    Busy,
    /// It reads its keys from the disk.
    Loading,
    /// The rights of the client do not cover scripts.
    NoPerm,
    /// It takes no writes, and says that it is a master.
    ReadOnly,
    /// It cannot write to its disk.
    MisConf,
    /// The client has no password any more, or not the right one.
    NoAuth,
    /// It was made a replica, keeps its keys, and does not reach its master. Later it is a master again.
    MasterDown,
    /// Too few replicas follow it.
    NoReplicas,
}

impl Refusal {
    /// In the order of their declaration, with the words of the server.
    const ALL: [(Self, &'static str, Seen); 9] = [
        (Self::Oom, "OOM", Seen::RefusedOom),
        (Self::Busy, "BUSY", Seen::RefusedBusy),
        (Self::Loading, "LOADING", Seen::RefusedLoading),
        (Self::NoPerm, "NOPERM", Seen::RefusedNoPerm),
        (Self::ReadOnly, "READONLY", Seen::RefusedReadOnly),
        (Self::MisConf, "MISCONF", Seen::RefusedMisConf),
        (Self::NoAuth, "NOAUTH", Seen::RefusedNoAuth),
        (Self::MasterDown, "MASTERDOWN", Seen::RefusedMasterDown),
        (Self::NoReplicas, "NOREPLICAS", Seen::RefusedNoReplicas),
    ];

    pub(crate) fn draw(rng: &mut Rng) -> Self {
        rng.pick(&Self::ALL).0
    }

    /// Returns the answer to a command, if the server refuses it.
    pub(crate) fn answer(self, command: &Command) -> Option<NodeError> {
        let is_write = !matches!(command.operation(), Operation::Probe { .. });
        let is_refused = match (self, command.operation()) {
            (
                Self::Oom,
                Operation::Acquire { .. } | Operation::Adopt { .. } | Operation::Fence { .. },
            ) => true,
            (
                Self::NoPerm,
                Operation::Adopt { .. } | Operation::Extend { .. } | Operation::Release { .. },
            ) => true,
            // A reader is added by a script.
            (Self::NoPerm, Operation::Acquire { .. }) => {
                matches!(command.access(), Access::Reader { .. })
            }
            (Self::Oom | Self::NoPerm, _) => false,
            (it, _) if it.is_of_reads() => true,
            (_, _) => is_write,
        };
        is_refused.then(|| self.error())
    }

    /// Returns the answer to the question what a key has, if the server refuses it.
    pub(crate) fn of_look_up(self) -> Option<NodeError> {
        self.is_of_reads().then(|| self.error())
    }

    /// Returns why the server does not say what it is, if it refuses that, too.
    pub(crate) fn of_info(self) -> Option<NodeError> {
        matches!(self, Self::Busy | Self::NoAuth).then(|| self.error())
    }

    /// Returns why the server neither writes nor reads a marker, if it refuses that, too.
    pub(crate) fn of_marker(self) -> Option<NodeError> {
        // A marker takes no script.
        (self != Self::NoPerm).then(|| self.error())
    }

    /// Returns why no connection can be opened, as the driver puts it.
    pub(crate) fn of_connection(self) -> Option<NodeError> {
        let text = "the server asks for a password";
        (self == Self::NoAuth).then(|| NodeError::Misconfigured(text.into()))
    }

    pub(crate) fn seen_as(self) -> Seen {
        Self::ALL[self as usize].2
    }

    fn is_of_reads(self) -> bool {
        matches!(
            self,
            Self::Busy | Self::Loading | Self::NoAuth | Self::MasterDown
        )
    }

    fn error(self) -> NodeError {
        refused(Self::ALL[self as usize].1, "for a while")
    }
}

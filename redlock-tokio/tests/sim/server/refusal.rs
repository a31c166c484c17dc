//! What a server refuses for a while, although it is there.

use redlock_tokio::{Command, NodeError, Operation};

use crate::rng::Rng;

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
}

impl Refusal {
    const ALL: [Self; 6] = [
        Self::Oom,
        Self::Busy,
        Self::Loading,
        Self::NoPerm,
        Self::ReadOnly,
        Self::MisConf,
    ];

    pub(crate) fn draw(rng: &mut Rng) -> Self {
        rng.pick(&Self::ALL)
    }

    /// Returns the answer to a command, if the server refuses it.
    pub(crate) fn answer(self, command: &Command) -> Option<NodeError> {
        let is_write = !matches!(command.operation(), Operation::Probe { .. });
        let is_refused = match (self, command.operation()) {
            (Self::Oom, Operation::Acquire { .. } | Operation::Fence { .. }) => true,
            (Self::NoPerm, Operation::Extend { .. } | Operation::Release { .. }) => true,
            (Self::Oom | Self::NoPerm, _) => false,
            (Self::Busy | Self::Loading, _) => true,
            (Self::ReadOnly | Self::MisConf, _) => is_write,
        };
        is_refused.then(|| self.error())
    }

    /// Returns why the server does not say what it is, if it refuses that, too.
    pub(crate) fn of_info(self) -> Option<NodeError> {
        (self == Self::Busy).then(|| self.error())
    }

    fn error(self) -> NodeError {
        let code = match self {
            Self::Oom => "OOM",
            Self::Busy => "BUSY",
            Self::Loading => "LOADING",
            Self::NoPerm => "NOPERM",
            Self::ReadOnly => "READONLY",
            Self::MisConf => "MISCONF",
        };
        NodeError::Refused {
            code: code.into(),
            message: "for a while".into(),
        }
    }
}

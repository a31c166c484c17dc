//! What can happen in a world with an authority.

use super::world::{Members, Reign};

/// One step of the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum OwnerStep {
    /// A tick passes, which one client's clock may miss.
    Tick {
        stalled: Option<usize>,
    },
    /// A member makes a server the owner, which loses its keys by that.
    FailOver {
        member: usize,
        owner: usize,
    },
    /// A member turns to the owner that another member has told.
    Follow {
        member: usize,
        to: Reign,
    },
    Restart(usize),
    /// A member is set up anew.
    Renew(usize),
    /// A member goes back to the first owner.
    Return(usize),
    /// A client that is not modelled writes the marker of a tenure on its owner.
    Mark(Reign),
    /// A client asks the members of a set, which answer. Late answers are heard later, one by one.
    Poll {
        client: usize,
        members: Members,
        late: bool,
    },
    /// A client hears one of the late answers.
    Hear {
        client: usize,
        answer: usize,
    },
    /// A client begins to acquire. A late SET arrives later.
    Begin {
        client: usize,
        late: bool,
    },
    /// The late SET of a client arrives.
    Arrive(usize),
}

//! What may happen in a world.

use crate::process::Health;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Fault {
    LostCall,
    DoubledCall,
    /// The node loses its lines, and tells nobody.
    Loss,
    /// The node loses its lines, and all connections end.
    Restart,
    /// A connection ends, with all that is on its way, and there is another one.
    Reset,
    /// The node does nothing for longer than all limits.
    Hang,
    Becomes(Health),
    /// A process that was stopped goes on.
    GoesOn,
    EarlyCheck,
    /// A request to the node is not answered.
    Unanswered,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    /// Tries without a place, and takes one if the key is taken.
    Begin(usize),
    Try(usize),
    /// The next request takes the place over, if there is one.
    GiveUp(usize),
    /// Gives up, and the next request comes later.
    Pause(usize),
    /// Ends a streak, or first asks whether others wait if it has more requests.
    End(usize),
    Arrive(usize),
    Answer(usize),
    Call(usize),
    LoseCall(usize),
    DoubleCall(usize),
    /// A second passes, and all that wait beat.
    Second,
    /// Does what is due after a long time: looks whether the key lies free, or asks for the place.
    Check(usize),
    LoseLine,
    Restart,
    Hang,
    Reset(usize),
    Becomes(usize, Health),
    /// A request is lost, and its process learns that there is no answer.
    LoseRequest(usize),
}

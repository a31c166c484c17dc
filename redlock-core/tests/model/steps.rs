//! What can happen in a world.

use crate::world::Link;

/// One step of the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// A tick passes, which one client's clock may miss.
    Tick {
        stalled: Option<usize>,
    },
    /// A client begins to acquire.
    Begin(usize),
    /// A client releases, or gives up.
    Release(usize),
    Crash(usize),
    Pause(usize),
    /// A client goes on. Its timers and what came in meanwhile race.
    Resume {
        client: usize,
        timers_first: bool,
    },
    /// A master carries out a message, and the client hears of it.
    Deliver {
        link: Link,
        index: usize,
    },
    /// The same, but the message stays under way.
    Repeat(Link),
    /// A message takes its time. `given_up`: the client is told that there is no answer.
    Delay {
        link: Link,
        given_up: bool,
    },
    /// A message is lost, or carried out without an answer.
    Lose {
        link: Link,
        carried_out: bool,
    },
    /// A master sets the keys, but does not raise the counter, and the client hears nothing.
    Halve(Link),
    /// The oldest message arrives at a master where it is denied because of a mark.
    Mark(Link),
    /// A client that holds the lock alone becomes a reader.
    Downgrade(usize),
    /// A client sets the release of its lock to the end of its validity.
    ReleaseLater(usize),
    /// A client gives away the lock that it holds.
    Give(usize),
    Restart(usize),
    /// A master is gone for good.
    Fall(usize),
    /// A replica without the keys takes the place of a master.
    Promote(usize),
    /// A client asks a master what it is, and sees that it was replaced.
    Notice(Link),
}

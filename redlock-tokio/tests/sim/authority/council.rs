//! The members of an authority, each with a view of its own.

use std::{collections::BTreeMap, time::Duration};

use redlock_core::{MemberId, Owner, Tenure};

use super::layout::Layout;
use crate::{
    clock::{HOUR, Rate, SECOND},
    rng::Rng,
};

/// Longer than any process stands still, and than any answer is under way.
const PAUSE_BETWEEN_LOSSES: u64 = 40 * SECOND;

/// The owner of a seat by the word of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Reign {
    pub(crate) machine: usize,
    pub(crate) epoch: u64,
}

/// All members that name the owners of some seats.
pub(crate) struct Council {
    pub(crate) seats: Vec<usize>,
    pub(crate) members: Vec<Member>,
    /// No member may lose its state before this time: they change one at a time.
    pub(super) next_loss_at: u64,
}

pub(crate) struct Member {
    rate: Rate,
    /// By seat.
    views: BTreeMap<usize, View>,
    /// The member learns nothing until then.
    pub(super) lags_until: u64,
    /// The member answers nobody until then.
    pub(super) down_until: u64,
    /// The member has lost its state and knows no other member until then.
    pub(super) alone_until: u64,
    /// Until when a process cannot reach the member.
    pub(super) cut_until: BTreeMap<usize, u64>,
}

#[derive(Clone, Copy)]
struct View {
    reign: Reign,
    /// Since when the member knows that, and has been up.
    since: u64,
}

/// What a member says about a seat.
#[derive(Clone, Debug)]
pub(crate) struct Word {
    pub(crate) seat: usize,
    pub(crate) reign: Reign,
    pub(crate) age: Duration,
    /// The members that the member knows.
    pub(crate) members: Vec<usize>,
}

/// A replica that is to take the place of an owner.
#[derive(Clone, Copy, Debug, Hash)]
pub(crate) struct Succession {
    pub(super) council: usize,
    /// The member that decides this. The others hear of it.
    pub(super) member: usize,
    pub(super) old: Reign,
    pub(super) new: usize,
    /// How long another member takes to hear of it, on average.
    pub(super) spreads_in: u64,
}

impl Reign {
    pub(super) fn first(machine: usize) -> Self {
        Self { machine, epoch: 1 }
    }

    pub(crate) fn tenure(self) -> Tenure {
        Tenure {
            owner: Owner::new(self.machine.to_string()),
            epoch: self.epoch,
        }
    }

    pub(crate) fn of(tenure: &Tenure) -> Self {
        Self {
            machine: tenure.owner.as_str().parse().expect("its number"),
            epoch: tenure.epoch,
        }
    }
}

/// Returns the id of a member.
pub(crate) fn member_id(council: usize, member: usize) -> MemberId {
    let number = u8::try_from(council * 100 + member).expect("few members");
    MemberId::new([number; MemberId::LEN])
}

impl Council {
    /// Creates one whose members agree since long.
    pub(super) fn new(layout: Layout, council: usize, rng: &mut Rng) -> Self {
        let seats = layout.seats_of(council);
        let view = |seat: usize| View {
            reign: Reign::first(layout.first_master(seat)),
            since: 0,
        };
        let members = (0..layout.members()).map(|_| Member {
            rate: Rate::draw_within(rng),
            views: seats.iter().map(|seat| (*seat, view(*seat))).collect(),
            lags_until: 0,
            down_until: 0,
            alone_until: 0,
            cut_until: BTreeMap::new(),
        });
        Self {
            members: members.collect(),
            seats,
            next_loss_at: 0,
        }
    }

    /// Takes the state of a member away: it names the masters of its configuration, and knows no other member. The
    /// next one may lose its state when all processes have heard the first one again.
    pub(super) fn lose_state(&mut self, at: u64, member: usize, until: u64, layout: Layout) {
        self.next_loss_at = until + PAUSE_BETWEEN_LOSSES;
        let member = &mut self.members[member];
        member.alone_until = until;
        member.lag(until);
        for (seat, view) in &mut member.views {
            let machine = layout.first_master(*seat);
            *view = View {
                reign: Reign { machine, epoch: 0 },
                since: at,
            };
        }
    }

    /// Returns the newest owner of a seat that any member knows.
    pub(super) fn newest(&self, seat: usize) -> Reign {
        let reigns = self.members.iter().map(|it| it.reign(seat));
        reigns
            .max_by_key(|it| (it.epoch, it.machine))
            .expect("a council has members")
    }

    pub(super) fn latest_epoch(&self) -> u64 {
        let seats = self.seats.iter();
        seats
            .map(|seat| self.newest(*seat).epoch)
            .max()
            .unwrap_or(0)
    }

    /// Returns whether all members name this owner.
    pub(super) fn agrees(&self, seat: usize, reign: Reign) -> bool {
        self.members.iter().all(|it| it.reign(seat) == reign)
    }

    /// Returns what a member says.
    pub(super) fn words(&self, at: u64, member: usize) -> Vec<Word> {
        let it = &self.members[member];
        let members: Vec<_> = if it.alone_until > at {
            vec![member]
        } else {
            (0..self.members.len()).collect()
        };
        let word = |seat: &usize| Word {
            seat: *seat,
            reign: it.reign(*seat),
            age: it.age(at, *seat),
            members: members.clone(),
        };
        self.seats.iter().map(word).collect()
    }
}

impl Member {
    pub(super) fn reign(&self, seat: usize) -> Reign {
        self.views[&seat].reign
    }

    /// Returns whether the member can decide on a failover.
    pub(super) fn is_active(&self, at: u64) -> bool {
        self.lags_until <= at && self.down_until <= at && self.alone_until <= at
    }

    /// Takes a later owner of a seat.
    pub(super) fn follow(&mut self, at: u64, seat: usize, reign: Reign) {
        let view = self
            .views
            .get_mut(&seat)
            .expect("each member has all seats");
        if reign.epoch > view.reign.epoch {
            *view = View { reign, since: at };
        }
    }

    /// Ends what goes wrong with the member.
    pub(super) fn calm(&mut self, at: u64) {
        self.cut_until.clear();
        self.lags_until = 0;
        self.alone_until = 0;
        self.down_until = self.down_until.min(at);
    }

    /// Lets the member learn nothing for a while.
    pub(super) fn lag(&mut self, until: u64) {
        self.lags_until = self.lags_until.max(until);
    }

    /// Ends the member's process for a while. It keeps the epochs, and forgets since when it knows them.
    pub(super) fn restart(&mut self, until: u64) {
        self.down_until = until;
        for view in self.views.values_mut() {
            view.since = until;
        }
    }

    fn age(&self, at: u64, seat: usize) -> Duration {
        let since = self.views[&seat].since;
        if since == 0 {
            // Before the clock of any other machine began.
            return Duration::from_nanos(HOUR);
        }
        let age = self.rate.local(at.saturating_sub(since));
        // Sentinels count milliseconds.
        Duration::from_millis(age / (SECOND / 1000))
    }
}

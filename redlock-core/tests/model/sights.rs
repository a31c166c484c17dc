//! What clients see of masters: who they are, and whether another took their place.

use std::time::Duration;

use redlock_core::{Origin, Replication, ReplicationId, RunId, Sighting, Timestamp, Voter};

use crate::{
    setup::{Mutation, Setup},
    world::{Link, MASTERS, Master, Sight, World, node, ticks},
};

/// Longer than any quarantine.
const LONG: Duration = Duration::from_secs(3600);

impl Setup {
    /// A client connects to the masters for the first time.
    pub(crate) fn meet_masters(&self, world: &mut World, client: usize) {
        if self.faults.promotions == 0 {
            return;
        }
        let now = ticks(world.local(client));
        let sights = [0, 1, 2].map(|master| {
            let mut voter = Voter::new(self.quarantine());
            let sighting = self.sighting(world, master, now);
            assert_eq!(voter.handle_connection(now, &sighting), None);
            world.clients[client].eligibility[master] = voter.eligibility();
            Sight {
                voter,
                promoted_at: world.masters[master].promoted_at,
            }
        });
        world.clients[client].sights = Some(sights);
    }

    /// A client asks all masters what they are, a moment before anything else happens in this tick.
    pub(crate) fn look_at_masters(&self, world: &mut World, client: usize) {
        if !world.clients[client].phase.is_active() {
            return;
        }
        let now = ticks(world.local(client));
        let asked_at = now.saturating_sub(Duration::from_nanos(1));
        for master in 0..MASTERS {
            let sighting = self.sighting(world, master, asked_at);
            if let Some(sights) = &mut world.clients[client].sights {
                let changed = sights[master].voter.handle_sighting(now, &sighting);
                assert_eq!(changed, None, "time passes once everybody has seen it");
            }
        }
    }

    /// A client asks a master that was replaced.
    pub(crate) fn notice(&self, world: &mut World, Link { client, master }: Link) {
        let now = ticks(world.local(client));
        let sighting = self.sighting(world, master, now);
        let promoted_at = world.masters[master].promoted_at;
        let it = &mut world.clients[client];
        let Some(sights) = &mut it.sights else { return };
        let sight = &mut sights[master];
        sight.promoted_at = promoted_at;
        let withdrawal = sight.voter.handle_sighting(now, &sighting);
        it.eligibility[master] = sight.voter.eligibility();
        if let Some(withdrawal) = withdrawal
            && self.mutation != Some(Mutation::NothingWithdrawn)
        {
            self.drive(world, client, |lease, now| {
                lease.handle_withdrawal(now, node(master), withdrawal);
            });
        }
    }

    /// What a driver finds out of a master: the truth, unless it is broken.
    fn sighting(&self, world: &World, master: usize, asked_at: Timestamp) -> Sighting {
        let truth = world.masters[master].sighting(b'a' + master as u8, world.now, asked_at);
        match self.mutation {
            Some(Mutation::PromotionsIgnored) => Sighting {
                replication: truth.replication.map(|it| Replication {
                    origin: Origin::Own,
                    ..it
                }),
                ..truth
            },
            Some(Mutation::MarkerAgeIgnored) => Sighting {
                history_age: truth.history_age.map(|_| LONG),
                ..truth
            },
            _ => truth,
        }
    }
}

impl Master {
    /// What it says of itself, with the age of its history by a marker that was written at once.
    pub(crate) fn sighting(&self, run_id: u8, now: u8, asked_at: Timestamp) -> Sighting {
        let history = |number| ReplicationId::new([number; ReplicationId::LEN]);
        let promoted_at = self.promoted_at;
        Sighting {
            asked_at,
            run_id: Some(RunId::new([run_id; RunId::LEN])),
            uptime: Some(LONG),
            replication: Some(Replication {
                id: history(promoted_at.map_or(0, |at| at + 1)),
                origin: promoted_at.map_or(Origin::Own, |_| Origin::Continues(history(0))),
            }),
            history_age: promoted_at.map(|at| Duration::from_millis((now - at).into())),
        }
    }
}

//! What must always hold where an authority names the owner, and what must be reached.

use stateright::{Model, Property};

use super::{
    setup::OwnerSetup,
    steps::OwnerStep,
    world::{Client, OwnerWorld, node},
};
use crate::check::Checked;

type Condition = fn(&OwnerSetup, &OwnerWorld) -> bool;

const SOMETIMES: [(&str, Condition); 11] = [
    ("the old owner has voted after the failover", |_, world| {
        let has_turned = world.members.iter().any(|it| it.reign.epoch > 1);
        has_turned && is_held(world, |client| client.server == Some(0))
    }),
    ("the new owner has voted", |_, world| {
        is_held(world, |client| client.server == Some(1))
    }),
    ("the new owner has voted at once", |_, world| {
        let is_new = world.servers[1].master.promoted_at == Some(world.now);
        is_new && is_held(world, |client| client.server == Some(1))
    }),
    ("the first owner has voted again", |_, world| {
        let is_back = |client: &Client| {
            let tenure = client.electorate.tenure(node());
            tenure.is_some_and(|it| it.epoch > 2) && client.server == Some(0)
        };
        is_held(world, is_back)
    }),
    ("two authorities were heard", |_, world| {
        let has_rivals = |client: &Client| client.electorate.rivals(node()).is_some();
        world.clients.iter().any(has_rivals)
    }),
    ("voted beside another authority", |_, world| {
        is_held(world, |client| client.electorate.rivals(node()).is_some())
    }),
    ("a confirmation expired", |_, world| {
        world.clients.iter().any(|client| client.seen.expired)
    }),
    ("an owner had not settled", |_, world| {
        world.clients.iter().any(|client| client.seen.settling)
    }),
    (
        "connected to the old owner after the failover",
        |_, world| world.clients.iter().any(|client| client.seen.old_owner),
    ),
    ("voted by a marker", |_, world| {
        is_held(world, |client| {
            client.server == Some(1) && client.seen.marked
        })
    }),
    ("extended after the failover", |_, world| {
        is_held(world, |client| client.seen.extended)
    }),
];

fn is_held(world: &OwnerWorld, by: impl Fn(&Client) -> bool) -> bool {
    let clients = world.clients.iter().enumerate();
    clients
        .into_iter()
        .any(|(it, client)| world.is_valid(it) && by(client))
}

impl Checked for OwnerSetup {
    const PREFIX: &'static str = "owners: ";

    fn name(&self) -> &'static str {
        self.name
    }

    fn violates(&self) -> Option<&'static str> {
        self.violates
    }

    fn describe(world: &OwnerWorld, step: OwnerStep) -> String {
        format!("{:>2}  {step:?}", world.now)
    }

    fn describe_end(world: &OwnerWorld) -> String {
        let holders = (0..world.clients.len()).filter(|&it| world.is_valid(it));
        format!(
            "{:>2}  valid holders {:?}",
            world.now,
            holders.collect::<Vec<_>>()
        )
    }
}

impl Model for OwnerSetup {
    type State = OwnerWorld;
    type Action = OwnerStep;

    fn init_states(&self) -> Vec<OwnerWorld> {
        vec![self.world()]
    }

    fn actions(&self, world: &OwnerWorld, steps: &mut Vec<OwnerStep>) {
        steps.extend(self.steps(world));
    }

    fn within_boundary(&self, world: &OwnerWorld) -> bool {
        // Only a world in which a lease never ends could leave it.
        world.now <= self.end() + 1
    }

    fn next_state(&self, world: &OwnerWorld, step: OwnerStep) -> Option<OwnerWorld> {
        let mut next = world.clone();
        self.apply(&mut next, step);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always("one holder", |_, world: &OwnerWorld| world.holders() <= 1),
            Property::always("ends in time", |setup: &Self, world: &OwnerWorld| {
                let is_active = |client: &Client| client.phase.is_active();
                world.now <= setup.end() || !world.clients.iter().any(is_active)
            }),
        ];
        for (name, condition) in SOMETIMES {
            if self.reaches.contains(&name) {
                properties.push(Property::sometimes(name, condition));
            }
        }
        properties
    }
}

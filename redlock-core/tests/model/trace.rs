//! Counterexamples that people can read.

use redlock_core::{Access, Operation, Token};

use crate::{
    check::Checked,
    setup::Setup,
    steps::Step,
    world::{MASTERS, Message, World, name},
};

impl Checked for Setup {
    fn name(&self) -> &'static str {
        self.name
    }

    fn violates(&self) -> Option<&'static str> {
        self.violates
    }

    /// With the message that the step is about.
    fn describe(world: &World, step: Step) -> String {
        let about = match step {
            Step::Deliver { link, index } => world.link(link).get(index),
            Step::Mark(link) => world.link(link).first(),
            Step::Repeat(link)
            | Step::Delay { link, .. }
            | Step::Lose { link, .. }
            | Step::Halve(link) => world.link(link).last(),
            _ => None,
        };
        let message = about.map(message).unwrap_or_default();
        format!("{:>2}  {step:?} {message}", world.now)
    }

    /// Returns the holders of the lock, and what the masters have.
    fn describe_end(world: &World) -> String {
        let valid: Vec<_> = (0..world.clients.len())
            .filter(|&it| world.is_valid(it))
            .map(name)
            .collect();
        let keys: Vec<_> = (0..MASTERS)
            .map(|it| {
                let owners = world.live_keys(it);
                let owners = owners.map(|key| world.owner(key.token).map_or('?', name));
                owners.collect::<String>()
            })
            .collect();
        format!(
            "{:>2}  valid holders {valid:?}, keys {keys:?}, fences {:?}",
            world.now,
            world.fences.iter().map(|it| it.get()).collect::<Vec<_>>()
        )
    }
}

fn message(message: &Message) -> String {
    let attempt = |token: Token| token.to_string()[39..].to_owned();
    let slot = match message.access {
        Access::Slot(slot) => format!(" {slot}"),
        Access::Reader { .. } => " as a reader".to_owned(),
        _ => String::new(),
    };
    match message.operation {
        Operation::Acquire {
            token,
            fence: Some(fence),
            ..
        } => format!("SET (attempt {}, fence {fence})", attempt(token)),
        Operation::Acquire { .. } if message.repairs => format!("SET{slot} (repair)"),
        Operation::Acquire { token, .. } => format!("SET{slot} (attempt {})", attempt(token)),
        Operation::Adopt { fence, .. } => format!("ADOPT (fence {fence:?})"),
        Operation::Fence { fence, .. } => format!("FENCE {fence}"),
        Operation::Extend { .. } => format!("EXTEND{slot}"),
        Operation::Release { token } => format!("DEL{slot} (attempt {})", attempt(token)),
        Operation::Probe { .. } => "PTTL".to_owned(),
        other => format!("{other:?}"),
    }
}

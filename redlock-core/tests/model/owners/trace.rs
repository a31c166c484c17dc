//! Counterexamples with an authority that people can read.

use super::{
    steps::OwnerStep,
    world::{OwnerWorld, Reign, server_name},
};

/// Tells the steps of a path, and how the world stands at its end.
pub(super) fn tell(path: &[(OwnerWorld, Option<OwnerStep>)]) {
    for (world, step) in path {
        if let Some(step) = step {
            println!("      {:>2}  {}", world.now, describe(world, *step));
        }
    }
    if let Some((world, _)) = path.last() {
        let valid: Vec<_> = (0..world.clients.len())
            .filter(|&it| world.is_valid(it))
            .map(name)
            .collect();
        println!("      {:>2}  valid holders {valid:?}", world.now);
    }
}

fn describe(world: &OwnerWorld, step: OwnerStep) -> String {
    let number = |member: usize| member + 1;
    match step {
        OwnerStep::Tick { stalled: None } => "a tick passes".to_owned(),
        OwnerStep::Tick { stalled: Some(it) } => {
            format!("a tick passes, which {}'s clock misses", name(it))
        }
        OwnerStep::FailOver { member, owner } => {
            let owner = server_name(owner);
            format!("member {} makes {owner} the owner", number(member))
        }
        OwnerStep::Turn { member, to } => {
            let (owner, epoch) = (server_name(to.owner), to.epoch);
            format!(
                "member {} turns to {owner} in epoch {epoch}",
                number(member)
            )
        }
        OwnerStep::Restart(member) => format!("member {} restarts", number(member)),
        OwnerStep::Renew(member) => format!("member {} is set up anew", number(member)),
        OwnerStep::Return(member) => format!("member {} goes back to M", number(member)),
        OwnerStep::Mark(Reign { owner, epoch }) => {
            let owner = server_name(owner);
            format!("another client marks {owner} as the owner in epoch {epoch}")
        }
        OwnerStep::Poll {
            client,
            members,
            late,
        } => {
            let says = |it: usize| {
                let Reign { owner, epoch } = world.members[it].reign;
                format!(
                    "{} says {} in epoch {epoch}",
                    number(it),
                    server_name(owner)
                )
            };
            let answers: Vec<_> = members.iter().map(says).collect();
            let late = if late { ", but late" } else { "" };
            format!("{} asks: {}{late}", name(client), answers.join(", "))
        }
        OwnerStep::Hear(client) => format!("{} hears the late answers", name(client)),
        OwnerStep::Begin { client, late } => {
            let server = world.clients[client].server.map_or("nobody", server_name);
            let late = if late { "; its SET is late" } else { "" };
            format!("{} begins to acquire at {server}{late}", name(client))
        }
        OwnerStep::Arrive(client) => format!("{}'s SET arrives", name(client)),
    }
}

fn name(client: usize) -> char {
    (b'A' + client as u8) as char
}

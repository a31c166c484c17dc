//! Counterexamples that people can read.

use redlock_core::{Access, Operation, Token};

use crate::{
    steps::Step,
    world::{MASTERS, Message, World},
};

/// Tells the steps of a path, and how the world stands at its end.
pub(crate) fn tell(path: &[(World, Option<Step>)]) {
    for (world, step) in path {
        if let Some(step) = step {
            println!("      {:>2}  {}", world.now, describe(world, *step));
        }
    }
    if let Some((world, _)) = path.last() {
        println!("      {:>2}  {}", world.now, standing(world));
    }
}

fn describe(world: &World, step: Step) -> String {
    let newest = |client: usize, master: usize| {
        let link = &world.clients[client].links[master];
        link.last().map(message).unwrap_or_default()
    };
    match step {
        Step::Tick { stalled: None } => "a tick passes".to_owned(),
        Step::Tick { stalled: Some(it) } => {
            format!("a tick passes, which {}'s clock misses", name(it))
        }
        Step::Begin(it) => format!("{} begins to acquire", name(it)),
        Step::Release(it) => format!("{} releases", name(it)),
        Step::Crash(it) => format!("{} crashes", name(it)),
        Step::Pause(it) => format!("{} stands still", name(it)),
        Step::Resume { client, .. } => format!("{} goes on", name(client)),
        Step::Deliver {
            client,
            master,
            index,
        } => {
            let link = &world.clients[client].links[master];
            let message = link.get(index).map(message).unwrap_or_default();
            format!("{}'s {message} arrives at master {master}", name(client))
        }
        Step::Repeat { client, master } => format!(
            "{}'s {} arrives at master {master}, and will again",
            name(client),
            newest(client, master)
        ),
        Step::Delay {
            client,
            master,
            given_up,
        } => {
            let given_up = if given_up { "; given up" } else { "" };
            let message = newest(client, master);
            format!(
                "{}'s {message} to master {master} is late{given_up}",
                name(client)
            )
        }
        Step::Lose {
            client,
            master,
            carried_out,
        } => {
            let what = if carried_out { "the answer to " } else { "" };
            let message = newest(client, master);
            format!(
                "{what}{}'s {message} to master {master} is lost",
                name(client)
            )
        }
        Step::Halve { client, master } => {
            let message = newest(client, master);
            format!(
                "{}'s {message} sets the key on master {master}, and the counter is not raised",
                name(client)
            )
        }
        Step::Mark { client, master } => {
            format!("{} is denied by a mark at master {master}", name(client))
        }
        Step::Downgrade(client) => format!("{} becomes a reader", name(client)),
        Step::Promote(master) => {
            format!("a replica without keys takes the place of master {master}")
        }
        Step::Notice { client, master } => {
            format!("{} sees that master {master} was replaced", name(client))
        }
        Step::Change { client, master } => {
            format!(
                "{} hears that a key has changed on master {master}",
                name(client)
            )
        }
        Step::Fall(master) => format!("master {master} is gone for good"),
        Step::Restart(master) => format!("master {master} restarts empty"),
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
        Operation::Acquire {
            token,
            gathers: true,
            ..
        } => format!("GATHER (attempt {})", attempt(token)),
        Operation::Acquire { .. } if message.repairs => format!("SET{slot} (repair)"),
        Operation::Acquire { token, .. } => format!("SET{slot} (attempt {})", attempt(token)),
        Operation::Fence { fence, .. } => format!("FENCE {fence}"),
        Operation::Extend { .. } => format!("EXTEND{slot}"),
        Operation::Release { token } => format!("DEL{slot} (attempt {})", attempt(token)),
        Operation::Probe { .. } => "PTTL".to_owned(),
        other => format!("{other:?}"),
    }
}

fn standing(world: &World) -> String {
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
        "valid holders {valid:?}, keys {keys:?}, fences {:?}",
        world.fences.iter().map(|it| it.get()).collect::<Vec<_>>()
    )
}

fn name(client: usize) -> char {
    (b'A' + client as u8) as char
}

use std::{
    io::{self, IsTerminal, Write},
    os::unix::ffi::OsStrExt,
};

use redlock_tokio::Holder;
use serde_json::json;

use crate::{
    args::{Connection, UnlockArgs},
    exit::{Exit, Failure},
    inspect,
    output::Output,
    run::SHUTDOWN,
};

pub(crate) async fn run(
    nodes: &Connection,
    args: &UnlockArgs,
    output: &Output,
) -> Result<Exit, Failure> {
    let redlock = nodes.look().await?;
    let mut inspection = redlock.inspect(args.key.as_bytes()).await?;
    let holders = inspection.holders();
    let is_meant = |it: &Holder| args.holder.as_ref().is_none_or(|name| is_named(it, name));
    let has_meant = holders.iter().any(is_meant);
    if args.holder.is_some() && has_meant {
        inspection.retain(is_meant);
    }
    inspect::show(&inspection, nodes, output);
    if holders.is_empty() {
        return Ok(inspect::exit_of(&inspection));
    }
    if !has_meant {
        let message = "nothing was changed: others have the lock, and not this holder";
        return Err(Failure::new(Exit::Contended, message));
    }
    if !args.yes && !confirm()? {
        let message = "nothing was changed: only the whole word `yes` confirms";
        return Err(Failure::usage(message));
    }
    let report = redlock.force_unlock(&inspection).await;
    let done = report.nodes.iter().filter(|it| it.deleted.is_ok()).count();
    output.line(&report, || {
        let nodes = report.nodes.iter().map(|node| {
            json!({
                "node": *node.address,
                "deleted": node.deleted.as_ref().ok(),
                "error": node.deleted.as_ref().err().map(ToString::to_string),
            })
        });
        json!({"unlocked": nodes.collect::<Vec<_>>()})
    });
    redlock.shutdown_within(SHUTDOWN).await;
    let has_majority = done > report.nodes.len() / 2;
    Ok(if has_majority {
        Exit::Ok
    } else {
        Exit::Unavailable
    })
}

fn is_named(holder: &Holder, name: &str) -> bool {
    holder.to_string() == name || holder.token().is_some_and(|it| it.to_string() == name)
}

/// Asks the person at the terminal.
fn confirm() -> Result<bool, Failure> {
    if !io::stdin().is_terminal() {
        return Err(Failure::usage("nothing was changed: confirm with --yes"));
    }
    eprint!("Is the holder gone? If it still works, two work at once. Delete its lock? [yes/no] ");
    io::stderr().flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(answer.trim() == "yes")
}

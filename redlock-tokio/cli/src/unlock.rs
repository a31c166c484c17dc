use std::{
    collections::BTreeSet,
    ffi::OsStr,
    io::{self, IsTerminal, Write},
    os::unix::ffi::OsStrExt,
};

use nix::unistd::{Uid, User, gethostname};
use redlock_tokio::{Holder, Inspection, Verdict, node::Occupant};
use serde_json::json;

use crate::{
    args::{Connection, UnlockArgs},
    exit::{Exit, Failure, Result},
    inspect,
    output::{Output, shown},
    run::SHUTDOWN,
};

pub(crate) async fn run(nodes: &Connection, args: &UnlockArgs, output: &Output) -> Result<Exit> {
    let redlock = nodes.look().await?;
    let mut inspection = redlock.inspect(args.key.as_bytes()).await?;
    let holders = inspection.holders();
    // A value without an end may be anything: it is deleted only if it is named.
    let locks = locks(&inspection);
    let is_meant = |it: &Holder| match &args.holder {
        Some(name) => is_named(it, name),
        None => locks.contains(it),
    };
    let is_not_a_lock = match &args.holder {
        Some(_) => holders.is_empty() && inspection.verdict() == Verdict::NotALock,
        None => locks.is_empty() && occupants(&inspection).next().is_some(),
    };
    let has_meant = holders.iter().any(is_meant);
    if has_meant {
        inspection.retain(is_meant);
    }
    // What cannot be shown is not deleted.
    inspect::show(&inspection, nodes, output)?;
    if is_not_a_lock {
        return Err(not_a_lock(&holders));
    }
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
    let by = person(nodes);
    let key = shown(inspection.key().as_bytes());
    let freed: Vec<_> = inspection.holders().iter().map(described).collect();
    let freed = freed.join(", ");
    let text = format!("{key}: released by force by {by}: held by {freed}\n{report}");
    redlock.shutdown(SHUTDOWN).await;
    output.line(text, || {
        let nodes = report.nodes.iter().map(|node| {
            json!({
                "node": *node.address,
                "deleted": node.deleted.as_ref().ok(),
                "error": node.deleted.as_ref().err().map(ToString::to_string),
            })
        });
        json!({"unlocked": nodes.collect::<Vec<_>>(), "by": by})
    })?;
    let has_majority = done > report.nodes.len() / 2;
    Ok(if has_majority {
        Exit::Ok
    } else {
        Exit::Unavailable
    })
}

/// Returns those that have something with an end on some node, as each lock does.
fn locks(inspection: &Inspection) -> BTreeSet<Holder> {
    let with_end = occupants(inspection).filter(|it| it.remaining.is_some());
    with_end.filter_map(|it| it.holder.clone()).collect()
}

fn occupants(inspection: &Inspection) -> impl Iterator<Item = &Occupant> {
    let states = inspection
        .nodes()
        .iter()
        .filter_map(|it| it.state.as_ref().ok());
    states.flat_map(|it| it.lock.iter().chain(&it.readers).chain(it.permits.values()))
}

/// Returns the refusal to delete what no client has locked.
fn not_a_lock(holders: &[Holder]) -> Failure {
    let advice = if holders.is_empty() {
        "the nodes have a key of another type, which `redis-cli DEL` on each node deletes"
    } else {
        "the value has no end, so another program may need it; --holder VALUE deletes it"
    };
    Failure::new(
        Exit::NotALock,
        format!("nothing was changed: this is not a lock: {advice}"),
    )
}

/// Returns who runs this program, and where, or as what.
fn person(nodes: &Connection) -> String {
    let user = User::from_uid(Uid::current()).ok().flatten();
    let user = user.map_or_else(|| Uid::current().to_string(), |it| it.name);
    let place = nodes
        .client_name()
        .cloned()
        .or_else(|| gethostname().ok()?.into_string().ok());
    format!("{user}@{}", place.unwrap_or_default())
}

/// Names a holder, with the token that is in its log.
fn described(holder: &Holder) -> String {
    match holder.token() {
        Some(token) => format!("{holder} with token {token}"),
        None => holder.to_string(),
    }
}

/// Values that are shown in the same way may differ.
fn is_named(holder: &Holder, name: &OsStr) -> bool {
    let is_token = holder.token().is_some_and(|it| *it.to_string() == *name);
    let is_client = holder.client_name().is_some_and(|it| *it == *name);
    is_token || is_client || holder.value() == name.as_bytes()
}

/// Asks the person at the terminal.
fn confirm() -> Result<bool> {
    if !io::stdin().is_terminal() {
        return Err(Failure::usage("nothing was changed: confirm with --yes"));
    }
    let question =
        b"Is the holder gone? If it still works, two work at once. Delete its lock? [yes/no] ";
    io::stderr().write_all(question)?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(answer.trim() == "yes")
}

use std::{
    iter,
    mem::{self, Discriminant},
    os::unix::ffi::OsStrExt,
    time::SystemTime,
};

use redlock_tokio::{Holder, Inspection, Verdict};

use crate::{
    args::{Connection, WatchArgs},
    exit::{Exit, Result},
    inspect,
    output::Output,
};

pub(crate) async fn run(nodes: &Connection, args: &WatchArgs, output: &Output) -> Result<Exit> {
    let redlock = nodes.look().await?;
    let mut known = None;
    let mut looks = tokio::time::interval(args.every);
    loop {
        looks.tick().await;
        let inspection = redlock.inspect(args.key.as_bytes()).await?;
        let state = state_of(&inspection);
        output.progress("");
        if known.as_ref() != Some(&state) {
            let verdict = inspection.verdict();
            let text = output.paint(inspect::color_of(&verdict), &verdict);
            output.line(format_args!("{} {text}", time_of_day()), || {
                inspect::value_of(&inspection)
            })?;
            known = Some(state);
        }
        output.progress(inspection.verdict());
    }
}

/// Returns the time of day in UTC.
fn time_of_day() -> String {
    let since_1970 = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let (minutes, seconds) = (since_1970.as_secs() / 60, since_1970.as_secs() % 60);
    format!("{:02}:{:02}:{seconds:02}Z", minutes / 60 % 24, minutes % 60)
}

/// Returns what is worth a line: who has the lock or its permits, and not for how long. A client that sets its key on one
/// node after the other is not there before a majority has it.
fn state_of(inspection: &Inspection) -> (Discriminant<Verdict>, Vec<Holder>) {
    let (verdict, permits) = (inspection.verdict(), inspection.permits());
    let all = iter::once(&verdict).chain(permits.values());
    (mem::discriminant(&verdict), all.flat_map(holders).collect())
}

fn holders(verdict: &Verdict) -> Vec<Holder> {
    match verdict {
        Verdict::Held { by, .. } => vec![by.clone()],
        Verdict::Shared { readers } => readers.iter().map(|(it, _)| it.clone()).collect(),
        _ => Vec::new(),
    }
}

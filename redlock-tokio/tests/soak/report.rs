use crate::{
    Result,
    findings::Findings,
    leftovers::Leftovers,
    outages,
    settings::Settings,
    usage::{self, Usage},
};

/// Events that each conclusive run must have seen.
const SOMETIMES: [&str; 8] = [
    "acquired",
    "not acquired: Contended",
    "lost: Expired",
    "lost: MaxHold",
    "cancelled",
    "work cancelled",
    "extension: done",
    "writes",
];

/// Prints the findings.
///
/// # Errors
///
/// Fails with the violations, or if a negative control has none.
pub(crate) fn report(
    settings: &Settings,
    findings: &Findings,
    leftovers: Leftovers,
    mut problems: Vec<String>,
) -> Result<()> {
    let usages = usage::of_all(findings, settings.length);
    print(findings, leftovers, &usages);
    problems.extend(usages.iter().flat_map(Usage::problems));
    problems.extend(violations(findings, leftovers));
    if settings.is_conclusive() {
        problems.extend(omissions(settings, findings));
    }
    let said = problems.join("; ");
    let Some(breakage) = settings.breakage else {
        if problems.is_empty() {
            println!("all is well");
            return Ok(());
        }
        return Err(format!("{said}; to replay: {settings}").into());
    };
    let mut symptoms = breakage.symptoms().iter();
    match symptoms.find(|it| !said.contains(**it)) {
        None => {
            println!("the negative control was found out: {said}");
            Ok(())
        }
        Some(missed) => Err(format!("negative control: no {missed} found; {settings}").into()),
    }
}

fn print(findings: &Findings, leftovers: Leftovers, usages: &[Usage]) {
    let line = |what: &str, count: u64| println!("{what:<44} {count:>8}");
    println!("{}\n\nfaults", findings.progress());
    for (kind, count) in &findings.faults {
        line(&format!("  {kind:?}"), *count);
    }
    println!("seen");
    for (what, count) in &findings.seen {
        line(&format!("  {what}"), *count);
    }
    line("overlapping holds", findings.overlaps);
    line("lost updates", leftovers.lost_updates);
    line("keys left right after shutdown", leftovers.keys);
    line("orphan keys, a ttl later", leftovers.orphans);
    let outages = outages::of_all(findings);
    if !outages.is_empty() {
        println!("\nchanges of owner");
    }
    for outage in outages {
        println!("  {outage}");
    }
    println!("\n{}", Usage::HEADER);
    for usage in usages {
        println!("{usage}");
    }
    for example in &findings.examples {
        println!("\n{example}");
    }
    println!();
}

/// Returns the invariants that were violated.
fn violations(findings: &Findings, leftovers: Leftovers) -> Vec<String> {
    [
        (findings.overlaps, "overlapping holds"),
        (leftovers.lost_updates, "lost updates"),
        (leftovers.orphans, "orphan keys"),
        (findings.count("hang"), "hanging turns"),
    ]
    .into_iter()
    .filter(|(count, _)| *count > 0)
    .map(|(count, what)| format!("{count} {what}"))
    .collect()
}

/// Returns the events and faults that were not seen.
fn omissions(settings: &Settings, findings: &Findings) -> Vec<String> {
    let unseen = SOMETIMES.iter().filter(|it| findings.count(it) == 0);
    let unseen = unseen.map(|what| format!("never seen: {what}"));
    let kinds = settings.kinds().iter();
    let undone = kinds.filter(|it| !findings.faults.contains_key(it));
    let undone = undone.map(|kind| format!("never injected: {kind:?}"));
    let outages = outages::of_all(findings);
    let endless = outages.iter().filter(|it| !it.is_over());
    let endless = endless.map(|it| format!("no lock was granted after {it}"));
    unseen.chain(undone).chain(endless).collect()
}

use crate::{
    Result, events,
    findings::Findings,
    judge::Violation,
    leftovers::Leftovers,
    settings::Settings,
    usage::{self, Usage},
};

/// How many violations of the judge are printed.
const EXAMPLES: usize = 5;

/// Returns how many violations of each kind there are.
fn counts(violations: &[Violation]) -> [(u64, &'static str); 4] {
    let mut counts = [
        (0, "overlapping holds"),
        (0, "fencing tokens that did not grow"),
        (0, "losses that were told late"),
        (0, "losses that nobody told"),
    ];
    for violation in violations {
        let kind = match violation {
            Violation::TwoHolders { .. } => 0,
            Violation::FenceDidNotGrow { .. } => 1,
            Violation::ToldLate { .. } => 2,
            Violation::NotTold { .. } => 3,
        };
        counts[kind].0 += 1;
    }
    counts
}

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
    println!("{}", findings.progress());
    let usages = usage::of_all(findings, settings.length);
    let violations = findings.violations();
    print(findings, &violations, leftovers, &usages);
    problems.extend(usages.iter().flat_map(Usage::problems));
    problems.extend(damage(findings, &violations, leftovers));
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

fn print(findings: &Findings, violations: &[Violation], leftovers: Leftovers, usages: &[Usage]) {
    let line = |what: &str, count: u64| println!("{what:<44} {count:>8}");
    println!("\nfaults");
    for (kind, count) in &findings.faults {
        line(&format!("  {kind:?}"), *count);
    }
    println!("seen");
    for (what, count) in &findings.seen {
        line(&format!("  {what}"), *count);
    }
    println!("holds");
    for (source, count) in &findings.holds {
        line(&format!("  {source}"), *count);
    }
    for (count, what) in counts(violations) {
        line(what, count);
    }
    line("lost updates", leftovers.lost_updates);
    line("keys left right after shutdown", leftovers.keys);
    line("orphan keys, a ttl later", leftovers.orphans);
    for usage in usages {
        println!("{usage:?}");
    }
    for violation in violations.iter().take(EXAMPLES) {
        println!("\n{}", findings.explain(violation));
    }
    println!();
}

/// Returns the invariants that were violated.
fn damage(findings: &Findings, violations: &[Violation], leftovers: Leftovers) -> Vec<String> {
    let refused = findings.count("tokens refused within the validity");
    let others = [
        (refused, "tokens refused within the validity"),
        (leftovers.lost_updates, "lost updates"),
        (findings.count("torn reads"), "torn reads"),
        (leftovers.orphans, "orphan keys"),
        (findings.count("hang"), "hanging steps"),
    ];
    let all = counts(violations).into_iter().chain(others);
    let some = all.filter(|(count, _)| *count > 0);
    let some = some.map(|(count, what)| format!("{count} {what}"));
    let unknown = findings.seen.iter().filter(|(it, _)| !events::is_known(it));
    let unknown = unknown.map(|(what, count)| format!("{count} unexpected: {what}"));
    some.chain(unknown).collect()
}

/// Returns the events and faults that were not seen.
fn omissions(settings: &Settings, findings: &Findings) -> Vec<String> {
    let unseen = events::unseen(settings.topology, |it| findings.count(it) > 0).into_iter();
    let unseen = unseen.map(|what| format!("never seen: {what}"));
    let kinds = settings.kinds().into_iter();
    let undone = kinds.filter(|it| !findings.faults.contains_key(it));
    let undone = undone.map(|kind| format!("never injected: {kind:?}"));
    let idle = findings.ready.iter();
    let idle = idle.filter(|it| !findings.holds.contains_key(it));
    let idle = idle.map(|source| format!("no hold of {source}"));
    unseen.chain(undone).chain(idle).collect()
}

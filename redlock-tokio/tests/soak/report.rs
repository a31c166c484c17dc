use std::time::Duration;

use crate::{
    Result, bed, events, fault::Kind, findings::Findings, judge::Violation, settings::Settings,
    usage, waits::Waits,
};

/// How many violations of the judge are printed.
const EXAMPLES: usize = 5;

/// A run of this length has seen everything.
const CONCLUSIVE: Duration = Duration::from_secs(60);

/// An invariant, and how often it was violated.
pub(crate) type Damage = (&'static str, u64);

/// Prints the findings. Fails with the violations, or if a negative control has none.
pub(crate) fn report(
    settings: &Settings,
    findings: &Findings,
    leftovers: [Damage; 2],
    mut problems: Vec<String>,
) -> Result<()> {
    let violations = findings.judge.violations();
    let damage = [&damage(findings, &violations)[..], &leftovers].concat();
    print(settings, findings, &violations, &damage);
    problems.extend(usage::problems(findings, settings.length));
    let some = damage.into_iter().filter(|(_, count)| *count > 0);
    problems.extend(some.map(|(what, count)| format!("{count} {what}")));
    let unknown = findings.seen.iter().filter(|(it, _)| !events::is_known(it));
    problems.extend(unknown.map(|(what, count)| format!("{count} unexpected: {what}")));
    if settings.breakage.is_none() && settings.length >= CONCLUSIVE {
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

/// Returns how often each invariant was violated, by what the processes reported.
fn damage(findings: &Findings, violations: &[Violation]) -> [Damage; 7] {
    let [mut overlaps, mut tokens, mut late] = [0; 3];
    for violation in violations {
        *match violation {
            Violation::TwoHolders { .. } => &mut overlaps,
            Violation::FenceDidNotGrow { .. } => &mut tokens,
            Violation::ToldLate { .. } => &mut late,
        } += 1;
    }
    let lost = findings.waits.losses().into_values();
    let lost = lost.filter(|(lost, _)| *lost > Waits::BOUND);
    let refused = "tokens refused within the validity";
    [
        ("overlapping holds", overlaps),
        ("fencing tokens that did not grow", tokens),
        ("losses that were told late", late),
        ("waits that lost their turn", lost.count() as u64),
        (refused, findings.count(refused)),
        ("torn reads", findings.count("torn reads")),
        ("hanging steps", findings.count("hang")),
    ]
}

fn print(settings: &Settings, findings: &Findings, violations: &[Violation], damage: &[Damage]) {
    let line = |what: &str, count: u64| println!("{what:<44} {count:>8}");
    println!("\nfaults");
    for kind in Kind::usual(settings.topology) {
        line(&format!("  {kind:?}"), findings.faults(kind) as u64);
    }
    println!("seen");
    for (what, count) in &findings.seen {
        line(&format!("  {what}"), *count);
    }
    for (what, count) in damage {
        line(what, *count);
    }
    for violation in violations.iter().take(EXAMPLES) {
        println!("\n{}", findings.explain(violation, violation.at()));
    }
    let losses = findings.waits.losses().into_iter();
    if let Some(((process, key, _), (lost, until))) = losses.max_by_key(|(_, it)| it.0) {
        let (key, lost) = (bed::name(key), lost / 1_000_000);
        let words = format!("{process} lost its turn for {key} for {lost} ms");
        println!("\n{}", findings.explain(&words, until));
    }
    println!();
}

/// Returns the events and faults that were not seen.
fn omissions(settings: &Settings, findings: &Findings) -> Vec<String> {
    let unseen = events::unseen(settings.topology, |it| findings.count(it) > 0).into_iter();
    let unseen = unseen.map(|what| format!("never seen: {what}"));
    let kinds = Kind::usual(settings.topology).into_iter();
    let undone = kinds.filter(|it| findings.faults(*it) == 0);
    let undone = undone.map(|kind| format!("never injected: {kind:?}"));
    let idle = findings.ready.iter();
    let idle = idle.filter(|it| !findings.holders.contains(&**it));
    let idle = idle.map(|source| format!("no hold of {source}"));
    unseen.chain(undone).chain(idle).collect()
}

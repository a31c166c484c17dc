use std::time::Duration;

use crate::{
    Result,
    crew::WORKERS,
    findings::Findings,
    leftovers::Leftovers,
    line::{Line, Size},
    plan::Kind,
    settings::Settings,
};

/// Prints what was found.
///
/// # Errors
///
/// Says what was violated, or that a negative control was not.
pub(crate) fn report(
    settings: &Settings,
    findings: &Findings,
    leftovers: Leftovers,
    mut problems: Vec<String>,
) -> Result<()> {
    println!("{}", findings.progress());
    println!("\n{:<44} {:>8}", "faults", "times");
    for (kind, count) in &findings.faults {
        println!("  {:<42} {count:>8}", format!("{kind:?}"));
    }
    println!("{:<44} {:>8}", "seen", "times");
    for (what, count) in &findings.seen {
        println!("  {what:<42} {count:>8}");
    }
    let Leftovers {
        lost_updates,
        keys,
        orphans,
    } = leftovers;
    println!("{:<44} {:>8}", "overlapping holds", findings.overlaps);
    println!("{:<44} {lost_updates:>8}", "lost updates");
    println!("{:<44} {keys:>8}", "keys left right after shutdown");
    println!("{:<44} {orphans:>8}", "orphan keys, a ttl later");
    problems.extend(workers(settings, findings));
    for example in &findings.examples {
        println!("\n{example}");
    }
    println!();

    let mut none = |count, what: &str| {
        if count > 0 {
            problems.push(format!("{count} {what}"));
        }
    };
    none(findings.overlaps, "overlapping holds");
    none(lost_updates, "lost updates");
    none(orphans as u64, "orphan keys");
    none(findings.count("hang"), "hanging turns");
    if settings.is_conclusive() {
        for what in [
            "acquired",
            "not acquired: Contended",
            "lost: Expired",
            "lost: MaxHold",
            "cancelled",
            "work cancelled",
            "extension: done",
            "writes",
        ] {
            if findings.count(what) == 0 {
                problems.push(format!("never seen: {what}"));
            }
        }
        let never = |kind: &&Kind| !findings.faults.contains_key(kind);
        let never = settings.kinds().iter().filter(never);
        problems.extend(never.map(|kind| format!("never injected: {kind:?}")));
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
            println!("negative control, found out as it must be: {said}");
            Ok(())
        }
        Some(missed) => Err(format!("negative control: no {missed} found; {settings}").into()),
    }
}

/// Prints how the workers fared, and returns what is wrong with them.
fn workers(settings: &Settings, findings: &Findings) -> Vec<String> {
    let mut problems = Vec::new();
    println!(
        "\n{:<8} {:>18} {:>22} {:>8} {:>10} {:>8}",
        "worker", "descriptors", "memory, kB", "sockets", "abandoned", "held"
    );
    for worker in 0..WORKERS {
        let samples = &findings.sizes[worker];
        let (early, late) = (
            median(samples, settings.length / 5..settings.length * 2 / 5),
            median(samples, settings.length * 4 / 5..settings.length),
        );
        let Some(Line::Ended {
            held,
            abandoned,
            sockets,
        }) = findings.ended[worker]
        else {
            problems.push(format!("worker {worker} did not say that it ended"));
            continue;
        };
        if sockets > 0 {
            problems.push(format!("worker {worker} leaks sockets"));
        }
        if held > 0 {
            problems.push(format!("worker {worker} still holds locks"));
        }
        let (Some(early), Some(late)) = (early, late) else {
            if settings.is_conclusive() {
                problems.push(format!("worker {worker} did not say what it uses"));
            }
            continue;
        };
        println!(
            "{worker:<8} {:>18} {:>22} {sockets:>8} {abandoned:>10} {held:>8}",
            format!("{} -> {}", early.descriptors, late.descriptors),
            format!("{} -> {}", early.kilobytes, late.kilobytes),
        );
        // A node that hangs has an old connection beside the new one.
        if late.descriptors > early.descriptors + 6 {
            problems.push(format!("worker {worker} leaks descriptors"));
        }
        // What the allocator does not give back at once, and a third more.
        if late.kilobytes > early.kilobytes + early.kilobytes / 3 + 4096 {
            problems.push(format!("worker {worker} leaks memory"));
        }
    }
    problems
}

fn median(samples: &[(Duration, Size)], within: std::ops::Range<Duration>) -> Option<Size> {
    let within = samples.iter().filter(|(at, _)| within.contains(at));
    let sizes: Vec<_> = within.map(|(_, size)| *size).collect();
    let middle = |part: fn(&Size) -> usize| {
        let mut parts: Vec<_> = sizes.iter().map(part).collect();
        parts.sort_unstable();
        parts.get(parts.len() / 2).copied()
    };
    Some(Size {
        descriptors: middle(|it| it.descriptors)?,
        kilobytes: middle(|it| it.kilobytes)?,
    })
}

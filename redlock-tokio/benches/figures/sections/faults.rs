mod scene;

use std::time::Duration;

use self::scene::Scene;
use super::Bench;
use crate::{
    Result,
    contestants::{Access, LEADERSHIP, Name},
    group::Group,
    history::History,
    table,
    times::us,
};

/// The process that has the key before the others come.
#[derive(Clone, Copy)]
enum Holder {
    Nobody,
    /// A client that knows of no line has the key with this ending, until after the fault.
    Stranger(&'static str),
    /// One that stood in the line, until after the fault.
    OfTheLine,
    /// A client that has the key with this ending to the end.
    Forever(&'static str),
}

/// What happens to the faulty, to the nodes, or to the line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    Nothing,
    Kill,
    Stop,
    CutOff,
    Refuse,
    CrashLoop,
    Forge,
    HangInTurn,
    StopNode,
    RestartNode,
}

/// The letter of a row, what happens to how many, who has the key, those beside, the faulty, and those behind the
/// faulty, who are watched.
#[rustfmt::skip]
type Case = (char, &'static str, &'static [usize], Holder, [Group; 3], Fault);

const NONE: Group = Group::ours(0, 1);
const ONE: Group = Group::ours(1, 1);
const THREE: Group = Group::ours(3, 1);
const FOUR: Group = Group::ours(4, 1);
const SLOW: Group = FOUR.holds(Duration::from_millis(100));
const SHORT: Duration = Duration::from_millis(10);
const PLAIN: Group = THREE.of(Name::Plain).holds(SHORT);
const BUSY: Duration = Duration::from_millis(300);
const STRANGERS: Group = ONE.of(Name::Newcomers).wants(Access::TryLock).holds(BUSY);
const READERS: Group = Group::ours(4, 4).wants(Access::Read).holds(SHORT);
const LEADER: Group = ONE.wants(Access::Lead).holds(Duration::from_secs(3600));
const SINGLE: Group = Group {
    own_keys: true,
    ..THREE
};

const MANY: &[usize] = &[1, 8, 32];

/// Each was seen to keep the living from a key.
#[rustfmt::skip] // A case is a line.
const CASES: [Case; 20] = {
    use {Access::{Both, Lead, OverResp2, Permit, Write}, Fault::*, Holder::*};
    [
        ('a', "killed", MANY, Stranger(""), [NONE, ONE, THREE], Kill),
        ('a', "killed, the holder stood in the line", MANY, OfTheLine, [NONE, ONE, THREE], Kill),
        ('b', "stopped", MANY, Stranger(""), [NONE, ONE, THREE], Stop),
        ('b', "stopped, one permit", MANY, Stranger(":slot:0"), [NONE, ONE.wants(Permit(1)), THREE.wants(Permit(1))], Stop),
        ('b', "cut off", &[1, 8], Stranger(""), [NONE, ONE, THREE], CutOff),
        ('c', "candidates killed, with the leader", &[1, 4, 7], Nobody, [NONE, LEADER, THREE.wants(Lead)], Kill),
        ('d', "killed beside strangers", &[1], Stranger(""), [STRANGERS, ONE, ONE], Kill),
        ('d', "stopped beside strangers", &[1], Stranger(""), [STRANGERS, ONE, ONE], Stop),
        ('e', "writer killed beside readers", &[1], Stranger(""), [READERS, ONE.wants(Write), ONE.wants(Write)], Kill),
        ('f', "killed beside another library", &[3], Stranger(""), [PLAIN, ONE, ONE], Kill),
        ('g', "killed each 2 s and replaced", &[1], Nobody, [NONE, ONE.holds(SHORT), THREE.holds(SHORT)], CrashLoop),
        ('h', "refused by the node of the line", &[1], Nobody, [NONE, ONE, THREE], Refuse),
        ('i', "wait for `[a, b]`, `b` is held", &[1, 3, 8], Forever(":1"), [NONE, ONE.wants(Both), SINGLE], Nothing),
        ('i', "`[a, b]` beside `a` and `b`", &[0], Nobody, [Group { tasks: 2, ..SINGLE }, NONE, ONE.wants(Both)], Nothing),
        ('k', "believe in one permit of three", &[8], Forever(":slot:0"), [NONE, ONE.wants(Permit(1)), ONE.wants(Permit(3))], Nothing),
        ('l', "four forged members", &[0], Nobody, [NONE, NONE, FOUR], Forge),
        ('m', "nodes hang for 1.5 s in turn", &[0], Nobody, [NONE, NONE, SLOW], HangInTurn),
        ('n', "over RESP2 beside four tasks", &[1], Nobody, [NONE, ONE.wants(OverResp2), Group::ours(1, 4)], Nothing),
        ('o', "the node of the line is stopped for 3 s", &[0], Nobody, [NONE, NONE, FOUR], StopNode),
        ('o', "the node of the line restarts empty", &[0], Nobody, [NONE, NONE, FOUR], RestartNode),
    ]
};

/// What members of a line that die, hang or are cut off may cost those behind them.
const LIMIT: Duration = Duration::from_secs(4);

/// Longer than any limit: how long the watched are watched after the fault, and then for `--seconds`.
const RECOVERY: Duration = Duration::from_secs(8);

/// Lets processes and nodes fail, and prints how long the watched did not get in.
pub(super) fn measure(bench: &mut Bench) -> Result<()> {
    let mut table = table::new([
        "row",
        "fault",
        "longest gap",
        "shut out",
        "busy",
        "entries/s",
        "without it",
        "of the faulty",
    ]);
    for case in CASES {
        let is_wanted = bench.rows.is_empty() || bench.rows.contains(case.0);
        for &count in case.2.iter().filter(|_| is_wanted) {
            let name = format!("{count} {}", case.1);
            let name = name.trim_start_matches("0 ");
            match suffer(bench, case, count, name) {
                Ok(row) => drop(table.add_row(row)),
                Err(error) => bench.failures.push(format!("{name}: {error}")),
            }
        }
    }
    println!("## Faults\n\n{table}\n");
    Ok(())
}

/// Measures a case with so many faulty, and returns its row.
fn suffer(bench: &mut Bench, case: Case, processes: usize, name: &str) -> Result<[String; 8]> {
    let (row, _, _, holder, [beside, faulty, watched], fault) = case;
    let faulty = Group {
        processes,
        ..faulty
    };
    let time = RECOVERY + bench.time;
    let play = |faulty, fault| Scene::play(holder, [beside, faulty, watched], fault, time);
    let rate = |it: &History| table::whole(it.entries() as f64 / it.seconds());
    let [all, of_faulty, watched] = play(faulty, fault)?;
    let without = match row {
        'i' | 'n' if processes > 0 => rate(&play(NONE, fault)?[2]),
        'g' | 'h' | 'l' => rate(&play(faulty, Fault::Nothing)?[2]),
        _ => String::new(),
    };
    let gap = watched.longest_without_entry();
    let limit = match row {
        'a' | 'b' | 'd' => LIMIT,
        'c' => LIMIT + LEADERSHIP,
        _ => Duration::MAX,
    };
    if gap > limit {
        bench
            .failures
            .push(format!("{name}: nobody in for {gap:?}"));
    }
    if all.most_at_once() > 1 && !matches!(row, 'e' | 'i') {
        bench.failures.push(format!("{name}: two were in"));
    }
    Ok([
        row.to_string(),
        name.to_owned(),
        table::time(us(gap)),
        table::time(us(watched.longest_shut_out())),
        table::percent(watched.busy().abs()),
        rate(&watched),
        without,
        rate(&of_faulty),
    ])
}

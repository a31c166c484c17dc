//! The columns of tables, each with its heading.

use crate::{
    bed::NODES,
    group::{Group, Row},
    shared::{table, times::us},
};

pub(crate) type Column = table::Column<'static, Row>;

pub(crate) const CONTESTANT: Column = ("contestant", &|it| it.group.contestant.to_string());
pub(crate) const CLIENT: Column = ("processes x tasks", &|it| it.group.to_string());
pub(crate) const ACCESS: Column = ("", &|it| it.group.access.to_string());
pub(crate) const TASKS: Column = ("tasks", &|it| {
    let Group {
        processes, tasks, ..
    } = it.group;
    (processes * tasks).to_string()
});
pub(crate) const HOLD: Column = ("hold", &|it| format!("{} ms", it.group.hold.as_millis()));
pub(crate) const ENTRIES: Column = ("entries/s", &|it| {
    table::whole(it.history.entries() as f64 / it.history.seconds())
});
pub(crate) const OF_ALL: Column = ("of all entries", &|it| {
    table::percent(it.history.entries() as f64 / it.all.entries())
});
pub(crate) const P50: Column = ("wait p50", &|it| table::time(it.history.waits().p50_us));
pub(crate) const P99: Column = ("p99", &|it| table::time(it.history.waits().p99_us));
pub(crate) const LONGEST: Column = ("longest", MAX.1);
pub(crate) const MAX: Column = ("max", &|it| table::time(it.history.waits().max_us));
pub(crate) const MAX_BY_MIN: Column = ("max/min", &|it| {
    let entries = it.history.entries_of_tasks();
    let [min, max] = [entries.iter().min(), entries.iter().max()]
        .map(|it| it.copied().unwrap_or_default() as f64);
    table::ratio(max, min)
});
pub(crate) const PROCESS_SHARE: Column = ("process share, min / max", &|it| {
    let entries = it.history.entries_of_processes();
    let [min, max] = [entries.iter().min(), entries.iter().max()].map(|of_one| {
        100.0 * of_one.copied().unwrap_or_default() as f64 / it.history.entries() as f64
    });
    format!("{min:.0} / {max:.0} %")
});
pub(crate) const BUSY: Column = ("busy", &|it| table::percent(it.all.history.busy()));
pub(crate) const COMMANDS_PER_S: Column = ("commands/s", &|it| {
    table::whole(it.all.commands.all / it.all.history.seconds())
});
pub(crate) const COMMANDS: Column = ("commands per entry", &|it| {
    format!("{:.1}", it.all.commands.all / it.all.entries())
});
pub(crate) const ATTEMPTS: Column = ("attempts per entry", &|it| {
    format!(
        "{:.2}",
        it.all.commands.sets / NODES as f64 / it.all.entries()
    )
});
pub(crate) const SERVER_TIME: Column = ("server time per entry", &|it| {
    format!("{:.1} us", it.all.commands.server_us / it.all.entries())
});
pub(crate) const IN_ORDER: Column = ("in order", &|it| {
    table::time(us(it.all.history.wait_in_order()))
});
pub(crate) const RATIO: Column = ("ratio", &|it| {
    let in_order = us(it.all.history.wait_in_order());
    table::ratio(it.history.waits().p99_us, in_order)
});
pub(crate) const SHUT_OUT: Column = ("shut out", &|it| {
    table::time(us(it.history.longest_shut_out()))
});
pub(crate) const LONGEST_GAP: Column = ("longest gap", &|it| {
    table::time(us(it.history.longest_without_entry()))
});
pub(crate) const AT_ONCE: Column = ("at once", &|it| it.history.most_at_once().to_string());

//! The columns of tables, each with its heading.

use crate::{bed::NODES, group::Row, table, times::us};

pub(super) type Column = table::Column<'static, Row>;

pub(super) const CONTESTANT: Column = ("contestant", &|it| it.group.contestant.to_string());
pub(super) const CLIENT: Column = ("processes x tasks", &|it| it.group.to_string());
pub(super) const TASKS: Column = ("tasks", &|it| {
    (it.group.processes * it.group.tasks).to_string()
});
pub(super) const HOLD: Column = ("hold", &|it| format!("{} ms", it.group.hold.as_millis()));
pub(super) const ENTRIES: Column = ("entries/s", &|it| {
    table::whole(it.history.entries() as f64 / it.history.seconds())
});
pub(super) const CYCLES: Column = ("cycles/s", ENTRIES.1);
pub(super) const OF_ALL: Column = ("of all entries", &|it| {
    table::percent(it.history.entries() as f64 / it.all.entries())
});
pub(super) const P50: Column = ("wait p50", &|it| table::time(it.history.waits().p50_us));
pub(super) const ACQUIRE_P50: Column = ("acquire p50", P50.1);
pub(super) const P99: Column = ("p99", &|it| table::time(it.history.waits().p99_us));
pub(super) const LONGEST: Column = ("longest", MAX.1);
pub(super) const MAX: Column = ("max", &|it| table::time(it.history.waits().max_us));
pub(super) const RELEASE_P50: Column = ("release p50", &|it| {
    table::time(it.history.releases().p50_us)
});
pub(super) const RELEASE_P99: Column = ("p99", &|it| table::time(it.history.releases().p99_us));
pub(super) const MAX_BY_MIN: Column = ("max/min", &|it| {
    let entries = it.history.entries_of_tasks();
    let [min, max] = [entries.iter().min(), entries.iter().max()]
        .map(|it| it.copied().unwrap_or_default() as f64);
    table::ratio(max, min)
});
pub(super) const PROCESS_SHARE: Column = ("process share, min / max", &|it| {
    let entries = it.history.entries_of_processes();
    let [min, max] = [entries.iter().min(), entries.iter().max()].map(|of_one| {
        100.0 * of_one.copied().unwrap_or_default() as f64 / it.history.entries() as f64
    });
    format!("{min:.0} / {max:.0} %")
});
pub(super) const BUSY: Column = ("busy", &|it| table::percent(it.all.history.busy()));
pub(super) const COMMANDS_PER_S: Column = ("commands/s", &|it| {
    table::whole(it.all.commands.all / it.all.history.seconds())
});
pub(super) const COMMANDS: Column = ("commands per entry", &|it| {
    format!("{:.1}", it.all.commands.all / it.all.entries())
});
pub(super) const ATTEMPTS: Column = ("attempts per entry", &|it| {
    format!(
        "{:.2}",
        it.all.commands.sets / NODES as f64 / it.all.entries()
    )
});
pub(super) const SERVER_TIME: Column = ("server time per entry", &|it| {
    format!("{:.1} us", it.all.commands.server_us / it.all.entries())
});
pub(super) const IN_ORDER: Column = ("in order", &|it| {
    table::time(us(it.all.history.wait_in_order()))
});
pub(super) const RATIO: Column = ("ratio", &|it| {
    let in_order = us(it.all.history.wait_in_order());
    table::ratio(it.history.waits().p99_us, in_order)
});
pub(super) const SHUT_OUT: Column = ("shut out", &|it| {
    table::time(us(it.history.longest_shut_out()))
});
pub(super) const LONGEST_GAP: Column = ("longest gap", &|it| {
    table::time(us(it.history.longest_without_entry()))
});
pub(super) const AT_ONCE: Column = ("at once", &|it| it.history.most_at_once().to_string());

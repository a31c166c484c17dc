use crate::{
    args::Args, cell::Cell, contestants::Name, figures::Figures, table, workload::Workload,
};

/// Compares the cells.
pub(super) fn print(args: &Args, figures: &Figures) {
    println!("## Commands per entry, one process, hold 0\n");
    let header = Workload::TASKS.map(|tasks| format!("{tasks} tasks"));
    let header: Vec<_> = header.iter().map(String::as_str).collect();
    let mut commands = table::new([&["contestant"], &header[..]].concat());
    for &contestant in &args.contestants {
        let cells = Workload::TASKS.map(|tasks| {
            let workload = Workload {
                processes: 1,
                tasks,
                hold: Workload::HOLDS[0],
            };
            let commands = find(figures, contestant, workload).map(|it| it.commands_per_entry);
            commands.map_or_else(|| "-".into(), |it| format!("{it:.1}"))
        });
        commands.add_row([contestant.to_string()].into_iter().chain(cells));
    }
    println!("{commands}\n");

    println!("## Ratios of entries/s\n");
    let mut ratios = table::new([
        "workload",
        "redlock-tokio / rslock",
        "redlock-tokio / polling floor",
    ]);
    for workload in Workload::groups().flatten() {
        let entries = |contestant| find(figures, contestant, workload).map(|it| it.entries_per_s);
        let ratio = |other| match (entries(Name::Ours), entries(other)) {
            (Some(ours), Some(other)) => table::ratio(ours, other),
            _ => "-".into(),
        };
        ratios.add_row([
            workload.to_string(),
            ratio(Name::Rslock),
            ratio(Name::Floor),
        ]);
    }
    println!("{ratios}\n");
}

fn find(figures: &Figures, contestant: Name, workload: Workload) -> Option<&Cell> {
    let mut cells = figures.cells.iter();
    cells.find(|it| it.contestant == contestant && it.workload == workload)
}

use comfy_table::{CellAlignment, Table, presets::ASCII_MARKDOWN};

/// Makes a Markdown table: names on the left, figures on the right.
pub(crate) fn new<'a>(header: impl IntoIterator<Item = &'a str>) -> Table {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN).set_header(header);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// The heading of a column, and what the column says of an entry.
pub(crate) type Column<'a, T> = (&'a str, &'a dyn Fn(&T) -> String);

/// Makes a Markdown table with a row for each entry.
pub(crate) fn of<T>(entries: &[T], columns: &[Column<'_, T>]) -> Table {
    let mut table = new(columns.iter().map(|(heading, _)| *heading));
    for entry in entries {
        table.add_row(columns.iter().map(|(_, cell)| cell(entry)));
    }
    table
}

/// Writes a time as people read it: three digits, and the unit they are in.
pub(crate) fn time(us: f64) -> String {
    match us {
        us if us < 1.0 => format!("{:.0} ns", us * 1e3),
        us if us < 9.95 => format!("{us:.2} us"),
        us if us < 99.5 => format!("{us:.1} us"),
        us if us < 999.5 => format!("{us:.0} us"),
        us if us < 9_995.0 => format!("{:.2} ms", us / 1e3),
        us if us < 99_950.0 => format!("{:.1} ms", us / 1e3),
        us => format!("{:.0} ms", us / 1e3),
    }
}

/// Writes a figure without its fraction.
pub(crate) fn whole(figure: f64) -> String {
    format!("{figure:.0}")
}

/// Writes a share in percent.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Writes how many times the one is the other.
pub(crate) fn ratio(one: f64, other: f64) -> String {
    if other > 0.0 {
        format!("{:.2}", one / other)
    } else {
        "-".into()
    }
}

//! The dashboard as text, for `--once`.

use super::app::RateColumn;
use super::dashboard::{Dashboard, DashboardView};
use super::view::name;
use crate::output;
use crate::units::show_seconds;

/// Formats all views, one after the other.
pub(super) fn all(dashboard: &Dashboard) -> String {
    let mut text = String::new();
    for process in &dashboard.processes {
        text.push_str(&format!(
            "{}: {}, {}, up {}, over {}\n",
            process.id,
            process.kind,
            process.state,
            show_seconds(process.uptime_seconds),
            show_seconds(process.seconds)
        ));
        process.problems.iter().for_each(|problem| text.push_str(&format!("  ! {problem}\n")));
    }
    for view in DashboardView::ALL {
        let mut rows = dashboard.rows(view);
        rows.sort_by(|a, b| a.key.cmp(&b.key));
        if rows.is_empty() {
            continue;
        }
        let cells = rows.iter().map(|row| {
            let name = name(row).trim().to_owned();
            let figures = RateColumn::ALL.iter().skip(1).map(|column| column.show(row.rates));
            std::iter::once(name).chain(figures).collect()
        });
        let cells: Vec<Vec<String>> = cells.collect();
        let what = view.name().to_lowercase();
        let mut head = RateColumn::ALL.map(RateColumn::name);
        head[0] = &what;
        text.push('\n');
        text.push_str(&output::columns(&head, &cells));
        if let (count, left_out @ 1..) = dashboard.count(view) {
            text.push_str(&format!("the {count} busiest, {left_out} more: --limit N\n"));
        }
    }
    text
}

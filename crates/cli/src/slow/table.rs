//! Rows of `slow` as text, within the width of a terminal.

use crate::output;
use roadtrain_wire::text::Printable;

/// A column. Those with a smaller rank are left out first.
struct SlowColumn {
    head: &'static str,
    rank: u8,
}

const COLUMNS: [SlowColumn; 9] = [
    SlowColumn { head: "time (UTC)", rank: 4 },
    SlowColumn { head: "id", rank: 6 },
    SlowColumn { head: "op", rank: 7 },
    SlowColumn { head: "size", rank: 3 },
    SlowColumn { head: "lba", rank: 1 },
    SlowColumn { head: "nsid", rank: 2 },
    SlowColumn { head: "host", rank: 0 },
    SlowColumn { head: "lane", rank: 5 },
    SlowColumn { head: "total", rank: 8 },
];
/// Column of the host's NQN.
const HOST: usize = 6;
/// Fewest characters of a shortened NQN: its end, which differs from others.
const HOST_CHARS_MIN: usize = 8;
/// Indentation of stages below their row.
const INDENT: usize = 4;
/// Spaces between cells, and between stages.
const GAP: usize = 2;

/// A request of one end.
pub(super) struct TableRow {
    pub(super) cells: [String; COLUMNS.len()],
    /// Stages with their durations, then the status of a request that failed.
    pub(super) stages: Vec<String>,
}

/// Formats the table, in lines of at most `width` characters; `None`: without a limit. A narrow terminal first gets
/// shortened NQNs, then stages below their row, then fewer columns.
pub(super) fn table(rows: &[TableRow], width: Option<usize>) -> String {
    let rows: Vec<TableRow> = rows.iter().map(TableRow::printable).collect();
    let all: Vec<usize> = (0..COLUMNS.len()).collect();
    let Some(width) = width else { return beside(&rows, &all) };
    let stages = rows.iter().map(|row| chars(&row.stages.join("  "))).max().unwrap_or(0);
    if let Some(rows) = shortened(&rows, &all, width.saturating_sub(GAP + stages.max(6))) {
        return beside(&rows, &all);
    }
    let mut ranks: Vec<usize> = all.clone();
    ranks.sort_by_key(|column| COLUMNS[*column].rank);
    for left_out in 0..COLUMNS.len() {
        let mut shown = ranks[left_out..].to_vec();
        shown.sort_unstable();
        if let Some(rows) = shortened(&rows, &shown, width) {
            return below(&rows, &shown, width);
        }
    }
    below(&rows, &ranks[COLUMNS.len() - 1..], width)
}

impl TableRow {
    fn printable(&self) -> TableRow {
        let text = |text: &String| Printable(text).to_string();
        let stages = self.stages.iter().map(text).collect();
        TableRow { cells: self.cells.each_ref().map(text), stages }
    }

    fn shown(&self, columns: &[usize]) -> Vec<String> {
        columns.iter().map(|column| self.cells[*column].clone()).collect()
    }
}

/// Shortens NQNs so that these columns fit into `width`; `None` if no length suffices.
fn shortened(rows: &[TableRow], columns: &[usize], width: usize) -> Option<Vec<TableRow>> {
    let widest = |column: &usize| {
        let cells = rows.iter().map(|row| chars(&row.cells[*column]));
        cells.chain([chars(COLUMNS[*column].head)]).max().unwrap_or(0)
    };
    let others = columns.iter().filter(|column| **column != HOST).map(|one| widest(one) + GAP);
    let others: usize = others.sum();
    let left = match columns.contains(&HOST) {
        true => width.checked_sub(others)?,
        false => return (others.saturating_sub(GAP) <= width).then(|| copies(rows, usize::MAX)),
    };
    (left >= HOST_CHARS_MIN.min(widest(&HOST))).then(|| copies(rows, left))
}

fn copies(rows: &[TableRow], host_chars: usize) -> Vec<TableRow> {
    let copy = |row: &TableRow| {
        let mut cells = row.cells.clone();
        cells[HOST] = end_of(&cells[HOST], host_chars);
        TableRow { cells, stages: row.stages.clone() }
    };
    rows.iter().map(copy).collect()
}

/// Formats stages as the last column.
fn beside(rows: &[TableRow], columns: &[usize]) -> String {
    let mut head: Vec<&str> = columns.iter().map(|column| COLUMNS[*column].head).collect();
    head.push("stages");
    let cells = |row: &TableRow| {
        let mut cells = row.shown(columns);
        cells.push(row.stages.join("  "));
        cells
    };
    output::columns(&head, &rows.iter().map(cells).collect::<Vec<_>>())
}

/// Formats stages below their row, in as many lines as needed.
fn below(rows: &[TableRow], columns: &[usize], width: usize) -> String {
    let head: Vec<&str> = columns.iter().map(|column| COLUMNS[*column].head).collect();
    let cells: Vec<Vec<String>> = rows.iter().map(|row| row.shown(columns)).collect();
    let table = output::columns(&head, &cells);
    let mut lines = table.lines();
    let mut text = format!("{}\n", lines.next().unwrap_or_default());
    for (line, row) in lines.zip(rows) {
        text.push_str(&format!("{line}\n"));
        wrapped(&row.stages, width).iter().for_each(|line| text.push_str(&format!("{line}\n")));
    }
    text
}

fn wrapped(stages: &[String], width: usize) -> Vec<String> {
    let room = width.saturating_sub(INDENT).max(1);
    let mut lines: Vec<String> = Vec::new();
    for stage in stages {
        let stage = start_of(stage, room);
        match lines.last_mut() {
            Some(line) if chars(line) + GAP + chars(&stage) <= INDENT + room => {
                line.push_str(&format!("  {stage}"));
            }
            _ => lines.push(format!("{:INDENT$}{stage}", "")),
        }
    }
    lines
}

fn chars(text: &str) -> usize {
    text.chars().count()
}

/// Returns the last `most` characters; a sign marks a shortened text.
fn end_of(text: &str, most: usize) -> String {
    match chars(text) {
        all if all <= most => text.to_owned(),
        all => format!("…{}", text.chars().skip(all - most + 1).collect::<String>()),
    }
}

/// Returns the first `most` characters; a sign marks a shortened text.
fn start_of(text: &str, most: usize) -> String {
    match chars(text) {
        all if all <= most => text.to_owned(),
        _ => format!("{}…", text.chars().take(most - 1).collect::<String>()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NQN: &str =
        "nqn.2014-08.org.nvmexpress:uuid:0d6eb3f4-6f8b-4f0b-9a5e-0123456789ab:database7";

    fn rows() -> Vec<TableRow> {
        let row = |time: &str, id: &str, host: &str, stages: &[&str]| TableRow {
            cells: [time, id, "read", "4KiB", "18446744073709", "1", host, "2", "2.31 ms"]
                .map(str::to_owned),
            stages: stages.iter().map(|stage| (*stage).to_owned()).collect(),
        };
        let host = ["lane 0 us", "caravan 0 us", "*target 2.31 ms", "data 2.00 us"];
        let target = ["buffer 0 us", "data 0 us", "*store 2.27 ms", "caravan 0 us", "send 13.1 us"];
        vec![row("21:14:03.512", "nbd0", "-", &host), row("  there:", "target0", NQN, &target)]
    }

    fn check(width: usize) -> String {
        let text = table(&rows(), Some(width));
        for line in text.lines() {
            assert!(chars(line) <= width, "{width}: {} in\n{text}", chars(line));
        }
        for stage in rows().iter().flat_map(|row| &row.stages) {
            assert!(width < 20 || text.contains(stage), "{width}: {stage} is not in\n{text}");
        }
        text
    }

    #[test]
    fn no_terminal_no_cut() {
        let text = table(&rows(), None);
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(text.contains(NQN) && text.lines().any(|line| chars(line) > 150), "{text}");
        assert_eq!(check(400), text);
    }

    #[test]
    fn eighty_columns_have_the_end_of_an_nqn_and_stages_below() {
        let text = check(80);
        assert!(text.contains("…tabase7"), "{text}");
        assert_eq!(text.lines().next().unwrap().split_whitespace().count(), 10, "{text}");
        assert!(text.contains("\n    lane 0 us  caravan 0 us  *target"), "{text}");
    }

    #[test]
    fn a_hundred_and_twenty_columns_have_more_of_the_nqn() {
        let text = check(120);
        assert!(text.contains("456789ab:database7  2"), "{text}");
        assert!(check(160).lines().count() == 3, "stages are beside their row");
    }

    #[test]
    fn no_width_is_exceeded() {
        for width in 10..200 {
            check(width);
        }
        assert!(!check(60).contains("host"));
        assert!(check(10).starts_with("total"));
    }
}

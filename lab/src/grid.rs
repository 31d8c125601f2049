//! Tables: lines of cells, written as Markdown that also reads well on a terminal.

/// Lines of cells, the first one the heading.
pub(crate) type Grid = Vec<Vec<String>>;

/// Both ends' figures.
pub(crate) fn pair(host: Option<f64>, target: Option<f64>, digits: usize) -> String {
    format!("{} / {}", optional(host, digits), optional(target, digits))
}

/// A figure, or a dash.
pub(crate) fn optional(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".into(), |v| format!("{v:.digits$}"))
}

/// A line of cells.
pub(crate) fn strings(cells: &[&str]) -> Vec<String> {
    cells.iter().map(|cell| (*cell).to_owned()).collect()
}

/// Writes a grid, its first line the heading, columns padded; all but the first align right.
pub(crate) fn write(out: &mut String, grid: &Grid) {
    let columns = grid[0].len();
    let width =
        |c: usize| grid.iter().map(|line| line[c].chars().count()).max().unwrap_or(0).max(3);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for (number, line) in grid.iter().enumerate() {
        for (column, (cell, &width)) in line.iter().zip(&widths).enumerate() {
            let text = if column == 0 || column == columns - 1 {
                format!("| {cell:<width$} ")
            } else {
                format!("| {cell:>width$} ")
            };
            out.push_str(&text);
        }
        out.push_str("|\n");
        if number == 0 {
            for (column, &width) in widths.iter().enumerate() {
                let dashes = "-".repeat(width);
                let right = column != 0 && column != columns - 1;
                out.push_str(&if right {
                    format!("| {}: ", &dashes[1..])
                } else {
                    format!("| {dashes} ")
                });
            }
            out.push_str("|\n");
        }
    }
}

/// The same without padding, for long cells. A cell that begins with `!` is missed, and bold.
pub(crate) fn write_plain(out: &mut String, grid: &Grid) {
    for (number, line) in grid.iter().enumerate() {
        let cells = line.iter().map(|cell| match cell.strip_prefix('!') {
            Some(missed) => format!("**{}**", missed.replace('|', "\\|")),
            None => cell.replace('|', "\\|"),
        });
        *out += &format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "));
        if number == 0 {
            *out += &format!("|---{}|\n", "|---:".repeat(line.len() - 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut out = String::new();
        write(&mut out, &vec![strings(&["a", "bcde", "f"]), strings(&["ghij", "k", "lmno"])]);
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines[0], "| a    | bcde | f    |");
        assert_eq!(lines[1], "| ---- | ---: | ---- |");
        assert_eq!(lines[2], "| ghij |    k | lmno |");
    }
}

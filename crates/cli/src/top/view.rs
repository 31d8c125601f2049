//! Drawing of a screen: a title, charts of the selected row, the rows, the keys.
//!
//! Colour only repeats information of words, signs and positions.

use super::app::{RateColumn, TopState};
use super::dashboard::{Dashboard, DashboardRow, DashboardView, PastRates, RowKey};
use super::format::{bars, count, time};
use super::rates::{IoRates, LaneRates, ProcessRates, ReactorShares};
use crate::units::{show_bandwidth, show_bytes, show_seconds};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{
    Block, BorderType, Clear, Padding, Paragraph, Row as TableRow, Sparkline, Table, TableState,
};

/// Width from which rows have a line of bars.
const WIDE: u16 = 100;
/// Width of the bars.
const BARS: u16 = 16;
/// Lines of a chart, with its border.
const CHART: u16 = 5;
/// Height below which there are no charts.
const HIGH: u16 = 16;

const HELP: &[(&str, &str)] = &[
    ("Tab, 1 2 3 4", "processes, namespaces, hosts, lanes"),
    ("arrows, j k", "select a row"),
    ("PgUp, PgDn, Home, End", "go further"),
    ("Enter, Esc", "open the row, back"),
    ("s, r", "sort by the next column, the other way round"),
    ("p", "pause, go on"),
    ("+, -", "update less often, more often"),
    ("q, Ctrl-C", "end"),
];

/// A chart: name, value, format and style.
type ChartSpec = (&'static str, fn(&PastRates) -> f64, fn(f64) -> String, Style);

/// Styles.
struct TopTheme {
    accent: Style,
    second: Style,
    dim: Style,
    bold: Style,
    warn: Style,
    selected: Style,
}

impl TopTheme {
    fn of(app: &TopState) -> TopTheme {
        let plain = Style::new();
        if !app.has_colors {
            return TopTheme {
                accent: plain,
                second: plain,
                dim: plain,
                bold: plain.bold(),
                warn: plain.bold(),
                selected: plain.reversed(),
            };
        }
        TopTheme {
            accent: plain.fg(Color::Cyan),
            second: plain.fg(Color::Yellow),
            dim: plain.fg(Color::DarkGray),
            bold: plain.bold(),
            warn: plain.fg(Color::Yellow).bold(),
            // Readable on light and on dark terminals.
            selected: plain.reversed(),
        }
    }

    fn block<'a>(&self, title: Line<'a>) -> Block<'a> {
        Block::bordered().border_type(BorderType::Rounded).border_style(self.dim).title(title)
    }
}

/// Draws a screen.
pub(super) fn draw(frame: &mut Frame<'_>, app: &TopState, dashboard: &Dashboard) {
    let theme = TopTheme::of(app);
    let rows = app.rows(dashboard);
    let selected = app.selected_of(&rows);
    let charts = if frame.area().height >= HIGH { CHART } else { 0 };
    let [title, top, middle, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(charts),
        Constraint::Min(3),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    draw_title(frame, title, (app, dashboard), &theme);
    let row = selected.and_then(|at| rows.get(at));
    if charts > 0 {
        draw_charts(frame, top, row.map(|row| &row.key), dashboard, &theme);
    }
    match row {
        Some(row) if app.is_open => draw_open(frame, middle, row, dashboard, &theme),
        _ => draw_rows(frame, middle, (app, &rows, selected), dashboard, &theme),
    }
    draw_keys(frame, keys, app, &theme);
    if app.shows_help {
        draw_help(frame, &theme);
    }
}

fn draw_title(
    frame: &mut Frame<'_>,
    area: Rect,
    (app, dashboard): (&TopState, &Dashboard),
    theme: &TopTheme,
) {
    let mut spans = vec![Span::styled(" roadtrain top ", theme.accent.bold())];
    let of = |process: &ProcessRates| {
        format!(" {} {} up {} ", process.id, process.state, show_seconds(process.uptime_seconds))
    };
    match &dashboard.processes[..] {
        [one] => spans.push(Span::raw(of(one))),
        many => spans.push(Span::raw(format!(" {} processes ", many.len()))),
    }
    let problems = dashboard.processes.iter().flat_map(|process| &process.problems);
    if let Some(problem) = dashboard.silent.iter().chain(problems).next() {
        spans.push(Span::styled(format!(" ! {problem} "), theme.warn));
    }
    let every = format!("every {} ", show_seconds(app.interval.as_secs_f64()));
    let right = if app.is_paused { "PAUSED ".to_owned() } else { every };
    let style = if app.is_paused { theme.warn } else { theme.dim };
    frame.render_widget(Line::from(spans), area);
    frame.render_widget(Line::from(Span::styled(right, style)).right_aligned(), area);
}

/// Draws the recent IOPS, bandwidth and 99th percentile of the selected row.
fn draw_charts(
    frame: &mut Frame<'_>,
    area: Rect,
    key: Option<&RowKey>,
    dashboard: &Dashboard,
    theme: &TopTheme,
) {
    let areas: [Rect; 3] = Layout::horizontal([Constraint::Fill(1); 3]).areas(area);
    let past: Vec<PastRates> = key.map_or_else(Vec::new, |key| dashboard.history(key).collect());
    let last = past.last().copied().unwrap_or_default();
    let charts: [ChartSpec; 3] = [
        ("IOPS", |past| past.iops, count, theme.accent),
        ("bandwidth", |past| past.bytes_per_second, show_bandwidth, theme.accent),
        ("p99", |past| past.p99_us, |us| time(Some(us).filter(|us| *us > 0.0)), theme.second),
    ];
    for (area, (name, of, show, style)) in areas.into_iter().zip(charts) {
        let title = Line::from(vec![
            Span::raw(format!(" {name} ")),
            Span::styled(format!("{} ", show(of(&last))), theme.bold),
        ]);
        let most = past.iter().rev().take(area.width.into()).map(of).fold(0.0, f64::max);
        let scale = Line::styled(format!(" full bar {} ", show(most)), theme.dim).right_aligned();
        let block = theme.block(title).title_bottom(scale);
        let inner = block.inner(area);
        frame.render_widget(block, area);
        let shown = past.len().saturating_sub(inner.width.into());
        // The newest value is at the right edge, also at first.
        let missing = usize::from(inner.width).saturating_sub(past.len());
        let values = past[shown..].iter().map(|past| of(past).round() as u64);
        let values: Vec<u64> = std::iter::repeat_n(0, missing).chain(values).collect();
        frame.render_widget(Sparkline::default().data(&values).style(style), inner);
    }
}

fn draw_rows(
    frame: &mut Frame<'_>,
    area: Rect,
    (app, rows, selected): (&TopState, &[DashboardRow<'_>], Option<usize>),
    dashboard: &Dashboard,
    theme: &TopTheme,
) {
    let mut tabs = Vec::new();
    for (number, view) in (1..).zip(DashboardView::ALL) {
        let text = match dashboard.count(view) {
            (count, 0) => format!(" {number} {} {count} ", view.name()),
            (count, left_out) => {
                format!(" {number} {} {count} of {} ", view.name(), count + left_out)
            }
        };
        let is_it = view == app.view;
        tabs.push(if is_it {
            Span::styled(format!("[{}]", text.trim()), theme.accent.bold())
        } else {
            Span::styled(text, theme.dim)
        });
    }
    let block = theme.block(Line::from(tabs));
    if rows.is_empty() {
        let text = Paragraph::new("nothing here yet").centered().block(block);
        return frame.render_widget(text, area);
    }
    let is_wide = area.width >= WIDE;
    let inside = area.width.saturating_sub(2); // a border
    let columns = RateColumn::fitting(if is_wide { inside - BARS - 1 } else { inside });
    let mut widths = vec![Constraint::Fill(1)];
    widths.extend(columns.iter().map(|column| Constraint::Length(column.width())));
    let shown = std::iter::once(&RateColumn::Name).chain(&columns);
    let mut head: Vec<Line<'_>> = shown.map(|column| heading(*column, app)).collect();
    if is_wide {
        widths.push(Constraint::Length(BARS));
        head.push(Line::from("recent IOPS").right_aligned());
    }
    let lines = rows.iter().map(|row| {
        let mut cells = vec![Line::from(name(row))];
        let figures = columns.iter().map(|column| column.show(row.rates));
        cells.extend(figures.map(|text| Line::from(text).right_aligned()));
        if is_wide {
            let past = dashboard.history(&row.key).map(|past| past.iops);
            cells.push(Line::styled(bars(past, BARS.into()), theme.accent).right_aligned());
        }
        TableRow::new(cells)
    });
    let table = Table::new(lines, widths)
        .header(TableRow::new(head).style(theme.bold))
        .row_highlight_style(theme.selected)
        .highlight_symbol("> ")
        .block(block);
    let mut state = TableState::default().with_selected(selected);
    frame.render_stateful_widget(table, area, &mut state);
    if let Some(at) = selected.filter(|_| is_wide) {
        // Reversed bars would show their complement.
        let line = area.y + 2 + at.saturating_sub(state.offset()) as u16; // border and names of columns
        let bars = Rect::new(area.right() - 1 - BARS, line, BARS, 1).intersection(area);
        frame.buffer_mut().set_style(bars, Style::new().not_reversed());
    }
}

/// Returns a column's heading, with a sign in the sorted one.
fn heading(column: RateColumn, app: &TopState) -> Line<'static> {
    let sign = match (column == app.sort, app.is_reversed) {
        (false, _) => "",
        (true, false) => "▼",
        (true, true) => "▲",
    };
    let line = Line::from(format!("{}{sign}", column.name()));
    if column == RateColumn::Name { line } else { line.right_aligned() }
}

/// Returns the name of a row, the most important part first: the end may be cut off.
pub(super) fn name(row: &DashboardRow<'_>) -> String {
    let process = row.process;
    let of = if row.is_alone { String::new() } else { format!("{} ", process.id) };
    match row.key.view {
        DashboardView::Processes => format!("{} {} {}", process.id, process.kind, process.state),
        DashboardView::Namespaces => {
            let one = &process.namespaces[row.index];
            format!("{of}ns {} {} {}", one.nsid, short(&one.nqn), one.place())
        }
        DashboardView::Hosts => {
            let one = &process.hosts[row.index];
            let address = one.address.as_deref().unwrap_or("not connected");
            format!("{of}{} {address}", short(&one.host_nqn))
        }
        DashboardView::Lanes => {
            let one = &process.lanes[row.index];
            format!("{of}{}.{} {} {}", one.cntlid, one.qid, short(&one.host_nqn), one.peer)
        }
    }
}

/// Returns the end of an NQN, which distinguishes it from others.
fn short(nqn: &str) -> String {
    nqn.rsplit_once(':').map_or(nqn, |(_, end)| end).to_owned()
}

/// Draws a row alone, with all its data.
fn draw_open(
    frame: &mut Frame<'_>,
    area: Rect,
    row: &DashboardRow<'_>,
    dashboard: &Dashboard,
    theme: &TopTheme,
) {
    let title = Line::from(Span::styled(format!(" {} ", name(row).trim()), theme.accent.bold()));
    let block = theme.block(title).padding(Padding::horizontal(1));
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let mut lines = io_lines(row.rates, theme);
    lines.push(Line::default());
    lines.extend(match row.key.view {
        DashboardView::Processes => reactor_lines(&row.process.reactors, theme),
        DashboardView::Namespaces => namespace_lines(row),
        DashboardView::Hosts => host_lines(row),
        DashboardView::Lanes => lane_lines(&row.process.lanes[row.index], row.process),
    });
    let past = dashboard.history(&row.key).map(|past| past.p99_us);
    let worst = past.fold(0.0, f64::max);
    if worst > 0.0 {
        lines.push(Line::default());
        lines.push(Line::from(format!("highest recent p99   {}", time(Some(worst)))));
    }
    frame.render_widget(Paragraph::new(lines), inner);
}

fn io_lines(rates: &IoRates, theme: &TopTheme) -> Vec<Line<'static>> {
    let line = |what: &str, iops: f64, bytes: f64| {
        Line::from(vec![
            Span::raw(format!("{what:<8}")),
            Span::styled(
                format!("{:>8} IOPS  {:>10}", count(iops), show_bandwidth(bytes)),
                theme.bold,
            ),
        ])
    };
    let columns = [
        RateColumn::P50,
        RateColumn::P99,
        RateColumn::P999,
        RateColumn::InFlight,
        RateColumn::PerCaravan,
    ];
    let [p50, p99, p999, in_flight, per_caravan] = columns.map(|column| column.show(rates));
    vec![
        line("reads", rates.read_iops, rates.read_bytes_per_second),
        line("writes", rates.write_iops, rates.written_bytes_per_second),
        line("all", rates.iops, rates.bytes_per_second),
        Line::from(format!("latency  p50 {p50}  p99 {p99}  p99.9 {p999}")),
        Line::from(format!(
            "{in_flight} in flight, {per_caravan} requests for each caravan, {} errors/s",
            count(rates.errors_per_second)
        )),
    ]
}

/// Returns reactors' time as bars: busy is full, spinning is grey.
fn reactor_lines(reactors: &[ReactorShares], theme: &TopTheme) -> Vec<Line<'static>> {
    const WIDTH: f64 = 24.0;
    let line = |reactor: &ReactorShares| {
        let busy = (reactor.busy * WIDTH).round() as usize;
        let spin = ((reactor.spin * WIDTH).round() as usize).min(WIDTH as usize - busy);
        let rest = WIDTH as usize - busy - spin;
        let core = reactor.core.map_or_else(String::new, |core| format!(" (core {core})"));
        let percent = |share: f64| format!("{:>3.0} %", share * 100.0);
        Line::from(vec![
            Span::raw(format!("reactor {:<3}", reactor.reactor)),
            Span::styled("█".repeat(busy), theme.accent),
            Span::styled("▒".repeat(spin), theme.second),
            Span::styled("·".repeat(rest), theme.dim),
            Span::raw(format!(
                "  busy {}  spinning {}  idle {}{core}",
                percent(reactor.busy),
                percent(reactor.spin),
                percent(reactor.idle)
            )),
        ])
    };
    reactors.iter().map(line).collect()
}

fn namespace_lines(row: &DashboardRow<'_>) -> Vec<Line<'static>> {
    let one = &row.process.namespaces[row.index];
    let size = show_bytes(one.capacity_bytes);
    let read_only = if one.read_only { ", read-only" } else { "" };
    vec![
        Line::from(format!("subsystem  {}", one.nqn)),
        Line::from(format!("namespace  {} of {size}{read_only}", one.nsid)),
        Line::from(format!("store      {} {}", one.product, one.place())),
    ]
}

fn host_lines(row: &DashboardRow<'_>) -> Vec<Line<'static>> {
    let one = &row.process.hosts[row.index];
    let mut lines = vec![
        Line::from(format!("host       {}", one.host_nqn)),
        Line::from(format!("subsystem  {}", one.nqn)),
        Line::from(format!("I/O queues {}", one.io_queues)),
    ];
    let lanes = row.process.lanes.iter();
    let own = lanes.filter(|lane| (&lane.nqn, &lane.host_nqn) == (&one.nqn, &one.host_nqn));
    lines.extend(own.map(|lane| {
        let columns = [RateColumn::Iops, RateColumn::Bandwidth, RateColumn::P99];
        let [iops, bytes, p99] = columns.map(|column| column.show(&lane.rates));
        Line::from(format!(
            "  lane {}.{}  {:>8} IOPS  {bytes:>10}  p99 {p99:>7}  {}",
            lane.cntlid, lane.qid, iops, lane.peer
        ))
    }));
    lines
}

fn lane_lines(lane: &LaneRates, process: &ProcessRates) -> Vec<Line<'static>> {
    let [size, timer, urgent, drained] = lane.doorbells_per_second.map(count);
    let sends_per_io = |sends: f64| match lane.rates.iops {
        iops if iops > 0.0 => format!(", {:.2} for each request", sends / iops),
        _ => String::new(),
    };
    let busy = process.reactors.iter().find(|one| one.reactor == lane.reactor);
    let busy = busy.map_or_else(String::new, |one| format!(", busy {:.0} %", one.busy * 100.0));
    vec![
        Line::from(format!("subsystem  {}", lane.nqn)),
        Line::from(format!("host       {} at {} ({})", lane.host_nqn, lane.peer, lane.transport)),
        Line::from(format!(
            "queue      {} of controller {}, on reactor {}{busy}",
            lane.qid, lane.cntlid, lane.reactor
        )),
        Line::from(format!(
            "calls      {} sends/s{}, {} receives/s",
            count(lane.sends_per_second),
            sends_per_io(lane.sends_per_second),
            count(lane.receives_per_second)
        )),
        Line::from(format!(
            "doorbells  {drained}/s drained, {size}/s size, {urgent}/s urgent, {timer}/s timer"
        )),
        Line::from(format!("reconnects {}", lane.reconnects)),
    ]
}

fn draw_keys(frame: &mut Frame<'_>, area: Rect, app: &TopState, theme: &TopTheme) {
    let pause = if app.is_paused { "go on" } else { "pause" };
    let keys: &[(&str, &str)] = match app.is_open {
        true => &[("Esc", "back"), ("↑↓", "other row"), ("p", pause), ("q", "quit"), ("?", "help")],
        false => &[
            ("Tab", "view"),
            ("↑↓", "select"),
            ("Enter", "open"),
            ("s", "sort"),
            ("r", "reverse"),
            ("p", pause),
            ("q", "quit"),
            ("?", "help"),
        ],
    };
    let mut spans = vec![Span::raw(" ")];
    for (key, what) in keys {
        spans.push(Span::styled((*key).to_owned(), theme.accent.bold()));
        spans.push(Span::styled(format!(" {what}  "), theme.dim));
    }
    frame.render_widget(Line::from(spans), area);
}

fn draw_help(frame: &mut Frame<'_>, theme: &TopTheme) {
    let lines = HELP.iter().map(|(keys, what)| {
        Line::from(vec![Span::styled(format!("{keys:<23}"), theme.bold), Span::raw(*what)])
    });
    let lines: Vec<Line<'_>> = lines.collect();
    let (width, height) = (72, lines.len() as u16 + 2);
    let area = frame.area().centered(Constraint::Max(width), Constraint::Max(height));
    let block = theme.block(Line::from(" keys ")).padding(Padding::horizontal(1));
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

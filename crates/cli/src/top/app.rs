//! State of the display, and key presses.

use super::dashboard::{Dashboard, DashboardRow, DashboardView, RowKey};
use super::format::{count, per_caravan, time};
use super::rates::IoRates;
use crate::units::show_bandwidth;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::cmp::Ordering;
use std::time::Duration;

/// Intervals that + and - select.
const INTERVALS: [Duration; 7] = [
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(60),
];

/// Fewest characters of a name, with the sign of the selected row; and on a narrow screen.
const NAME_WIDTH: u16 = 25;
const SHORT_NAME_WIDTH: u16 = 16;
/// Width below which a screen is narrow.
const NARROW: u16 = 60;

/// A figure by which rows are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RateColumn {
    Name,
    Iops,
    Bandwidth,
    P50,
    P99,
    P999,
    InFlight,
    Errors,
    PerCaravan,
}

impl RateColumn {
    pub(super) const ALL: [RateColumn; 9] = [
        RateColumn::Name,
        RateColumn::Iops,
        RateColumn::Bandwidth,
        RateColumn::P50,
        RateColumn::P99,
        RateColumn::P999,
        RateColumn::InFlight,
        RateColumn::Errors,
        RateColumn::PerCaravan,
    ];
    /// Columns by importance: the last ones are left out on a narrow screen.
    const BY_WEIGHT: [RateColumn; 8] = [
        RateColumn::Iops,
        RateColumn::Bandwidth,
        RateColumn::P99,
        RateColumn::Errors,
        RateColumn::InFlight,
        RateColumn::P50,
        RateColumn::P999,
        RateColumn::PerCaravan,
    ];

    /// Returns the columns that fit next to a name, in the order of display.
    pub(super) fn fitting(width: u16) -> Vec<RateColumn> {
        let name = if width < NARROW { SHORT_NAME_WIDTH } else { NAME_WIDTH };
        let mut left = width.saturating_sub(name);
        let mut chosen = RateColumn::BY_WEIGHT.to_vec();
        chosen.retain(|column| {
            let needed = column.width() + 1;
            let fits = needed <= left;
            left = if fits { left - needed } else { 0 };
            fits
        });
        RateColumn::ALL.into_iter().filter(|column| chosen.contains(column)).collect()
    }

    /// Returns the width in characters.
    pub(super) fn width(self) -> u16 {
        match self {
            RateColumn::Bandwidth => 10,
            RateColumn::P50 | RateColumn::P99 | RateColumn::P999 => 7,
            RateColumn::Iops => 5,
            _ => 6,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            RateColumn::Name => "name",
            RateColumn::Iops => "IOPS",
            RateColumn::Bandwidth => "bytes/s",
            RateColumn::P50 => "p50",
            RateColumn::P99 => "p99",
            RateColumn::P999 => "p99.9",
            RateColumn::InFlight => "depth",
            RateColumn::Errors => "err/s",
            RateColumn::PerCaravan => "req/c",
        }
    }

    /// Formats the column's figure.
    pub(super) fn show(self, rates: &IoRates) -> String {
        match self {
            RateColumn::Name => String::new(),
            RateColumn::Iops => count(rates.iops),
            RateColumn::Bandwidth => show_bandwidth(rates.bytes_per_second),
            RateColumn::P50 => time(rates.p50_us),
            RateColumn::P99 => time(rates.p99_us),
            RateColumn::P999 => time(rates.p999_us),
            RateColumn::InFlight => count(rates.in_flight as f64),
            RateColumn::Errors => count(rates.errors_per_second),
            RateColumn::PerCaravan => per_caravan(rates.requests_per_caravan),
        }
    }

    fn value(self, rates: &IoRates) -> f64 {
        match self {
            RateColumn::Name => 0.0,
            RateColumn::Iops => rates.iops,
            RateColumn::Bandwidth => rates.bytes_per_second,
            RateColumn::P50 => rates.p50_us.unwrap_or(-1.0),
            RateColumn::P99 => rates.p99_us.unwrap_or(-1.0),
            RateColumn::P999 => rates.p999_us.unwrap_or(-1.0),
            RateColumn::InFlight => rates.in_flight as f64,
            RateColumn::Errors => rates.errors_per_second,
            RateColumn::PerCaravan => rates.requests_per_caravan.unwrap_or(-1.0),
        }
    }
}

/// State of the display.
pub(super) struct TopState {
    pub(super) view: DashboardView,
    pub(super) sort: RateColumn,
    pub(super) is_reversed: bool,
    /// Selected row, while it exists; else the first.
    selected: Option<RowKey>,
    /// True if the selected row is displayed alone.
    pub(super) is_open: bool,
    pub(super) is_paused: bool,
    pub(super) shows_help: bool,
    pub(super) interval: Duration,
    pub(super) has_colors: bool,
    pub(super) has_ended: bool,
}

impl TopState {
    pub(super) fn new(interval: Duration, has_colors: bool) -> TopState {
        TopState {
            view: DashboardView::Processes,
            sort: RateColumn::Iops,
            is_reversed: false,
            selected: None,
            is_open: false,
            is_paused: false,
            shows_help: false,
            interval,
            has_colors,
            has_ended: false,
        }
    }

    /// Returns the rows of the view, sorted. Equal ones are sorted by name, so that their order is stable.
    pub(super) fn rows<'a>(&self, dashboard: &'a Dashboard) -> Vec<DashboardRow<'a>> {
        let mut rows = dashboard.rows(self.view);
        rows.sort_by(|a, b| {
            let by_value = self.sort.value(b.rates).partial_cmp(&self.sort.value(a.rates));
            let order = by_value.unwrap_or(Ordering::Equal);
            let order = if self.is_reversed { order.reverse() } else { order };
            order.then_with(|| {
                let by_name = a.key.cmp(&b.key);
                if self.sort == RateColumn::Name && self.is_reversed {
                    by_name.reverse()
                } else {
                    by_name
                }
            })
        });
        rows
    }

    /// Returns the index of the selected row.
    pub(super) fn selected_of(&self, rows: &[DashboardRow<'_>]) -> Option<usize> {
        if rows.is_empty() {
            return None;
        }
        let selected = self.selected.as_ref();
        Some(rows.iter().position(|row| Some(&row.key) == selected).unwrap_or(0))
    }

    /// Handles a key press.
    pub(super) fn press(&mut self, key: KeyEvent, dashboard: &Dashboard) {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c' | 'd') if is_control => self.has_ended = true,
            _ if is_control => {}
            KeyCode::Char('q') => self.has_ended = true,
            _ if self.shows_help => self.shows_help = false,
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.shows_help = true,
            KeyCode::Tab | KeyCode::Right => self.turn(1),
            KeyCode::BackTab | KeyCode::Left => self.turn(DashboardView::ALL.len() - 1),
            KeyCode::Char(digit @ '1'..='4') => {
                self.show(DashboardView::ALL[digit as usize - '1' as usize]);
            }
            KeyCode::Down | KeyCode::Char('j') => self.step(dashboard, |at| at + 1),
            KeyCode::Up | KeyCode::Char('k') => self.step(dashboard, |at| at.saturating_sub(1)),
            KeyCode::PageDown => self.step(dashboard, |at| at + 10),
            KeyCode::PageUp => self.step(dashboard, |at| at.saturating_sub(10)),
            KeyCode::Home => self.step(dashboard, |_| 0),
            KeyCode::End => self.step(dashboard, |_| usize::MAX),
            KeyCode::Enter => self.open(dashboard),
            KeyCode::Esc | KeyCode::Backspace => self.is_open = false,
            KeyCode::Char('s') => self.sort = next(&RateColumn::ALL, self.sort),
            KeyCode::Char('r') => self.is_reversed = !self.is_reversed,
            KeyCode::Char('p' | ' ') => self.is_paused = !self.is_paused,
            KeyCode::Char('+' | '=') => self.set_interval(|one, now| one > now, INTERVALS.iter()),
            KeyCode::Char('-') => self.set_interval(|one, now| one < now, INTERVALS.iter().rev()),
            _ => {}
        }
    }

    fn turn(&mut self, by: usize) {
        let at = DashboardView::ALL.iter().position(|view| *view == self.view).unwrap_or(0);
        self.show(DashboardView::ALL[(at + by) % DashboardView::ALL.len()]);
    }

    fn show(&mut self, view: DashboardView) {
        (self.view, self.is_open, self.selected) = (view, false, None);
    }

    fn step(&mut self, dashboard: &Dashboard, to: impl Fn(usize) -> usize) {
        let rows = self.rows(dashboard);
        let Some(at) = self.selected_of(&rows) else { return };
        let at = to(at).min(rows.len() - 1);
        self.selected = Some(rows[at].key.clone());
    }

    fn open(&mut self, dashboard: &Dashboard) {
        let rows = self.rows(dashboard);
        let Some(at) = self.selected_of(&rows) else { return };
        // The order of rows changes: the opened one stays selected.
        self.selected = Some(rows[at].key.clone());
        self.is_open = true;
    }

    fn set_interval<'a>(
        &mut self,
        is_it: impl Fn(Duration, Duration) -> bool,
        mut among: impl Iterator<Item = &'a Duration>,
    ) {
        if let Some(interval) = among.find(|one| is_it(**one, self.interval)) {
            self.interval = *interval;
        }
    }
}

/// Returns the element after `now`.
fn next<T: Copy + PartialEq>(all: &[T], now: T) -> T {
    let at = all.iter().position(|one| *one == now).unwrap_or(0);
    all[(at + 1) % all.len()]
}

//! Recent rates of all processes, and their history, as rows.

use super::rates::{IoRates, ProcessRates};
use std::collections::{HashMap, VecDeque};

/// Intervals in the history.
const HISTORY: usize = 240;

/// Kind of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum DashboardView {
    Processes,
    Namespaces,
    Hosts,
    Lanes,
}

impl DashboardView {
    pub(super) const ALL: [DashboardView; 4] = [
        DashboardView::Processes,
        DashboardView::Namespaces,
        DashboardView::Hosts,
        DashboardView::Lanes,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            DashboardView::Processes => "Processes",
            DashboardView::Namespaces => "Namespaces",
            DashboardView::Hosts => "Hosts",
            DashboardView::Lanes => "Lanes",
        }
    }
}

/// Identity of a row over time.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct RowKey {
    pub(super) view: DashboardView,
    /// The target or attachment.
    pub(super) process: String,
    pub(super) name: String,
}

/// A row of a view.
#[derive(Clone, Debug)]
pub(super) struct DashboardRow<'a> {
    pub(super) key: RowKey,
    /// Index within its process.
    pub(super) index: usize,
    pub(super) process: &'a ProcessRates,
    /// True if there is no other process.
    pub(super) is_alone: bool,
    pub(super) rates: &'a IoRates,
}

/// Rates of a past interval.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PastRates {
    pub(super) iops: f64,
    pub(super) bytes_per_second: f64,
    pub(super) p99_us: f64,
}

/// Processes with their rates in the last interval, and the history.
#[derive(Default)]
pub(super) struct Dashboard {
    pub(super) processes: Vec<ProcessRates>,
    /// Processes that did not reply, with the reason.
    pub(super) silent: Vec<String>,
    history: HashMap<RowKey, VecDeque<PastRates>>,
    samples: u64,
}

impl Dashboard {
    /// Adds the rates of an interval.
    pub(super) fn put(&mut self, processes: Vec<ProcessRates>) {
        self.processes = processes;
        self.samples += 1;
        if self.samples == 1 {
            return; // no interval has passed yet
        }
        let mut history = std::mem::take(&mut self.history);
        let mut now = HashMap::new();
        for view in DashboardView::ALL {
            for DashboardRow { key, rates, .. } in self.rows(view) {
                let mut past = history.remove(&key).unwrap_or_default();
                past.push_back(PastRates {
                    iops: rates.iops,
                    bytes_per_second: rates.bytes_per_second,
                    p99_us: rates.p99_us.unwrap_or_default(),
                });
                if past.len() > HISTORY {
                    past.pop_front();
                }
                now.insert(key, past);
            }
        }
        self.history = now; // drops rows that have disappeared
    }

    /// Returns the number of rows of a view, and of those that are left out.
    pub(super) fn count(&self, view: DashboardView) -> (usize, usize) {
        let sum = |of: fn(&ProcessRates) -> usize| self.processes.iter().map(of).sum();
        match view {
            DashboardView::Processes => (self.processes.len(), 0),
            DashboardView::Namespaces => {
                (sum(|one| one.namespaces.len()), sum(|one| one.namespaces_left_out))
            }
            DashboardView::Hosts => (sum(|one| one.hosts.len()), 0),
            DashboardView::Lanes => (sum(|one| one.lanes.len()), 0),
        }
    }

    /// Returns the rows of a view, unsorted.
    pub(super) fn rows(&self, view: DashboardView) -> Vec<DashboardRow<'_>> {
        let of = |process: &'_ ProcessRates| -> Vec<(String, usize)> {
            let names: Vec<String> = match view {
                DashboardView::Processes => vec![process.id.clone()],
                DashboardView::Namespaces => process
                    .namespaces
                    .iter()
                    .map(|one| format!("{} {}", one.nsid, one.nqn))
                    .collect(),
                DashboardView::Hosts => process
                    .hosts
                    .iter()
                    .map(|one| format!("{} {}", one.host_nqn, one.nqn))
                    .collect(),
                DashboardView::Lanes => process
                    .lanes
                    .iter()
                    .map(|one| format!("{}.{} {}", one.cntlid, one.qid, one.peer))
                    .collect(),
            };
            names.into_iter().enumerate().map(|(index, name)| (name, index)).collect()
        };
        let mut rows = Vec::new();
        for process in &self.processes {
            for (name, index) in of(process) {
                let rates = match view {
                    DashboardView::Processes => &process.total,
                    DashboardView::Namespaces => &process.namespaces[index].rates,
                    DashboardView::Hosts => &process.hosts[index].rates,
                    DashboardView::Lanes => &process.lanes[index].rates,
                };
                let key = RowKey { view, process: process.id.clone(), name };
                let is_alone = self.processes.len() == 1;
                rows.push(DashboardRow { key, index, process, is_alone, rates });
            }
        }
        rows
    }

    /// Returns the past intervals of a row, the oldest first.
    pub(super) fn history(&self, key: &RowKey) -> impl DoubleEndedIterator<Item = PastRates> + '_ {
        self.history.get(key).into_iter().flatten().copied()
    }
}

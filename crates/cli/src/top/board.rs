//! Recent rates of all processes, and their history, as rows.

use super::rates::{Process, Rates};
use std::collections::{HashMap, VecDeque};

/// Intervals in the history.
const HISTORY: usize = 240;

/// Kind of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum View {
    Processes,
    Namespaces,
    Hosts,
    Lanes,
}

impl View {
    pub(super) const ALL: [View; 4] = [View::Processes, View::Namespaces, View::Hosts, View::Lanes];

    pub(super) fn name(self) -> &'static str {
        match self {
            View::Processes => "Processes",
            View::Namespaces => "Namespaces",
            View::Hosts => "Hosts",
            View::Lanes => "Lanes",
        }
    }
}

/// Identity of a row over time.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) view: View,
    /// The target or attachment.
    pub(super) process: String,
    pub(super) name: String,
}

/// A row of a view.
#[derive(Clone, Debug)]
pub(super) struct Row<'a> {
    pub(super) key: Key,
    /// Index within its process.
    pub(super) index: usize,
    pub(super) process: &'a Process,
    /// True if there is no other process.
    pub(super) is_alone: bool,
    pub(super) rates: &'a Rates,
}

/// Rates of a past interval.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Past {
    pub(super) iops: f64,
    pub(super) bytes_per_second: f64,
    pub(super) p99_us: f64,
}

/// Processes with their rates in the last interval, and the history.
#[derive(Default)]
pub(super) struct Board {
    pub(super) processes: Vec<Process>,
    /// Processes that did not reply, with the reason.
    pub(super) silent: Vec<String>,
    history: HashMap<Key, VecDeque<Past>>,
    looks: u64,
}

impl Board {
    /// Adds the rates of an interval.
    pub(super) fn put(&mut self, processes: Vec<Process>) {
        self.processes = processes;
        self.looks += 1;
        if self.looks == 1 {
            return; // no interval has passed yet
        }
        let mut history = std::mem::take(&mut self.history);
        let mut now = HashMap::new();
        for view in View::ALL {
            for Row { key, rates, .. } in self.rows(view) {
                let mut past = history.remove(&key).unwrap_or_default();
                past.push_back(Past {
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

    /// Returns the rows of a view, unsorted.
    pub(super) fn rows(&self, view: View) -> Vec<Row<'_>> {
        let of = |process: &'_ Process| -> Vec<(String, usize)> {
            let names: Vec<String> = match view {
                View::Processes => vec![process.id.clone()],
                View::Namespaces => process
                    .namespaces
                    .iter()
                    .map(|one| format!("{} {}", one.nsid, one.nqn))
                    .collect(),
                View::Hosts => process
                    .hosts
                    .iter()
                    .map(|one| format!("{} {}", one.host_nqn, one.nqn))
                    .collect(),
                View::Lanes => process
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
                    View::Processes => &process.total,
                    View::Namespaces => &process.namespaces[index].rates,
                    View::Hosts => &process.hosts[index].rates,
                    View::Lanes => &process.lanes[index].rates,
                };
                let key = Key { view, process: process.id.clone(), name };
                let is_alone = self.processes.len() == 1;
                rows.push(Row { key, index, process, is_alone, rates });
            }
        }
        rows
    }

    /// Returns the past intervals of a row, the oldest first.
    pub(super) fn history(&self, key: &Key) -> impl DoubleEndedIterator<Item = Past> + '_ {
        self.history.get(key).into_iter().flatten().copied()
    }
}

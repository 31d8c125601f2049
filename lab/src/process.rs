//! CPU time and context switches of processes, their threads and their children.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// Usage since some start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Used {
    pub(crate) cpu_seconds: f64,
    pub(crate) switches: f64,
}

/// Processes with all their descendants. A thread that has ended keeps what it was last seen with.
#[derive(Debug, Default)]
pub(crate) struct Processes {
    roots: Vec<u32>,
    threads: HashMap<u32, Used>,
}

impl Processes {
    pub(crate) fn of(roots: &[u32]) -> Self {
        Self { roots: roots.to_vec(), threads: HashMap::new() }
    }

    pub(crate) fn add(&mut self, root: u32) {
        if !self.roots.contains(&root) {
            self.roots.push(root);
        }
    }

    /// Usage of all until now.
    pub(crate) fn used(&mut self) -> Used {
        let mut processes = self.roots.clone();
        while let Some(process) = processes.pop() {
            let tasks = fs::read_dir(format!("/proc/{process}/task"));
            for task in tasks.into_iter().flatten().flatten() {
                let path = task.path();
                let id = path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok());
                if let (Some(id), Some(used)) = (id, thread(&path)) {
                    self.threads.insert(id, used);
                }
                processes.extend(numbers::<u32>(&read(&path, "children")));
            }
        }
        let add = |sum: Used, one: &Used| Used {
            cpu_seconds: sum.cpu_seconds + one.cpu_seconds,
            switches: sum.switches + one.switches,
        };
        self.threads.values().fold(Used::default(), add)
    }
}

/// A thread's, unless it has just ended.
fn thread(path: &Path) -> Option<Used> {
    let ns: f64 = *numbers(&read(path, "schedstat")).first()?;
    let switches = switches(&read(path, "status"))?;
    Some(Used { cpu_seconds: ns / 1e9, switches })
}

/// Those that it wanted and those that it did not.
fn switches(status: &str) -> Option<f64> {
    let of = |name: &str| -> Option<f64> {
        status.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok()
    };
    Some(of("voluntary_ctxt_switches:")? + of("nonvoluntary_ctxt_switches:")?)
}

/// Nothing when it is not there any more.
fn read(folder: &Path, name: &str) -> String {
    fs::read_to_string(folder.join(name)).unwrap_or_default()
}

fn numbers<N: std::str::FromStr>(text: &str) -> Vec<N> {
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    #[test]
    fn both_kinds_of_switches_count() {
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t545\n";
        assert_eq!(switches(status), Some(695.0));
        assert_eq!(switches("Name:\tx\n"), None);
    }

    #[test]
    fn children_count_and_what_has_ended_stays() {
        // A shell whose child waits until its input ends.
        let mut command = Command::new("sh");
        command.args(["-c", "cat; exit 0"]).stdin(Stdio::piped());
        let mut shell: Child = command.spawn().expect("a shell");
        let mut processes = Processes::of(&[shell.id()]);
        while processes.used() == Used::default() || processes.threads.len() < 2 {
            assert_eq!(shell.try_wait().expect("ours"), None, "it waits for its child");
        }
        let before = processes.used();
        drop(shell.stdin.take());
        shell.wait().expect("ours");
        let after = processes.used();
        assert!(after.switches >= before.switches && after.cpu_seconds >= before.cpu_seconds);
    }
}

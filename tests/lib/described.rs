//! Simulated machines: the contents of their sysfs and procfs, as files below a directory.

use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// Creates a machine. Lines are `FILE = CONTENT` or `LINK -> TARGET`, from the machine's root; `\n` in a content
/// begins a line, `#` a comment.
pub fn describe(text: &str) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    add(root.path(), text);
    root
}

/// Adds files to a machine, or replaces them.
pub fn add(root: &Path, text: &str) {
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (path, content) = line.split_once(['=', '>']).unwrap();
        let (path, is_link) = match path.trim().strip_suffix(" -") {
            Some(path) => (path, true),
            None => (path.trim(), false),
        };
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        match is_link {
            true => std::os::unix::fs::symlink(root.join(content.trim()), path).unwrap(),
            false => fs::write(path, format!("{}\n", content.trim().replace("\\n", "\n"))).unwrap(),
        }
    }
}

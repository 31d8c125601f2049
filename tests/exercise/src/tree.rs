//! Many files: several threads create, write, truncate, rename, link and remove in folders of their own.
//!
//! The model follows from the seed alone: `--check` builds it again without changing a file, and compares, for
//! instance after a remount.

use crate::model::{content, same};
use anyhow::{Context, Result, anyhow, bail, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

/// Number of names that a thread uses, for files and for folders.
const FILES: u32 = 60;
const FOLDERS: u32 = 6;

/// Create, write, rename, link and remove files at random
#[derive(clap::Args)]
pub(crate) struct TreeArgs {
    /// an empty folder
    folder: PathBuf,
    #[arg(long, default_value_t = 4)]
    threads: u64,
    /// operations of each thread
    #[arg(long, default_value_t = 2000)]
    ops: u32,
    /// the largest file, in bytes
    #[arg(long, default_value_t = 128 << 10)]
    size: usize,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// do nothing; compare with what the same command has left
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(args: &TreeArgs) -> Result<()> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..args.threads)
            .map(|number| scope.spawn(move || TreeThread::new(args, number)?.run()))
            .collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?)
    })?;
    println!("{} operations as expected", u64::from(args.ops) * args.threads);
    Ok(())
}

/// The object that a name refers to.
#[derive(Clone, PartialEq)]
enum TreeNode {
    /// a file: which of `TreeThread::contents`
    File(usize),
    Link(String),
}

struct TreeThread<'a> {
    args: &'a TreeArgs,
    number: u64,
    root: PathBuf,
    rng: fastrand::Rng,
    folders: BTreeSet<String>,
    names: BTreeMap<String, TreeNode>,
    /// Contents of files, by number; hard links share one.
    contents: Vec<Vec<u8>>,
}

impl<'a> TreeThread<'a> {
    fn new(args: &'a TreeArgs, number: u64) -> Result<TreeThread<'a>> {
        let root = args.folder.join(format!("thread{number}"));
        if !args.check {
            fs::create_dir(&root).with_context(|| root.display().to_string())?;
        }
        let rng = fastrand::Rng::with_seed(args.seed.wrapping_mul(1000).wrapping_add(number));
        let folders = BTreeSet::from([String::from(".")]);
        Ok(TreeThread {
            args,
            number,
            root,
            rng,
            folders,
            names: BTreeMap::new(),
            contents: Vec::new(),
        })
    }

    fn run(mut self) -> Result<()> {
        for operation in 0..self.args.ops {
            self.step()
                .with_context(|| format!("thread {}, operation {operation}", self.number))?;
        }
        self.compare().with_context(|| format!("thread {}, afterwards", self.number))
    }

    /// Runs `work` on the files, except for a comparison.
    fn really(&self, work: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
        if self.args.check { Ok(()) } else { work(&self.root) }
    }

    fn step(&mut self) -> Result<()> {
        match self.rng.u32(0..100) {
            0..25 => self.create(),
            25..40 => self.write(),
            40..48 => self.truncate(),
            48..60 => self.rename(),
            60..66 => self.hard_link(),
            66..70 => self.symbolic_link(),
            70..80 => self.unlink(),
            80..85 => self.make_folder(),
            85..88 => self.remove_folder(),
            88..96 => self.read(),
            _ => self.sync(),
        }
    }

    /// Returns a name that may or may not exist, in an existing folder.
    fn name(&mut self) -> String {
        let folder = self.rng.usize(0..self.folders.len());
        let folder = self.folders.iter().nth(folder).expect("in range");
        format!("{folder}/f{}", self.rng.u32(0..FILES))
    }

    fn existing_file(&mut self) -> Option<(String, usize)> {
        let files: Vec<(&String, usize)> = self
            .names
            .iter()
            .filter_map(|(name, node)| match node {
                TreeNode::File(number) => Some((name, *number)),
                TreeNode::Link(_) => None,
            })
            .collect();
        if files.is_empty() {
            return None;
        }
        let (name, number) = files[self.rng.usize(0..files.len())];
        Some((name.clone(), number))
    }

    fn create(&mut self) -> Result<()> {
        let name = self.name();
        if let Some(TreeNode::Link(_)) = self.names.get(&name) {
            return Ok(());
        }
        let bytes = content(self.rng.u64(..), self.rng.usize(0..=self.args.size));
        self.really(|root| Ok(fs::write(root.join(&name), &bytes)?))?;
        match self.names.get(&name) {
            Some(TreeNode::File(number)) => self.contents[*number] = bytes,
            _ => {
                self.names.insert(name, TreeNode::File(self.contents.len()));
                self.contents.push(bytes);
            }
        }
        Ok(())
    }

    fn write(&mut self) -> Result<()> {
        let Some((name, number)) = self.existing_file() else { return Ok(()) };
        let at = self.rng.usize(0..self.args.size);
        let bytes = content(self.rng.u64(..), self.rng.usize(1..=self.args.size - at));
        self.really(|root| {
            let file = OpenOptions::new().write(true).open(root.join(&name))?;
            Ok(file.write_all_at(&bytes, at as u64)?)
        })?;
        let file = &mut self.contents[number];
        file.resize(file.len().max(at + bytes.len()), 0);
        file[at..at + bytes.len()].copy_from_slice(&bytes);
        Ok(())
    }

    fn truncate(&mut self) -> Result<()> {
        let Some((name, number)) = self.existing_file() else { return Ok(()) };
        let length = self.rng.usize(0..=self.args.size);
        self.really(|root| {
            let file = OpenOptions::new().write(true).open(root.join(&name))?;
            Ok(file.set_len(length as u64)?)
        })?;
        self.contents[number].resize(length, 0);
        Ok(())
    }

    fn rename(&mut self) -> Result<()> {
        let Some((from, number)) = self.existing_file() else { return Ok(()) };
        let to = self.name();
        self.really(|root| Ok(fs::rename(root.join(&from), root.join(&to))?))?;
        // Of two links to one file, POSIX keeps both.
        if self.names.get(&to) != Some(&TreeNode::File(number)) {
            self.names.remove(&from);
            self.names.insert(to, TreeNode::File(number));
        }
        Ok(())
    }

    fn hard_link(&mut self) -> Result<()> {
        let Some((from, number)) = self.existing_file() else { return Ok(()) };
        let to = self.name();
        if !self.names.contains_key(&to) {
            self.really(|root| Ok(fs::hard_link(root.join(&from), root.join(&to))?))?;
            self.names.insert(to, TreeNode::File(number));
        }
        Ok(())
    }

    fn symbolic_link(&mut self) -> Result<()> {
        let (name, target) = (self.name(), format!("target{}", self.rng.u32(..)));
        if !self.names.contains_key(&name) {
            self.really(|root| Ok(symlink(&target, root.join(&name))?))?;
            self.names.insert(name, TreeNode::Link(target));
        }
        Ok(())
    }

    fn unlink(&mut self) -> Result<()> {
        let name = self.name();
        if self.names.remove(&name).is_some() {
            self.really(|root| Ok(fs::remove_file(root.join(&name))?))?;
        }
        Ok(())
    }

    fn make_folder(&mut self) -> Result<()> {
        let name = format!("./d{}", self.rng.u32(0..FOLDERS));
        if !self.folders.contains(&name) {
            self.really(|root| Ok(fs::create_dir(root.join(&name))?))?;
            self.folders.insert(name);
        }
        Ok(())
    }

    /// Removes a folder; a folder that is not empty must be refused.
    fn remove_folder(&mut self) -> Result<()> {
        let name = format!("./d{}", self.rng.u32(0..FOLDERS));
        if !self.folders.contains(&name) {
            return Ok(());
        }
        let prefix = format!("{name}/");
        let full = self.names.keys().any(|file| file.starts_with(&prefix));
        self.really(|root| match (fs::remove_dir(root.join(&name)), full) {
            (Ok(()), true) => bail!("a folder that holds files was removed"),
            (Err(error), false) => Err(error.into()),
            _ => Ok(()),
        })?;
        if !full {
            self.folders.remove(&name);
        }
        Ok(())
    }

    fn read(&mut self) -> Result<()> {
        let Some((name, number)) = self.existing_file() else { return Ok(()) };
        self.really(|root| {
            same(0, &self.contents[number], &fs::read(root.join(&name))?).context(name.clone())
        })
    }

    fn sync(&mut self) -> Result<()> {
        let Some((name, _)) = self.existing_file() else { return Ok(()) };
        self.really(|root| Ok(File::open(root.join(&name))?.sync_all()?))
    }

    /// Compares the whole tree: no name more, none less, each with its bytes and its number of links.
    fn compare(&self) -> Result<()> {
        for folder in &self.folders {
            let prefix = format!("{folder}/");
            let mut expected: BTreeSet<String> = self
                .names
                .keys()
                .filter_map(|name| name.strip_prefix(&prefix))
                .map(String::from)
                .collect();
            // The names of files in other folders have the prefix of the root, too.
            expected.retain(|name| !name.contains('/'));
            if folder == "." {
                expected.extend(
                    self.folders.iter().filter_map(|f| f.strip_prefix("./")).map(String::from),
                );
            }
            let found = entries(&self.root.join(folder))?;
            ensure!(found == expected, "{folder} holds {found:?} instead of {expected:?}");
        }
        self.names
            .iter()
            .try_for_each(|(name, node)| self.compare_node(name, node).context(name.clone()))
    }

    fn compare_node(&self, name: &str, node: &TreeNode) -> Result<()> {
        let path = self.root.join(name);
        match node {
            TreeNode::Link(target) => {
                ensure!(fs::read_link(&path)? == Path::new(target), "is not a link to {target}");
            }
            TreeNode::File(number) => {
                same(0, &self.contents[*number], &fs::read(&path)?)?;
                let links = self.names.values().filter(|other| *other == node).count() as u64;
                let found = path.metadata()?.nlink();
                ensure!(found == links, "has {found} links instead of {links}");
            }
        }
        Ok(())
    }
}

fn entries(folder: &Path) -> Result<BTreeSet<String>> {
    fs::read_dir(folder)
        .with_context(|| folder.display().to_string())?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(folder: &Path, check: bool) -> TreeArgs {
        TreeArgs { folder: folder.to_owned(), threads: 2, ops: 600, size: 9000, seed: 3, check }
    }

    #[test]
    fn a_good_file_system_is_as_expected() {
        let folder = tempfile::tempdir().unwrap();
        run(&args(folder.path(), false)).unwrap();
        run(&args(folder.path(), true)).unwrap();
    }

    #[test]
    fn what_changed_since_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        run(&args(folder.path(), false)).unwrap();
        let more = folder.path().join("thread1/more");
        fs::write(&more, "").unwrap();
        assert!(run(&args(folder.path(), true)).is_err());
        fs::remove_file(more).unwrap();
        run(&args(folder.path(), true)).unwrap();
        let entries = fs::read_dir(folder.path().join("thread0")).unwrap();
        let files = entries.map(|e| e.unwrap().path()).filter(|p| p.is_file() && !p.is_symlink());
        let file = files.max_by_key(|p| p.metadata().unwrap().len()).unwrap();
        let mut bytes = fs::read(&file).unwrap();
        bytes[0] ^= 1;
        fs::write(&file, bytes).unwrap();
        assert!(run(&args(folder.path(), true)).is_err());
    }
}

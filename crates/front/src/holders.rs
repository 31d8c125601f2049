//! Holders of a block device: partitions, dm and md devices, loop devices over it, and where they are mounted.

use std::fs;
use std::path::{Path, PathBuf};

/// Most layers of stacked devices.
const DEPTH_MAX: usize = 16;

/// Paths of the system's records of block devices and mounts.
#[derive(Clone, Debug)]
pub(crate) struct System {
    /// `/sys/class/block`.
    pub(crate) blocks: PathBuf,
    /// `/proc/self/mountinfo`.
    pub(crate) mounts: PathBuf,
}

/// A block device on another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    /// Name in the kernel.
    name: String,
    /// Name for people, if it differs.
    alias: Option<PathBuf>,
}

impl Holder {
    fn new(name: String, blocks: &Path) -> Holder {
        let alias = fs::read_to_string(blocks.join(&name).join("dm/name"));
        let alias = alias.ok().map(|alias| Path::new("/dev/mapper").join(alias.trim_end()));
        Holder { name, alias }
    }

    /// Returns its device file.
    pub(crate) fn path(&self) -> PathBuf {
        // The kernel writes `!` for a slash in a name.
        Path::new("/dev").join(self.name.replace('!', "/"))
    }

    /// Returns the name for people.
    pub(crate) fn shown(&self) -> String {
        self.alias.clone().unwrap_or_else(|| self.path()).display().to_string()
    }
}

impl System {
    /// Returns the paths of this machine.
    pub(crate) fn new() -> System {
        System { blocks: "/sys/class/block".into(), mounts: "/proc/self/mountinfo".into() }
    }

    /// Returns all holders of the block device `path`, direct or not, each once; holders of holders come later.
    pub(crate) fn above(&self, path: &Path) -> Vec<Holder> {
        let mut found: Vec<Holder> = Vec::new();
        let mut layer: Vec<String> = kernel_name(path).into_iter().collect();
        for _ in 0..DEPTH_MAX {
            let next: Vec<String> = layer.iter().flat_map(|name| self.directly_on(name)).collect();
            // A holder found again also lies on the devices found meanwhile.
            found.retain(|holder| !next.contains(&holder.name));
            layer = Vec::new();
            for name in next {
                if !layer.contains(&name) {
                    found.push(Holder::new(name.clone(), &self.blocks));
                    layer.push(name);
                }
            }
        }
        found
    }

    fn directly_on(&self, name: &str) -> Vec<String> {
        let folder = self.blocks.join(name);
        let is_partition = |below: &String| folder.join(below).join("partition").exists();
        let partitions = names(&folder).into_iter().filter(is_partition);
        let holders = names(&folder.join("holders"));
        let path = Path::new("/dev").join(name.replace('!', "/"));
        let is_over = |other: &String| {
            let file = fs::read_to_string(self.blocks.join(other).join("loop/backing_file"));
            file.is_ok_and(|file| Path::new(file.trim_end_matches('\n')) == path)
        };
        let loops = names(&self.blocks).into_iter().filter(is_over);
        partitions.chain(holders).chain(loops).collect()
    }

    /// Returns the mount points of a holder that this process sees.
    pub(crate) fn mounts_of(&self, holder: &Holder) -> Vec<PathBuf> {
        let paths: Vec<PathBuf> = holder.alias.iter().cloned().chain([holder.path()]).collect();
        self.mounts(&holder.name, &paths)
    }

    fn mounts(&self, name: &str, paths: &[PathBuf]) -> Vec<PathBuf> {
        let number = fs::read_to_string(self.blocks.join(name).join("dev")).unwrap_or_default();
        let mounts = fs::read_to_string(&self.mounts).unwrap_or_default();
        let of_line = |line: &str| mount_of(line, number.trim_end(), paths);
        let mut found: Vec<PathBuf> = mounts.lines().filter_map(of_line).collect();
        found.sort();
        found.dedup();
        found
    }

    /// Returns the users of the block device `path` as text for people: `/dev/loop0p1 mounted at /mnt`.
    pub(crate) fn users(&self, path: &Path) -> Vec<String> {
        let own = kernel_name(path).map(|name| self.mounts(&name, &[path.to_owned()]));
        let own = own.unwrap_or_default().into_iter();
        let own = own.map(|place| format!("mounted at {}", place.display()));
        let above = self.above(path).into_iter().map(|holder| {
            let places = self.mounts_of(&holder);
            let places: Vec<String> =
                places.iter().map(|place| place.display().to_string()).collect();
            match &places[..] {
                [] => holder.shown(),
                places => format!("{} mounted at {}", holder.shown(), places.join(" and ")),
            }
        });
        own.chain(above).collect()
    }
}

fn kernel_name(path: &Path) -> Option<String> {
    let name = path.strip_prefix("/dev").ok()?.to_str()?;
    (!name.is_empty()).then(|| name.replace('/', "!"))
}

/// Returns the names in a folder, sorted; none if it does not exist.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// Returns the mount point of a line of mountinfo (proc(5)) that mounts device `number`, or one of `paths`. File
/// systems on several devices have numbers of their own, and name the first device's path.
fn mount_of(line: &str, number: &str, paths: &[PathBuf]) -> Option<PathBuf> {
    let (left, right) = line.split_once(" - ")?;
    let mut fields = left.split(' ').skip(2);
    let is_number = fields.next() == Some(number);
    let place = fields.nth(1)?;
    let source = right.split(' ').nth(1).map(unescape);
    let is_source =
        source.is_some_and(|source| paths.iter().any(|path| path == Path::new(&source)));
    (is_number || is_source).then(|| unescape(place).into())
}

/// Decodes blanks and the like, which are octal in mountinfo: `\040`.
fn unescape(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code.filter(u8::is_ascii) {
            Some(code) => plain.extend([&char::from(code).to_string(), &part[3..]]),
            None => plain.extend(["\\", part]),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a system in which loop0 has partitions 1 and 2. dm-0 lies on both, md127 on dm-0 and loop1, loop2 over
    /// md127; dm-9 claims to lie on itself.
    fn made_up() -> (tempfile::TempDir, System) {
        let directory = tempfile::tempdir().unwrap();
        let blocks = directory.path().join("block");
        for folder in [
            "loop0/loop0p1/holders/dm-0",
            "loop0/loop0p2/holders/dm-0",
            "loop0/holders",
            "loop0/queue",
            "loop0p1/holders/dm-0",
            "loop0p2/holders/dm-0",
            "loop1/holders/md127",
            "dm-0/holders/md127",
            "dm-0/dm",
            "md127/holders",
            "loop2/loop",
            "loop3/holders/dm-9",
            "dm-9/holders/dm-9",
        ] {
            fs::create_dir_all(blocks.join(folder)).unwrap();
        }
        for (file, text) in [
            ("loop0/loop0p1/partition", "1\n"),
            ("loop0/loop0p2/partition", "2\n"),
            ("dm-0/dm/name", "vg-data\n"),
            ("loop2/loop/backing_file", "/dev/md127\n"),
            ("loop0/dev", "7:0\n"),
            ("loop2/dev", "7:2\n"),
            ("dm-0/dev", "253:0\n"),
        ] {
            fs::write(blocks.join(file), text).unwrap();
        }
        let mounts = directory.path().join("mountinfo");
        let lines = "29 1 0:26 / /proc rw - proc proc rw\n\
            40 29 7:2 / /mnt/a\\040b rw,relatime shared:1 - ext4 /dev/loop2 rw\n\
            41 29 7:2 /sub /srv rw - ext4 /dev/loop2 rw\n\
            42 29 0:50 / /btr rw - btrfs /dev/mapper/vg-data rw\n\
            nonsense\n";
        fs::write(&mounts, lines).unwrap();
        (directory, System { blocks, mounts })
    }

    #[test]
    fn everything_above_is_found_once_and_after_what_it_lies_on() {
        let (_directory, system) = made_up();
        let above = |path: &str| -> Vec<String> {
            let holders = system.above(Path::new(path));
            holders.iter().map(|holder| holder.path().display().to_string()).collect()
        };
        assert_eq!(
            above("/dev/loop0"),
            ["/dev/loop0p1", "/dev/loop0p2", "/dev/dm-0", "/dev/md127", "/dev/loop2"]
        );
        assert_eq!(above("/dev/loop1"), ["/dev/md127", "/dev/loop2"]);
        assert!(above("/dev/loop2").is_empty());
        assert!(above("/dev/none").is_empty() && above("/tmp/x").is_empty());
        assert_eq!(above("/dev/loop3"), ["/dev/dm-9"], "a circle ends");
    }

    #[test]
    fn users_are_named_with_their_mounts() {
        let (_directory, system) = made_up();
        assert_eq!(
            system.users(Path::new("/dev/loop1")),
            ["/dev/md127", "/dev/loop2 mounted at /mnt/a b and /srv"]
        );
        assert!(
            system
                .users(Path::new("/dev/loop0"))
                .contains(&"/dev/mapper/vg-data mounted at /btr".into())
        );
        assert_eq!(
            system.users(Path::new("/dev/loop2")),
            ["mounted at /mnt/a b", "mounted at /srv"]
        );
    }

    #[test]
    fn mounts_are_read_as_the_kernel_writes_them() {
        assert_eq!(unescape("a\\040b\\134\\x\\9"), "a b\\\\x\\9");
        assert_eq!(mount_of("1 2 7:0 / /a - ext4 /dev/x rw", "7:1", &[]), None);
        assert_eq!(mount_of("1 2 7:0", "7:0", &[]), None);
    }
}

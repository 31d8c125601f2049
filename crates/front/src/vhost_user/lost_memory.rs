//! Guest memory that its frontend cuts while this process uses it.
//!
//! A frontend that shares memory by a file can truncate the file: an access beyond its end is a SIGBUS, which would end
//! the process with all its disks. Files that support seals are sealed ([`seal`]). For the others, a signal handler
//! replaces the lost mapping with empty memory, so that the access ends, and sets the mapping's mark. A reader checks
//! the mark before it trusts the data, and abandons the guest if it is set. Other guests are not affected.
#![allow(unsafe_code, reason = "a signal handler, and the mapping that it replaces")]

use rustix::fs::{SealFlags, fcntl_add_seals, fcntl_get_seals};
use std::fs::File;
use std::io;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, fence};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tracing::warn;

/// Most mappings at a time: 128 guests of 8 regions, twice while they change.
const PLACES: usize = 2048;

/// A mapping that may be lost, in the table that the handler reads.
struct GuardedMapping {
    /// Odd while the other fields are written.
    version: AtomicUsize,
    start: AtomicUsize,
    /// Length; 0 for a free entry.
    bytes: AtomicUsize,
    lost: AtomicPtr<AtomicBool>,
}

static TABLE: [GuardedMapping; PLACES] = [const {
    GuardedMapping {
        version: AtomicUsize::new(0),
        start: AtomicUsize::new(0),
        bytes: AtomicUsize::new(0),
        lost: AtomicPtr::new(std::ptr::null_mut()),
    }
}; PLACES];
/// Lock of the table's writers.
static WRITER: Mutex<()> = Mutex::new(());
/// Previous action of the signal; set once, before the table has an entry.
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

impl GuardedMapping {
    fn set(&self, start: usize, bytes: usize, lost: *mut AtomicBool) {
        let version = self.version.load(Relaxed);
        self.version.store(version.wrapping_add(1), SeqCst);
        fence(SeqCst);
        self.start.store(start, Relaxed);
        self.bytes.store(bytes, Relaxed);
        self.lost.store(lost, Relaxed);
        self.version.store(version.wrapping_add(2), Release);
    }

    /// Returns start, length and mark. Returns `None` during a write: then the entry is of no mapping in use.
    fn get(&self) -> Option<(usize, usize, *mut AtomicBool)> {
        let version = self.version.load(Acquire);
        let (start, bytes) = (self.start.load(Relaxed), self.bytes.load(Relaxed));
        let lost = self.lost.load(Relaxed);
        fence(SeqCst);
        let is_whole = version & 1 == 0 && self.version.load(Relaxed) == version;
        (is_whole && bytes > 0).then_some((start, bytes, lost))
    }
}

/// Keeps a mapping in the table. To be dropped before the mapping is unmapped.
pub(crate) struct Guard {
    place: usize,
    /// Keeps the mark alive, whose address the handler has.
    _lost: Arc<AtomicBool>,
}

impl Guard {
    /// Guards `bytes` bytes mapped at `start`, whole pages; `lost` is set when they are gone.
    ///
    /// # Errors
    /// Fails if the table is full, or if the signal handler cannot be installed.
    pub(crate) fn new(start: *mut u8, bytes: usize, lost: &Arc<AtomicBool>) -> io::Result<Self> {
        let _writer = WRITER.lock().unwrap_or_else(PoisonError::into_inner);
        install()?;
        let is_free = |place: &&GuardedMapping| place.bytes.load(Relaxed) == 0;
        let free = TABLE.iter().position(|place| is_free(&place));
        let place = free.ok_or_else(|| io::Error::other("too many mappings of guests' memory"))?;
        TABLE[place].set(start as usize, bytes, Arc::as_ptr(lost).cast_mut());
        Ok(Guard { place, _lost: lost.clone() })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _writer = WRITER.lock().unwrap_or_else(PoisonError::into_inner);
        TABLE[self.place].set(0, 0, std::ptr::null_mut());
    }
}

/// Installs the handler, once.
fn install() -> io::Result<()> {
    if PREVIOUS.get().is_some() {
        return Ok(());
    }
    // SAFETY: an all-zero sigaction is a valid value of this plain structure.
    let (mut new, mut old): (libc::sigaction, libc::sigaction) = unsafe { std::mem::zeroed() };
    // SAFETY: plain calls with valid pointers. The first only queries, so that the handler finds its predecessor.
    if unsafe { libc::sigaction(libc::SIGBUS, std::ptr::null(), &mut old) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let _ = PREVIOUS.set(old);
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = handle;
    new.sa_sigaction = handler as usize;
    new.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: the handler calls only async-signal-safe functions.
    match unsafe { libc::sigaction(libc::SIGBUS, &new, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Handles SIGBUS in the thread whose access failed. Calls only mmap and sigaction, takes no lock, allocates nothing.
extern "C" fn handle(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo; a SIGBUS with BUS_ADRERR has an address.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    if code == libc::BUS_ADRERR && replace(address, put_empty_memory) {
        return;
    }
    pass_on(signal, info, context);
}

/// Has `put` replace the mapping around `address`, whose content is invalid then. Returns `false` if the table has no
/// such mapping.
fn replace(address: usize, put: impl FnOnce(usize, usize) -> bool) -> bool {
    let all = TABLE.iter().filter_map(GuardedMapping::get);
    let mut around = all.filter(|(start, bytes, _)| address.wrapping_sub(*start) < *bytes);
    let Some((start, bytes, lost)) = around.next() else { return false };
    // Set first: another thread may read from the new memory at once, and must not trust it.
    // SAFETY: the guard keeps the mark alive while it is in the table.
    unsafe { (*lost).store(true, SeqCst) };
    put(start, bytes)
}

/// Replaces a lost mapping with empty memory.
fn put_empty_memory(start: usize, bytes: usize) -> bool {
    // SAFETY: errno is this thread's.
    let errno = unsafe { *libc::__errno_location() };
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
    // SAFETY: the mapping exists: a thread accesses it, and its guard is dropped before it is unmapped. Only volatile
    // accesses are made to it, for which any content is valid.
    let replaced = unsafe { libc::mmap(start as *mut _, bytes, access, kind, -1, 0) };
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
    replaced != libc::MAP_FAILED
}

/// True if `lost` is set; a reader checks this after its reads.
pub(crate) fn is_set(lost: &AtomicBool) -> bool {
    // Acquire fence: earlier reads of the mapping stay before the load.
    fence(Acquire);
    lost.load(Relaxed)
}

/// Runs the previous action of the signal.
fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    type Plain = extern "C" fn(libc::c_int);
    type Informed = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
    let Some(previous) = PREVIOUS.get() else { return };
    match previous.sa_sigaction {
        // The access fails again when this returns, and ends the process.
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: an all-zero sigaction is the default action.
            let default: libc::sigaction = unsafe { std::mem::zeroed() };
            // SAFETY: plain call with a valid pointer.
            unsafe { libc::sigaction(signal, &default, std::ptr::null_mut()) };
        }
        handler if previous.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: a handler with SA_SIGINFO has this type.
            let handler: Informed = unsafe { std::mem::transmute::<usize, Informed>(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: a handler without SA_SIGINFO has this type.
            let handler: Plain = unsafe { std::mem::transmute::<usize, Plain>(handler) };
            handler(signal);
        }
    }
}

/// Seals `file` against shrinking, if it is a memory file that allows seals.
pub(crate) fn seal(file: &File) {
    // Files without seals return an error.
    let Ok(seals) = fcntl_get_seals(file) else { return };
    if seals.intersects(SealFlags::SHRINK | SealFlags::SEAL) {
        return;
    }
    if let Err(error) = fcntl_add_seals(file, SealFlags::SHRINK) {
        warn!(%error, "vhost-user: the frontend can cut the guest's memory: it is not sealed");
    }
}

#[cfg(test)]
mod tests {
    use super::super::memory::MemoryTable;
    use super::replace;
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_get_seals, ftruncate, memfd_create};
    use std::fs::File;
    use vhost::vhost_user::message::VhostUserMemoryRegion;
    use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend};

    const BYTES: u64 = 1 << 20;

    fn memory_file(flags: MemfdFlags) -> File {
        let file = memfd_create("guest", MemfdFlags::CLOEXEC | flags).unwrap();
        ftruncate(&file, BYTES).unwrap();
        File::from(file)
    }

    fn map(file: &File) -> MemoryTable {
        let region = VhostUserMemoryRegion::new(0, BYTES, 0, 0);
        MemoryTable::map(&[region], vec![file.try_clone().unwrap()]).unwrap()
    }

    #[test]
    fn memory_that_can_be_sealed_is_not_cut() {
        let file = memory_file(MemfdFlags::ALLOW_SEALING);
        let table = map(&file);
        assert!(fcntl_get_seals(&file).unwrap().contains(SealFlags::SHRINK));
        assert!(ftruncate(&file, 0).is_err());
        table.memory().write_slice(b"there", GuestAddress(BYTES - 5)).unwrap();
        assert!(!table.memory().is_lost());
    }

    #[test]
    fn memory_that_is_cut_is_lost_and_nothing_else() {
        let (file, other) = (memory_file(MemfdFlags::empty()), memory_file(MemfdFlags::empty()));
        let (table, others) = (map(&file), map(&other));
        others.memory().write_slice(b"other", GuestAddress(4096)).unwrap();
        for access in [4096, BYTES - 8, 0] {
            let table = map(&file);
            ftruncate(&file, 4096).unwrap();
            let mut bytes = [7; 5];
            table.memory().read_slice(&mut bytes, GuestAddress(access)).unwrap();
            assert_eq!(table.memory().is_lost(), access >= 4096, "{access}");
            table.memory().write_slice(&bytes, GuestAddress(access)).unwrap();
            ftruncate(&file, BYTES).unwrap();
        }
        // Whole again when it is checked.
        table.memory().write_slice(b"there", GuestAddress(8192)).unwrap();
        assert!(!table.memory().is_lost());
        let mut bytes = [0; 5];
        others.memory().read_slice(&mut bytes, GuestAddress(4096)).unwrap();
        assert_eq!((&bytes, others.memory().is_lost()), (b"other", false));
    }

    /// Another reactor reads from the empty memory as soon as it is mapped.
    #[test]
    fn memory_is_marked_before_it_is_replaced() {
        let table = map(&memory_file(MemfdFlags::empty()));
        let address = table.memory().get_host_address(GuestAddress(8192)).unwrap();
        let mut marked = None;
        assert!(replace(address.addr(), |_, _| *marked.insert(table.memory().is_lost())));
        assert_eq!(marked, Some(true));
    }

    /// Other accesses end the process as before, also where a guest's memory was.
    #[test]
    fn other_accesses_fail_as_before() {
        let file = memory_file(MemfdFlags::empty());
        let table = map(&file);
        ftruncate(&file, 0).unwrap();
        let bytes = BYTES as usize;
        let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
        let (read, shared) = (libc::PROT_READ, libc::MAP_SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let mapped = unsafe { libc::mmap(std::ptr::null_mut(), bytes, read, shared, fd, 0) };
        assert_ne!(mapped, libc::MAP_FAILED);
        // SAFETY: the child only reads memory, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: the address is mapped, without a file behind it: the signal is intended.
            unsafe {
                std::ptr::read_volatile(mapped.cast::<u8>());
                libc::_exit(0);
            }
        }
        let mut status = 0;
        // SAFETY: waits for the child made above.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGBUS, "{status:x}");
        let _ = table.memory().read_obj::<u8>(GuestAddress(0));
        assert!(table.memory().is_lost());
    }
}

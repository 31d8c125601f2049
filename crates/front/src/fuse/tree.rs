//! The directory with one file for each namespace: answers requests, or turns them into disk work.

use crate::disk::{DiskOp, DiskRequest, LiveDisk};
use roadtrain_wire::fuse::{
    Attr, AttrOut, Dirent, EntryOut, FallocateIn, InHeader, LseekIn, LseekOut, Opcode, OpenIn,
    OpenOut, ROOT_ID, ReadIn, SetattrIn, StatfsOut, WriteIn, fallocate_mode, open_flag, seek,
    setattr_valid,
};
use roadtrain_wire::zerocopy::{FromBytes, Immutable, IntoBytes};
use std::sync::Arc;

/// Most bytes of one step of a Fallocate: a multiple of every block size.
const STEP_BYTES_MAX: u64 = 1 << 30;
/// Seconds for which a name may be cached: the set of files is fixed.
const ENTRY_VALID_S: u64 = 3600;
const BLOCK_BYTES: u32 = 4096;
/// Most bytes of a Read or Write.
pub(super) const TRANSFER_BYTES_MAX: u32 = 1 << 20;
/// Unit of `st_blocks`, in bytes.
const SECTOR_BYTES: u64 = 512;

/// The mounted directory.
#[derive(Debug)]
pub(super) struct Tree {
    disks: Vec<Arc<LiveDisk>>,
    uid: u32,
    gid: u32,
    /// Time of the mount, in seconds since 1970.
    time_s: u64,
}

/// Outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FuseOutcome {
    /// Reply with this many bytes of data.
    Data(usize),
    /// Reply with this errno.
    Error(i32),
    /// Reply after this disk work.
    Work(FuseWork),
}

/// Disk work of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FuseWork {
    pub(super) disk: usize,
    pub(super) op: DiskOp,
    /// Offset of the first byte that is not done.
    pub(super) at: u64,
    pub(super) end: u64,
    pub(super) fua: bool,
}

impl FuseWork {
    /// Returns the disk request of the next step.
    pub(super) fn request(&self) -> DiskRequest {
        let length = (self.end - self.at).min(STEP_BYTES_MAX) as u32;
        DiskRequest { op: self.op, offset: self.at, length, fua: self.fua }
    }
}

/// Returns the file name of a namespace.
pub(super) fn file_name(nsid: u32) -> String {
    format!("nvme0n{nsid}")
}

impl Tree {
    /// Makes a file for each of `disks`, owned by the user `uid` and the group `gid`.
    pub(super) fn new(disks: Vec<Arc<LiveDisk>>, (uid, gid): (u32, u32), time_s: u64) -> Self {
        Tree { disks, uid, gid, time_s }
    }

    pub(super) fn disks(&self) -> &[Arc<LiveDisk>] {
        &self.disks
    }

    /// Answers the request with `header` and the arguments `args` (padded or longer) into `out`.
    pub(super) fn answer(&self, header: &InHeader, args: &[u8], out: &mut [u8]) -> FuseOutcome {
        let answer = match header.opcode() {
            Opcode::READ => self.read(header, args),
            Opcode::WRITE => self.write(header, args),
            Opcode::FSYNC => self.flush(header),
            Opcode::FALLOCATE => self.fallocate(header, args),
            Opcode::LOOKUP => self.lookup(header, args).map(|entry| put(out, &entry)),
            Opcode::GETATTR => self.attributes(header).map(|attributes| put(out, &attributes)),
            Opcode::SETATTR => self.set_attributes(header, args).map(|now| put(out, &now)),
            Opcode::OPEN => self.open(header, args).map(|opened| put(out, &opened)),
            Opcode::OPENDIR => Ok(put(out, &OpenOut::default())),
            Opcode::READDIR => self.read_directory(header, args, out),
            Opcode::STATFS => Ok(put(out, &self.statistics())),
            Opcode::LSEEK => self.seek(header, args).map(|found| put(out, &found)),
            Opcode::RELEASE | Opcode::RELEASEDIR | Opcode::FSYNCDIR | Opcode::DESTROY => {
                Ok(FuseOutcome::Data(0))
            }
            _ => Err(libc::ENOSYS),
        };
        answer.unwrap_or_else(FuseOutcome::Error)
    }

    /// Returns the disk of a file, with its number.
    fn disk(&self, header: &InHeader) -> Result<(usize, &LiveDisk), i32> {
        let index = header.nodeid.checked_sub(ROOT_ID + 1).map(|index| index as usize);
        let disk = index.and_then(|index| Some((index, &**self.disks.get(index)?)));
        disk.ok_or(if header.nodeid == ROOT_ID { libc::EISDIR } else { libc::ENOENT })
    }

    fn read(&self, header: &InHeader, args: &[u8]) -> Result<FuseOutcome, i32> {
        let (index, disk) = self.disk(header)?;
        let read: ReadIn = arguments(args)?;
        let size = read.size.min(TRANSFER_BYTES_MAX);
        let end = read.offset.saturating_add(size.into()).min(disk.bytes());
        if end <= read.offset {
            return Ok(FuseOutcome::Data(0));
        }
        let at = read.offset;
        Ok(FuseOutcome::Work(FuseWork { disk: index, op: DiskOp::Read, at, end, fua: false }))
    }

    fn write(&self, header: &InHeader, args: &[u8]) -> Result<FuseOutcome, i32> {
        let (index, disk) = self.disk(header)?;
        let write: WriteIn = arguments(args)?;
        let size = write.size.min(TRANSFER_BYTES_MAX);
        let end = write.offset.saturating_add(size.into()).min(disk.bytes());
        if end <= write.offset && write.size > 0 {
            return Err(libc::ENOSPC);
        }
        let fua = write.flags & libc::O_DSYNC.cast_unsigned() != 0;
        Ok(FuseOutcome::Work(FuseWork {
            disk: index,
            op: DiskOp::Write,
            at: write.offset,
            end,
            fua,
        }))
    }

    fn flush(&self, header: &InHeader) -> Result<FuseOutcome, i32> {
        let (disk, _) = self.disk(header)?;
        Ok(FuseOutcome::Work(FuseWork { disk, op: DiskOp::Flush, at: 0, end: 0, fua: false }))
    }

    /// Punches holes with Write Zeroes: a Discard would not promise zeroes.
    fn fallocate(&self, header: &InHeader, args: &[u8]) -> Result<FuseOutcome, i32> {
        let (index, disk) = self.disk(header)?;
        let request_args: FallocateIn = arguments(args)?;
        let end = request_args.offset.saturating_add(request_args.length);
        if end > disk.bytes() {
            return Err(libc::ENOSPC);
        }
        let op = match request_args.mode & !fallocate_mode::KEEP_SIZE {
            0 => return Ok(FuseOutcome::Data(0)), // all blocks exist
            fallocate_mode::PUNCH_HOLE => DiskOp::WriteZeroes { deallocate: true },
            fallocate_mode::ZERO_RANGE => DiskOp::WriteZeroes { deallocate: false },
            _ => return Err(libc::EOPNOTSUPP),
        };
        Ok(FuseOutcome::Work(FuseWork {
            disk: index,
            op,
            at: request_args.offset,
            end,
            fua: false,
        }))
    }

    fn lookup(&self, header: &InHeader, args: &[u8]) -> Result<EntryOut, i32> {
        if header.nodeid != ROOT_ID {
            return Err(libc::ENOTDIR);
        }
        let name = args.split(|&byte| byte == 0).next().unwrap_or_default();
        let named = |disk: &Arc<LiveDisk>| file_name(disk.info().nsid).as_bytes() == name;
        let index = self.disks.iter().position(named).ok_or(libc::ENOENT)?;
        let nodeid = ROOT_ID + 1 + index as u64;
        let attr = self.attr(nodeid).ok_or(libc::ENOENT)?;
        Ok(EntryOut { nodeid, entry_valid: ENTRY_VALID_S, attr, ..EntryOut::default() })
    }

    /// Returns the attributes, which are never cached: the size of a disk changes at any time.
    fn attributes(&self, header: &InHeader) -> Result<AttrOut, i32> {
        let attr = self.attr(header.nodeid).ok_or(libc::ENOENT)?;
        Ok(AttrOut { attr, ..AttrOut::default() })
    }

    /// Sets attributes like a block device: truncation changes nothing, and extension fails.
    fn set_attributes(&self, header: &InHeader, args: &[u8]) -> Result<AttrOut, i32> {
        let request_args: SetattrIn = arguments(args)?;
        if request_args.valid & (setattr_valid::MODE | setattr_valid::UID | setattr_valid::GID) != 0
        {
            return Err(libc::EPERM);
        }
        if request_args.valid & setattr_valid::SIZE != 0
            && request_args.size > self.disk(header)?.1.bytes()
        {
            return Err(libc::EFBIG);
        }
        self.attributes(header)
    }

    fn attr(&self, nodeid: u64) -> Option<Attr> {
        let Tree { uid, gid, time_s, .. } = *self;
        let (mode, size, nlink) = if nodeid == ROOT_ID {
            (libc::S_IFDIR | 0o700, 0, 2)
        } else {
            let disk = self.disks.get((nodeid.checked_sub(ROOT_ID + 1)?) as usize)?;
            let mode = if disk.info().read_only { 0o400 } else { 0o600 };
            (libc::S_IFREG | mode, disk.bytes(), 1)
        };
        let blocks = size / SECTOR_BYTES;
        let (atime, mtime, ctime, blksize) = (time_s, time_s, time_s, BLOCK_BYTES);
        let (ino, times) = (nodeid, Attr { atime, mtime, ctime, ..Attr::default() });
        Some(Attr { ino, size, blocks, mode, nlink, uid, gid, blksize, ..times })
    }

    fn open(&self, header: &InHeader, args: &[u8]) -> Result<OpenOut, i32> {
        let (_, disk) = self.disk(header)?;
        let request_args: OpenIn = arguments(args)?;
        let writes =
            request_args.flags & libc::O_ACCMODE.cast_unsigned() != libc::O_RDONLY.cast_unsigned();
        if writes && disk.info().read_only {
            return Err(libc::EROFS);
        }
        let open_flags =
            open_flag::DIRECT_IO | open_flag::PARALLEL_DIRECT_WRITES | open_flag::NOFLUSH;
        Ok(OpenOut { open_flags, ..OpenOut::default() })
    }

    fn read_directory(
        &self,
        header: &InHeader,
        args: &[u8],
        out: &mut [u8],
    ) -> Result<FuseOutcome, i32> {
        if header.nodeid != ROOT_ID {
            return Err(libc::ENOTDIR);
        }
        let read: ReadIn = arguments(args)?;
        let dots = [(ROOT_ID, ".".to_owned()), (ROOT_ID, "..".to_owned())];
        let dots = dots.into_iter().map(|(ino, name)| (ino, name, libc::DT_DIR));
        let files = self.disks.iter().zip(ROOT_ID + 1..);
        let files = files.map(|(disk, ino)| (ino, file_name(disk.info().nsid), libc::DT_REG));
        let limit = out.len().min(read.size as usize);
        let mut used = 0;
        let skip = usize::try_from(read.offset).unwrap_or(usize::MAX);
        for (index, (ino, name, kind)) in dots.chain(files).enumerate().skip(skip) {
            let entry = Dirent {
                ino,
                off: index as u64 + 1,
                namelen: name.len() as u32,
                kind: kind.into(),
            };
            let Some(room) = out[..limit].get_mut(used..) else { break };
            let bytes = (size_of::<Dirent>() + name.len()).next_multiple_of(8);
            let Some(room) = room.get_mut(..bytes) else { break };
            room.fill(0);
            room[..size_of::<Dirent>()].copy_from_slice(entry.as_bytes());
            room[size_of::<Dirent>()..][..name.len()].copy_from_slice(name.as_bytes());
            used += bytes;
        }
        Ok(FuseOutcome::Data(used))
    }

    fn statistics(&self) -> StatfsOut {
        let bytes: u64 = self.disks.iter().map(|disk| disk.bytes()).sum();
        StatfsOut {
            blocks: bytes / u64::from(BLOCK_BYTES),
            files: self.disks.len() as u64,
            bsize: BLOCK_BYTES,
            frsize: BLOCK_BYTES,
            namelen: 255,
            ..StatfsOut::default()
        }
    }

    /// Seeks in a file without holes: a disk reports all its bytes as data.
    fn seek(&self, header: &InHeader, args: &[u8]) -> Result<LseekOut, i32> {
        let (_, disk) = self.disk(header)?;
        let request_args: LseekIn = arguments(args)?;
        if request_args.offset >= disk.bytes() {
            return Err(libc::ENXIO);
        }
        match request_args.whence {
            seek::DATA => Ok(LseekOut { offset: request_args.offset }),
            seek::HOLE => Ok(LseekOut { offset: disk.bytes() }),
            _ => Err(libc::EINVAL),
        }
    }
}

fn arguments<T: FromBytes>(args: &[u8]) -> Result<T, i32> {
    T::read_from_prefix(args).map(|(value, _)| value).map_err(|_| libc::EINVAL)
}

fn put(out: &mut [u8], answer: &(impl IntoBytes + Immutable)) -> FuseOutcome {
    match answer.write_to_prefix(out) {
        Ok(()) => FuseOutcome::Data(answer.as_bytes().len()),
        Err(_) => FuseOutcome::Error(libc::EIO),
    }
}

#[cfg(test)]
mod tests;

//! Processes that listen at an address, as far as this user may see them.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

/// State of a listening socket in `/proc/net/tcp`.
const LISTEN: &str = "0A";
/// Ports below this one need a capability.
const PORT_MIN: u16 = 1024;
/// Flag of an exiting process (`PF_EXITING` in `/proc/PID/stat`).
const EXITING: u64 = 4;

/// A process that listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListeningProcess {
    /// Process ID.
    pub pid: u32,
    /// Name of the program.
    pub name: String,
    /// True if the process is exiting.
    pub is_ending: bool,
}

/// Returns the process that blocks listening at `address`; `None`: there is none, or it belongs to another user.
#[must_use]
pub fn listening_at(address: SocketAddr) -> Option<ListeningProcess> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(fs::read_to_string);
    let lines = tables.iter().flatten().flat_map(|table| table.lines().skip(1));
    let mut inodes = lines.filter_map(|line| inode_at(line, address));
    inodes.find_map(|inode| owner(Path::new("/proc"), inode))
}

/// Returns the reason why an address cannot be listened on, and the remedy.
#[must_use]
pub fn listen_problem(address: SocketAddr, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            let there = listening_at(address);
            let owner =
                there.map(|ListeningProcess { pid, name, .. }| format!("process {pid} ({name})"));
            let owner = owner.unwrap_or_else(|| "another process".into());
            format!("{owner} listens there: end it, or choose another port or address")
        }
        io::ErrorKind::AddrNotAvailable => {
            "it is no address of this machine (`ip address` shows those that are)".into()
        }
        io::ErrorKind::PermissionDenied if address.port() < PORT_MIN => {
            format!("a port below {PORT_MIN} needs CAP_NET_BIND_SERVICE: choose another one")
        }
        _ => error.to_string(),
    }
}

/// Returns the inode of the socket in a line of the table, if it listens there.
fn inode_at(line: &str, address: SocketAddr) -> Option<u64> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (place, state, inode) = (fields.get(1)?, fields.get(3)?, fields.get(9)?);
    let (ip, port) = place.split_once(':')?;
    let (ip, port) = (parse_ip(ip)?, u16::from_str_radix(port, 16).ok()?);
    let is_any = ip.is_unspecified() || address.ip().is_unspecified();
    let is_there = port == address.port() && (is_any || ip == address.ip());
    (*state == LISTEN && is_there).then(|| inode.parse().ok())?
}

/// Parses words of 32 bits in this machine's byte order, as hexadecimal digits.
fn parse_ip(text: &str) -> Option<IpAddr> {
    let word = |at: usize| Some(u32::from_str_radix(text.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    match text.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let words = [word(0)?, word(8)?, word(16)?, word(24)?];
            let bytes: [u8; 16] = words.concat().try_into().ok()?;
            Some(Ipv6Addr::from(bytes).to_canonical())
        }
        _ => None,
    }
}

/// Returns the process that has the socket with that inode open.
fn owner(proc: &Path, inode: u64) -> Option<ListeningProcess> {
    let wanted = format!("socket:[{inode}]");
    let is_it = |entry: fs::DirEntry| {
        fs::read_link(entry.path()).is_ok_and(|link| link.as_os_str() == wanted.as_str())
    };
    let pids = fs::read_dir(proc).ok()?.flatten();
    let mut pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let pid = pids.find(|pid| {
        let files = fs::read_dir(proc.join(pid.to_string()).join("fd"));
        files.into_iter().flatten().flatten().any(is_it)
    })?;
    let folder = proc.join(pid.to_string());
    let name = fs::read_to_string(folder.join("comm")).unwrap_or_default().trim().to_owned();
    Some(ListeningProcess { pid, name, is_ending: is_ending(&folder) })
}

fn is_ending(folder: &Path) -> bool {
    let stat = fs::read_to_string(folder.join("stat")).unwrap_or_default();
    // The name before may hold any character.
    let flags = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(6));
    flags.and_then(|flags| flags.parse::<u64>().ok()).is_none_or(|flags| flags & EXITING != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_process_is_found_by_where_it_listens() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let found = listening_at(address).unwrap();
        assert_eq!((found.pid, found.is_ending), (std::process::id(), false));
        let any = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), address.port());
        assert_eq!(listening_at(any), Some(found), "it would be in the way");
        drop(listener);
        assert_eq!(listening_at(address), None);
    }

    #[test]
    fn a_failure_to_listen_says_why() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let failed =
            |address: SocketAddr| listen_problem(address, &TcpListener::bind(address).unwrap_err());
        let in_use = failed(listener.local_addr().unwrap());
        assert!(in_use.starts_with(&format!("process {} (", std::process::id())), "{in_use}");
        assert!(failed("192.0.2.1:4420".parse().unwrap()).contains("no address of this machine"));
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        let problem = |port| listen_problem(SocketAddr::from(([127, 0, 0, 1], port)), &denied);
        assert!(problem(80).contains("CAP_NET_BIND_SERVICE"));
        assert_eq!(problem(4420), denied.to_string());
    }

    #[test]
    fn addresses_are_read_as_the_kernel_writes_them() {
        let bytes = |ip: IpAddr| match ip {
            IpAddr::V4(ip) => ip.octets().to_vec(),
            IpAddr::V6(ip) => ip.octets().to_vec(),
        };
        for text in ["192.0.2.1", "2001:db8::1", "::1"] {
            let ip: IpAddr = text.parse().unwrap();
            let words = bytes(ip)
                .chunks(4)
                .map(|word| format!("{:08X}", u32::from_ne_bytes(word.try_into().unwrap())))
                .collect::<String>();
            assert_eq!(parse_ip(&words), Some(ip), "{text}");
        }
        assert_eq!(parse_ip("xyz"), None);
        let line = "   0: 0100007F:1144 00000000:0000 06 00000000:00000000 00:0 0 0 0 7 1";
        assert_eq!(inode_at(line, "127.0.0.1:4420".parse().unwrap()), None, "it does not listen");
    }
}

//! Proxy between host and target that cuts connections anywhere, flips bits, or freezes.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Fault of a connection, in each direction.
#[derive(Clone, Copy)]
pub enum ConnectionFault {
    /// Cut at that byte.
    Cut(u64),
    /// One flipped bit, each time after that number of bytes.
    Flip(u64),
}

/// Edits a PDU of the target; the number is that of its connection.
pub type Edit = dyn Fn(usize, &mut [u8]) + Send + Sync;

/// Proxy to a target. Its threads end with the process of the test.
pub struct Proxy {
    pub address: SocketAddr,
    shared: Arc<ProxyState>,
}

struct ProxyState {
    target: SocketAddr,
    /// Faults of the next connections, in reverse order.
    faults: Mutex<Vec<ConnectionFault>>,
    /// Number of faults that have occurred.
    strikes: AtomicU64,
    /// True if new connections close immediately.
    is_dead: AtomicBool,
    /// True once the current connections forward nothing more.
    frozen: Mutex<Arc<AtomicBool>>,
    /// Connections in order of arrival.
    joined: Mutex<Vec<Arc<ProxyConnection>>>,
    edit: Option<Box<Edit>>,
}

/// Connection through the proxy.
#[derive(Default)]
struct ProxyConnection {
    /// Socket to the host.
    near: Option<TcpStream>,
    frozen: AtomicBool,
    sent: Mutex<Vec<u8>>,
}

/// Number of recorded bytes of a connection.
const SENT_BYTES: usize = 1 << 20;

impl Proxy {
    /// Starts a proxy. The connections get `faults` in turn; later ones get none.
    pub fn new(target: SocketAddr, faults: Vec<ConnectionFault>) -> Self {
        Proxy::with(target, faults, None)
    }

    /// Starts a proxy without faults. `edit` may change the PDUs of the target.
    pub fn editing(
        target: SocketAddr,
        edit: impl Fn(usize, &mut [u8]) + Send + Sync + 'static,
    ) -> Self {
        Proxy::with(target, Vec::new(), Some(Box::new(edit)))
    }

    fn with(target: SocketAddr, mut faults: Vec<ConnectionFault>, edit: Option<Box<Edit>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        faults.reverse();
        let shared = Arc::new(ProxyState {
            target,
            faults: Mutex::new(faults),
            strikes: AtomicU64::new(0),
            is_dead: AtomicBool::new(false),
            frozen: Mutex::default(),
            joined: Mutex::default(),
            edit,
        });
        let accepting = shared.clone();
        thread::spawn(move || listener.incoming().flatten().for_each(|near| accepting.join(near)));
        Proxy { address, shared }
    }

    /// Returns the number of faults that have occurred.
    pub fn strikes(&self) -> u64 {
        self.shared.strikes.load(Relaxed)
    }

    /// Freezes all current and later connections forever.
    pub fn freeze_all(&self) {
        self.shared.frozen.lock().unwrap().store(true, Relaxed);
    }

    /// Freezes one connection forever, by its number.
    pub fn freeze_one(&self, number: usize) {
        self.shared.joined.lock().unwrap()[number].frozen.store(true, Relaxed);
    }

    /// Returns the number of connections so far.
    pub fn joined(&self) -> usize {
        self.shared.joined.lock().unwrap().len()
    }

    /// Closes one connection, by its number.
    pub fn cut(&self, number: usize) {
        let joined = self.shared.joined.lock().unwrap()[number].clone();
        let _ = joined.near.as_ref().map(|near| near.shutdown(Shutdown::Both));
    }

    /// Closes all connections, and new ones until [`Proxy::revive`].
    pub fn kill(&self) {
        self.shared.is_dead.store(true, Relaxed);
        (0..self.joined()).for_each(|number| self.cut(number));
    }

    /// Forwards new connections again.
    pub fn revive(&self) {
        self.shared.is_dead.store(false, Relaxed);
    }

    /// Returns the data that the host has sent on a connection.
    pub fn sent(&self, number: usize) -> Vec<u8> {
        self.shared.joined.lock().unwrap()[number].sent.lock().unwrap().clone()
    }

    /// Returns the first byte that the host has sent on each connection with data.
    pub fn kinds(&self) -> Vec<u8> {
        let joined = self.shared.joined.lock().unwrap();
        joined.iter().filter_map(|one| one.sent.lock().unwrap().first().copied()).collect()
    }

    /// Freezes all current connections forever; new ones work.
    pub fn freeze(&self) {
        let mut frozen = self.shared.frozen.lock().unwrap();
        std::mem::take(&mut *frozen).store(true, Relaxed);
    }
}

impl ProxyState {
    fn join(self: &Arc<Self>, near: TcpStream) {
        if self.is_dead.load(Relaxed) {
            return;
        }
        let Ok(far) = TcpStream::connect(self.target) else { return };
        let fault = self.faults.lock().unwrap().pop().unwrap_or(ConnectionFault::Cut(u64::MAX));
        let frozen = self.frozen.lock().unwrap().clone();
        let joined =
            Arc::new(ProxyConnection { near: near.try_clone().ok(), ..ProxyConnection::default() });
        let number = {
            let mut all = self.joined.lock().unwrap();
            all.push(joined.clone());
            all.len() - 1
        };
        for (from, to, is_host) in [(&near, &far, true), (&far, &near, false)] {
            let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            let (shared, frozen, joined) = (self.clone(), frozen.clone(), joined.clone());
            thread::spawn(move || {
                if let Some(edit) = shared.edit.as_ref().filter(|_| !is_host) {
                    return pump_pdus(&from, &to, |pdu| edit(number, pdu));
                }
                let hold = |piece: &[u8]| {
                    while frozen.load(Relaxed) || joined.frozen.load(Relaxed) {
                        thread::sleep(Duration::from_millis(50)); // until the process ends
                    }
                    let mut sent = joined.sent.lock().unwrap();
                    if is_host && sent.len() < SENT_BYTES {
                        sent.extend_from_slice(piece);
                    }
                };
                shared.pump(&from, &to, fault, hold);
            });
        }
    }

    fn pump(
        &self,
        mut from: &TcpStream,
        mut to: &TcpStream,
        fault: ConnectionFault,
        hold: impl Fn(&[u8]),
    ) {
        let (mut at, mut buffer) = (0, [0; 16 << 10]);
        from.set_nodelay(true).unwrap();
        while let Ok(got) = from.read(&mut buffer)
            && got > 0
        {
            hold(&buffer[..got]);
            let piece = &mut buffer[..got];
            let kept = self.strike(fault, at, piece);
            at += got as u64;
            if to.write_all(&piece[..kept]).is_err() || kept < got {
                break;
            }
        }
        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    }

    /// Applies the fault to `piece`, whose first byte has offset `at`. Returns the number of bytes to forward.
    fn strike(&self, fault: ConnectionFault, at: u64, piece: &mut [u8]) -> usize {
        let place = match fault {
            ConnectionFault::Cut(place) => place,
            ConnectionFault::Flip(period) => at.max(1).next_multiple_of(period),
        };
        let Some(index) = place.checked_sub(at).filter(|index| *index < piece.len() as u64) else {
            return piece.len();
        };
        self.strikes.fetch_add(1, Relaxed);
        match fault {
            ConnectionFault::Cut(_) => index as usize,
            ConnectionFault::Flip(_) => {
                piece[index as usize] ^= 1 << (place % 8);
                piece.len()
            }
        }
    }
}

/// Forwards PDU by PDU.
fn pump_pdus(mut from: &TcpStream, mut to: &TcpStream, edit: impl Fn(&mut [u8])) {
    let (mut kept, mut buffer) = (Vec::new(), [0; 16 << 10]);
    to.set_nodelay(true).unwrap();
    while let Ok(got) = from.read(&mut buffer)
        && got > 0
    {
        kept.extend_from_slice(&buffer[..got]);
        while let Some(&[a, b, c, d]) = kept.get(4..8)
            && let length = u32::from_le_bytes([a, b, c, d]) as usize
            && length <= kept.len()
        {
            let mut pdu: Vec<u8> = kept.drain(..length).collect();
            edit(&mut pdu);
            if to.write_all(&pdu).is_err() {
                return;
            }
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

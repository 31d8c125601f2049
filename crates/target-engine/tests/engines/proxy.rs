//! A network between host and target that cuts connections anywhere, flips bits, or freezes.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// What happens to a connection in each direction.
#[derive(Clone, Copy)]
pub enum Fate {
    /// It ends at that octet.
    Cut(u64),
    /// One bit is wrong, every time after so many octets.
    Flip(u64),
}

/// Changes a PDU that a target sends by a connection, which has a number.
pub type Edit = dyn Fn(usize, &mut [u8]) + Send + Sync;

/// Forwards to a target. Its threads end with the test's process at the latest.
pub struct Proxy {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    target: SocketAddr,
    /// Of the next connections, the last one first.
    fates: Mutex<Vec<Fate>>,
    /// That have come true.
    strikes: AtomicU64,
    /// New connections end at once.
    is_dead: AtomicBool,
    /// The connections of now forward nothing any more.
    frozen: Mutex<Arc<AtomicBool>>,
    /// Each connection: whether it alone is frozen, and the first octets that its host has sent.
    joined: Mutex<Vec<Arc<Joined>>>,
    edit: Option<Box<Edit>>,
}

/// A connection.
#[derive(Default)]
struct Joined {
    /// To the host.
    near: Option<TcpStream>,
    frozen: AtomicBool,
    sent: Mutex<Vec<u8>>,
}

/// Octets of a connection that are kept.
const SENT_BYTES: usize = 1 << 20;

impl Proxy {
    /// The connections get `fates` in turn; nothing happens to those after them.
    pub fn new(target: SocketAddr, fates: Vec<Fate>) -> Self {
        Proxy::with(target, fates, None)
    }

    /// Nothing happens to the connections, but `edit` sees, and may change, what the target says.
    pub fn editing(
        target: SocketAddr,
        edit: impl Fn(usize, &mut [u8]) + Send + Sync + 'static,
    ) -> Self {
        Proxy::with(target, Vec::new(), Some(Box::new(edit)))
    }

    fn with(target: SocketAddr, mut fates: Vec<Fate>, edit: Option<Box<Edit>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        fates.reverse();
        let shared = Arc::new(Shared {
            target,
            fates: Mutex::new(fates),
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

    /// Fates that have come true so far.
    pub fn strikes(&self) -> u64 {
        self.shared.strikes.load(Relaxed)
    }

    /// Freezes the connections of now, and all that follow, for ever.
    pub fn freeze_all(&self) {
        self.shared.frozen.lock().unwrap().store(true, Relaxed);
    }

    /// Freezes one connection for ever, by the order in which they came.
    pub fn freeze_one(&self, number: usize) {
        self.shared.joined.lock().unwrap()[number].frozen.store(true, Relaxed);
    }

    /// Connections so far.
    pub fn joined(&self) -> usize {
        self.shared.joined.lock().unwrap().len()
    }

    /// Ends one connection, by the order in which they came.
    pub fn cut(&self, number: usize) {
        let joined = self.shared.joined.lock().unwrap()[number].clone();
        let _ = joined.near.as_ref().map(|near| near.shutdown(Shutdown::Both));
    }

    /// Ends all connections, and those that come until [`Proxy::revive`].
    pub fn kill(&self) {
        self.shared.is_dead.store(true, Relaxed);
        (0..self.joined()).for_each(|number| self.cut(number));
    }

    /// New connections lead to the target again.
    pub fn revive(&self) {
        self.shared.is_dead.store(false, Relaxed);
    }

    /// What the host has sent by a connection.
    pub fn sent(&self, number: usize) -> Vec<u8> {
        self.shared.joined.lock().unwrap()[number].sent.lock().unwrap().clone()
    }

    /// The first octet that the host has sent by each connection that it has sent something by.
    pub fn kinds(&self) -> Vec<u8> {
        let joined = self.shared.joined.lock().unwrap();
        joined.iter().filter_map(|one| one.sent.lock().unwrap().first().copied()).collect()
    }

    /// Freezes the connections of now for ever; new ones work.
    pub fn freeze(&self) {
        let mut frozen = self.shared.frozen.lock().unwrap();
        std::mem::take(&mut *frozen).store(true, Relaxed);
    }
}

impl Shared {
    fn join(self: &Arc<Self>, near: TcpStream) {
        if self.is_dead.load(Relaxed) {
            return;
        }
        let Ok(far) = TcpStream::connect(self.target) else { return };
        let fate = self.fates.lock().unwrap().pop().unwrap_or(Fate::Cut(u64::MAX));
        let frozen = self.frozen.lock().unwrap().clone();
        let joined = Arc::new(Joined { near: near.try_clone().ok(), ..Joined::default() });
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
                shared.pump(&from, &to, fate, hold);
            });
        }
    }

    fn pump(&self, mut from: &TcpStream, mut to: &TcpStream, fate: Fate, hold: impl Fn(&[u8])) {
        let (mut at, mut buffer) = (0, [0; 16 << 10]);
        from.set_nodelay(true).unwrap();
        while let Ok(got) = from.read(&mut buffer)
            && got > 0
        {
            hold(&buffer[..got]);
            let piece = &mut buffer[..got];
            let kept = self.strike(fate, at, piece);
            at += got as u64;
            if to.write_all(&piece[..kept]).is_err() || kept < got {
                break;
            }
        }
        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    }

    /// What becomes of `piece`, whose first octet is number `at`: how much of it goes on.
    fn strike(&self, fate: Fate, at: u64, piece: &mut [u8]) -> usize {
        let place = match fate {
            Fate::Cut(place) => place,
            Fate::Flip(period) => at.max(1).next_multiple_of(period),
        };
        let Some(index) = place.checked_sub(at).filter(|index| *index < piece.len() as u64) else {
            return piece.len();
        };
        self.strikes.fetch_add(1, Relaxed);
        match fate {
            Fate::Cut(_) => index as usize,
            Fate::Flip(_) => {
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

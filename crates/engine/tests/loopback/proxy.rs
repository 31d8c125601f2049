//! A network between host and target that cuts connections anywhere, or freezes them.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Forwards to a target. Its threads end with the test's process at the latest.
pub struct Proxy {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    target: SocketAddr,
    /// Octets that the next connections may carry in each direction before they are cut.
    allowances: Mutex<Vec<u64>>,
    cuts: AtomicU64,
    /// The connections of now forward nothing any more.
    frozen: Mutex<Arc<AtomicBool>>,
}

impl Proxy {
    /// `allowances` are used up by the connections in turn; those after them live for ever.
    pub fn new(target: SocketAddr, mut allowances: Vec<u64>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        allowances.reverse();
        let shared = Arc::new(Shared {
            target,
            allowances: Mutex::new(allowances),
            cuts: AtomicU64::new(0),
            frozen: Mutex::default(),
        });
        let accepting = shared.clone();
        thread::spawn(move || listener.incoming().flatten().for_each(|near| accepting.join(near)));
        Proxy { address, shared }
    }

    /// Connections cut so far.
    pub fn cuts(&self) -> u64 {
        self.shared.cuts.load(Relaxed)
    }

    /// Freezes the connections of now, and all that follow, for ever.
    pub fn freeze_all(&self) {
        self.shared.frozen.lock().unwrap().store(true, Relaxed);
    }

    /// Freezes the connections of now for ever; new ones work.
    pub fn freeze(&self) {
        let mut frozen = self.shared.frozen.lock().unwrap();
        std::mem::take(&mut *frozen).store(true, Relaxed);
    }
}

impl Shared {
    fn join(self: &Arc<Self>, near: TcpStream) {
        let Ok(far) = TcpStream::connect(self.target) else { return };
        let allowance = self.allowances.lock().unwrap().pop().unwrap_or(u64::MAX);
        let frozen = self.frozen.lock().unwrap().clone();
        for (from, to) in [(&near, &far), (&far, &near)] {
            let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            let (shared, frozen) = (self.clone(), frozen.clone());
            thread::spawn(move || shared.pump(&from, &to, allowance, &frozen));
        }
    }

    fn pump(&self, mut from: &TcpStream, mut to: &TcpStream, allowance: u64, frozen: &AtomicBool) {
        let (mut left, mut buffer) = (allowance, [0; 16 << 10]);
        from.set_nodelay(true).unwrap();
        while let Ok(got) = from.read(&mut buffer)
            && got > 0
        {
            while frozen.load(Relaxed) {
                thread::sleep(Duration::from_millis(50)); // until the process ends
            }
            let count = left.min(got as u64);
            if to.write_all(&buffer[..count as usize]).is_err() {
                break;
            }
            left -= count;
            if left == 0 {
                self.cuts.fetch_add(1, Relaxed);
                break;
            }
        }
        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    }
}

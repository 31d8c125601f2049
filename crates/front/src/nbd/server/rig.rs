//! A server on a memory disk, driven without a reactor, and a client for it.
//!
//! Watches fire every turn: a spurious wake-up is allowed, and costs only time. The lane reads when a
//! request is submitted and writes when it is completed, in any order, so that whatever may race does.

use super::*;
use roadtrain_engine::host::{Completion, Op, Request, RingCommand};
use roadtrain_engine::stats::LaneStats;
use roadtrain_wire::nbd::{
    self, Chunk, ChunkCode, Command, Errno, Greeting, OptionCode, OptionHeader, OptionReplyCode,
    OptionReplyHeader, SimpleReply,
};
use roadtrain_wire::status::Status;
use std::io::{Read, Write};
use std::os::fd::RawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// What a lane was asked: operation, slba, blocks, FUA, urgent.
pub(crate) type Asked = (Op, u64, u32, bool, bool);

#[derive(Clone)]
pub(crate) struct Options {
    pub(crate) info: ExportInfo,
    /// Requests that the lane takes at a time.
    pub(crate) room: usize,
    /// Requests that begin in this block fail so.
    pub(crate) fails: Option<(u64, Status)>,
    pub(crate) lanes: usize,
}

impl Default for Options {
    fn default() -> Self {
        let info = crate::nbd::export::test_info();
        Options { info, room: 8, fails: None, lanes: 1 }
    }
}

/// The lane and the reactor.
pub(crate) struct Mock {
    disk: Arc<Mutex<Vec<u8>>>,
    options: Options,
    turns: u64,
    random: u64,
    in_flight: Vec<Request>,
    completions: VecDeque<Completion>,
    watches: Vec<u64>,
    ready: VecDeque<u64>,
    asked: Vec<Asked>,
    /// The lane of each request asked.
    pub(crate) lanes: Vec<LaneId>,
    stopping: Arc<AtomicBool>,
    stopped: bool,
}

impl Mock {
    pub(crate) fn new(options: Options, seed: u64) -> Self {
        let info = &options.info;
        let bytes = info.blocks as usize * info.lba_bytes as usize;
        Mock {
            disk: Arc::new(Mutex::new((0..bytes).map(pattern).collect())),
            options,
            turns: 0,
            random: 88_172_645_463_325_252 + seed,
            in_flight: Vec::new(),
            completions: VecDeque::new(),
            watches: Vec::new(),
            ready: VecDeque::new(),
            asked: Vec::new(),
            lanes: Vec::new(),
            stopping: Arc::default(),
            stopped: false,
        }
    }

    fn random(&mut self, below: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % below as u64) as usize
    }

    fn range(&self, request: &Request) -> std::ops::Range<usize> {
        let lba_bytes = self.options.info.lba_bytes as usize;
        let start = request.slba as usize * lba_bytes;
        start..start + request.blocks as usize * lba_bytes
    }

    fn fails(&self, request: &Request) -> Option<Status> {
        self.options.fails.filter(|(slba, _)| *slba == request.slba).map(|(_, status)| status)
    }

    fn complete_some(&mut self) {
        let count = self.random(self.in_flight.len() + 1);
        for _ in 0..count {
            let at = self.random(self.in_flight.len());
            let request = self.in_flight.swap_remove(at);
            let range = self.range(&request);
            let status = self.fails(&request).unwrap_or(Status::SUCCESS);
            if status.is_success() {
                let disk = &mut self.disk.lock().unwrap()[range];
                match (request.op, &request.buffer) {
                    (Op::Write, Some(buffer)) => disk.copy_from_slice(buffer),
                    (Op::WriteZeroes { .. }, _) => disk.fill(0),
                    (Op::Discard, _) => disk.fill(0xdd),
                    _ => {}
                }
            }
            let (token, buffer) = (request.token, request.buffer);
            self.completions.push_back(Completion { token, status, buffer, latency_ns: 0 });
        }
    }

    pub(crate) fn turn(&mut self, server: &mut NbdServer) {
        self.turns += 1;
        self.complete_some();
        self.ready.extend(self.watches.drain(..));
        server.turn(self);
    }

    fn run(mut self, mut server: NbdServer) -> (Mock, NbdServer) {
        while !self.stopped {
            self.turn(&mut server);
            if self.in_flight.is_empty() && server.listed.is_empty() {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
        (self, server)
    }
}

impl Turn for Mock {
    fn now(&self) -> Instant {
        Instant(self.turns * 100_000)
    }

    fn next_completion(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }

    fn room(&self, _: LaneId) -> u32 {
        (self.options.room - self.in_flight.len()) as u32
    }

    fn submit(&mut self, lane: LaneId, mut request: Request) -> Result<(), Request> {
        // Room may be gone in spite of what was said.
        if self.random(10) == 0 {
            return Err(request);
        }
        let range = self.range(&request);
        if let Some(buffer) = &mut request.buffer {
            assert_eq!(buffer.len(), range.len(), "exactly the octets of the blocks");
            assert!(range.len() <= self.options.info.max_transfer_bytes as usize);
            if request.op == Op::Read {
                buffer.copy_from_slice(&self.disk.lock().unwrap()[range]);
            }
        } else {
            assert!(!matches!(request.op, Op::Read | Op::Write));
        }
        let Request { op, slba, blocks, fua, urgent, .. } = request;
        self.lanes.push(lane);
        self.asked.push((op, slba, blocks, fua, urgent));
        self.in_flight.push(request);
        Ok(())
    }

    fn watch(&mut self, _: RawFd, _: Interest, key: u64) {
        assert!(!self.watches.contains(&key), "watched twice");
        self.watches.push(key);
    }

    fn unwatch(&mut self, key: u64) {
        self.watches.retain(|&watched| watched != key);
    }

    fn next_ready(&mut self) -> Option<u64> {
        self.ready.pop_front()
    }

    #[allow(unsafe_code, reason = "as the trait has it")]
    unsafe fn command(&mut self, _: &RingCommand, _: u64) {}

    fn next_command(&mut self) -> Option<(u64, i32)> {
        None
    }

    fn stats(&mut self, _: LaneId) -> LaneStats {
        LaneStats::default()
    }

    fn stop(&mut self) {
        self.stopped = true;
    }

    fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }
}

/// Servers that run.
pub(crate) struct Rig {
    pub(crate) address: NbdAddress,
    pub(crate) export: Arc<Export>,
    pub(crate) disk: Arc<Mutex<Vec<u8>>>,
    stopping: Arc<AtomicBool>,
    threads: Vec<JoinHandle<(Mock, NbdServer)>>,
    _directory: tempfile::TempDir,
}

impl Rig {
    pub(crate) fn start(options: Options) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let address = NbdAddress::Unix(directory.path().join("nbd.sock"));
        let info = options.info.clone();
        let model = Mock::new(options.clone(), 0);
        let (disk, stopping) = (model.disk, model.stopping);
        let first = NbdServer::bind(&address, info, LaneId(0)).unwrap();
        let export = first.export();
        let mut servers: Vec<_> = (1..options.lanes).map(|_| first.for_lane(LaneId(0))).collect();
        servers.push(first);
        let threads = servers.into_iter().enumerate().map(|(index, server)| {
            let mut mock = Mock::new(options.clone(), index as u64);
            (mock.disk, mock.stopping) = (disk.clone(), stopping.clone());
            std::thread::spawn(move || mock.run(server))
        });
        let threads = threads.collect();
        Rig { address, export, disk, stopping, threads, _directory: directory }
    }

    pub(crate) fn connect(&self) -> Client {
        let NbdAddress::Unix(path) = &self.address else { panic!("not a Unix socket") };
        Client::knock(path)
    }

    /// A client in transmission.
    pub(crate) fn client(&self, structured: bool) -> Client {
        let mut client = self.connect();
        client.handshake(structured);
        client
    }

    /// Stops the servers, which may leave nothing behind; returns what their lanes were asked.
    pub(crate) fn stop(self) -> Vec<Asked> {
        self.stopping.store(true, Ordering::Relaxed);
        let mut asked = Vec::new();
        for thread in self.threads {
            let (mock, server) = thread.join().unwrap();
            assert!(mock.in_flight.is_empty() && mock.watches.is_empty());
            assert!(server.jobs.is_clean(), "{:?}", server.jobs);
            asked.extend(mock.asked);
        }
        asked
    }
}

/// What the disk holds at first.
pub(crate) fn pattern(at: usize) -> u8 {
    (at.wrapping_mul(2_654_435_761) >> 13) as u8
}

pub(crate) struct Client {
    pub(crate) stream: UnixStream,
    structured: bool,
    bytes: u64,
}

/// An answer: the request's cookie, the error, the data of a Read.
pub(crate) type Answer = (u64, Errno, Vec<u8>);

impl Client {
    /// A client that has not spoken yet.
    pub(crate) fn knock(path: &Path) -> Self {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Client { stream, structured: false, bytes: 0 }
    }

    /// A client in transmission.
    pub(crate) fn connect(path: &Path, structured: bool) -> Self {
        let mut client = Client::knock(path);
        client.handshake(structured);
        client
    }

    /// The size that GO told.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn handshake(&mut self, structured: bool) {
        let mut greeting = [0; Greeting::OCTETS];
        self.stream.read_exact(&mut greeting).unwrap();
        Greeting::parse(&greeting).unwrap();
        self.stream.write_all(&3u32.to_be_bytes()).unwrap();
        if structured {
            assert_eq!(self.option(OptionCode::STRUCTURED_REPLY, &[]), OptionReplyCode::ACK);
        }
        assert_eq!(self.option(OptionCode::GO, &[0; 6]), OptionReplyCode::ACK);
        self.structured = structured;
    }

    /// The last reply to an option.
    pub(crate) fn option(&mut self, option: OptionCode, data: &[u8]) -> OptionReplyCode {
        let header = OptionHeader::new(option, data.len() as u32);
        self.stream.write_all(&[header.as_octets(), data].concat()).unwrap();
        loop {
            let header = OptionReplyHeader::parse(&self.take(OptionReplyHeader::OCTETS)).unwrap();
            let data = self.take(header.length() as usize);
            if let Some(bytes) = data.strip_prefix(&[0, 0]).and_then(|rest| rest.first_chunk()) {
                self.bytes = u64::from_be_bytes(*bytes);
            }
            let reply = header.reply();
            if reply == OptionReplyCode::ACK || reply.0 >> 31 == 1 {
                return reply;
            }
        }
    }

    pub(crate) fn take(&mut self, count: usize) -> Vec<u8> {
        let mut octets = vec![0; count];
        self.stream.read_exact(&mut octets).unwrap();
        octets
    }

    pub(crate) fn send(&mut self, request: nbd::Request, payload: &[u8]) {
        self.stream.write_all(&[&request.emit(), payload].concat()).unwrap();
    }

    /// The next answer to one of `requests`.
    pub(crate) fn answer(&mut self, requests: &[nbd::Request]) -> Answer {
        let head = self.take(SimpleReply::OCTETS);
        let length = |cookie| {
            let request = requests.iter().find(|r| r.cookie == cookie).expect("asked");
            if request.command == Command::READ { request.length as usize } else { 0 }
        };
        if let Ok(SimpleReply { errno, cookie }) = SimpleReply::parse(&head) {
            let length = if errno == Errno::OK { length(cookie) } else { 0 };
            assert!(!self.structured || length == 0, "a simple reply to a structured read");
            return (cookie, errno, self.take(length));
        }
        let head = [head, self.take(Chunk::OCTETS - SimpleReply::OCTETS)].concat();
        let chunk = Chunk::parse(&head).unwrap();
        assert!(self.structured && chunk.flags == nbd::CHUNK_FLAG_DONE);
        let mut body = self.take(chunk.length as usize);
        if chunk.code == ChunkCode::ERROR {
            let errno = Errno(u32::from_be_bytes(body[..4].try_into().unwrap()));
            return (chunk.cookie, errno, body.split_off(6));
        }
        assert_eq!(chunk.code, ChunkCode::OFFSET_DATA);
        assert_eq!(body.len() - 8, length(chunk.cookie));
        (chunk.cookie, Errno::OK, body.split_off(8))
    }

    /// One request and its answer.
    pub(crate) fn ask(
        &mut self,
        command: Command,
        flags: u16,
        offset: u64,
        data: &[u8],
        length: u32,
    ) -> (Errno, Vec<u8>) {
        let request = nbd::Request { flags, command, cookie: 0xc00c1e, offset, length };
        self.send(request, data);
        let (cookie, errno, data) = self.answer(&[request]);
        assert_eq!(cookie, request.cookie);
        (errno, data)
    }

    pub(crate) fn read(&mut self, offset: u64, length: u32) -> Vec<u8> {
        let (errno, data) = self.ask(Command::READ, 0, offset, &[], length);
        assert_eq!(errno, Errno::OK);
        data
    }

    pub(crate) fn write(&mut self, flags: u16, offset: u64, data: &[u8]) -> Errno {
        self.ask(Command::WRITE, flags, offset, data, data.len() as u32).0
    }

    /// Whether the server hangs up without another word.
    pub(crate) fn is_closed(&mut self) -> bool {
        let mut octets = Vec::new();
        // A reset is a hang-up too: octets that the server did not read are lost with it.
        matches!(self.stream.read_to_end(&mut octets), Ok(0) | Err(_)) && octets.is_empty()
    }
}

//! A server on a memory disk, driven without a reactor, and a client for it.

use super::*;
pub(crate) use crate::disk::harness::{Mock, MockOptions, SubmittedRequest, patterned};
use crate::nbd::{ExportInfo, NbdExport};
use roadtrain_wire::nbd::{
    self, ChunkCode, Command, Errno, Greeting, NbdChunk, OptionCode, OptionHeader, OptionReplyCode,
    OptionReplyHeader, SimpleReply,
};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Running servers.
pub(crate) struct NbdHarness {
    pub(crate) address: NbdAddress,
    pub(crate) export: Arc<NbdExport>,
    pub(crate) disk: Arc<Mutex<Vec<u8>>>,
    stopping: Arc<AtomicBool>,
    threads: Vec<JoinHandle<(Mock, NbdServer)>>,
    _directory: tempfile::TempDir,
}

impl NbdHarness {
    pub(crate) fn start(options: MockOptions) -> Self {
        NbdHarness::start_with(options, |server| server)
    }

    pub(crate) fn start_with(options: MockOptions, adapt: fn(NbdServer) -> NbdServer) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let address = NbdAddress::Unix(directory.path().join("nbd.sock"));
        let info = ExportInfo { disk: options.info.clone(), ..crate::nbd::export::test_info() };
        let model = Mock::new(options.clone(), 0);
        let (disk, stopping) = (model.disk, model.stopping);
        let first = NbdServer::bind(&address, info, LaneId(0)).unwrap();
        let export = first.export();
        let others = (1..options.lanes).map(|_| first.for_lane(LaneId(0)).unwrap());
        let mut servers: Vec<_> = others.collect();
        servers.push(first);
        let servers = servers.into_iter().map(adapt);
        let threads = servers.enumerate().map(|(index, server)| {
            let mut mock = Mock::new(options.clone(), index as u64);
            (mock.disk, mock.stopping) = (disk.clone(), stopping.clone());
            std::thread::spawn(move || mock.run(server))
        });
        let threads = threads.collect();
        NbdHarness { address, export, disk, stopping, threads, _directory: directory }
    }

    pub(crate) fn connect(&self) -> NbdTestClient {
        let NbdAddress::Unix(path) = &self.address else { panic!("not a Unix socket") };
        NbdTestClient::open_socket(path)
    }

    /// Connects a client and brings it to transmission.
    pub(crate) fn client(&self, structured: bool) -> NbdTestClient {
        let mut client = self.connect();
        client.handshake(structured);
        client
    }

    /// Stops the servers, and checks that nothing is left; returns the requests at their lanes.
    pub(crate) fn stop(self) -> Vec<SubmittedRequest> {
        self.stopping.store(true, Ordering::Relaxed);
        let mut submitted = Vec::new();
        for thread in self.threads {
            let (mock, server) = thread.join().unwrap();
            assert!(mock.in_flight.is_empty() && mock.watches.is_empty());
            assert!(server.jobs.is_clean(), "{:?}", server.jobs);
            submitted.extend(mock.submitted);
        }
        submitted
    }
}

pub(crate) struct NbdTestClient {
    pub(crate) stream: UnixStream,
    structured: bool,
    bytes: u64,
}

/// A reply: the request's cookie, the error, the data of a Read.
pub(crate) type NbdReply = (u64, Errno, Vec<u8>);

impl NbdTestClient {
    /// Connects a client that has not sent anything yet.
    pub(crate) fn open_socket(path: &Path) -> Self {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        NbdTestClient { stream, structured: false, bytes: 0 }
    }

    /// Connects a client and brings it to transmission.
    pub(crate) fn connect(path: &Path, structured: bool) -> Self {
        let mut client = NbdTestClient::open_socket(path);
        client.handshake(structured);
        client
    }

    /// Returns the size in the reply to GO.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn handshake(&mut self, structured: bool) {
        self.greet(structured);
        assert_eq!(self.option(OptionCode::GO, &[0; 6]), OptionReplyCode::ACK);
    }

    fn greet(&mut self, structured: bool) {
        let mut greeting = [0; Greeting::BYTES];
        self.stream.read_exact(&mut greeting).unwrap();
        Greeting::parse(&greeting).unwrap();
        self.stream.write_all(&3u32.to_be_bytes()).unwrap();
        if structured {
            assert_eq!(self.option(OptionCode::STRUCTURED_REPLY, &[]), OptionReplyCode::ACK);
        }
        self.structured = structured;
    }

    /// Sends an option; returns its last reply.
    pub(crate) fn option(&mut self, option: OptionCode, data: &[u8]) -> OptionReplyCode {
        let header = OptionHeader::new(option, data.len() as u32);
        self.stream.write_all(&[header.as_bytes(), data].concat()).unwrap();
        loop {
            let header = OptionReplyHeader::parse(&self.take(OptionReplyHeader::BYTES)).unwrap();
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
        let mut bytes = vec![0; count];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    pub(crate) fn send(&mut self, request: nbd::NbdRequest, payload: &[u8]) {
        self.stream.write_all(&[&request.emit(), payload].concat()).unwrap();
    }

    /// Receives the next reply to one of `requests`.
    pub(crate) fn answer(&mut self, requests: &[nbd::NbdRequest]) -> NbdReply {
        let head = self.take(SimpleReply::BYTES);
        let length = |cookie| {
            let request = requests.iter().find(|r| r.cookie == cookie).expect("a known cookie");
            if request.command == Command::READ { request.length as usize } else { 0 }
        };
        if let Ok(SimpleReply { errno, cookie }) = SimpleReply::parse(&head) {
            let length = if errno == Errno::OK { length(cookie) } else { 0 };
            assert!(!self.structured || length == 0, "a simple reply to a structured read");
            return (cookie, errno, self.take(length));
        }
        let head = [head, self.take(NbdChunk::BYTES - SimpleReply::BYTES)].concat();
        let chunk = NbdChunk::parse(&head).unwrap();
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

    /// Sends one request; returns its reply.
    pub(crate) fn call(
        &mut self,
        command: Command,
        flags: u16,
        offset: u64,
        data: &[u8],
        length: u32,
    ) -> (Errno, Vec<u8>) {
        let request = nbd::NbdRequest { flags, command, cookie: 0xc00c1e, offset, length };
        self.send(request, data);
        let (cookie, errno, data) = self.answer(&[request]);
        assert_eq!(cookie, request.cookie);
        (errno, data)
    }

    pub(crate) fn read(&mut self, offset: u64, length: u32) -> Vec<u8> {
        let (errno, data) = self.call(Command::READ, 0, offset, &[], length);
        assert_eq!(errno, Errno::OK);
        data
    }

    pub(crate) fn write(&mut self, flags: u16, offset: u64, data: &[u8]) -> Errno {
        self.call(Command::WRITE, flags, offset, data, data.len() as u32).0
    }

    /// Connects a client with block status and brings it to transmission.
    pub(crate) fn with_block_status(harness: &NbdHarness) -> Self {
        let mut client = harness.connect();
        client.greet(true);
        let name = nbd::BASE_ALLOCATION.as_bytes();
        let length = |bytes: &[u8]| (bytes.len() as u32).to_be_bytes();
        let context = [&[0; 4], &1u32.to_be_bytes()[..], &length(name), name].concat();
        assert_eq!(client.option(OptionCode::SET_META_CONTEXT, &context), OptionReplyCode::ACK);
        assert_eq!(client.option(OptionCode::GO, &[0; 6]), OptionReplyCode::ACK);
        client
    }

    /// Receives the next block status reply: its cookie, and the extents.
    pub(crate) fn block_status(&mut self) -> (u64, Vec<(u32, u32)>) {
        let chunk = NbdChunk::parse(&self.take(NbdChunk::BYTES)).unwrap();
        assert_eq!((chunk.code, chunk.flags), (ChunkCode::BLOCK_STATUS, nbd::CHUNK_FLAG_DONE));
        let body = self.take(chunk.length as usize);
        let (context, words) = (&body[..4], body[4..].as_chunks::<8>());
        assert_eq!((context, words.1.len()), (&[0, 0, 0, 1][..], 0));
        let word = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap());
        (chunk.cookie, words.0.iter().map(|w| (word(&w[..4]), word(&w[4..]))).collect())
    }

    /// True if the server hangs up without sending anything else.
    pub(crate) fn is_closed(&mut self) -> bool {
        let mut bytes = Vec::new();
        // A reset is a hang-up too: unread bytes of the server are lost with it.
        matches!(self.stream.read_to_end(&mut bytes), Ok(0) | Err(_)) && bytes.is_empty()
    }
}

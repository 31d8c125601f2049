//! Requests and answers on a Unix socket, a line each.

use super::{
    Call, Refusal, Reply, Why, descriptors, read_call, read_reply, write_call, write_reply,
};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, thread};
use tracing::debug;

/// Longest request: some 500 namespaces at once.
const REQUEST_BYTES_MAX: usize = 256 << 10;
/// Longest answer: the hosts of a large target.
const ANSWER_BYTES_MAX: usize = 32 << 20;
/// How long an asker may take to ask and to take the answer: the next one waits.
const ASKER_TIMEOUT: Duration = Duration::from_secs(1);
/// How long an answer may take: files are made, opened and grown.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// The same for the status, which takes no time.
const STATUS_TIMEOUT: Duration = Duration::from_secs(4);

/// Lines of a stream, of bounded length and within bounded time.
struct Lines<'a> {
    stream: &'a UnixStream,
    buffer: Vec<u8>,
    bytes_max: usize,
}

impl<'a> Lines<'a> {
    fn of(stream: &'a UnixStream, bytes_max: usize) -> Self {
        Lines { stream, buffer: Vec::new(), bytes_max }
    }

    /// The next line; `None` at the end of the stream.
    fn next(&mut self, within: Option<Duration>) -> io::Result<Option<Vec<u8>>> {
        let until = within.map(|within| Instant::now() + within);
        let mut searched = 0;
        loop {
            if let Some(at) = self.buffer[searched..].iter().position(|octet| *octet == b'\n') {
                let rest = self.buffer.split_off(searched + at + 1);
                return Ok(Some(std::mem::replace(&mut self.buffer, rest)));
            }
            searched = self.buffer.len();
            if searched >= self.bytes_max {
                return Err(io::Error::new(ErrorKind::InvalidData, "the line is too long"));
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(ErrorKind::TimedOut.into());
            }
            self.stream.set_read_timeout(left)?;
            let mut piece = [0; 4096];
            match (&mut &*self.stream).read(&mut piece) {
                Ok(0) => return Ok(None),
                Ok(count) => self.buffer.extend_from_slice(&piece[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Answers a request; `None`: later, with [`reply_to`], on a clone of the stream.
pub(crate) trait Answers: Fn(Call, &UnixStream) -> Option<Reply> {}

impl<F: Fn(Call, &UnixStream) -> Option<Reply>> Answers for F {}

/// Answers on a thread of its own, one asker after the other, as long as the process lives. The socket is for this
/// user only.
///
/// # Errors
/// The socket cannot be made.
pub(crate) fn serve(socket: &Path, answers: impl Answers + Send + 'static) -> io::Result<()> {
    let listener = UnixListener::bind(socket)?;
    fs::set_permissions(socket, fs::Permissions::from_mode(0o600))?;
    let serve = move || {
        for stream in listener.incoming() {
            let served = stream.and_then(|stream| serve_one(&stream, &answers));
            if let Err(error) = served {
                debug!("control socket: {error}");
                thread::sleep(Duration::from_millis(10)); // out of descriptors, perhaps
            }
        }
    };
    thread::Builder::new().name("roadtrain-ask".into()).spawn(serve)?;
    Ok(())
}

/// One request, so that nobody holds up the next asker.
fn serve_one(stream: &UnixStream, answers: &impl Answers) -> io::Result<()> {
    let reply = match Lines::of(stream, REQUEST_BYTES_MAX).next(Some(ASKER_TIMEOUT)) {
        Ok(None) => return Ok(()),
        Ok(Some(line)) => answer(&line, stream, answers),
        Err(error) if error.kind() == ErrorKind::InvalidData => {
            Some(Err(Refusal::new(Why::Request, error)))
        }
        Err(error) => return Err(error),
    };
    reply.map_or(Ok(()), |reply| reply_to(stream, reply))
}

fn answer(line: &[u8], stream: &UnixStream, answers: &impl Answers) -> Option<Reply> {
    match read_call(line) {
        Ok(call) => answers(call, stream),
        Err(refusal) => Some(Err(refusal)),
    }
}

/// Answers all requests of one stream, until its end.
pub(crate) fn serve_stream(stream: &UnixStream, answers: impl Answers) -> io::Result<()> {
    let mut lines = Lines::of(stream, REQUEST_BYTES_MAX);
    while let Some(line) = lines.next(None)? {
        if let Some(reply) = answer(&line, stream, &answers) {
            reply_to(stream, reply)?;
        }
    }
    Ok(())
}

/// Sends an answer.
///
/// # Errors
/// The asker is gone, or does not take it.
pub(crate) fn reply_to(mut stream: &UnixStream, reply: Reply) -> io::Result<()> {
    stream.set_write_timeout(Some(ASKER_TIMEOUT))?;
    stream.write_all(&write_reply(reply))
}

/// Sends a call to the process behind `socket`, and returns its answer.
///
/// # Errors
/// Nobody is there, or does not answer in time.
pub(crate) fn ask(socket: &Path, call: &Call) -> io::Result<Reply> {
    call_over(&UnixStream::connect(socket)?, call)
}

/// The same for a process of `owner`: in a folder of another user the socket may lead to anybody.
///
/// # Errors
/// As [`ask`]; the process that listens there belongs to another user.
pub(crate) fn ask_user(socket: &Path, owner: u32, call: &Call) -> io::Result<Reply> {
    let stream = UnixStream::connect(socket)?;
    let found = rustix::net::sockopt::socket_peercred(&stream)?.uid.as_raw();
    if found != owner {
        let text = format!("user {found} listens at {}, not user {owner}", socket.display());
        return Err(io::Error::new(ErrorKind::PermissionDenied, text));
    }
    call_over(&stream, call)
}

fn call_over(stream: &UnixStream, call: &Call) -> io::Result<Reply> {
    let within = if *call == Call::Status { STATUS_TIMEOUT } else { ANSWER_TIMEOUT };
    begin(stream, call)?;
    finish(stream, within)
}

/// Asks over a stream that carries several requests.
///
/// # Errors
/// Nobody is there, or does not answer in time.
pub(crate) fn ask_over(stream: &UnixStream, call: &Call) -> io::Result<Reply> {
    begin(stream, call)?;
    finish(stream, ANSWER_TIMEOUT)
}

/// Asks over a stream that carries several requests, of which this one takes `within`.
///
/// # Errors
/// Nobody is there, or does not answer in time.
pub(crate) fn ask_within(stream: &UnixStream, call: &Call, within: Duration) -> io::Result<Reply> {
    begin(stream, call)?;
    finish(stream, within)
}

/// Asks for something that comes with descriptors.
///
/// # Errors
/// Nobody is there, or does not answer in time.
pub(crate) fn ask_for_descriptors(
    stream: &UnixStream,
    call: &Call,
) -> io::Result<(Reply, Vec<OwnedFd>)> {
    begin(stream, call)?;
    stream.set_read_timeout(Some(STATUS_TIMEOUT))?;
    let (line, descriptors) = descriptors::receive(stream)?;
    Ok((read_reply(&line)?, descriptors))
}

/// Sends an answer with descriptors.
///
/// # Errors
/// The asker is gone, or does not take it.
pub(crate) fn reply_with(
    stream: &UnixStream,
    reply: Reply,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    stream.set_write_timeout(Some(ASKER_TIMEOUT))?;
    descriptors::send(stream, &write_reply(reply), descriptors)
}

/// The next request of a stream that carries several; `None` at its end.
///
/// # Errors
/// It does not come in time, or is none.
pub(crate) fn next_call(stream: &UnixStream, within: Duration) -> io::Result<Option<Call>> {
    let line = Lines::of(stream, REQUEST_BYTES_MAX).next(Some(within))?;
    let call = line.map(|line| read_call(&line)).transpose();
    call.map_err(|refusal| io::Error::new(ErrorKind::InvalidData, refusal.message.into_string()))
}

/// Asks the process behind `socket` to end; [`last_words`] has what it says when it does.
///
/// # Errors
/// Nobody is there.
pub(crate) fn ask_to_stop(socket: &Path) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(socket)?;
    begin(&stream, &Call::Stop)?;
    Ok(stream)
}

/// What a process that has ended said was lost.
pub(crate) fn last_words(stream: &UnixStream) -> Vec<String> {
    let reply = finish(stream, ASKER_TIMEOUT).ok().and_then(Result::ok);
    let lost = reply.and_then(|reply| serde_json::from_value(reply["lost"].clone()).ok());
    lost.unwrap_or_default()
}

fn begin(mut stream: &UnixStream, call: &Call) -> io::Result<()> {
    stream.set_write_timeout(Some(STATUS_TIMEOUT))?;
    stream.write_all(&write_call(call))
}

fn finish(stream: &UnixStream, within: Duration) -> io::Result<Reply> {
    let line = Lines::of(stream, ANSWER_BYTES_MAX).next(Some(within))?;
    Ok(read_reply(&line.ok_or(ErrorKind::UnexpectedEof)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::{Arc, Mutex};

    fn echo(call: Call, _: &UnixStream) -> Option<Reply> {
        Some(Ok(json!(call)))
    }

    #[test]
    fn requests_are_answered_to_this_user_only() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("s");
        serve(&socket, echo).unwrap();
        assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(ask(&socket, &Call::Status).unwrap(), Ok(json!({"method": "status"})));
        let _silent = UnixStream::connect(&socket).unwrap();
        assert!(ask(&socket, &Call::Reload).unwrap().is_ok(), "whoever says nothing is left");
    }

    #[test]
    fn nobody_is_held_up_and_nothing_grows() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("s");
        serve(&socket, echo).unwrap();
        let mut endless = UnixStream::connect(&socket).unwrap();
        let sent = (0..1000).take_while(|_| endless.write_all(&[b'x'; 4096]).is_ok()).count();
        assert!(sent < 1000, "no more is read than a request");
        for line in ["\n", "{}\n", "\0\u{7f}\n", "[1,2]\n", "{\"version\":1}\n"] {
            let mut stream = UnixStream::connect(&socket).unwrap();
            stream.write_all(line.as_bytes()).unwrap();
            let refused = finish(&stream, STATUS_TIMEOUT).unwrap().unwrap_err();
            assert_eq!(refused.why, Why::Request, "{line:?}");
        }
        // A request that comes octet by octet has its time, not one for each.
        let slow = UnixStream::connect(&socket).unwrap();
        let dripping = thread::spawn(move || {
            let drips = (0..200).take_while(|_| {
                thread::sleep(Duration::from_millis(50));
                (&slow).write_all(b" ").is_ok()
            });
            drips.count()
        });
        assert!(ask(&socket, &Call::Reload).unwrap().is_ok());
        assert!(dripping.join().unwrap() < 200);
    }

    #[test]
    fn a_stream_carries_several_requests() {
        let (here, there) = UnixStream::pair().unwrap();
        let serving = thread::spawn(move || serve_stream(&there, echo));
        for call in [Call::Status, Call::Snapshot, Call::Status] {
            assert_eq!(ask_over(&here, &call).unwrap(), Ok(json!(call)));
        }
        drop(here);
        serving.join().unwrap().unwrap();
    }

    #[test]
    fn the_answer_to_stop_comes_at_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("s");
        let kept = Arc::new(Mutex::new(Vec::new()));
        let askers = kept.clone();
        serve(&socket, move |_: Call, asker: &UnixStream| {
            askers.lock().unwrap().push(asker.try_clone().unwrap());
            None
        })
        .unwrap();
        let [first, second] = [0, 1].map(|_| ask_to_stop(&socket).unwrap());
        for _ in 0..1000 {
            if kept.lock().unwrap().len() == 2 {
                break;
            }
            thread::sleep(Duration::from_millis(2));
        }
        let asker = kept.lock().unwrap().remove(0);
        reply_to(&asker, Ok(json!({"lost": ["all", "more"]}))).unwrap();
        kept.lock().unwrap().clear(); // the process is over
        assert_eq!(last_words(&first), ["all", "more"]);
        assert_eq!(last_words(&second), [] as [String; 0]);
    }
}

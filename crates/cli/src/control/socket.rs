//! Requests to the control socket of a process, and replies that come later.

use super::{Call, ControlRefusal, ControlReply, descriptors};
use roadtrain_manage::rpc::client;
use roadtrain_manage::rpc::message::{KeptRequest, reply_line};
use serde::Deserialize;
use serde_json::Value;
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Longest request after the first one of a stream.
const REQUEST_BYTES_MAX: u64 = 256 << 10;
/// Time limit for the peer to take a reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(1);
/// Time limit of a reply: files are made, opened and grown.
const TIMEOUT: Duration = Duration::from_secs(90);
/// Time limit of the reply to a status request, which takes no time.
const STATUS_TIMEOUT: Duration = Duration::from_secs(4);

/// Sends a call to the process of `owner` behind `socket`, and returns its reply. A socket in another user's directory
/// may lead to any process, so the peer's user is checked.
///
/// # Errors
/// No process replies in time, or it belongs to another user.
pub(crate) fn call_user(socket: &Path, owner: u32, call: &Call) -> io::Result<ControlReply> {
    let stream = UnixStream::connect(socket)?;
    let found = rustix::net::sockopt::socket_peercred(&stream)?.uid.as_raw();
    if found != owner {
        let text = format!("user {found} listens at {}, not user {owner}", socket.display());
        return Err(io::Error::new(ErrorKind::PermissionDenied, text));
    }
    let within = if *call == Call::Status { STATUS_TIMEOUT } else { TIMEOUT };
    call_over(&stream, call, within)
}

/// Calls over a stream that carries several requests.
///
/// # Errors
/// No reply comes within that time.
pub(crate) fn call_over(
    stream: &UnixStream,
    call: &Call,
    within: Duration,
) -> io::Result<ControlReply> {
    begin(stream, call)?;
    Ok(client::receive(stream, within)?.map_err(ControlRefusal::from))
}

/// Sends a call whose reply comes with descriptors.
///
/// # Errors
/// No reply comes in time.
pub(crate) fn call_for_descriptors(
    stream: &UnixStream,
    call: &Call,
) -> io::Result<(ControlReply, Vec<OwnedFd>)> {
    begin(stream, call)?;
    stream.set_read_timeout(Some(STATUS_TIMEOUT))?;
    let (line, descriptors) = descriptors::receive(stream)?;
    Ok((client::reply(&line)?.map_err(ControlRefusal::from), descriptors))
}

/// Requests the end of the process behind `socket`; [`losses`] waits for its reply.
///
/// # Errors
/// No process listens there.
pub(crate) fn request_stop(socket: &Path) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(socket)?;
    begin(&stream, &Call::Stop)?;
    Ok(stream)
}

/// Returns the losses that a process reports at its end.
pub(crate) fn losses(stream: &UnixStream) -> Vec<String> {
    let reply = client::receive(stream, REPLY_TIMEOUT).ok().and_then(Result::ok);
    let lost = reply.and_then(|reply| serde_json::from_value(reply["lost"].clone()).ok());
    lost.unwrap_or_default()
}

fn begin(stream: &UnixStream, call: &Call) -> io::Result<()> {
    let (method, params) = call.request();
    client::send(stream, STATUS_TIMEOUT, &method, &params)
}

/// A request whose reply comes later, and its stream.
#[derive(Debug)]
pub(crate) struct PendingReply {
    pub(crate) stream: UnixStream,
    id: Value,
}

impl PendingReply {
    pub(crate) fn new(request: KeptRequest, stream: UnixStream) -> PendingReply {
        PendingReply { stream, id: request.id }
    }

    /// Sends the reply.
    ///
    /// # Errors
    /// The caller is gone, or does not accept it.
    pub(crate) fn send(&self, reply: ControlReply) -> io::Result<()> {
        self.stream.set_write_timeout(Some(REPLY_TIMEOUT))?;
        (&self.stream).write_all(self.line(reply).as_bytes())
    }

    /// Sends the reply with descriptors.
    ///
    /// # Errors
    /// The caller is gone, or does not accept it.
    pub(crate) fn send_with(&self, reply: ControlReply, with: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.stream.set_write_timeout(Some(REPLY_TIMEOUT))?;
        descriptors::send(&self.stream, self.line(reply).as_bytes(), with)
    }

    /// Receives the next request of the stream, which the next reply is for; `None` at its end.
    ///
    /// # Errors
    /// It does not come in time, or is invalid.
    pub(crate) fn next_call(&mut self, within: Duration) -> io::Result<Option<Call>> {
        #[derive(Deserialize)]
        struct NextRequest {
            method: String,
            #[serde(default)]
            params: Value,
            id: Value,
        }
        self.stream.set_read_timeout(Some(within))?;
        let mut line = String::new();
        let mut stream = BufReader::new(io::Read::take(&self.stream, REQUEST_BYTES_MAX));
        if stream.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let NextRequest { method, params, id } = serde_json::from_str(&line)?;
        self.id = id;
        let invalid = |refusal: ControlRefusal| {
            io::Error::new(ErrorKind::InvalidData, refusal.message.into_string())
        };
        Call::read(&method, params).map(Some).map_err(invalid)
    }

    fn line(&self, reply: ControlReply) -> String {
        reply_line(&self.id, reply.map_err(Into::into))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::RefusalReason;
    use serde_json::json;
    use std::thread;

    fn pending(stream: UnixStream) -> PendingReply {
        PendingReply::new(KeptRequest { method: String::new(), id: json!(1) }, stream)
    }

    #[test]
    fn a_stream_carries_several_requests() {
        let (here, there) = UnixStream::pair().unwrap();
        let serving = thread::spawn(move || {
            let mut pending = pending(there);
            while let Some(call) = pending.next_call(TIMEOUT).unwrap() {
                let is_refused = call == Call::Reload;
                let refusal = ControlRefusal::new(RefusalReason::Exists, "it is there");
                pending.send(if is_refused { Err(refusal) } else { Ok(json!(call)) }).unwrap();
            }
        });
        for call in [Call::Status, Call::Snapshot, Call::Serving] {
            assert_eq!(call_over(&here, &call, TIMEOUT).unwrap(), Ok(json!(call)));
        }
        let refused = call_over(&here, &Call::Reload, TIMEOUT).unwrap().unwrap_err();
        assert_eq!(refused, ControlRefusal::new(RefusalReason::Exists, "it is there"));
        drop(here);
        serving.join().unwrap();
    }

    #[test]
    fn an_invalid_request_after_the_first_is_an_error() {
        for text in ["\n", "{}\n", "{\"method\":\"roadtrain_eat\",\"id\":1}\n", "\u{1}\n"] {
            let (mut here, there) = UnixStream::pair().unwrap();
            here.write_all(text.as_bytes()).unwrap();
            assert!(pending(there).next_call(TIMEOUT).is_err(), "{text:?}");
        }
    }

    #[test]
    fn the_reply_to_stop_comes_at_the_end() {
        let (here, there) = UnixStream::pair().unwrap();
        begin(&here, &Call::Stop).unwrap();
        pending(there).send(Ok(json!({"lost": ["all", "more"]}))).unwrap();
        assert_eq!(losses(&here), ["all", "more"]);
        let (here, _) = UnixStream::pair().unwrap();
        assert_eq!(losses(&here), [] as [String; 0]);
    }
}

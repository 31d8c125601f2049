//! The Unix socket. A process that may open it has all rights of management.

use super::caller::{Caller, CallerAccess, MethodTable};
use super::framing::RequestFramer;
use super::message::{self, Answered, KeptRequest};
use crate::bursts::Weight;
use rustix::fs::{FlockOperation, Mode, fchmod, flock};
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::os::unix::net::UnixListener as Socket;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::warn;

/// Most connections at once.
const CONNECTIONS_MAX: usize = 64;
/// Timeout for the rest of a request, and for writing a reply.
const PATIENCE: Duration = Duration::from_secs(30);
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;
/// Pause after a connection that could not be accepted.
const PAUSE: Duration = Duration::from_millis(50);

/// Server at a socket, until it is dropped.
pub struct UnixServer {
    /// The socket's path, if this process removes it at the end.
    path: Option<PathBuf>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    /// Lock that keeps other processes from the path.
    _lock: Option<File>,
}

/// Methods and the rights of all callers of a socket.
#[derive(Clone)]
struct UnixRpcEndpoint {
    table: Arc<dyn MethodTable>,
    access: CallerAccess,
}

impl UnixServer {
    /// Listens at `path`, with a socket for this user only, for clients.
    ///
    /// # Errors
    /// Another process listens there, or the socket cannot be created.
    pub fn start(path: &Path, table: Arc<dyn MethodTable>) -> io::Result<UnixServer> {
        let lock = lock(path)?;
        let is_socket = |metadata: fs::Metadata| metadata.file_type().is_socket();
        match fs::symlink_metadata(path) {
            Ok(metadata) if is_socket(metadata.clone()) => fs::remove_file(path)?,
            Ok(_) => return Err(io::Error::other("there is something else than a socket")),
            Err(_) => {}
        }
        let endpoint = UnixRpcEndpoint { table, access: CallerAccess::Client };
        let mut server = UnixServer::spawn(bind(path)?, endpoint)?;
        (server.path, server._lock) = (Some(path.into()), Some(lock));
        Ok(server)
    }

    /// Listens at `path` in a private folder of this process, for its own user. The socket stays there at the end.
    ///
    /// # Errors
    /// The socket cannot be created.
    pub fn start_control(path: &Path, table: Arc<dyn MethodTable>) -> io::Result<UnixServer> {
        UnixServer::spawn(bind(path)?, UnixRpcEndpoint { table, access: CallerAccess::Owner })
    }

    fn spawn(socket: Socket, endpoint: UnixRpcEndpoint) -> io::Result<UnixServer> {
        socket.set_nonblocking(true)?;
        let runtime = runtime(CONNECTIONS_MAX)?;
        let (stop, stopped) = oneshot::channel();
        let thread = Builder::new().name("roadtrain-rpc".into()).spawn(move || {
            let served = runtime.block_on(serve(socket, endpoint, stopped));
            served.unwrap_or_else(|error| warn!("RPC: {error}"));
            runtime.shutdown_background();
        })?;
        Ok(UnixServer { path: None, stop: Some(stop), thread: Some(thread), _lock: None })
    }
}

fn runtime(blocking_threads: usize) -> io::Result<runtime::Runtime> {
    runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(blocking_threads)
        .thread_keep_alive(Duration::from_secs(1))
        .build()
}

/// Serves the requests of one stream, with the rights of the owner, until its end.
///
/// # Errors
/// The stream cannot be used.
pub fn serve_stream(
    stream: std::os::unix::net::UnixStream,
    table: Arc<dyn MethodTable>,
) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    let endpoint = UnixRpcEndpoint { table, access: CallerAccess::Owner };
    runtime(1)?.block_on(async {
        let stream = UnixStream::from_std(stream)?;
        let peer = peer_of(&stream);
        connection(stream, &endpoint, peer).await;
        Ok(())
    })
}

impl Drop for UnixServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        if let Some(path) = &self.path {
            let _ = fs::remove_file(path);
        }
    }
}

/// Takes the same lock as SPDK, so that neither removes the other's socket.
fn lock(path: &Path) -> io::Result<File> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(false).mode(0o600).open(&name)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)
        .map_err(|_| io::Error::new(io::ErrorKind::AddrInUse, "another process answers there"))?;
    Ok(file)
}

/// Binds a socket that never has another mode than 0600: Linux gives the file the mode of the socket.
fn bind(path: &Path) -> io::Result<Socket> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let new = PathBuf::from(name);
    let _ = fs::remove_file(&new);
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    net::bind(&socket, &SocketAddrUnix::new(&new)?)?;
    net::listen(&socket, BACKLOG)?;
    fs::rename(&new, path)?;
    Ok(socket.into())
}

/// Serves until `stopped` is dropped.
async fn serve(
    socket: Socket,
    endpoint: UnixRpcEndpoint,
    mut stopped: oneshot::Receiver<()>,
) -> io::Result<()> {
    let listener = UnixListener::from_std(socket)?;
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = &mut stopped => return Ok(()),
        };
        let caller = |peer| endpoint.caller(peer);
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                let what = "a failure of accept";
                caller("the socket").log(Weight::Warning, what, &error.to_string());
                tokio::time::sleep(PAUSE).await; // out of descriptors, perhaps
                continue;
            }
        };
        let peer = peer_of(&stream);
        let Ok(place) = places.clone().try_acquire_owned() else {
            let detail = format!("{CONNECTIONS_MAX} are open");
            caller(&peer).log(Weight::Warning, "too many connections", &detail);
            continue;
        };
        let endpoint = endpoint.clone();
        tokio::spawn(async move {
            connection(stream, &endpoint, peer).await;
            drop(place);
        });
    }
}

/// Returns the peer's process and user, for the log.
fn peer_of(stream: &UnixStream) -> Arc<str> {
    let who = stream.peer_cred().map(|who| match who.pid() {
        Some(pid) => format!("process {pid} of user {}", who.uid()),
        None => format!("user {}", who.uid()),
    });
    who.unwrap_or_else(|_| "the socket".into()).into()
}

/// Serves requests one after the other, until the stream ends.
async fn connection(mut stream: UnixStream, endpoint: &UnixRpcEndpoint, peer: Arc<str>) {
    let caller = endpoint.caller(&peer);
    let log = |what: &str, detail: String| caller.log(Weight::Info, what, &detail);
    let mut framer = RequestFramer::default();
    let mut piece = vec![0; 16 << 10];
    let mut until = None;
    loop {
        let answered = match framer.take() {
            Ok(None) => {
                let read = stream.read(&mut piece);
                until = framer.is_within().then(|| until.unwrap_or(Instant::now() + PATIENCE));
                let read = match until {
                    Some(until) => timeout_at(until, read).await,
                    None => Ok(read.await),
                };
                match read {
                    Ok(Ok(0) | Err(_)) => return,
                    Ok(Ok(count)) => framer.feed(&piece[..count]),
                    Err(_) => {
                        let seen = framer.seen().len();
                        let detail = format!("{seen} bytes of it arrived within {PATIENCE:?}");
                        return log("an incomplete request", detail);
                    }
                }
                continue;
            }
            Ok(Some(request)) => {
                until = None;
                let (endpoint, peer) = (endpoint.clone(), peer.clone());
                let answer = move || message::answer(&request, &endpoint.caller(&peer));
                let Ok(answered) = spawn_blocking(answer).await else { return };
                answered
            }
            Err(unframed) => message::broken(unframed, framer.seen(), &caller),
        };
        let Answered { text, is_broken, kept } = answered;
        if let Some(request) = kept {
            return keep(stream, endpoint, request);
        }
        if let Some(text) = text {
            match timeout(PATIENCE, stream.write_all(text.as_bytes())).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return,
                Err(_) => {
                    let detail = format!("{} bytes of it in {PATIENCE:?}", text.len());
                    return log("an unread reply", detail);
                }
            }
        }
        if is_broken {
            let _ = stream.shutdown().await;
            return;
        }
    }
}

/// Hands the stream over to a method that replies later.
fn keep(stream: UnixStream, endpoint: &UnixRpcEndpoint, request: KeptRequest) {
    let stream = stream.into_std();
    match stream.and_then(|stream| stream.set_nonblocking(false).map(|()| stream)) {
        Ok(stream) => endpoint.table.keep(request, stream),
        Err(error) => warn!("RPC: {}: {error}", request.method),
    }
}

impl UnixRpcEndpoint {
    fn caller<'a>(&'a self, peer: &'a str) -> Caller<'a> {
        Caller { table: &*self.table, access: self.access, peer }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    /// The kernel applies the mode of the socket when it creates the file, whatever the umask.
    #[test]
    fn the_socket_comes_with_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let (path, new) = (folder.path().join("rpc.sock"), folder.path().join("rpc.sock.new"));
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
        let socket = socket.unwrap();
        fchmod(&socket, Mode::RUSR | Mode::WUSR).unwrap();
        net::bind(&socket, &SocketAddrUnix::new(&new).unwrap()).unwrap();
        assert_eq!(fs::metadata(&new).unwrap().mode() & 0o777, 0o600, "this kernel does so");
        let bound = bind(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        std::os::unix::net::UnixStream::connect(&path).unwrap();
        assert!(!new.exists());
        bound.accept().unwrap();
    }
}

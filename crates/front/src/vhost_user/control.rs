//! Control thread: waits for frontends, one at a time, and handles their messages.

use super::channel::BackendChannel;
use super::session::{SessionContext, VhostSession};
use crate::disk::NamespaceWatch;
use crate::nbd::FrontListener;
use roadtrain_system::clock;
use roadtrain_system::mailbox::WakeEvent;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, ErrorKind};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tracing::{debug, info, warn};
use vhost::vhost_user::{BackendReqHandler, Error};

/// Interval of checks of the namespace.
const CHECK_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000_000 };
/// Longest wait for the rest of a frontend's message.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(5);

/// Stop signal of a control thread.
pub(crate) struct ControlStop {
    event: WakeEvent,
    requested: AtomicBool,
    /// Connection of the current frontend, perhaps in the middle of a message.
    stream: Mutex<Option<UnixStream>>,
}

impl ControlStop {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(ControlStop {
            event: WakeEvent::new()?,
            requested: AtomicBool::new(false),
            stream: Mutex::default(),
        })
    }

    /// Requests the thread to end.
    pub(crate) fn request(&self) {
        self.requested.store(true, Ordering::Release);
        self.event.wake();
        if let Some(stream) = &*self.stream() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn stream(&self) -> MutexGuard<'_, Option<UnixStream>> {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_requested(&self) -> bool {
        self.requested.load(Ordering::Acquire)
    }
}

/// State of the control thread.
pub(crate) struct ControlLoop {
    pub(crate) listener: FrontListener,
    pub(crate) wiring: SessionContext,
    pub(crate) watch: NamespaceWatch,
    pub(crate) stop: Arc<ControlStop>,
}

type SharedSession = Arc<Mutex<VhostSession>>;

impl ControlLoop {
    /// Runs until a stop is requested.
    pub(crate) fn run(mut self) {
        while let Some(ready) = self.wait(self.listener.as_fd()) {
            self.check(&None);
            if !ready {
                continue;
            }
            match self.listener.accept() {
                Ok(None) => {}
                Ok(Some((socket, _))) => {
                    info!("vhost-user: a frontend connects");
                    match self.serve(UnixStream::from(std::os::fd::OwnedFd::from(socket))) {
                        Ok(()) => info!("vhost-user: the frontend is gone"),
                        Err(error) => warn!("vhost-user: the frontend is sent away: {error}"),
                    }
                }
                Err(error) => {
                    warn!(%error, "cannot accept a vhost-user frontend");
                    std::thread::sleep(Duration::from_millis(100));
                }
            }
        }
    }

    /// Waits until `fd` is readable, not too long. Returns `None` if the thread is to end.
    fn wait(&self, fd: BorrowedFd<'_>) -> Option<bool> {
        let stop = self.stop.event.as_fd();
        let mut polled = [
            PollFd::from_borrowed_fd(fd, PollFlags::IN),
            PollFd::from_borrowed_fd(stop, PollFlags::IN),
        ];
        // Errors (a signal, no memory) show in the next check.
        let _ = poll(&mut polled, Some(&CHECK_INTERVAL));
        (!self.stop.is_requested()).then(|| !polled[0].revents().is_empty())
    }

    /// Checks the namespace, and notifies the frontend if it has changed.
    fn check(&mut self, channel: &Option<BackendChannel>) {
        if !self.watch.check_if_due(clock::now(), &self.wiring.disk) {
            return;
        }
        let bytes = self.wiring.disk.bytes();
        info!(
            bytes,
            removed = self.wiring.disk.is_removed(),
            "vhost-user: the namespace has changed"
        );
        if let Some(Err(error)) = channel.as_ref().map(BackendChannel::config_changed) {
            warn!(%error, "vhost-user: cannot notify the frontend of a changed namespace");
        }
    }

    fn serve(&mut self, stream: UnixStream) -> Result<(), Error> {
        let session: SharedSession = Arc::new(Mutex::new(VhostSession::new(self.wiring.clone())));
        let served = self.handle_messages(stream, &session);
        *self.stop.stream() = None;
        session.lock().unwrap_or_else(PoisonError::into_inner).end();
        match served {
            Err(Error::Disconnected) => Ok(()),
            // The connection ended in the middle of a message.
            Err(Error::SocketBroken(error)) if error.kind() == ErrorKind::ConnectionReset => Ok(()),
            served => served,
        }
    }

    fn handle_messages(
        &mut self,
        stream: UnixStream,
        session: &SharedSession,
    ) -> Result<(), Error> {
        let limits = || {
            stream.set_nonblocking(false)?;
            stream.set_read_timeout(Some(MESSAGE_TIMEOUT))?;
            stream.set_write_timeout(Some(MESSAGE_TIMEOUT))?;
            stream.try_clone()
        };
        let stream_too = limits().map_err(Error::SocketError)?;
        *self.stop.stream() = Some(stream.try_clone().map_err(Error::SocketError)?);
        let mut handler = BackendReqHandler::from_stream(stream_too, session.clone());
        let mut channel = None;
        while let Some(ready) = self.wait(stream.as_fd()) {
            self.check(&channel);
            if !ready {
                continue;
            }
            let takes = session.lock().unwrap_or_else(PoisonError::into_inner).takes_channel();
            if takes
                && let Some(new) = BackendChannel::receive(&stream).map_err(Error::SocketError)?
            {
                debug!("vhost-user: the frontend has a channel for notifications");
                channel = Some(new);
                continue;
            }
            handler.handle_request()?;
        }
        Ok(())
    }
}

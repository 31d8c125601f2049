//! Interface for other carriers of frames: a program that embeds the engine may provide a medium of its own, for names
//! of "interfaces" that the medium knows.

use super::frame::{FlushResult, FrameShape};
pub use super::packet::outgoing::OutgoingFrames;
use roadtrain_wire::ether::MacAddress;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::OnceLock;

/// Carries the frames of one port.
pub trait Medium: Send {
    /// Returns a descriptor that is readable while a frame waits.
    fn fd(&self) -> BorrowedFd<'_>;
    /// Returns the number of frames that may arrive before the oldest is taken.
    fn ring_frames(&self) -> usize;
    /// Sends all frames that were built, or drops them.
    ///
    /// # Errors
    /// Fails if the medium is not usable any more.
    fn flush(&mut self, frames: &mut OutgoingFrames) -> io::Result<FlushResult>;
    /// Passes up to `max` received frames to `show`, each from Ethernet's header on; returns their number.
    fn receive(&mut self, max: usize, show: &mut dyn FnMut(&[u8])) -> usize;
}

/// An open medium, with the properties that a port needs.
pub struct OpenedMedium {
    /// The medium.
    pub medium: Box<dyn Medium>,
    /// Source address of its frames.
    pub mac: MacAddress,
    /// Most bytes of a frame behind Ethernet's header.
    pub mtu: usize,
}

/// Opens a medium for frames with a socket number; returns `None` if the name is not one of its own. The error
/// [`io::ErrorKind::AddrInUse`] means that another socket number may work.
pub type MediumOpener = fn(name: &str, socket_number: u16) -> Option<io::Result<OpenedMedium>>;

static OPEN: OnceLock<MediumOpener> = OnceLock::new();

/// Makes all ports of this process try `open` first. Only the first call has an effect.
#[inline]
pub fn provide(open: MediumOpener) {
    let _ = OPEN.set(open);
}

/// A port's medium, and the frames that wait for it.
pub(super) struct MediumPort {
    pub(super) outgoing: OutgoingFrames,
    medium: Box<dyn Medium>,
}

impl MediumPort {
    pub(super) fn new(medium: Box<dyn Medium>, shape: FrameShape) -> Self {
        MediumPort { outgoing: OutgoingFrames::new(shape), medium }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.medium.fd()
    }

    pub(super) fn ring_frames(&self) -> usize {
        self.medium.ring_frames()
    }

    #[expect(clippy::unused_self, reason = "like the other backends")]
    pub(super) fn take_error(&self) -> Option<io::Error> {
        None
    }

    #[expect(clippy::unused_self, reason = "like the other backends")]
    pub(super) fn dropped(&self) -> u64 {
        0
    }

    pub(super) fn flush(&mut self) -> io::Result<FlushResult> {
        self.medium.flush(&mut self.outgoing)
    }

    pub(super) fn receive(&mut self, max: usize, show: &mut impl FnMut(&[u8])) -> usize {
        self.medium.receive(max, show)
    }
}

/// Opens the medium of that name, if there is one.
pub(super) fn open(name: &str, socket_number: u16) -> Option<io::Result<OpenedMedium>> {
    OPEN.get()?(name, socket_number)
}

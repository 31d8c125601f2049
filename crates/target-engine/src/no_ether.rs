//! In the place of `ether` where the program is built without Ethernet: what other modules name of it. Types that
//! have no values say that there is nothing of that kind.

use super::ServerError;

/// No target listens for frames.
#[derive(Clone, Debug)]
pub enum EtherConfig {}

impl EtherConfig {
    /// Names where lanes come in.
    #[must_use]
    pub fn interfaces(&self) -> &[String] {
        match *self {}
    }
}

#[derive(Default)]
pub(super) struct EtherPorts;

impl EtherPorts {
    pub(super) fn open(_: Option<&EtherConfig>, _: usize) -> Result<EtherPorts, ServerError> {
        Ok(EtherPorts)
    }

    pub(super) fn frame_listeners(&self) -> Vec<roadtrain_target_proto::FrameListener> {
        Vec::new()
    }

    pub(super) fn take(&mut self, _: usize) -> EtherParts {
        EtherParts
    }
}

pub(super) struct EtherParts;
pub(super) enum Port {}
pub(super) enum Request {}

#[derive(Clone, Copy, Default)]
pub(super) struct Drops {}

impl Drops {
    pub(super) fn by_reason(&self) -> impl Iterator<Item = (&'static str, u64)> {
        std::iter::empty()
    }
}

impl std::ops::Add for Drops {
    type Output = Drops;
    fn add(self, _: Drops) -> Drops {
        Drops {}
    }
}

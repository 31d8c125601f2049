//! What a host asks of the reactor that has its lane, or is to have it.

use roadtrain_ether_proto::setup::Inquiry;
use roadtrain_wire::ether::setup::Join;
use roadtrain_wire::ether::{FrameHeader, MacAddress};
use std::sync::Arc;

/// Somebody wants a lane, or another link for one.
#[derive(Clone, Debug)]
pub(crate) struct JoinRequest {
    /// Which port it came to, and from where.
    pub(crate) port: usize,
    pub(crate) source: MacAddress,
    /// Its header: TOKEN is the lane's, or zero.
    pub(crate) header: FrameHeader,
    pub(crate) join: Join,
    pub(crate) nqn: Arc<str>,
}

/// Somebody asks for, or ends, a lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueryRequest {
    pub(crate) port: usize,
    pub(crate) source: MacAddress,
    pub(crate) header: FrameHeader,
    pub(crate) inquiry: Inquiry,
}

/// What is for the reactor that has the lane: the one that the host's token says.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    Join(Box<JoinRequest>),
    Query(QueryRequest),
}

impl Request {
    /// The host's token of the lane.
    pub(crate) fn host_token(&self) -> u64 {
        match self {
            Request::Join(join) => join.join.token.get(),
            Request::Query(query) => query.inquiry.host_token,
        }
    }
}

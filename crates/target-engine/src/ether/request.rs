//! Requests of a host to the reactor that has its lane, or shall have it.

use roadtrain_ether_proto::setup::Inquiry;
use roadtrain_wire::ether::setup::JoinBody;
use roadtrain_wire::ether::{FrameHeader, MacAddress};
use std::sync::Arc;

/// Request for a lane, or for another link of a lane.
#[derive(Clone, Debug)]
pub(crate) struct JoinRequest {
    /// Index of the port that received the request.
    pub(crate) port: usize,
    pub(crate) source: MacAddress,
    /// Header of the frame. TOKEN is the token of the lane, or zero.
    pub(crate) header: FrameHeader,
    pub(crate) join: JoinBody,
    pub(crate) nqn: Arc<str>,
}

/// Query or Leave for a lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueryRequest {
    pub(crate) port: usize,
    pub(crate) source: MacAddress,
    pub(crate) header: FrameHeader,
    pub(crate) inquiry: Inquiry,
}

/// Request for the reactor that has the lane, chosen by the host's token.
#[derive(Clone, Debug)]
pub(crate) enum LaneSetupRequest {
    Join(Box<JoinRequest>),
    Query(QueryRequest),
}

impl LaneSetupRequest {
    /// Returns the host's token of the lane.
    pub(crate) fn host_token(&self) -> u64 {
        match self {
            LaneSetupRequest::Join(join) => join.join.token.get(),
            LaneSetupRequest::Query(query) => query.inquiry.host_token,
        }
    }
}

//! Counters of reactors and queues.

use super::framework::{TICK_RATE, group_name};
use super::nvmf::DISCOVERY;
use super::place;
use super::transport::check_target;
use super::{Method, MethodParams, params_of, query};
use crate::rpc::{ManagerSession, Rpc, RpcError};
use roadtrain_reactor::metrics::AuthSample;
use serde::Deserialize;
use serde_json::{Value, json};
use std::net::SocketAddr;

pub(super) const METHODS: &[Method] = &[
    query("nvmf_get_stats", "What each reactor has done.", stats),
    query("nvmf_subsystem_get_qpairs", "Queues of a subsystem's hosts.", qpairs),
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GetStatsParams {
    tgt_name: Option<String>,
}

fn stats(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    let GetStatsParams { tgt_name } = params_of(&params)?;
    check_target(tgt_name.as_deref())?;
    let server = manager.server();
    let seen = server.snapshot();
    let groups = seen.reactors.iter().map(|reactor| {
        let own = seen.lanes.iter().filter(|lane| lane.reactor == reactor.reactor && lane.qid > 0);
        let (io, in_flight) = own.fold((0_u64, 0_i64), |(io, sum), lane| (io + 1, sum + lane.io.in_flight));
        let admin = reactor.lane_count.saturating_sub(io);
        json!({
            "name": group_name(reactor.reactor), "admin_qpairs": admin, "io_qpairs": io,
            "current_admin_qpairs": admin, "current_io_qpairs": io, "current_unassociated_qpairs": 0,
            "pending_bdev_io": in_flight.max(0), "completed_nvme_io": reactor.batching.requests,
            "transports": [{"trtype": "TCP"}],
        })
    });
    let groups: Vec<Value> = groups.collect();
    Ok(json!({"tick_rate": TICK_RATE, "poll_groups": groups}))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GetQpairsParams {
    nqn: String,
    tgt_name: Option<String>,
}

fn qpairs(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    let GetQpairsParams { nqn, tgt_name } = params_of(&params)?;
    check_target(tgt_name.as_deref())?;
    let server = manager.server();
    let is_there = server.exports().subsystems.iter().any(|subsystem| subsystem.nqn == nqn);
    if !is_there && nqn != DISCOVERY {
        return Err(RpcError::params(format!("no subsystem {nqn}")));
    }
    let (queues, (_, controllers)) = (server.queues(), server.view());
    let own = queues.iter().filter(|lane| lane.nqn == nqn);
    let shown = own.map(|lane| {
        let local = controllers.iter().find(|controller| controller.cntlid == lane.cntlid);
        let mut shown = json!({
            "cntlid": lane.cntlid, "qid": lane.qid, "state": "enabled",
            "thread": group_name(lane.reactor), "hostnqn": lane.host_nqn,
        });
        if let Some(controller) = local {
            shown["listen_address"] = place::show(controller.local);
        }
        if let Ok(peer) = lane.peer.parse::<SocketAddr>() {
            shown["peer_address"] = place::show(peer);
        }
        if let Some(AuthSample { hash, dhgroup }) = &lane.auth {
            shown["auth"] = json!({"state": "completed", "digest": hash, "dhgroup": dhgroup});
        }
        shown
    });
    Ok(Value::Array(shown.collect()))
}

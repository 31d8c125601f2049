//! Referrals of the discovery log to other discovery controllers.

use super::nvmf::DISCOVERY;
use super::place::{self, Address};
use super::transport::check_target;
use super::{Method, MethodParams, change, none, params_of, query};
use crate::rpc::{ManagerSession, Rpc, RpcError};
use roadtrain_target_engine::ConfigOperation;
use serde::Deserialize;
use serde_json::{Value, json};
use std::net::SocketAddr;

pub(super) const METHODS: &[Method] = &[
    query("nvmf_discovery_get_referrals", "Other discovery controllers.", get),
    change("nvmf_discovery_add_referral", "Refers hosts to another discovery controller.", add),
    change("nvmf_discovery_remove_referral", "Refers hosts to it no more.", remove),
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReferralParams {
    address: Address,
    tgt_name: Option<String>,
    secure_channel: Option<bool>,
    subnqn: Option<String>,
}

impl ReferralParams {
    fn check(&self) -> Rpc<SocketAddr> {
        check_target(self.tgt_name.as_deref())?;
        if self.secure_channel == Some(true) {
            return Err(RpcError::params("no secure_channel of referrals here"));
        }
        if self.subnqn.as_deref().is_some_and(|nqn| nqn != DISCOVERY) {
            return Err(RpcError::params(format!("subnqn is {DISCOVERY} here")));
        }
        self.address.discovery()
    }
}

fn add(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    let address = params_of::<ReferralParams>(&params)?.check()?;
    manager.change(RpcError::internal, |model| {
        // Includes those of the configuration file.
        if manager.server().exports().referrals.contains(&address) {
            return Err(RpcError::internal(format!("referral {address} exists already")));
        }
        model.referrals.push(address.into());
        Ok(json!(true))
    })
}

fn remove(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    let address = params_of::<ReferralParams>(&params)?.check()?;
    let done = manager.change_with(RpcError::internal, |model, operations| {
        let at = model.referrals.iter().position(|one| SocketAddr::from(one) == address);
        match at {
            Some(at) => drop(model.referrals.remove(at)),
            // A referral of the configuration file.
            None if manager.server().exports().referrals.contains(&address) => {
                operations.push(ConfigOperation::RemoveReferral(address));
            }
            None => return Err(RpcError::new(-32603, "Unable to remove a referral.", address)),
        };
        Ok(json!(true))
    });
    done.map(|(result, _)| result)
}

fn get(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    if none(&params).is_err() {
        let GetReferralsParams { tgt_name } = params_of(&params)?;
        check_target(tgt_name.as_deref())?;
    }
    let exports = manager.server().exports();
    let shown = exports.referrals.iter().map(|address| {
        json!({"address": place::show(*address), "secure_channel": false, "subnqn": DISCOVERY})
    });
    Ok(shown.collect())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GetReferralsParams {
    tgt_name: Option<String>,
}

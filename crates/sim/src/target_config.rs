//! Exports of a simulated target at its start.

use crate::diffie_hellman;
use crate::plan::{NQN, Sabotage, SimPlan, host_nqn};
use roadtrain_proto::security::TlsHosts;
use roadtrain_proto::security::dhchap::{AuthOffer, DhGroup};
use roadtrain_proto::time::Instant;
use roadtrain_target_proto::{
    HostAuthentication, NamespaceConfig, NamespaceId, SubsystemConfig, TargetConfig,
    TargetControl as Control,
};

/// Returns the namespace that changes.
pub(crate) fn extra(blocks: u64, store: u8) -> NamespaceConfig {
    let id = Some(NamespaceId::of_store(store.into()));
    NamespaceConfig { id, ..NamespaceConfig::new(2, blocks, 9) }
}

/// Makes the control plane of a target that starts.
pub(crate) fn control(
    now: Instant,
    plan: &SimPlan,
    number: u8,
    (more_blocks, extra_blocks, extra_store): (u64, u64, u8),
    boot: u64,
) -> Control {
    let mut subsystem = SubsystemConfig::new(NQN);
    let write_verifier = Some(boot);
    let namespace = NamespaceConfig::new(1, plan.blocks + more_blocks, 9);
    subsystem.namespaces.push(NamespaceConfig { write_verifier, ..namespace });
    if extra_blocks > 0 {
        subsystem.namespaces.push(extra(extra_blocks, extra_store));
    }
    let keys = (0..=u8::MAX).map(|number| (host_nqn([number; 16]), plan.keys())).collect();
    // Each target reports a location of its own.
    let place = if plan.sabotage == Some(Sabotage::OnePlace) { 0 } else { number };
    let network = 1 + u128::from(place);
    let mut config =
        TargetConfig { subsystems: vec![subsystem], network, ..TargetConfig::default() };
    if plan.authenticates {
        let group = if plan.dh_compute_us > 0 { diffie_hellman::GROUP } else { DhGroup::Null };
        let offer = AuthOffer { groups: vec![group], ..AuthOffer::default() };
        config.authentication =
            HostAuthentication { required: true, offer, keys, ..Default::default() };
    }
    let mut control = Control::new(now, &config).expect("the configuration is valid");
    if plan.tls {
        let everywhere = (0..=u8::MAX).map(|number| host_nqn([number; 16])).collect();
        control.set_tls_hosts(TlsHosts { everywhere, ..TlsHosts::default() });
    }
    control
}

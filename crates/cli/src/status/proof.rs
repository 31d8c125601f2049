//! Proofs of identity that subsystems require from hosts.

use roadtrain_target_engine::TlsUse;
use roadtrain_target_proto::{SubsystemConfig, TargetConfig, TargetListener};

/// Proofs that a subsystem requires from each host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RequiredProof {
    /// A key for authentication.
    pub(super) auth: bool,
    /// A key for TLS.
    pub(super) tls: bool,
}

impl RequiredProof {
    /// Returns the proofs by the target's configuration. `has_ether`: the target listens on Ethernet, which has no TLS.
    pub(super) fn new(target: &TargetConfig, subsystem: &SubsystemConfig, has_ether: bool) -> Self {
        let (nqn, authentication) = (&subsystem.nqn, &target.authentication);
        let is_reached_at = |listener: &&TargetListener| match &subsystem.listeners {
            Some(named) => named.contains_key(&listener.address),
            None => !listener.named_only,
        };
        let mut listeners = target.listeners.iter().filter(is_reached_at).peekable();
        let is_reached_by_tcp = listeners.peek().is_some();
        let is_reached_by_ether = has_ether && subsystem.listeners.is_none();
        let is_secured = listeners.all(|listener| listener.tls == TlsUse::Required);
        RequiredProof {
            auth: authentication.required || authentication.required_at.contains(nqn),
            tls: authentication.tls_at.contains(nqn)
                || is_reached_by_tcp && is_secured && !is_reached_by_ether,
        }
    }

    /// Describes the hosts that may use the subsystem, if no host is named.
    pub(super) fn any_host(self) -> &'static str {
        match (self.tls, self.auth) {
            (false, false) => "any host",
            (true, false) => "any host with a TLS key",
            (false, true) => "any host that authenticates",
            (true, true) => "any host with a TLS key that authenticates",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roadtrain_target_engine::AnaState;

    const NQN: &str = "nqn.x:y";
    const AT: [&str; 2] = ["192.0.2.7:4420", "192.0.2.8:4420"];

    fn target(tls: [TlsUse; 2]) -> TargetConfig {
        let listener = |(address, tls): (&str, TlsUse)| TargetListener {
            portid: 1,
            address: address.parse().unwrap(),
            tls,
            named_only: false,
        };
        let listeners = AT.into_iter().zip(tls).map(listener).collect();
        TargetConfig { listeners, ..TargetConfig::default() }
    }

    fn any_host(target: &TargetConfig, has_ether: bool) -> &'static str {
        RequiredProof::new(target, &SubsystemConfig::new(NQN), has_ether).any_host()
    }

    #[test]
    fn any_host_is_one_that_can_prove_what_is_required() {
        use TlsUse::{Allowed, Off, Required};
        for (tls, has_ether, said) in [
            ([Off, Off], false, "any host"),
            ([Required, Allowed], false, "any host"),
            ([Required, Required], false, "any host with a TLS key"),
            ([Required, Required], true, "any host"),
        ] {
            assert_eq!(any_host(&target(tls), has_ether), said, "{tls:?} {has_ether}");
        }
        let mut config = target([Off, Off]);
        config.authentication.required_at.insert("nqn.x:other".into());
        assert_eq!(any_host(&config, true), "any host");
        config.authentication.required_at.insert(NQN.into());
        assert_eq!(any_host(&config, true), "any host that authenticates");
        config.authentication.tls_at.insert(NQN.into());
        assert_eq!(any_host(&config, true), "any host with a TLS key that authenticates");
        let mut config = target([Off, Off]);
        config.authentication.required = true;
        assert_eq!(any_host(&config, false), "any host that authenticates");
        assert_eq!(any_host(&TargetConfig::default(), false), "any host");
    }

    #[test]
    fn only_listeners_of_the_subsystem_count() {
        let mut target = target([TlsUse::Required, TlsUse::Off]);
        let mut subsystem = SubsystemConfig::new(NQN);
        let at = |address: &str| (address.parse().unwrap(), AnaState::Optimized);
        subsystem.listeners = Some([at(AT[0])].into());
        assert!(RequiredProof::new(&target, &subsystem, true).tls);
        subsystem.listeners = Some(AT.map(at).into());
        assert!(!RequiredProof::new(&target, &subsystem, false).tls);
        subsystem.listeners = None;
        target.listeners[1].named_only = true;
        assert!(RequiredProof::new(&target, &subsystem, false).tls);
    }
}

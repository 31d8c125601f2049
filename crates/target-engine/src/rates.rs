//! Rate limits of hosts, as lanes find them.

use roadtrain_target_proto::TargetConfig;
use roadtrain_target_proto::rate::{RateLimit, RateSettings};
use std::collections::HashMap;
use std::sync::Arc;

/// Rate limits by the NQNs of subsystem and host.
#[derive(Default)]
pub(super) struct HostLimits(HashMap<(String, String), (RateSettings, Arc<RateLimit>)>);

impl HostLimits {
    /// Applies a configuration. Unchanged limits keep their state.
    pub(super) fn follow(&mut self, config: &TargetConfig) {
        let mut before = std::mem::take(&mut self.0);
        for subsystem in &config.subsystems {
            for (host, rates) in &subsystem.host_rates {
                let key = (subsystem.nqn.clone(), host.clone());
                let limit = match before.remove(&key) {
                    Some((old, limit)) if old == *rates => limit,
                    _ => Arc::new(RateLimit::new(rates)),
                };
                self.0.insert(key, (*rates, limit));
            }
        }
    }

    /// Returns the limit of a host at a subsystem, if it has one.
    pub(super) fn get(&self, nqn: &str, host: &str) -> Option<Arc<RateLimit>> {
        if self.0.is_empty() {
            return None;
        }
        let (_, limit) = self.0.get(&(nqn.to_owned(), host.to_owned()))?;
        Some(limit.clone())
    }
}

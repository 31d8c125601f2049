//! When a lane sends, and how it waits.

use crate::units::{parse_size_u32, size_field};
use clap::{Args, ValueEnum};
use roadtrain_engine::spin::Waiting;
use roadtrain_proto::policy::PolicyConfig;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Batching policies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PolicyName {
    /// Send as soon as nothing more is ready.
    #[default]
    None,
    /// Wait for a full caravan or the doorbell's timer, whichever is first.
    I10,
}

/// When a lane sends.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[command(next_help_heading = "Batching")]
pub struct PolicyArgs {
    /// When to send.
    #[arg(long, value_name = "NAME", default_value = "none")]
    pub policy: PolicyName,
    /// Most requests in a caravan, i.e. in one send [default: i10: 16, none: 512].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub caravan_requests: Option<u32>,
    /// Most data in a caravan [default: i10: 64KiB, none: 4MiB].
    #[arg(long, value_name = "SIZE", value_parser = parse_size_u32)]
    #[serde(with = "size_field")]
    pub caravan_bytes: Option<u32>,
    /// Longest wait for company, in microseconds [default: i10: 50].
    #[arg(long, value_name = "US", value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    pub doorbell_delay_us: Option<u32>,
}

impl PolicyArgs {
    /// The policy with its defaults filled in.
    #[must_use]
    pub fn config(&self) -> PolicyConfig {
        let mut config = match self.policy {
            PolicyName::None => PolicyConfig::none(),
            PolicyName::I10 => PolicyConfig::i10(),
        };
        if let Some(requests) = self.caravan_requests {
            config.limits.count_max = requests;
        }
        if let Some(bytes) = self.caravan_bytes {
            config.limits.bytes_max = bytes;
        }
        if let Some(us) = self.doorbell_delay_us {
            config.doorbell_delay = Duration::from_micros(us.into());
        }
        config
    }
}

/// How a reactor waits for work.
#[derive(Args, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[command(next_help_heading = "Waiting")]
pub struct WaitArgs {
    /// Never sleep: shortest latency, burns every core used.
    #[arg(long, conflicts_with = "spin_us")]
    pub busy_poll: bool,
    /// Poll so many microseconds before sleeping, while that pays (20 is a good value).
    #[arg(long, value_name = "US", value_parser = clap::value_parser!(u32).range(..=100_000))]
    pub spin_us: Option<u32>,
}

impl WaitArgs {
    /// What the engine is told.
    #[must_use]
    pub fn waiting(&self) -> Waiting {
        match (self.busy_poll, self.spin_us) {
            (true, _) => Waiting::BusyPoll,
            (false, Some(us @ 1..)) => Waiting::Spin(Duration::from_micros(us.into())),
            _ => Waiting::Sleep,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roadtrain_proto::policy::PolicyKind;

    #[test]
    fn defaults_are_the_policy_s() {
        assert_eq!(PolicyArgs::default().config(), PolicyConfig::none());
        let i10 = PolicyArgs { policy: PolicyName::I10, ..PolicyArgs::default() };
        assert_eq!(i10.config(), PolicyConfig::i10());
    }

    #[test]
    fn settings_override_them() {
        let args = PolicyArgs {
            policy: PolicyName::I10,
            caravan_requests: Some(128),
            caravan_bytes: Some(512 << 10),
            doorbell_delay_us: Some(25),
        };
        let config = args.config();
        assert_eq!(config.kind, PolicyKind::I10);
        assert_eq!((config.limits.count_max, config.limits.bytes_max), (128, 512 << 10));
        assert_eq!(config.doorbell_delay, Duration::from_micros(25));
    }

    #[test]
    fn waiting_follows_the_flags() {
        let waits = |busy_poll, spin_us| WaitArgs { busy_poll, spin_us }.waiting();
        assert_eq!(waits(false, None), Waiting::Sleep);
        assert_eq!(waits(false, Some(0)), Waiting::Sleep);
        assert_eq!(waits(false, Some(20)), Waiting::Spin(Duration::from_micros(20)));
        assert_eq!(waits(true, None), Waiting::BusyPoll);
    }
}

//! Options of batching policies and of waiting.

use crate::units::{parse_caravan_bytes, parse_size_u32, size_field};
use clap::{Args, ValueEnum};
use roadtrain_proto::policy::{PinofSettings, PolicyConfig, PolicyKind, TycheSettings};
use roadtrain_reactor::waits::WaitPolicy;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Batching policies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyName {
    /// Send as soon as no more is ready.
    None,
    /// Wait for a full caravan or the doorbell's timer, whichever is first.
    I10,
    /// Commands and data in freights of their own, each with its size, degree and timer.
    Pinof,
    /// As `pinof` without priorities: both freights like i10's caravan.
    PinofFlat,
    /// A batch level found by hill-climbing.
    Tyche,
    /// Nothing to tune: a share of what is in flight, or all that is ready.
    #[default]
    Auto,
}

impl PolicyName {
    /// Returns the name on the command line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            PolicyName::None => "none",
            PolicyName::I10 => "i10",
            PolicyName::Pinof => "pinof",
            PolicyName::PinofFlat => "pinof-flat",
            PolicyName::Tyche => "tyche",
            PolicyName::Auto => "auto",
        }
    }
}

/// Batching policy with its options.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[command(next_help_heading = "Batching")]
pub struct PolicyArgs {
    /// When to send. Each has options of its own; those of others are refused.
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub policy: PolicyName,
    /// i10, none: most requests in a caravan, i.e. in one send [default: i10: 16, none: 512].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub caravan_requests: Option<u32>,
    /// i10, none: most data in a caravan [default: i10: 64KiB, none: 4MiB].
    #[arg(long, value_name = "SIZE", value_parser = parse_caravan_bytes)]
    #[serde(with = "size_field")]
    pub caravan_bytes: Option<u32>,
    /// i10: longest wait for company, in microseconds [default: 50].
    #[arg(long, value_name = "US", value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    pub doorbell_delay_us: Option<u32>,
    /// pinof's freights.
    #[command(flatten)]
    #[serde(flatten)]
    pub pinof: PinofArgs,
    /// tyche's hill-climb.
    #[command(flatten)]
    #[serde(flatten)]
    pub tyche: TycheArgs,
}

/// Freights of `pinof`.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PinofArgs {
    /// pinof: bytes of a freight of commands [default: pinof: 512, pinof-flat: 64KiB].
    #[arg(long, value_name = "SIZE", value_parser = parse_size_u32)]
    #[serde(with = "size_field")]
    pub cmd_bytes: Option<u32>,
    /// pinof: commands of a freight, an R2T counting 3 and a response 2, with pinof-flat 1 each [default: pinof: 8,
    /// pinof-flat: 16].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub cmd_degree: Option<u32>,
    /// pinof: longest wait of a command, in microseconds [default: pinof: 25, pinof-flat: 50].
    #[arg(long, value_name = "US", value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    pub cmd_delay_us: Option<u32>,
    /// pinof: bytes of a freight of data [default: 64KiB].
    #[arg(long, value_name = "SIZE", value_parser = parse_size_u32)]
    #[serde(with = "size_field")]
    pub data_bytes: Option<u32>,
    /// pinof: PDUs of a freight of data [default: 16].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub data_degree: Option<u32>,
    /// pinof: longest wait of data, in microseconds [default: 50].
    #[arg(long, value_name = "US", value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    pub data_delay_us: Option<u32>,
}

/// Hill-climb of `tyche`.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TycheArgs {
    /// tyche: always so many requests a batch, instead of adapting.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=512),
          conflicts_with_all = ["batch_level_max", "batch_interval_ms", "batch_gain_percent",
          "batch_probe_intervals"])]
    pub batch_level: Option<u32>,
    /// tyche: most requests of a batch [default: 64].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=512))]
    pub batch_level_max: Option<u32>,
    /// tyche: how often the level is reconsidered, in milliseconds [default: 1000].
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(1..=3_600_000))]
    pub batch_interval_ms: Option<u32>,
    /// tyche: longest wait of a batch's first request, in microseconds [default: 5000].
    #[arg(long, value_name = "US", value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    pub batch_delay_us: Option<u32>,
    /// tyche: change of throughput that counts, in percent [default: 3].
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(..=100))]
    pub batch_gain_percent: Option<u32>,
    /// tyche: unchanged intervals until the neighbouring levels are tried [default: 10].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub batch_probe_intervals: Option<u32>,
}

/// Sets `value` to the converted `given`, if that is given.
fn set<T>(value: &mut T, given: Option<u32>, convert: impl Fn(u32) -> T) {
    if let Some(given) = given {
        *value = convert(given);
    }
}

fn micros(us: u32) -> Duration {
    Duration::from_micros(us.into())
}

impl PinofArgs {
    fn apply(&self, settings: &mut PinofSettings) {
        set(&mut settings.cmd.bytes_max, self.cmd_bytes, |n| n);
        set(&mut settings.cmd.degree, self.cmd_degree, |n| n);
        set(&mut settings.cmd.delay, self.cmd_delay_us, micros);
        set(&mut settings.data.bytes_max, self.data_bytes, |n| n);
        set(&mut settings.data.degree, self.data_degree, |n| n);
        set(&mut settings.data.delay, self.data_delay_us, micros);
    }
}

impl TycheArgs {
    fn apply(&self, settings: &mut TycheSettings) {
        if let Some(level) = self.batch_level {
            *settings = TycheSettings { level_max: level, ..TycheSettings::fixed(level) };
        }
        set(&mut settings.level_max, self.batch_level_max, |n| n);
        let millis = |ms: u32| Duration::from_millis(ms.into());
        set(&mut settings.interval, self.batch_interval_ms, millis);
        set(&mut settings.delay, self.batch_delay_us, micros);
        set(&mut settings.gain_percent, self.batch_gain_percent, |n| n);
        set(&mut settings.probe_intervals, self.batch_probe_intervals, |n| n);
    }
}

impl PolicyArgs {
    /// Returns the same options for `policy`, without those of other policies.
    #[must_use]
    pub fn of(&self, policy: PolicyName) -> PolicyArgs {
        let mut args = PolicyArgs { policy, ..self.clone() };
        if !matches!(policy, PolicyName::None | PolicyName::I10) {
            (args.caravan_requests, args.caravan_bytes) = (None, None);
        }
        if policy != PolicyName::I10 {
            args.doorbell_delay_us = None;
        }
        if !matches!(policy, PolicyName::Pinof | PolicyName::PinofFlat) {
            args.pinof = PinofArgs::default();
        }
        if policy != PolicyName::Tyche {
            args.tyche = TycheArgs::default();
        }
        args
    }

    /// Checks that the policy, or that of the `other` end, has all options that are given.
    ///
    /// # Errors
    /// The first option without effect, the policies that have it, and what to do.
    pub fn check_options(&self, other: Option<PolicyName>) -> Result<(), String> {
        let means =
            |policy, option: &str| self.of(policy).options().any(|(name, _)| name == option);
        let ends = [Some(self.policy), other];
        let used = |option: &str| ends.iter().flatten().any(|&policy| means(policy, option));
        let Some((option, _)) = self.options().find(|(option, _)| !used(option)) else {
            return Ok(());
        };
        let owners = PolicyName::value_variants().iter().filter(|&&policy| means(policy, option));
        let owners = owners.map(|policy| policy.as_str()).collect::<Vec<_>>().join(" or ");
        let chosen = match other.filter(|&other| other != self.policy) {
            Some(other) => {
                format!("{} and --target-policy {}", self.policy.as_str(), other.as_str())
            }
            None => self.policy.as_str().to_owned(),
        };
        Err(format!(
            "{option} means nothing with --policy {chosen}: leave it out, or choose --policy {owners}"
        ))
    }

    /// Returns the policy with its defaults filled in.
    #[must_use]
    pub fn config(&self) -> PolicyConfig {
        self.of(self.policy).config_with_all()
    }

    fn config_with_all(&self) -> PolicyConfig {
        let mut config = match self.policy {
            PolicyName::None => PolicyConfig::none(),
            PolicyName::I10 => PolicyConfig::i10(),
            PolicyName::Pinof => PolicyConfig::of(PolicyKind::Pinof),
            PolicyName::PinofFlat => {
                PolicyConfig { pinof: PinofSettings::flat(), ..PolicyConfig::of(PolicyKind::Pinof) }
            }
            PolicyName::Tyche => PolicyConfig::of(PolicyKind::Tyche),
            PolicyName::Auto => PolicyConfig::auto(),
        };
        set(&mut config.limits.count_max, self.caravan_requests, |n| n);
        set(&mut config.limits.bytes_max, self.caravan_bytes, |n| n);
        set(&mut config.doorbell_delay, self.doorbell_delay_us, micros);
        self.pinof.apply(&mut config.pinof);
        self.tyche.apply(&mut config.tyche);
        config
    }

    /// Checks settings from a file as the command line would check them.
    ///
    /// # Errors
    /// The command line's message, with keys instead of options.
    pub fn check(&self) -> Result<(), String> {
        self.check_ranges().and_then(|()| self.check_options(None)).map_err(|text| as_keys(&text))
    }

    fn check_ranges(&self) -> Result<(), String> {
        let command = Self::augment_args(clap::Command::new("batching").no_binary_name(true));
        let checked = command.try_get_matches_from(self.words());
        checked.map(drop).map_err(|error| {
            let said = error.to_string();
            let first = said.lines().next().unwrap_or_default();
            first.trim_start_matches("error: ").to_owned()
        })
    }

    /// Returns equivalent command line options.
    #[must_use]
    pub fn words(&self) -> Vec<String> {
        let mut words = vec!["--policy".to_owned(), self.policy.as_str().to_owned()];
        words.extend(self.options().flat_map(|(option, n)| [option.to_owned(), n.to_string()]));
        words
    }

    /// Returns the options that are given, without the policy itself.
    fn options(&self) -> impl Iterator<Item = (&'static str, u32)> {
        let (pinof, tyche) = (&self.pinof, &self.tyche);
        let all = [
            ("--caravan-requests", self.caravan_requests),
            ("--caravan-bytes", self.caravan_bytes),
            ("--doorbell-delay-us", self.doorbell_delay_us),
            ("--cmd-bytes", pinof.cmd_bytes),
            ("--cmd-degree", pinof.cmd_degree),
            ("--cmd-delay-us", pinof.cmd_delay_us),
            ("--data-bytes", pinof.data_bytes),
            ("--data-degree", pinof.data_degree),
            ("--data-delay-us", pinof.data_delay_us),
            ("--batch-level", tyche.batch_level),
            ("--batch-level-max", tyche.batch_level_max),
            ("--batch-interval-ms", tyche.batch_interval_ms),
            ("--batch-delay-us", tyche.batch_delay_us),
            ("--batch-gain-percent", tyche.batch_gain_percent),
            ("--batch-probe-intervals", tyche.batch_probe_intervals),
        ];
        all.into_iter().filter_map(|(option, value)| Some((option, value?)))
    }
}

/// Turns a text about options into one about a file's keys: `--batch-level` becomes `batch_level`.
fn as_keys(text: &str) -> String {
    let mut parts = text.split("--");
    let mut keys = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(part.len());
        keys.extend([&part[..end].replace('-', "_"), &part[end..]]);
    }
    keys
}

/// How a reactor waits for work.
#[derive(Args, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[command(next_help_heading = "Waiting")]
pub struct WaitArgs {
    /// Never sleep: shortest latency, burns every core used.
    #[arg(long, conflicts_with_all = ["spin_us", "no_spin"])]
    pub busy_poll: bool,
    /// Poll so many microseconds before sleeping, while that pays [default: as long as it saves CPU time].
    #[arg(long, value_name = "US", value_parser = clap::value_parser!(u32).range(..=100_000),
        conflicts_with = "no_spin")]
    pub spin_us: Option<u32>,
    /// Sleep at once whenever there is nothing to do.
    #[arg(long)]
    pub no_spin: bool,
}

impl WaitArgs {
    /// Checks for a file that no two options exclude each other, as clap does on the command line.
    ///
    /// # Errors
    /// Two options that exclude each other.
    pub fn check(&self) -> Result<(), String> {
        let given = [
            ("busy_poll", self.busy_poll),
            ("spin_us", self.spin_us.is_some()),
            ("no_spin", self.no_spin),
        ];
        let given: Vec<&str> = given.iter().filter(|(_, is)| *is).map(|(key, _)| *key).collect();
        match given[..] {
            [one, other, ..] => {
                Err(format!("waiting.{one} and waiting.{other} exclude each other: leave one out"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the engine's waiting mode.
    #[must_use]
    pub fn waiting(&self) -> WaitPolicy {
        match (self.busy_poll, self.spin_us) {
            _ if self.no_spin => WaitPolicy::Sleep,
            (true, _) => WaitPolicy::BusyPoll,
            (false, Some(us @ 1..)) => WaitPolicy::Spin(Duration::from_micros(us.into())),
            (false, Some(0)) => WaitPolicy::Sleep,
            (false, None) => WaitPolicy::Adaptive,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_the_policy_s() {
        assert_eq!(PolicyArgs::default().config(), PolicyConfig::auto());
        let i10 = PolicyArgs { policy: PolicyName::I10, ..PolicyArgs::default() };
        assert_eq!(i10.config(), PolicyConfig::i10());
    }

    #[test]
    fn words_parse_to_the_same_policy() {
        #[derive(clap::Parser)]
        struct PolicyTestCli {
            #[command(flatten)]
            policy: PolicyArgs,
        }
        let all = "x --policy pinof-flat --caravan-requests 1 --caravan-bytes 4096 --doorbell-delay-us 3 \
                   --cmd-bytes 4 --cmd-degree 5 --cmd-delay-us 6 --data-bytes 7 --data-degree 8 \
                   --data-delay-us 9 --batch-level-max 11 --batch-interval-ms 12 --batch-delay-us 13 \
                   --batch-gain-percent 14 --batch-probe-intervals 15";
        let given = <PolicyTestCli as clap::Parser>::parse_from(all.split_whitespace()).policy;
        let words = ["x".to_owned()].into_iter().chain(given.words());
        assert_eq!(<PolicyTestCli as clap::Parser>::parse_from(words).policy, given);
        let config = given.config_with_all();
        assert_eq!((config.pinof.cmd.degree, config.pinof.data.degree), (5, 8));
        assert_eq!(config.tyche.level_max, 11);
        let fixed = TycheArgs { batch_level: Some(10), ..TycheArgs::default() };
        let tyche = PolicyArgs { policy: PolicyName::Tyche, tyche: fixed, ..PolicyArgs::default() };
        assert_eq!(tyche.words(), ["--policy", "tyche", "--batch-level", "10"]);
        let config = tyche.config();
        assert_eq!((config.tyche.level, config.tyche.level_max), (10, 10));
    }

    #[test]
    fn settings_override_them() {
        let args = PolicyArgs {
            policy: PolicyName::I10,
            caravan_requests: Some(128),
            caravan_bytes: Some(512 << 10),
            doorbell_delay_us: Some(25),
            ..PolicyArgs::default()
        };
        let config = args.config();
        assert_eq!(config.kind, PolicyKind::I10);
        assert_eq!((config.limits.count_max, config.limits.bytes_max), (128, 512 << 10));
        assert_eq!(config.doorbell_delay, Duration::from_micros(25));
    }

    #[test]
    fn options_of_other_policies_are_refused() {
        let i10 = PolicyArgs {
            caravan_requests: Some(32),
            doorbell_delay_us: Some(0),
            ..Default::default()
        };
        let refused =
            |policy, other| PolicyArgs { policy, ..i10.clone() }.check_options(other).unwrap_err();
        assert_eq!(
            refused(PolicyName::Tyche, None),
            "--caravan-requests means nothing with --policy tyche: leave it out, or choose --policy none or i10"
        );
        assert_eq!(
            refused(PolicyName::None, Some(PolicyName::Auto)),
            "--doorbell-delay-us means nothing with --policy none and --target-policy auto: leave it out, \
             or choose --policy i10"
        );
        let fits = PolicyArgs { policy: PolicyName::I10, ..i10.clone() };
        assert_eq!(fits.check_options(None), Ok(()));
        // An option of one end is valid for the other end as well, if its policy has it.
        assert_eq!(i10.check_options(Some(PolicyName::I10)), Ok(()));
        assert_eq!(i10.config(), PolicyConfig::auto());
        assert_eq!(
            i10.of(PolicyName::None).words(),
            ["--policy", "none", "--caravan-requests", "32"]
        );
        for policy in PolicyName::value_variants() {
            let plain = PolicyArgs { policy: *policy, ..PolicyArgs::default() };
            assert_eq!(plain.check_options(None), Ok(()));
        }
    }

    #[test]
    fn errors_of_files_name_their_keys() {
        assert_eq!(
            as_keys("'--cmd-bytes <SIZE>': a--b, - or --x"),
            "'cmd_bytes <SIZE>': ab, - or x"
        );
        assert_eq!(as_keys("none"), "none");
    }

    #[test]
    fn waiting_follows_the_flags() {
        let waits = |busy_poll, spin_us| WaitArgs { busy_poll, spin_us, no_spin: false }.waiting();
        assert_eq!(waits(false, None), WaitPolicy::Adaptive);
        assert_eq!(WaitArgs { no_spin: true, ..WaitArgs::default() }.waiting(), WaitPolicy::Sleep);
        assert_eq!(waits(false, Some(0)), WaitPolicy::Sleep);
        assert_eq!(waits(false, Some(20)), WaitPolicy::Spin(Duration::from_micros(20)));
        assert_eq!(waits(true, None), WaitPolicy::BusyPoll);
    }
}

//! In the place of `ether` where the program is built without Ethernet: there are no options, and what is said of it is
//! refused.

use clap::Args;
use roadtrain_host_engine::EtherAddress;
use roadtrain_target_engine::EtherConfig;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

const WITHOUT: &str = "this program was built without Ethernet";

/// No options.
#[derive(Args, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct EtherArgs {}

impl<'de> Deserialize<'de> for EtherArgs {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Err(D::Error::custom(WITHOUT))
    }
}

impl EtherArgs {
    /// Refuses.
    ///
    /// # Errors
    /// Always.
    pub fn address(&self, _: Vec<String>) -> Result<EtherAddress, String> {
        Err(WITHOUT.into())
    }

    /// Refuses.
    ///
    /// # Errors
    /// Always.
    pub fn listen(&self, _: Vec<String>) -> Result<EtherConfig, String> {
        Err(WITHOUT.into())
    }

    /// There are no frames.
    #[must_use]
    pub fn requires_seal(&self) -> bool {
        false
    }

    /// Refuses.
    ///
    /// # Errors
    /// Always.
    pub fn check(&self) -> Result<(), String> {
        Err(WITHOUT.into())
    }
}

#[cfg(test)]
mod tests {
    use crate::args::{Cli, Command};
    use crate::config::ServeConfig;
    use clap::{CommandFactory, Parser};

    #[test]
    fn ethernet_is_refused_with_the_reason() {
        let file = "[ether]\ninterfaces = \"eth1\"\n[[subsystem]]\nnqn = \"nqn.x:y\"\n";
        let error = ServeConfig::parse(file).expect_err("there is no Ethernet");
        assert!(error.contains(super::WITHOUT), "{error}");
        for line in ["-t ether -a eth1", "-a ether:eth1"] {
            let words = format!("roadtrain serve {line} -n nqn.x:y --namespace mem:4k");
            let cli = Cli::try_parse_from(words.split_whitespace()).unwrap();
            let Command::Serve(args) = cli.command else { unreachable!() };
            let error = ServeConfig::from_args(&args).expect_err("there is no Ethernet");
            assert!(error.message.contains(super::WITHOUT), "{}", error.message);
        }
    }

    #[test]
    fn help_does_not_speak_of_it() {
        let mut command = Cli::command();
        command.build();
        for sub in command.get_subcommands_mut() {
            let help = sub.render_long_help().to_string().to_lowercase();
            assert!(!help.contains("-t ether") && !help.contains("ethernet"), "{help}");
        }
    }
}

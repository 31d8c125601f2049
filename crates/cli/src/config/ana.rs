//! ANA states in a configuration.

use super::{AnaGroupSettings, ServeConfig};
use crate::args::AnaPort;
use crate::connect::resolve;
use crate::failure::{CommandFailure, CommandResult};
use roadtrain_target_engine::{AnaListener, AnaStates, Export, Subsystem};
use roadtrain_target_proto::TargetConfig;

/// Resolves a listener; `port` is the default.
///
/// # Errors
/// A name that resolves to no address.
pub(crate) fn listener_of(at: &AnaPort, port: u16) -> CommandResult<AnaListener> {
    match at {
        AnaPort::Ether => Ok(AnaListener::Ether),
        AnaPort::Tcp { address, port: own } => {
            resolve(address, own.unwrap_or(port)).map(AnaListener::Tcp)
        }
    }
}

impl ServeConfig {
    /// Builds the subsystems for the engine, with the ANA states of their groups at the listeners.
    ///
    /// # Errors
    /// The first error in the subsystems, or a listener that does not exist.
    pub(crate) fn reachable_exports(&self) -> CommandResult<Vec<Subsystem>> {
        let mut subsystems = self.exports().map_err(CommandFailure::usage)?;
        for (subsystem, spec) in subsystems.iter_mut().zip(&self.subsystems) {
            for AnaGroupSettings { group, listener, state } in &spec.ana_groups {
                let at = listener_of(listener, self.port)?;
                let states = subsystem.ana_groups.entry(*group).or_default();
                states.set(at, Some((*state).into()));
            }
        }
        let nowhere = TargetConfig::<Export>::default();
        let listeners = nowhere.listeners_at(&self.addresses()?);
        let exports = TargetConfig { listeners, subsystems, ..nowhere };
        exports.check().map_err(|error| CommandFailure::usage(error.to_string()))?;
        Ok(exports.subsystems)
    }

    /// Returns the states of the listeners.
    ///
    /// # Errors
    /// A name that resolves to no address, or a listener that does not exist.
    pub(crate) fn ana_states(&self) -> CommandResult<AnaStates> {
        let state = |(at, state): (&AnaPort, &crate::args::AnaName)| {
            Ok((listener_of(at, self.port)?, (*state).into()))
        };
        let ana = self.ana.iter().map(state).collect::<CommandResult<AnaStates>>()?;
        if self.ana.contains_key(&AnaPort::Ether) && self.ether.is_none() {
            let name = self.spelling.name("ana");
            return Err(CommandFailure::usage(format!(
                "{name}: ether: it does not listen on Ethernet"
            )));
        }
        let nowhere = TargetConfig::<Export>::default();
        let listeners = nowhere.listeners_at(&self.addresses()?);
        let checked = TargetConfig { listeners, ana: ana.clone(), ..nowhere }.check();
        checked.map_err(|error| {
            CommandFailure::usage(format!("{}: {error}", self.spelling.name("ana")))
        })?;
        Ok(ana)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roadtrain_target_engine::AnaState;

    const HEAD: &str = "address = [\"127.0.0.1\", \"::1\"]\n";
    const TAIL: &str =
        "[[listener]]\naddress = \"127.0.0.1\"\nport = 4421\n[[subsystem]]\nnqn = \"nqn.x:y\"\n";

    fn parsed(ana: &str) -> Result<ServeConfig, String> {
        ServeConfig::parse(&format!("{HEAD}[ana]\n{ana}\n{TAIL}"))
    }

    #[test]
    fn each_listener_has_its_state() {
        let config = parsed(
            "\"127.0.0.1:4421\" = \"non-optimized\"\n\"::1\" = \"inaccessible\"\n\"[::1]:4420\" = \"optimized\"",
        )
        .unwrap();
        let again = ServeConfig::parse(&config.to_toml()).unwrap();
        assert_eq!(again, config, "it is written as it is read");
        assert_eq!(config.server().unwrap().ana, config.ana_states().unwrap());
        let config = parsed("\"127.0.0.1:4421\" = \"non-optimized\"\n\"::1\" = \"inaccessible\"");
        let states = config.unwrap().ana_states().unwrap();
        for (local, state) in [
            ("127.0.0.1:4421", AnaState::NonOptimized),
            ("127.0.0.1:4420", AnaState::Optimized),
            ("[::1]:4420", AnaState::Inaccessible),
        ] {
            assert_eq!(states.at(local.parse().unwrap()), state, "{local}");
        }
    }

    #[test]
    fn a_state_without_a_listener_is_refused() {
        for (ana, why) in [
            ("\"127.0.0.1:4422\" = \"optimized\"", "there is no listener 127.0.0.1:4422"),
            ("ether = \"inaccessible\"", "does not listen on Ethernet"),
        ] {
            let error = parsed(ana).unwrap().ana_states().unwrap_err();
            assert!(error.message.contains(why), "{}", error.message);
        }
        assert!(parsed("\"127.0.0.1:0\" = \"optimized\"").unwrap_err().contains("ADDRESS:PORT"));
        assert!(parsed("\"127.0.0.1:4421\" = \"best\"").unwrap_err().contains("best"));
    }

    #[test]
    fn states_are_reloaded() {
        let (one, other) = (parsed("\"::1\" = \"optimized\""), parsed("\"::1\" = \"change\""));
        assert!(one.unwrap().needs_restart(&other.unwrap()).is_empty());
    }
}

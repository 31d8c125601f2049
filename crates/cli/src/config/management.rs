//! Management settings: keys of the file, and options, which win.

use super::ServeConfig;
use crate::args::RpcServeArgs;
use std::collections::BTreeSet;

impl ServeConfig {
    /// Applies the command line: each option wins over its key. A store of volumes is added to those of the file, or
    /// replaces the one with its name.
    pub(crate) fn apply_rpc_options(&mut self, args: &RpcServeArgs) {
        let RpcServeArgs {
            rpc, rpc_http, rpc_credentials, rpc_http_anywhere, state, lvstores, ..
        } = args.clone();
        let given = [
            ("rpc", rpc.is_some()),
            ("rpc_http", rpc_http.is_some()),
            ("rpc_credentials", rpc_credentials.is_some()),
            ("rpc_http_anywhere", rpc_http_anywhere),
            ("state", state.is_some()),
        ];
        let given =
            given.iter().filter(|(_, is_given)| *is_given).map(|(key, _)| (*key).to_owned());
        self.spelling.set_by_options(given);
        self.spelling.set_by_options(lvstores.iter().map(|store| lvstore_key(&store.name)));
        self.rpc = rpc.or(self.rpc.take());
        self.rpc_http = rpc_http.or(self.rpc_http.take());
        self.rpc_credentials = rpc_credentials.or(self.rpc_credentials.take());
        self.rpc_http_anywhere |= rpc_http_anywhere;
        self.state = state.or(self.state.take());
        self.lvstores.retain(|own| lvstores.iter().all(|other| other.name != own.name));
        self.lvstores.extend(lvstores);
    }

    /// True if the target is changed while it runs, and may export nothing at first.
    pub(crate) fn is_managed(&self) -> bool {
        let is_kept = self.state.is_some() || !self.lvstores.is_empty();
        self.rpc.is_some() || self.rpc_http.is_some() || is_kept
    }

    /// # Errors
    /// A key that makes no sense without another one.
    pub(super) fn check_management(&self) -> Result<(), String> {
        let is_for_http = |key: &str| {
            let form = self.spelling.form(key);
            format!("{} is for {}", form.name(key), form.name("rpc_http"))
        };
        match (self.rpc_http, &self.rpc_credentials) {
            (Some(_), None) => {
                let other = self.spelling.form("rpc_http").name("rpc_credentials");
                return Err(format!("{} needs {other}", self.spelling.name("rpc_http")));
            }
            (None, Some(_)) => return Err(is_for_http("rpc_credentials")),
            (None, None) if self.rpc_http_anywhere => {
                return Err(is_for_http("rpc_http_anywhere"));
            }
            _ => {}
        }
        let mut names = BTreeSet::new();
        for store in &self.lvstores {
            let name = &store.name;
            let shown = self.spelling.form(&lvstore_key(name)).name("lvstore");
            if !matches!(store.lba, None | Some(512 | 4096)) {
                return Err(format!("{shown} {name}: lba is 512 or 4096"));
            }
            if name.is_empty() || store.path.as_os_str().is_empty() || !names.insert(name) {
                return Err(format!("{shown} {name}: each has a name of its own, and a path"));
            }
        }
        Ok(())
    }
}

/// Name of a store of volumes among the keys that options have set.
fn lvstore_key(name: &str) -> String {
    format!("lvstore.{name}")
}

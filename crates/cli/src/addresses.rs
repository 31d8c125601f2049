//! Addresses or interfaces to listen on, as a configuration file has them: one, or a list.

use crate::config::Spelling;
use serde::de::{SeqAccess, Visitor, value::SeqAccessDeserializer};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

/// One address or name, or several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses(pub Vec<String>);

impl Addresses {
    /// True if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Checks that they can be listened on; `key` is what a file calls them.
    ///
    /// # Errors
    /// There is none, or one is given twice.
    pub(crate) fn check(&self, key: &str, spelling: &Spelling) -> Result<(), String> {
        let name = spelling.name(key);
        if self.0.is_empty() || self.0.iter().any(String::is_empty) {
            let written = spelling.form(key).text(key, example(key));
            return Err(format!("{name} is empty: write {written}"));
        }
        let mut seen = BTreeSet::new();
        match self.0.iter().find(|address| !seen.insert(*address)) {
            Some(twice) => Err(format!("{name}: {twice} is given twice")),
            None => Ok(()),
        }
    }
}

fn example(key: &str) -> &'static str {
    if key == "ether.interfaces" { "eth1" } else { "127.0.0.1" }
}

impl Serialize for Addresses {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match &self.0[..] {
            [address] => s.serialize_str(address),
            addresses => addresses.serialize(s),
        }
    }
}

impl<'de> Deserialize<'de> for Addresses {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(AddressesVisitor)
    }
}

struct AddressesVisitor;

impl<'de> Visitor<'de> for AddressesVisitor {
    type Value = Addresses;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an address such as \"127.0.0.1\", or a list of them")
    }

    fn visit_str<E>(self, address: &str) -> Result<Addresses, E> {
        Ok(Addresses(vec![address.into()]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Addresses, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(list)).map(Addresses)
    }
}
/// Longest path of a Unix socket.
pub(crate) const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Checks that a socket can have `path` with `more` bytes appended.
///
/// # Errors
/// The path's length, and the most that is possible.
pub(crate) fn check_socket_path(path: &Path, more: usize) -> Result<(), String> {
    let (bytes, most) = (path.as_os_str().len(), SOCKET_PATH_BYTES_MAX - more);
    match bytes <= most {
        true => Ok(()),
        false => Err(format!(
            "{}: the path of this socket has {bytes} bytes, and {most} at most are possible: use a shorter one",
            path.display()
        )),
    }
}

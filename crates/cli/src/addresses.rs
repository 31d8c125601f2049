//! Addresses to listen on, as a configuration file has them: one, or a list.

use serde::de::{SeqAccess, Visitor, value::SeqAccessDeserializer};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeSet;
use std::fmt;

/// One address or name, or several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses(pub Vec<String>);

impl Addresses {
    /// Whether they can be listened on.
    ///
    /// # Errors
    /// There is none, or one is there twice.
    pub fn check(&self) -> Result<(), String> {
        if self.0.is_empty() || self.0.iter().any(String::is_empty) {
            return Err("address is empty: write address = \"127.0.0.1\"".into());
        }
        let mut seen = BTreeSet::new();
        match self.0.iter().find(|address| !seen.insert(*address)) {
            Some(twice) => Err(format!("address {twice} is there twice")),
            None => Ok(()),
        }
    }
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

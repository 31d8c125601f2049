//! UUIDs of stores and volumes.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::str::FromStr;

/// A UUID, as text in its usual form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// Returns a random UUID (version 4).
    ///
    /// # Errors
    /// The kernel returns no random numbers.
    pub fn random() -> io::Result<Uuid> {
        let mut bytes = [0; 16];
        let got = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
        if got != bytes.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes[6] = bytes[6] & 0x0F | 0x40;
        bytes[8] = bytes[8] & 0x3F | 0x80;
        Ok(Uuid(bytes))
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = format!("{:032x}", u128::from_be_bytes(self.0));
        let [a, b, c, d, e] = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| &hex[part]);
        write!(f, "{a}-{b}-{c}-{d}-{e}")
    }
}

impl FromStr for Uuid {
    type Err = String;

    /// Parses the usual form: 32 digits with four dashes, of either case.
    fn from_str(text: &str) -> Result<Uuid, String> {
        let dash_at = |(at, c): (usize, char)| (c == '-') == matches!(at, 8 | 13 | 18 | 23);
        let is_formed = text.len() == 36 && text.chars().enumerate().all(dash_at);
        let digits: String = text.chars().filter(|c| *c != '-').collect();
        let is_hex = digits.chars().all(|c| c.is_ascii_hexdigit());
        match u128::from_str_radix(&digits, 16) {
            Ok(number) if is_formed && is_hex => Ok(Uuid(number.to_be_bytes())),
            _ => Err(format!("'{text}' is not a UUID: write 01234567-89ab-cdef-0123-456789abcdef")),
        }
    }
}

impl TryFrom<String> for Uuid {
    type Error = String;

    fn try_from(text: String) -> Result<Uuid, String> {
        text.parse()
    }
}

impl From<Uuid> for String {
    fn from(uuid: Uuid) -> String {
        uuid.to_string()
    }
}

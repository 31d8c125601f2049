//! Identities of the pre-shared keys that a host offers in a ClientHello (RFC 8446, 4.2.11).

/// Maximum bytes that a peer may send until its handshake is done.
pub const HANDSHAKE_BYTES_MAX: usize = 16 << 10;
const PRE_SHARED_KEY: u16 = 41;
/// Maximum bytes of an identity: two NQNs of 223, a digest and separators need fewer.
const IDENTITY_BYTES_MAX: usize = 1024;
/// Bytes of version and random.
const FIXED_BYTES: usize = 2 + 32;
/// Maximum number of identities that are checked.
const IDENTITIES_MAX: usize = 16;

/// Reader of bytes from the front.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn u16(&mut self) -> Option<u16> {
        let (&number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u16::from_be_bytes(number))
    }

    /// Takes a vector with a length of one byte.
    fn short_vector(&mut self) -> Option<&'a [u8]> {
        let length = *self.take(1)?.first()?;
        self.take(length.into())
    }

    fn vector(&mut self) -> Option<&'a [u8]> {
        let length = self.u16()?;
        self.take(length.into())
    }
}

/// Returns the identities in the body of a ClientHello, in the host's order; `None`: the body is incomplete or has
/// none.
pub(crate) fn identities(hello: &[u8]) -> Option<Vec<&str>> {
    let mut hello = Bytes(hello);
    hello.take(FIXED_BYTES)?;
    hello.short_vector()?; // session
    hello.vector()?; // suites
    hello.short_vector()?; // compressions
    let mut extensions = Bytes(hello.vector()?);
    loop {
        let kind = extensions.u16()?;
        let body = extensions.vector()?;
        if kind == PRE_SHARED_KEY {
            return names(&mut Bytes(Bytes(body).vector()?));
        }
    }
}

fn names<'a>(list: &mut Bytes<'a>) -> Option<Vec<&'a str>> {
    let mut names = Vec::new();
    while !list.0.is_empty() && names.len() < IDENTITIES_MAX {
        let identity = list.vector()?;
        list.take(4)?; // age of a ticket
        if identity.len() <= IDENTITY_BYTES_MAX {
            names.extend(std::str::from_utf8(identity).ok());
        }
    }
    Some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(extensions: &[u8]) -> Vec<u8> {
        let mut hello = vec![7; FIXED_BYTES];
        hello.extend([0, 0, 2, 0x13, 0x01, 1, 0]);
        hello.extend((extensions.len() as u16).to_be_bytes());
        hello.extend(extensions);
        hello
    }

    #[test]
    fn identities_are_found_after_other_extensions() {
        let psk = [0, 41, 0, 18, 0, 16, 0, 2, b'a', b'b', 0, 0, 0, 0, 0, 2, 0xff, 0xff, 0, 0, 0, 0];
        let mut extensions = vec![0, 43, 0, 3, 2, 3, 4];
        extensions.extend(psk);
        assert_eq!(identities(&hello(&extensions)), Some(vec!["ab"]), "and what is no text is not");
        assert_eq!(identities(&hello(&extensions[..7])), None);
        let whole = hello(&extensions);
        for end in 0..whole.len() {
            assert_eq!(identities(&whole[..end]), None, "cut at {end}");
        }
    }

    /// An extension with these identities.
    fn offer(identities: &[&[u8]]) -> Vec<u8> {
        let mut list = Vec::new();
        for identity in identities {
            list.extend((identity.len() as u16).to_be_bytes());
            list.extend(*identity);
            list.extend([0; 4]);
        }
        let lengths = [list.len() as u16 + 2, list.len() as u16].map(u16::to_be_bytes);
        [&[0, 41][..], lengths.as_flattened(), &list].concat()
    }

    /// Each identity that is checked costs a derivation of keys.
    #[test]
    fn identities_have_a_number_and_a_length() {
        let longest = [b'a'; IDENTITY_BYTES_MAX];
        let longer = [b'a'; IDENTITY_BYTES_MAX + 1];
        let cases: [(&[&[u8]], usize); 4] = [
            (&[&b"a"[..]; IDENTITIES_MAX], IDENTITIES_MAX),
            (&[&b"a"[..]; IDENTITIES_MAX + 1], IDENTITIES_MAX),
            (&[&longest, b"b"], 2),
            (&[&longer, b"b"], 1),
        ];
        for (offered, expected) in cases {
            let hello = hello(&offer(offered));
            assert_eq!(identities(&hello).map(|found| found.len()), Some(expected));
        }
    }
}

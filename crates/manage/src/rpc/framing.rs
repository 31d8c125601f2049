//! Framing: finds the end of each JSON value in a stream, within bounds. Other modules check the values.

/// Longest request in bytes.
pub const REQUEST_BYTES_MAX: usize = 256 << 10;
/// Most values in a request, names of members included.
pub const VALUES_MAX: usize = 8192;
/// Deepest nesting of arrays and objects.
pub const DEPTH_MAX: usize = 64;

/// Reason why the input cannot be a request; the begin of the next one is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unframed {
    /// Neither an object nor an array.
    NoRequest,
    /// More than [`REQUEST_BYTES_MAX`] bytes.
    TooLong,
    /// More than [`VALUES_MAX`] values.
    TooMany,
    /// Nesting deeper than [`DEPTH_MAX`].
    TooDeep,
}

impl std::fmt::Display for Unframed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unframed::NoRequest => f.write_str("a request is an object or an array of them"),
            Unframed::TooLong => write!(f, "a request has at most {REQUEST_BYTES_MAX} bytes"),
            Unframed::TooMany => write!(f, "a request has at most {VALUES_MAX} values"),
            Unframed::TooDeep => write!(f, "a request has at most {DEPTH_MAX} levels"),
        }
    }
}

/// Cuts a stream into requests. Scans each byte once.
#[derive(Debug, Default)]
pub struct RequestFramer {
    buffer: Vec<u8>,
    /// Offset of the first byte that was not scanned.
    at: usize,
    depth: usize,
    values: usize,
    place: ScannerState,
}

/// State of the scanner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ScannerState {
    /// Between tokens.
    #[default]
    Between,
    /// In a number or a name such as `true`.
    Word,
    String,
    /// After a backslash in a string.
    Escape,
}

impl RequestFramer {
    /// Adds bytes of the stream.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next request; `None`: more bytes are needed.
    ///
    /// # Errors
    /// The stream cannot be cut any further.
    pub fn take(&mut self) -> Result<Option<Vec<u8>>, Unframed> {
        if self.depth == 0 {
            let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
            let blanks = self.buffer.iter().take_while(|byte| is_blank(byte)).count();
            self.buffer.drain(..blanks);
            match self.buffer.first() {
                None => return Ok(None),
                Some(b'{' | b'[') => {}
                Some(_) => return Err(Unframed::NoRequest),
            }
        }
        while let Some(&byte) = self.buffer.get(self.at) {
            if self.at >= REQUEST_BYTES_MAX {
                return Err(Unframed::TooLong);
            }
            self.at += 1;
            if self.step(byte)? {
                let rest = self.buffer.split_off(self.at);
                (self.at, self.values) = (0, 0);
                return Ok(Some(std::mem::replace(&mut self.buffer, rest)));
            }
        }
        Ok(None)
    }

    /// Returns the bytes of the incomplete request.
    #[must_use]
    pub fn seen(&self) -> &[u8] {
        &self.buffer
    }

    /// True if a request has begun and is not complete.
    #[must_use]
    pub fn is_within(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// Scans one byte. True if it ends the value.
    fn step(&mut self, byte: u8) -> Result<bool, Unframed> {
        match (self.place, byte) {
            (ScannerState::Escape, _) | (ScannerState::String, _)
                if byte != b'"' || self.place == ScannerState::Escape =>
            {
                let is_escape = self.place == ScannerState::String && byte == b'\\';
                self.place = if is_escape { ScannerState::Escape } else { ScannerState::String };
            }
            (ScannerState::String, _) => self.place = ScannerState::Between,
            (_, b'"') => {
                self.place = ScannerState::String;
                self.count()?;
            }
            (_, b'{' | b'[') => {
                self.place = ScannerState::Between;
                self.depth += 1;
                if self.depth > DEPTH_MAX {
                    return Err(Unframed::TooDeep);
                }
                self.count()?;
            }
            (_, b'}' | b']') => {
                self.place = ScannerState::Between;
                self.depth = self.depth.saturating_sub(1);
                return Ok(self.depth == 0);
            }
            (_, b' ' | b'\t' | b'\r' | b'\n' | b',' | b':') => self.place = ScannerState::Between,
            (ScannerState::Word, _) => {}
            _ => {
                self.place = ScannerState::Word;
                self.count()?;
            }
        }
        Ok(false)
    }

    fn count(&mut self) -> Result<(), Unframed> {
        self.values += 1;
        if self.values > VALUES_MAX { Err(Unframed::TooMany) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(stream: &[u8], piece: usize) -> (Vec<String>, Option<Unframed>) {
        let mut framer = RequestFramer::default();
        let mut found = Vec::new();
        for piece in stream.chunks(piece.max(1)) {
            framer.feed(piece);
            loop {
                match framer.take() {
                    Ok(Some(value)) => found.push(String::from_utf8(value).unwrap()),
                    Ok(None) => break,
                    Err(error) => return (found, Some(error)),
                }
            }
        }
        (found, None)
    }

    #[test]
    fn values_are_found_in_pieces_of_any_size() {
        let values = [r#"{"a":"}\"]","b":[1,{}]}"#, "[ ]", "{\n  \"id\": 1\n}", r#"{"\\":"\\"}"#];
        let stream = format!("  {}\n{}{}\t{}\n", values[0], values[1], values[2], values[3]);
        for piece in 1..stream.len() {
            assert_eq!(all(stream.as_bytes(), piece), (values.map(str::to_owned).into(), None));
        }
    }

    #[test]
    fn bounds_hold() {
        let deep = "[".repeat(DEPTH_MAX) + &"]".repeat(DEPTH_MAX);
        assert_eq!(all(deep.as_bytes(), 7).0, std::slice::from_ref(&deep));
        assert_eq!(all("[".repeat(DEPTH_MAX + 1).as_bytes(), 7).1, Some(Unframed::TooDeep));
        let many = |count: usize| format!("[{}]", vec!["1"; count].join(","));
        assert_eq!(all(many(VALUES_MAX - 1).as_bytes(), 512).0.len(), 1);
        assert_eq!(all(many(VALUES_MAX).as_bytes(), 512).1, Some(Unframed::TooMany));
        let long = |bytes: usize| format!("[\"{}\"]", "x".repeat(bytes - 4));
        assert_eq!(all(long(REQUEST_BYTES_MAX).as_bytes(), 4096).0.len(), 1);
        assert_eq!(all(long(REQUEST_BYTES_MAX + 1).as_bytes(), 4096).1, Some(Unframed::TooLong));
        assert_eq!(all(b"{} x", 1).1, Some(Unframed::NoRequest));
    }

    proptest! {
        /// The pieces that a stream arrives in do not matter.
        #[test]
        fn pieces_do_not_matter(stream in "[\\[\\]{}\",:\\\\ a1]{0,64}", piece in 1usize..9) {
            prop_assert_eq!(all(stream.as_bytes(), piece), all(stream.as_bytes(), 64));
        }
    }
}

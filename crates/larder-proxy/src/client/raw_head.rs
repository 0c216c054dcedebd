//! Checks the octets of a request's head more strictly than the HTTP library does (RFC 9112 2.2, 5, 6).
//!
//! The library accepts constructs that other implementations read differently: lines that end in LF alone, a
//! Content-Length together with a Transfer-Encoding (the library drops the former), two equal Content-Lengths.
//! Attackers use these to give a message two readings, so they are refused. Faults that the library itself refuses
//! (names, values, versions) are not checked again.
//!
//! Invariant: a head that passes has one framing in every interpretation of the RFC. Cost: one search for line ends and
//! a few comparisons per line; nothing is copied.

use memchr::memchr;

/// The framing of the octets after a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyFraming {
    /// A body of this many octets, then the next head.
    Length(u64),
    /// A body in chunks.
    Chunked,
    /// Octets of another protocol.
    Opaque,
}

/// Why a request is refused, as text for the client.
pub(crate) type HeadFault = &'static str;

/// The content of the head's lines so far.
#[derive(Debug, Default)]
pub(crate) struct RawHead {
    line_count: usize,
    is_connect: bool,
    is_http10: bool,
    is_preface: bool,
    asks_server: bool,
    length: Option<u64>,
    is_chunked: bool,
}

impl RawHead {
    /// Processes the next line, without its LF. Returns the framing at the empty line that ends the head.
    ///
    /// # Errors
    /// The head is ambiguous.
    pub(crate) fn push_line(&mut self, line: &[u8]) -> Result<Option<BodyFraming>, HeadFault> {
        let Some(line) = line.strip_suffix(b"\r") else { return Err("a line ends with LF without CR") };
        if memchr(b'\r', line).is_some() {
            return Err("a line contains a CR");
        }
        if line.is_empty() {
            // Empty lines before a request are skipped (RFC 9112 2.2).
            return if self.line_count == 0 { Ok(None) } else { self.framing().map(Some) };
        }
        self.line_count += 1;
        if self.line_count == 1 {
            self.is_connect = line.starts_with(b"CONNECT ");
            self.is_http10 = line.ends_with(b"HTTP/1.0");
            self.is_preface = line == b"PRI * HTTP/2.0";
            // The library would cut off the fragment, and request a target other than the one in the line (RFC 9112
            // 3.2).
            if memchr(b'#', line).is_some() {
                return Err("its target has a fragment");
            }
            self.asks_server = line.starts_with(b"OPTIONS ") && has_no_path(&line[b"OPTIONS ".len()..]);
            return Ok(None);
        }
        let name_end = memchr(b':', line).ok_or("a line of its head is not a field")?;
        let name = &line[..name_end];
        let value = line[name_end + 1..].trim_ascii();
        if name.eq_ignore_ascii_case(b"content-length") {
            self.take_length(value)?;
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            self.take_encoding(value)?;
        }
        Ok(None)
    }

    /// Returns whether no line of the head has arrived yet.
    pub(crate) fn is_at_start(&self) -> bool {
        self.line_count == 0
    }

    /// Returns whether the first line has arrived and says HTTP/1.0.
    pub(crate) fn is_http10(&self) -> bool {
        self.is_http10
    }

    /// Returns whether the request is an OPTIONS for the server as a whole, with a URI without a path (RFC 9112 3.2.4).
    pub(crate) fn asks_server(&self) -> bool {
        self.asks_server
    }

    fn take_length(&mut self, value: &[u8]) -> Result<(), HeadFault> {
        if value.is_empty() || value.len() > LENGTH_DIGITS_MAX || !value.iter().all(u8::is_ascii_digit) {
            return Err("its content-length is not a plain number");
        }
        let number = value.iter().fold(0, |number: u64, digit| number * 10 + u64::from(digit - b'0'));
        match self.length.replace(number) {
            None => Ok(()),
            Some(_) => Err("it has more than one content-length"),
        }
    }

    fn take_encoding(&mut self, value: &[u8]) -> Result<(), HeadFault> {
        if !value.eq_ignore_ascii_case(b"chunked") {
            return Err("its transfer-encoding is not chunked");
        }
        match std::mem::replace(&mut self.is_chunked, true) {
            false => Ok(()),
            true => Err("it has more than one transfer-encoding"),
        }
    }

    fn framing(&self) -> Result<BodyFraming, HeadFault> {
        let has_body = self.is_chunked || self.length.is_some_and(|length| length > 0);
        match (self.is_chunked, self.length) {
            _ if self.is_preface => Ok(BodyFraming::Opaque),
            (true, Some(_)) => Err("it has both content-length and transfer-encoding"),
            (true, None) if self.is_http10 => Err("its HTTP version does not allow transfer-encoding"),
            _ if self.is_connect && has_body => Err("a CONNECT request has a body"),
            (true, None) => Ok(BodyFraming::Chunked),
            (false, length) => Ok(BodyFraming::Length(length.unwrap_or(0))),
        }
    }
}

/// Returns whether `rest` begins with an absolute URI without a path.
fn has_no_path(rest: &[u8]) -> bool {
    let target = rest.split(|octet| *octet == b' ').next().unwrap_or_default();
    let authority = memchr::memmem::find(target, b"://").map(|at| &target[at + b"://".len()..]);
    authority.is_some_and(|authority| !authority.iter().any(|octet| b"/?#".contains(octet)))
}

/// Most digits of a length. No body needs more, and they would not fit.
const LENGTH_DIGITS_MAX: usize = 18;

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(head: &str) -> Result<BodyFraming, HeadFault> {
        let mut raw = RawHead::default();
        head.split_terminator('\n').find_map(|line| raw.push_line(line.as_bytes()).transpose()).unwrap()
    }

    #[test]
    fn plain_heads_have_one_framing() {
        for (head, framing) in [
            ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", BodyFraming::Length(0)),
            ("\r\n\r\nPOST / HTTP/1.1\r\ncontent-LENGTH:  12 \r\n\r\n", BodyFraming::Length(12)),
            ("POST / HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n", BodyFraming::Chunked),
            ("POST / HTTP/1.1\r\nX: transfer-encoding: x\r\nX-Content-Length: 1\r\n\r\n", BodyFraming::Length(0)),
            ("CONNECT a:443 HTTP/1.1\r\nContent-Length: 0\r\n\r\n", BodyFraming::Length(0)),
            ("PRI * HTTP/2.0\r\n\r\n", BodyFraming::Opaque),
        ] {
            assert_eq!(judge(head), Ok(framing), "{head:?}");
        }
    }

    #[test]
    fn heads_that_can_be_read_in_two_ways_are_faulty() {
        for fields in [
            "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n",
            "Content-Length: 1\r\nContent-Length: 1\r\n",
            "Content-Length: +1\r\n",
            "Content-Length: 1,1\r\n",
            "Content-Length:\r\n",
            "Content-Length: 9223372036854775808\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: \r\n",
            "X: 1\n",
            "X: 1\rY: 2\r\n",
            "Content-Length\r\n",
        ] {
            assert!(judge(&format!("POST / HTTP/1.1\r\n{fields}\r\n")).is_err(), "{fields:?}");
        }
        assert!(judge("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n").is_err());
        assert!(judge("CONNECT a:443 HTTP/1.1\r\nContent-Length: 1\r\n\r\n").is_err());
        assert!(judge("GET / HTTP/1.1\nHost: a\r\n\r\n").is_err());
        assert!(judge("GET /a#b HTTP/1.1\r\n\r\n").is_err());
    }
}

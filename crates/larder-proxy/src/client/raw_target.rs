//! Lets targets pass that have octets which no URI has (RFC 3986 2), but which clients send: `<`, `>`, `"`, and a
//! backtick.
//!
//! The HTTP library refuses a request with `<`, `>` or a backtick in its path, or `<`, `>` or `"` in its query, with a
//! 400 that nobody logs. So each such octet is replaced before the library reads it, and its escaped form is put into
//! the target of the request that the library hands over. What the library accepts is passed on as it is.
//!
//! Owns: the positions of the octets. They are counted from the target's end, because the library may change its
//! beginning. Invariant: only octets of a path and query are replaced, so the words of the line stay the same. Cost:
//! one search per first line.

use http::{Uri, uri::PathAndQuery};
use memchr::memchr;

/// The octets found in the target of one request line.
#[derive(Debug, Default)]
pub(crate) struct TargetOctets {
    place: TargetPlace,
    /// Positions in the line.
    found: Vec<(usize, u8)>,
}

#[derive(Clone, Copy, Debug, Default)]
enum TargetPlace {
    /// No such octet has been seen.
    #[default]
    Clean,
    /// The path and query begin at this position of the line. `is_query` says that the query has begun.
    Path { start: usize, is_query: bool },
    /// The target ended at this position of the line.
    Ended(usize),
    /// Nothing is replaced: an octet is in no path or query.
    Elsewhere,
}

/// An octet to put back into a target: its distance from the target's end, and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EscapedOctet {
    from_end: usize,
    octet: u8,
}

impl TargetOctets {
    /// Finds octets in the next piece of a line, of which `known` has arrived before. Calls `replace` with the position
    /// of each in the piece.
    pub(super) fn follow(&mut self, known: &[u8], piece: &[u8], mut replace: impl FnMut(usize)) {
        if let TargetPlace::Clean = self.place {
            // Without a branch for each octet, so that the compiler compares many at once.
            if !piece.iter().fold(false, |is_found, octet| is_found | matches!(octet, b'"' | b'<' | b'>' | b'`')) {
                return;
            }
            let line = [known, piece].concat();
            let known_of = |start: usize| known.get(start..).unwrap_or_default();
            let start = path_start(&line).filter(|start| memchr(b' ', known_of(*start)).is_none());
            let place = |start| TargetPlace::Path { start, is_query: memchr(b'?', known_of(start)).is_some() };
            self.place = start.map_or(TargetPlace::Elsewhere, place);
        }
        let TargetPlace::Path { start, is_query } = &mut self.place else { return };
        let from = start.saturating_sub(known.len()).min(piece.len());
        let end = memchr(b' ', &piece[from..]).map(|len| from + len);
        for (at, octet) in piece.iter().enumerate().take(end.unwrap_or(piece.len())).skip(from) {
            *is_query |= *octet == b'?';
            let refused = if *is_query { b"<>\"" } else { b"<>`" };
            if refused.contains(octet) {
                self.found.push((known.len() + at, *octet));
                replace(at);
            }
        }
        if let Some(end) = end {
            self.place = TargetPlace::Ended(known.len() + end);
        }
    }

    /// Returns the octets to put back, and forgets them. None are put back if the line has no version.
    pub(super) fn take(&mut self) -> Vec<EscapedOctet> {
        let Self { place, found } = std::mem::take(self);
        let TargetPlace::Ended(end) = place else { return Vec::new() };
        found.into_iter().map(|(at, octet)| EscapedOctet { from_end: end - at, octet }).collect()
    }
}

/// Returns the position of the path, or of the query if there is no path, in a request line.
fn path_start(line: &[u8]) -> Option<usize> {
    let start = memchr(b' ', line)? + 1;
    let target = &line[start..];
    if target.starts_with(b"/") {
        return Some(start);
    }
    let authority = memchr::memmem::find(target, b"://")? + b"://".len();
    let len = target[authority..].iter().position(|octet| b"/?".contains(octet))?;
    Some(start + authority + len)
}

/// Puts octets back into a target, in escaped form. Returns `None` if they do not belong to it.
pub(crate) fn restored(target: &Uri, octets: &[EscapedOctet]) -> Option<Uri> {
    let path = target.path_and_query()?.as_str();
    let mut text = String::with_capacity(path.len() + 2 * octets.len());
    let mut rest = 0;
    for EscapedOctet { from_end, octet } in octets {
        let at = path.len().checked_sub(*from_end)?;
        text.push_str(path.get(rest..at)?);
        text.push_str(&format!("%{octet:02X}"));
        rest = at + STAND_IN.len();
    }
    text.push_str(path.get(rest..)?);
    let mut parts = target.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(text).ok()?);
    Uri::from_parts(parts).ok()
}

/// Replaces an octet while the library reads the target.
pub(super) const STAND_IN: &[u8] = b"-";

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the line that the library gets and the target that its request gets back.
    fn passed(line: &str, piece_len: usize) -> (String, Option<String>) {
        let mut octets = line.as_bytes().to_vec();
        let mut target = TargetOctets::default();
        for start in (0..line.len()).step_by(piece_len) {
            let end = (start + piece_len).min(line.len());
            target.follow(&line.as_bytes()[..start], &line.as_bytes()[start..end], |at| octets[start + at] = b'-');
        }
        let text = String::from_utf8(octets).unwrap();
        let uri = text.split(' ').nth(1).and_then(|uri| uri.parse::<Uri>().ok());
        let found = target.take();
        (text, uri.and_then(|uri| restored(&uri, &found)).map(|uri| uri.to_string()))
    }

    #[test]
    fn octets_come_back_escaped_however_the_line_arrives() {
        for (line, passed_on, target) in [
            ("GET /q?f={\"a\":\"b\"} HTTP/1.1", "GET /q?f={-a-:-b-} HTTP/1.1", "/q?f={%22a%22:%22b%22}"),
            ("GET /a`b<c> HTTP/1.1", "GET /a-b-c- HTTP/1.1", "/a%60b%3Cc%3E"),
            ("GET http://a.example/x?\" HTTP/1.1", "GET http://a.example/x?- HTTP/1.1", "http://a.example/x?%22"),
            ("GET http://a.example?<- HTTP/1.1", "GET http://a.example?-- HTTP/1.1", "http://a.example/?%3C-"),
            ("GET /plain-x HTTP/1.1", "GET /plain-x HTTP/1.1", "/plain-x"),
            ("GET /a\"<?`\" HTTP/1.1", "GET /a\"-?`- HTTP/1.1", "/a\"%3C?`%22"),
        ] {
            for piece_len in 1..=line.len() {
                assert_eq!(passed(line, piece_len), (passed_on.to_owned(), Some(target.to_owned())), "{piece_len}");
            }
        }
    }

    #[test]
    fn octets_elsewhere_stay_for_the_library_to_refuse() {
        for line in
            ["G\"T / HTTP/1.1", "GET / \"HTTP/1.1", "GET http://a\"b/ HTTP/1.1", "CONNECT a\":443 HTTP/1.1", "\"\"\""]
        {
            for piece_len in 1..=line.len() {
                assert_eq!(passed(line, piece_len).0, line, "{line} {piece_len}");
            }
        }
    }
}

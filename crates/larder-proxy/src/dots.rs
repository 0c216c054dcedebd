//! Detects paths that lead upwards (RFC 3986 5.2.4), in every spelling that some server resolves.

use percent_encoding::percent_decode;

/// Returns whether a server may read a path as one with a `..` segment, which would lead out of its folder.
///
/// Servers differ in their decoding. Some accept encoded dots and slashes (`%2e%2e`, `..%2f`), double encoding, a
/// backslash as a slash (IIS), parameters of a segment (`..;x`, Tomcat), or octets that end a name in C or on Windows
/// (`..%00`, `..%20`).
pub(crate) fn may_climb(path: &str) -> bool {
    let mut octets = path.as_bytes().to_vec();
    loop {
        if octets.split(|octet| b"/\\".contains(octet)).any(is_upwards) {
            return true;
        }
        let decoded: Vec<u8> = percent_decode(&octets).collect();
        // Each round of decoding removes at least two octets.
        if decoded.len() == octets.len() {
            return false;
        }
        octets = decoded;
    }
}

fn is_upwards(segment: &[u8]) -> bool {
    let is_end = |octet: &u8| *octet == b';' || *octet <= b' ';
    let end = segment.iter().position(is_end).unwrap_or(segment.len());
    &segment[..end] == b".."
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_two_dots_is_seen_and_nothing_else() {
        for path in [
            "/..",
            "/../x",
            "/a/..",
            "/a/../b",
            "/%2e%2e/x",
            "/%2E./x",
            "/.%2e",
            "/..%2fx",
            "/a%2f..%2fx",
            "/..%5cx",
            "/\\..\\x",
            "/..;/x",
            "/..;a=b/x",
            "/%2e%2e%3b/x",
            "/%252e%252e/x",
            "/..%252fx",
            "/%25252e./x",
            "/..%00/x",
            "/..%20/x",
            "/..%09",
        ] {
            assert!(may_climb(path), "{path}");
        }
        for path in [
            "",
            "/",
            "/.",
            "/a/./b",
            "/...",
            "/..a",
            "/a..",
            "/a..b/c",
            "/@scope%2fname",
            "/%2e",
            "/%2",
            "/100%",
            "/%zz",
            "/a;../b..",
            "/v1..v2",
            "/%25",
        ] {
            assert!(!may_climb(path), "{path}");
        }
    }
}

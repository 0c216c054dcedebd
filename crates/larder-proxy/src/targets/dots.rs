//! Detects paths that lead upwards (RFC 3986 5.2.4), in every spelling that some server resolves.
//!
//! Cost: one pass over the path. Each octet is added once and removed at most once, however deep escapes are nested.

/// Returns whether some server may read a path as one with a `..` segment, which leads out of its folder.
///
/// Servers differ in their decoding. Some accept encoded dots and slashes (`%2e%2e`, `..%2f`), double encoding, the
/// escapes of IIS (`%u002e`, `%uff0e`), overlong UTF-8 (`%c0%ae`), a backslash as a slash (IIS), parameters of a
/// segment (`..;x`, Tomcat), or octets that end a name in C or on Windows (`..%00`, `..%20`).
///
/// The path is decoded until nothing is left to decode. Decoding never changes a dot or slash that is already plain, so
/// a `..` that appears at any level is still there at the end. So only the end result is searched.
pub(crate) fn may_climb(path: &str) -> bool {
    decoded(path.as_bytes(), || ()).split(|octet| b"/\\".contains(octet)).any(is_upwards)
}

/// Decodes all escapes of a path, including those that decoding creates. Calls `note_escape` for each escape.
fn decoded(path: &[u8], mut note_escape: impl FnMut()) -> Vec<u8> {
    let mut octets = Vec::with_capacity(path.len());
    for octet in path {
        octets.push(*octet);
        while let Some((len, octet)) = escape_at_end(&octets) {
            note_escape();
            octets.truncate(octets.len() - len);
            octets.push(octet);
        }
    }
    octets
}

/// Returns the length of the escape at the end of `octets`, at least 2, and the octet that it stands for. `None` if
/// `octets` does not end with an escape.
fn escape_at_end(octets: &[u8]) -> Option<(usize, u8)> {
    match *octets {
        [.., b'%', b'u' | b'U', a, b, c, d] if [a, b, c, d].iter().all(u8::is_ascii_hexdigit) => {
            let code = [a, b, c, d].iter().fold(0, |code, digit| code << 4 | u32::from(hex(*digit)));
            Some((6, folded(code)))
        }
        [.., b'%', high, low] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
            Some((3, hex(high) << 4 | hex(low)))
        }
        // Overlong UTF-8. A lead octet 0xC0 or 0xC1 is never valid, so some decoders do not check the second octet.
        [.., 0xc0, last @ (b'.' | b'/' | 0x80..=0xbf)] => Some((2, last & 0x3f)),
        [.., 0xc1, last @ 0x80..=0xbf] => Some((2, 0x40 | last & 0x3f)),
        [.., 0xe0, middle @ 0x80..=0x81, last @ 0x80..=0xbf] => Some((3, (middle & 1) << 6 | last & 0x3f)),
        [.., 0xf0, 0x80, middle @ 0x80..=0x81, last @ 0x80..=0xbf] => Some((4, (middle & 1) << 6 | last & 0x3f)),
        // The full-width characters from U+FF01 to U+FF5E.
        [.., 0xef, middle @ 0xbc..=0xbd, last @ 0x80..=0xbf] => {
            let code = 0xf000 | u32::from(middle & 0x3f) << 6 | u32::from(last & 0x3f);
            (0xff01..=0xff5e).contains(&code).then(|| (3, folded(code)))
        }
        _ => None,
    }
}

/// Returns the octet to which Windows converts a character, such as the ASCII letter for a full-width letter.
/// Characters without such an octet become `?`.
fn folded(code: u32) -> u8 {
    let code = match code {
        0xff01..=0xff5e => code - 0xfee0,
        0x2215 => u32::from(b'/'),
        0x2216 => u32::from(b'\\'),
        code => code,
    };
    u8::try_from(code).unwrap_or(b'?')
}

/// Returns the value of a hexadecimal digit, in either case.
fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        letter => (letter | 0x20) - b'a' + 10,
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
    fn every_spelling_of_two_dots_is_seen() {
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
            "/%u002e%u002e/x",
            "/%U002E./x",
            "/%25u002e./x",
            "/..%u002fx",
            "/..%u2215x",
            "/..%u2216x",
            "/%uff0e%uff0e/x",
            "/%ef%bc%8e./x",
            "/..%ef%bc%8fx",
            "/%c0%ae%c0%ae/x",
            "/%C0%AE./x",
            "/%c0%2e./x",
            "/..%c0%afx",
            "/..%c1%9cx",
            "/%e0%80%ae./x",
            "/%f0%80%80%ae./x",
            "/%25c0%25ae./x",
            "/%%32%65./x",
            "/..%c0%80/x",
        ] {
            assert!(may_climb(path), "{path}");
        }
    }

    #[test]
    fn paths_that_no_server_reads_as_upwards_are_left_alone() {
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
            "/%u002",
            "/%u002e",
            "/%u2024",
            "/%c0%ae/x",
            "/caf%c3%a9../x",
            "/%e2%82%ac..",
            "/%ef%bc%81",
            "/%c1/a..b",
        ] {
            assert!(!may_climb(path), "{path}");
        }
    }

    /// Guards against a path of 60 KB that occupies a worker for seconds.
    #[test]
    fn cost_of_nested_escapes_is_that_of_their_length() {
        for escape in ["25", "2525", "u0025", "c0%ae%", "%", "%2"] {
            let path = format!("/%{}", escape.repeat((60 << 10) / escape.len()));
            let mut steps = 0;
            decoded(path.as_bytes(), || steps += 1);
            assert!(steps < path.len(), "{escape}: {steps} for {} octets", path.len());
        }
        let nested = format!("/%{}2e./x", "25".repeat(30 << 10));
        assert!(may_climb(&nested), "it is decoded to its end");
    }
}

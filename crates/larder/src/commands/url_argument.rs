//! Checks the URLs in arguments and lists.
//!
//! Owns: the wording of what is wrong with one. Invariant: a URL that passes fits in the head of a request.

use crate::ground::failure::Failure;
use std::fmt::Write as _;

/// Returns a URL with its scheme in lower case.
///
/// # Errors
/// A usage failure if the text is not a URL that the proxy can handle. It says how to correct the text.
pub(crate) fn whole_url(url: &str) -> Result<String, Failure> {
    let wrong = |why: &str, help: String| {
        Err(Failure::usage(format!("not a URL, because it {why}: `{}`", shortened(url)), help))
    };
    if url.len() > URL_BYTES_MAX {
        return wrong(&format!("has {} bytes, more than {URL_BYTES_MAX}", url.len()), "give a shorter one".to_owned());
    }
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let scheme = scheme.to_ascii_lowercase();
    if scheme != "http" && scheme != "https" {
        let is_host = rest.is_ascii() && rest.contains('.') && !rest.starts_with('/');
        let rest = if is_host { rest } else { "example.com/style.css" };
        let help = format!("give a whole URL, such as http://{}", encoded(rest));
        return wrong("does not begin with http:// or https://", help);
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let path = &rest[authority.len()..];
    if let Some((_, host)) = authority.rsplit_once('@') {
        let help = format!("leave them out, as clients do: {scheme}://{host}{}", encoded(path));
        return Err(Failure::usage("not a URL for a cache, because it contains a user or a password", help));
    }
    if !authority.is_ascii() {
        let help = "write the host in ASCII (punycode); each part with other letters then begins with xn--".to_owned();
        return wrong("has a host that is not ASCII", help);
    }
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port),
        _ => (authority, ""),
    };
    if host.is_empty() {
        return wrong("has no host", format!("give a whole URL, such as {scheme}://example.com/style.css"));
    }
    if !port.is_empty() && port.parse().unwrap_or(0_u16) == 0 {
        return wrong("has a port that is not a number from 1 to 65535", format!("correct the port: {port}"));
    }
    if let Some(odd) = path.chars().find(|letter| !letter.is_ascii_graphic()) {
        let (problem, name) = match odd {
            ' ' => ("contains a space".to_owned(), "the space".to_owned()),
            _ => (format!("contains `{0}`", odd.escape_debug()), format!("`{0}`", odd.escape_debug())),
        };
        let help = format!("encode {name} as {}: {scheme}://{authority}{}", code_of(odd), encoded(path));
        return wrong(&problem, help);
    }
    let whole = format!("{scheme}://{rest}");
    match whole.parse::<http::Uri>() {
        Ok(uri) if uri.authority().is_some() => Ok(whole),
        _ => wrong("is malformed", "give a whole URL, such as http://example.com/style.css".to_owned()),
    }
}

/// Returns `text` with percent-encoding for all characters that URLs cannot contain.
fn encoded(text: &str) -> String {
    text.chars().map(|letter| if letter.is_ascii_graphic() { letter.to_string() } else { code_of(letter) }).collect()
}

/// Returns the percent-encoded form of one character.
fn code_of(letter: char) -> String {
    let mut code = String::new();
    for octet in letter.encode_utf8(&mut [0; 4]).bytes() {
        write!(code, "%{octet:02X}").expect("writing to a string cannot fail");
    }
    code
}

/// Returns the beginning of a text, so that a message stays short.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(SHOWN_LETTERS_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// Maximum length of a URL, in bytes. The proxy accepts heads of 64 KiB less two bytes.
const URL_BYTES_MAX: usize = 60 << 10;
/// Number of characters of an invalid URL that messages show.
const SHOWN_LETTERS_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheme_may_be_in_upper_case() {
        for (url, whole) in [
            ("HTTP://EXAMPLE.com/A", "http://EXAMPLE.com/A"),
            ("https://[::1]:8443/a?b=c", "https://[::1]:8443/a?b=c"),
            ("http://example.com", "http://example.com"),
            ("http://a.example/img/*", "http://a.example/img/*"),
        ] {
            assert_eq!(whole_url(url).unwrap(), whole);
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_its_correction() {
        let long = format!("http://example.com/{}", "a".repeat(70_000));
        for (url, problem, help) in [
            ("http://", "has no host", "such as http://example.com/style.css"),
            ("http://:80/", "has no host", "such as"),
            ("http://example.com:99999/", "has a port that is not a number from 1 to 65535", "correct the port: 99999"),
            ("http://user:pw@host/a", "a user or a password", "leave them out, as clients do: http://host/a"),
            ("http://h/a b", "contains a space", "encode the space as %20: http://h/a%20b"),
            ("http://h/ä", "contains `ä`", "as %C3%A4: http://h/%C3%A4"),
            ("http://exämple.com/", "not ASCII", "punycode"),
            ("exämple.com", "does not begin with http:// or https://", "such as http://example.com/style.css"),
            ("example.com/a", "does not begin with http:// or https://", "such as http://example.com/a"),
            ("/a", "does not begin with http://", "such as http://example.com/style.css"),
            ("ftp://a.example/", "does not begin with http://", "such as http://a.example/"),
            ("http://a b/", "is malformed", "such as"),
            (&long, "has 70019 bytes, more than 61440", "give a shorter one"),
        ] {
            let failure = whole_url(url).unwrap_err();
            let (told, advice) = failure.told();
            assert!(told.starts_with("not a URL") && told.contains(problem), "{told}");
            assert!(advice.contains(help) && told.len() < 400 && !told.contains("pw@"), "{told}: {advice}");
        }
    }
}

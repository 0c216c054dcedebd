//! Resolves a URI reference against a request's URI (RFC 3986 5.2), and compares origins.
//!
//! Only `http` and `https` URIs are valid results.

use http::Uri;

use crate::key::{default_port, split_authority};

/// Resolves a reference to an absolute URI without fragment.
pub(crate) fn resolve(base: &Uri, reference: &str) -> Option<Uri> {
    let reference = reference.split('#').next().unwrap_or_default();
    if let Some((scheme, _)) = reference.split_once(':')
        && is_scheme(scheme)
    {
        return reference.parse().ok();
    }
    let scheme = base.scheme_str()?;
    let authority = base.authority()?.as_str();
    if let Some(rest) = reference.strip_prefix("//") {
        return format!("{scheme}://{rest}").parse().ok();
    }
    let (path, query) = match reference.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (reference, None),
    };
    let (path, query) = if path.is_empty() {
        (base.path().to_owned(), query.or(base.query()))
    } else if path.starts_with('/') {
        (without_dot_segments(path), query)
    } else {
        let directory = base.path().rfind('/').map_or("/", |slash| &base.path()[..=slash]);
        (without_dot_segments(&format!("{directory}{path}")), query)
    };
    let mark = if query.is_some() { "?" } else { "" };
    format!("{scheme}://{authority}{path}{mark}{}", query.unwrap_or_default()).parse().ok()
}

/// Returns whether two URIs have the same scheme, host and port (RFC 9110 4.3.1).
pub(crate) fn is_same_origin(left: &Uri, right: &Uri) -> bool {
    match (origin(left), origin(right)) {
        (Some((left_host, left_port)), Some((right_host, right_port))) => {
            left.scheme() == right.scheme() && left_host.eq_ignore_ascii_case(right_host) && left_port == right_port
        }
        _ => false,
    }
}

fn origin(uri: &Uri) -> Option<(&str, u16)> {
    let default_port = default_port(uri.scheme_str()?)?;
    let (host, port) = split_authority(uri.authority()?.as_str())?;
    Some((host, port.unwrap_or(default_port)))
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

/// Removes dot segments (RFC 3986 5.2.4) from a path that begins with a slash.
fn without_dot_segments(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            "." | ".." => {
                if segment == ".." {
                    kept.pop();
                }
                if is_last {
                    kept.push("");
                }
            }
            _ => kept.push(segment),
        }
    }
    format!("/{}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn resolved(reference: &str) -> String {
        let base = Uri::from_static("http://a/b/c/d;p?q");
        resolve(&base, reference).map(|uri| uri.to_string()).unwrap_or_default()
    }

    #[test]
    fn references_resolve_as_in_the_examples_of_rfc_3986_5_4() {
        let examples = [
            ("g", "http://a/b/c/g"),
            ("./g", "http://a/b/c/g"),
            ("g/", "http://a/b/c/g/"),
            ("/g", "http://a/g"),
            ("//g", "http://g/"),
            ("?y", "http://a/b/c/d;p?y"),
            ("g?y", "http://a/b/c/g?y"),
            ("#s", "http://a/b/c/d;p?q"),
            ("g#s", "http://a/b/c/g"),
            (";x", "http://a/b/c/;x"),
            ("", "http://a/b/c/d;p?q"),
            (".", "http://a/b/c/"),
            ("./", "http://a/b/c/"),
            ("..", "http://a/b/"),
            ("../g", "http://a/b/g"),
            ("../..", "http://a/"),
            ("../../g", "http://a/g"),
            ("../../../g", "http://a/g"),
            ("/./g", "http://a/g"),
            ("/../g", "http://a/g"),
            ("g.", "http://a/b/c/g."),
            ("..g", "http://a/b/c/..g"),
            ("./g/.", "http://a/b/c/g/"),
            ("g/../h", "http://a/b/c/h"),
            ("http://x/y", "http://x/y"),
        ];
        for (reference, expected) in examples {
            assert_eq!(resolved(reference), expected, "{reference}");
        }
    }

    #[test]
    fn origin_is_scheme_host_and_port() {
        let same =
            |left: &'static str, right: &'static str| is_same_origin(&Uri::from_static(left), &Uri::from_static(right));
        assert!(same("http://a.example/x", "http://A.Example:80/y"));
        assert!(!same("http://a.example/", "https://a.example/"));
        assert!(!same("http://a.example/", "http://a.example:8080/"));
        assert!(!same("http://a.example/", "http://b.example/"));
        assert!(!same("http://a.example/", "ftp://a.example/"));
    }

    proptest! {
        #[test]
        fn no_reference_panics(reference in "\\PC{0,60}") {
            resolve(&Uri::from_static("http://a/b"), &reference);
        }
    }
}

//! Cache keys (RFC 9111 2, RFC 9110 4.2.3): equal for equivalent targets only.

use larder_http::key::{KeyError, PRIMARY_KEY_SIZE_MAX, primary_key};
use proptest::prelude::*;

fn key(scheme: &str, authority: &str, path: &str) -> Vec<u8> {
    primary_key(scheme, authority, path).expect("the target has a key")
}

#[test]
fn equivalent_targets_have_one_key() {
    let expected = key("http", "a.example", "/");
    for (scheme, authority, path) in [
        ("http", "A.Example", "/"),
        ("HTTP", "a.example:80", ""),
        ("http", "a.example:", "/"),
        ("http", "a.example:080", "/#frag"),
    ] {
        assert_eq!(key(scheme, authority, path), expected, "{scheme} {authority} {path}");
    }
    assert_eq!(key("https", "[2001:DB8::1]:443", "?q"), key("https", "[2001:db8::1]", "/?q"));
    assert_eq!(expected, b"Phttp://a.example/");
}

#[test]
fn different_targets_have_different_keys() {
    let targets = [
        ("http", "a.example", "/"),
        ("https", "a.example", "/"),
        ("http", "b.example", "/"),
        ("http", "a.example.", "/"),
        ("http", "a.example:8080", "/"),
        ("http", "a.example:443", "/"),
        ("https", "a.example:80", "/"),
        ("http", "a.example", "/?"),
        ("http", "a.example", "//"),
        ("http", "a.example", "/a"),
        ("http", "a.example", "/A"),
        ("http", "a.example", "/a/"),
        ("http", "a.example", "/a?x=1&y=2"),
        ("http", "a.example", "/a?y=2&x=1"),
        ("http", "a.example", "/%61"),
        ("http", "a.example", "/./a"),
    ];
    let keys: std::collections::HashSet<_> = targets.iter().map(|target| key(target.0, target.1, target.2)).collect();
    assert_eq!(keys.len(), targets.len());
}

#[test]
fn targets_without_a_sound_key_are_refused() {
    for (scheme, authority, path, expected) in [
        ("ftp", "a", "/", KeyError::Scheme),
        ("", "a", "/", KeyError::Scheme),
        ("http", "", "/", KeyError::Authority),
        ("http", ":80", "/", KeyError::Authority),
        ("http", "user@a", "/", KeyError::Authority),
        ("http", "a:port", "/", KeyError::Authority),
        ("http", "a:65536", "/", KeyError::Authority),
        ("http", "a:-1", "/", KeyError::Authority),
        ("http", "[::1", "/", KeyError::Authority),
        ("http", "[::1]x", "/", KeyError::Authority),
        ("http", "a/b", "/", KeyError::Authority),
        ("http", "a", "*", KeyError::Path),
        ("http", "a", "x", KeyError::Path),
    ] {
        assert_eq!(primary_key(scheme, authority, path), Err(expected), "{scheme} {authority} {path}");
    }
}

#[test]
fn length_is_bounded() {
    let path = format!("/{}", "a".repeat(PRIMARY_KEY_SIZE_MAX));
    assert_eq!(primary_key("http", "a", &path), Err(KeyError::TooLong));
    let path = format!("/{}", "a".repeat(PRIMARY_KEY_SIZE_MAX - 10));
    assert!(key("http", "a", &path).len() <= PRIMARY_KEY_SIZE_MAX + 8);
}

proptest! {
    #[test]
    fn key_tells_every_part_apart(
        host in "[a-c.]{1,4}", port in proptest::option::of(1u16..1000), path in "/[a-c/?:@]{0,6}",
        other_host in "[a-c.]{1,4}", other_port in proptest::option::of(1u16..1000), other_path in "/[a-c/?:@]{0,6}",
    ) {
        let authority = |host: &str, port: Option<u16>| port.map_or(host.to_owned(), |port| format!("{host}:{port}"));
        let first = key("http", &authority(&host, port), &path);
        let second = key("http", &authority(&other_host, other_port), &other_path);
        let same = (host, port.unwrap_or(80), path) == (other_host, other_port.unwrap_or(80), other_path);
        prop_assert_eq!(first == second, same);
    }

    #[test]
    fn no_target_panics(scheme in "\\PC{0,6}", authority in "\\PC{0,12}", path in "\\PC{0,12}") {
        let _ = primary_key(&scheme, &authority, &path);
        let _ = primary_key("http", &authority, &format!("/{path}"));
    }
}

//! Known digests of bodies, and the check of bodies against them.
//!
//! Owns: finding the digest in a path or field, and computing the digest of a body while it passes. Digests in listings
//! are found in `listings`. The cache handles a mismatch. Cost: a hash of each byte.

pub(crate) use crate::ground::cache::tier::short_digest;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::HeaderMap;
use larder_http::repr_digest;
use ring::digest::{Algorithm, Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256, SHA384, SHA512};

/// The digest that a body must have, and its algorithm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedDigest {
    algorithm: &'static Algorithm,
    octets: Vec<u8>,
    subject: DigestSubject,
}

/// The part of a response that a digest describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DigestSubject {
    /// The digest is that of the body itself.
    Body,
    /// The body is a `go.mod` of Go. Go's digest covers the line `DIGEST  go.mod`, in which `DIGEST` is the SHA-256
    /// digest of the body.
    GoMod,
}

/// Computes the digest of a body while it passes, to compare it with the expected one.
pub(crate) struct DigestCheck {
    context: Context,
    expected: NamedDigest,
}

impl NamedDigest {
    /// Returns the digest at the end of a path: `.../sha256:HEX` as in container registries, or `.../SHA256/HEX` as in
    /// Debian.
    pub(crate) fn of_path(path: &str) -> Option<Self> {
        let path = path.split('?').next()?;
        let (before, last) = path.rsplit_once('/')?;
        let (name, digits) = match last.split_once(':') {
            Some(pair) => pair,
            None => (before.rsplit('/').next()?, last),
        };
        let algorithm = match name {
            "sha256" | "SHA256" => &SHA256,
            "sha512" | "SHA512" => &SHA512,
            _ => return None,
        };
        Self::new(algorithm, octets_of(digits)?)
    }

    /// Creates a SHA-256 digest from hexadecimal digits. `None` if they are not 64 lower-case digits.
    pub(crate) fn of_sha256(digits: &str) -> Option<Self> {
        Self::new(&SHA256, octets_of(digits)?)
    }

    /// Returns the digest in a response's Repr-Digest field (RFC 9530 3), the strongest one that is supported.
    pub(crate) fn of_representation(fields: &HeaderMap) -> Option<Self> {
        let repr_digest::ReprDigest { name, octets } = repr_digest::strongest(fields)?;
        Self::new(if name == "sha-512" { &SHA512 } else { &SHA256 }, octets)
    }

    /// Returns the strongest digest in integrity metadata: `sha512-` and base64, or similar (Subresource Integrity
    /// 3.1).
    pub(crate) fn of_integrity(text: &str) -> Option<Self> {
        [("sha512", &SHA512), ("sha384", &SHA384), ("sha256", &SHA256), ("sha1", &SHA1_FOR_LEGACY_USE_ONLY)]
            .into_iter()
            .find_map(|(name, algorithm)| {
                let mut all = text.split_ascii_whitespace().filter_map(|one| one.split_once('-'));
                let (_, digits) = all.find(|(found, _)| *found == name)?;
                let digits = digits.split('?').next().unwrap_or_default();
                Self::new(algorithm, BASE64_STANDARD.decode(digits).ok()?)
            })
    }

    /// Returns the digest of a Go module's `go.mod`, which is written as `h1:` and base64.
    pub(crate) fn of_go_mod(label: &str) -> Option<Self> {
        let octets = BASE64_STANDARD.decode(label.strip_prefix("h1:")?).ok()?;
        Some(Self { subject: DigestSubject::GoMod, ..Self::new(&SHA256, octets)? })
    }

    fn new(algorithm: &'static Algorithm, octets: Vec<u8>) -> Option<Self> {
        let subject = DigestSubject::Body;
        (octets.len() == algorithm.output_len()).then_some(Self { algorithm, octets, subject })
    }

    /// Returns the digest in a label: `sha256:HEX`, or `sha1:` and base32 (RFC 4648) as in web archives.
    pub(crate) fn of_label(label: &str) -> Option<Self> {
        let (name, digits) = label.trim().split_once(':')?;
        let algorithm = match name.to_ascii_lowercase().as_str() {
            "sha1" => &SHA1_FOR_LEGACY_USE_ONLY,
            "sha256" => &SHA256,
            "sha384" => &SHA384,
            "sha512" => &SHA512,
            _ => return None,
        };
        let of_len = |octets: &Vec<u8>| octets.len() == algorithm.output_len();
        let hex = octets_of(&digits.to_ascii_lowercase()).filter(of_len);
        let octets = hex.or_else(|| octets_of_32(digits).filter(of_len))?;
        Self::new(algorithm, octets)
    }

    /// Begins to compute the digest of a body.
    pub(crate) fn check(&self) -> DigestCheck {
        DigestCheck { context: Context::new(self.algorithm), expected: self.clone() }
    }
}

impl DigestCheck {
    /// Adds the next bytes of the body.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.context.update(bytes);
    }

    /// Returns whether the body has the expected digest. Call it at the end of the body.
    pub(crate) fn matches(self) -> bool {
        let mut found = self.context.finish();
        if self.expected.subject == DigestSubject::GoMod {
            let line = format!("{}  go.mod\n", hex(found.as_ref()));
            found = ring::digest::digest(&SHA256, line.as_bytes());
        }
        found.as_ref() == self.expected.octets
    }
}

/// Returns the octets as hexadecimal digits.
pub(crate) fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

/// Decodes base32 (RFC 4648 6).
fn octets_of_32(digits: &str) -> Option<Vec<u8>> {
    let mut octets = Vec::new();
    let mut bits = 0_u32;
    let mut bit_count = 0;
    for digit in digits.trim_end_matches('=').bytes() {
        let value = match digit.to_ascii_uppercase() {
            letter @ b'A'..=b'Z' => letter - b'A',
            figure @ b'2'..=b'7' => figure - b'2' + 26,
            _ => return None,
        };
        (bits, bit_count) = (bits << 5 | u32::from(value), bit_count + 5);
        if bit_count >= 8 {
            bit_count -= 8;
            octets.push((bits >> bit_count) as u8);
            bits &= (1 << bit_count) - 1;
        }
    }
    Some(octets)
}

fn octets_of(digits: &str) -> Option<Vec<u8>> {
    let nibble = |digit: &u8| char::from(*digit).to_digit(16).filter(|_| !digit.is_ascii_uppercase());
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    let pairs = digits.as_bytes().chunks_exact(2);
    pairs.map(|pair| u8::try_from(nibble(&pair[0])? << 4 | nibble(&pair[1])?).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The digest of an empty body.
    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn a_label_names_a_digest_in_hex_or_in_32_letters() {
        for (label, is_one) in [
            (format!("sha256:{EMPTY}"), true),
            (format!("SHA256:{}", EMPTY.to_uppercase()), true),
            ("sha1:3I42H3S6NNFQ2MSVX7XZKYAYSCX5QBYJ".to_owned(), true),
            ("sha1:da39a3ee5e6b4b0d3255bfef95601890afd80709".to_owned(), true),
            ("sha1:3I42H3S6NNFQ2MSVX7XZKYAYSCX5QBY".to_owned(), false),
            ("md5:d41d8cd98f00b204e9800998ecf8427e".to_owned(), false),
            (EMPTY.to_owned(), false),
        ] {
            assert_eq!(NamedDigest::of_label(&label).is_some_and(|named| named.check().matches()), is_one, "{label}");
        }
    }

    #[test]
    fn digest_is_at_the_end_of_a_path() {
        for (path, is_one) in [
            (format!("/v2/a/b/blobs/sha256:{EMPTY}"), true),
            (format!("/v2/a/blobs/sha256:{EMPTY}?ns=x"), true),
            (format!("/dists/x/by-hash/SHA256/{EMPTY}"), true),
            (format!("/v2/a/blobs/sha512:{EMPTY}{EMPTY}"), true),
            (format!("/v2/a/blobs/sha512:{EMPTY}"), false),
            (format!("/v2/a/blobs/md5:{EMPTY}"), false),
            (format!("/v2/a/blobs/sha256:{}", EMPTY.to_uppercase()), false),
            (format!("/v2/a/blobs/sha256:{}", &EMPTY[1..]), false),
            (format!("/v2/a/sha256:{EMPTY}/more"), false),
            (EMPTY.to_owned(), false),
        ] {
            assert_eq!(NamedDigest::of_path(&path).is_some(), is_one, "{path}");
        }
    }

    #[test]
    fn integrity_metadata_names_its_strongest_digest() {
        let sha1 = "sha1-2jmj7l5rSw0yVb/vlWAYkK/YBwk=";
        let sha256 = "sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=";
        for (text, is_one) in [
            (sha1.to_owned(), true),
            (format!("{sha1} {sha256}?ct=x"), true),
            (format!("sha1-AAAAAAAAAAAAAAAAAAAAAAAAAAA= {sha256}"), true),
            (format!("sha512-AAAA {sha256}"), true),
            ("md5-1B2M2Y8AsgTpgAmY7PhCfg==".to_owned(), false),
            ("sha256-47DE".to_owned(), false),
            (String::new(), false),
        ] {
            let named = NamedDigest::of_integrity(&text);
            assert_eq!(named.is_some_and(|named| named.check().matches()), is_one, "{text}");
        }
    }

    /// Uses the record of github.com/google/uuid v1.6.0 in Go's checksum database.
    #[test]
    fn go_mod_is_held_to_the_digest_of_a_list_with_one_line() {
        let named = NamedDigest::of_go_mod("h1:TIyPZe4MgqvfeYDBFedMoGGpEw/LqOeaOT+nhxU+yHo=").unwrap();
        let is_it = |body: &[u8]| {
            let mut check = named.check();
            check.push(body);
            check.matches()
        };
        assert!(is_it(b"module github.com/google/uuid\n"));
        assert!(!is_it(b"module github.com/google/uuid"));
        assert_eq!(NamedDigest::of_go_mod("h2:TIyPZe4MgqvfeYDBFedMoGGpEw/LqOeaOT+nhxU+yHo="), None);
    }

    #[test]
    fn body_is_held_to_its_digest() {
        let named = NamedDigest::of_path(&format!("/sha256:{EMPTY}")).unwrap();
        assert!(named.check().matches());
        let mut check = named.check();
        check.push(b"x");
        assert!(!check.matches());
    }
}

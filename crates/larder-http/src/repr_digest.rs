//! Digests of representations in Repr-Digest (RFC 9530 3).
//!
//! The digest is that of the whole representation in its content coding, so a complete 200 can be checked against it.
//! Algorithms that RFC 9530 5 calls insecure, and malformed fields, count as no digest.

use http::{HeaderMap, HeaderName};
use sfv::{BareItem, Dictionary, ListEntry, Parser};

use crate::fields::unusual_lines;

/// The digest of a representation, by the strongest algorithm that a response names.
///
/// ```
/// use http::HeaderMap;
/// use larder_http::repr_digest::strongest;
///
/// let mut fields = HeaderMap::new();
/// fields.insert("repr-digest", "md5=:AAAA:, sha-256=:AAECAw==:".parse()?);
/// let digest = strongest(&fields).expect("a known algorithm");
/// assert_eq!((digest.name, &digest.octets[..]), ("sha-256", &[0, 1, 2, 3][..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReprDigest {
    /// The algorithm: `sha-512` or `sha-256`.
    pub name: &'static str,
    /// The octets of the digest. Their number is not checked.
    pub octets: Vec<u8>,
}

/// Returns the digest by the strongest algorithm in a response's fields.
pub fn strongest(fields: &HeaderMap) -> Option<ReprDigest> {
    let lines: Vec<&[u8]> = unusual_lines(fields, FIELD).collect();
    if lines.is_empty() {
        return None;
    }
    let dictionary: Dictionary = Parser::new(&lines.join(&b", "[..])).parse().ok()?;
    NAMES.into_iter().find_map(|name| match dictionary.get(name)? {
        ListEntry::Item(item) => match &item.bare_item {
            BareItem::ByteSequence(octets) => Some(ReprDigest { name, octets: octets.clone() }),
            _ => None,
        },
        ListEntry::InnerList(_) => None,
    })
}

const FIELD: HeaderName = HeaderName::from_static("repr-digest");
/// The algorithms, strongest first.
const NAMES: [&str; 2] = ["sha-512", "sha-256"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strongest_digest_of_a_well_formed_field_counts() {
        let of = |lines: &[&str]| {
            let fields = lines.iter().map(|line| (FIELD, line.parse().unwrap())).collect();
            strongest(&fields).map(|ReprDigest { name, octets }| (name, octets))
        };
        assert_eq!(of(&["sha-256=:YWI=:"]), Some(("sha-256", b"ab".to_vec())));
        assert_eq!(of(&["sha-256=:YWI=:, sha-512=:Yw==:;x"]), Some(("sha-512", b"c".to_vec())));
        assert_eq!(of(&["sha-256=:YWI=:", "sha-512=:Yw==:"]), Some(("sha-512", b"c".to_vec())));
        for line in ["md5=:YWI=:", "sha-256=\"YWI=\"", "sha-256=:YWI=", "sha-256=(:YWI=:)", ""] {
            assert_eq!(of(&[line]), None, "{line}");
        }
        assert_eq!(of(&[]), None);
    }
}

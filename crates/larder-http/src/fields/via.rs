//! Adds this proxy to Via (RFC 9110 7.6.3) and CDN-Loop (RFC 8586), and detects loops by both.

use http::{HeaderMap, HeaderName, HeaderValue, Version, header::VIA};

use super::NameFilter;
use crate::list::elements;

/// Largest number of intermediaries that a message may have passed. A message that has passed more is treated as a
/// loop.
pub const HOP_COUNT_MAX: usize = 32;

/// The filter of the fields that [`loops`] reads.
pub const NAMES: NameFilter = NameFilter::of_names(&["cdn-loop", "via"]);

/// The field by which CDNs detect that a request has come back to them (RFC 8586).
pub static CDN_LOOP: HeaderName = HeaderName::from_static("cdn-loop");

/// The protocol versions that a message can be received with, as Via names them.
const RECEIVED: [&str; 5] = ["0.9", "1.0", "1.1", "2", "3"];

/// The name of this proxy in Via and CDN-Loop.
///
/// Every request to an origin gets the values of these fields, so they are built once.
///
/// ```
/// use http::{HeaderMap, Version};
/// use larder_http::fields::via::{Pseudonym, append_via, loops};
///
/// let own = Pseudonym::new("cache-1").expect("a token");
/// let mut fields = HeaderMap::new();
/// assert!(!loops(&fields, &own));
/// append_via(&mut fields, Version::HTTP_11, &own);
/// assert_eq!(fields["via"], "1.1 cache-1");
/// assert!(loops(&fields, &own));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pseudonym {
    name: HeaderValue,
    /// The members of Via, in the order of [`RECEIVED`].
    via: [HeaderValue; RECEIVED.len()],
}

impl Pseudonym {
    /// Creates a pseudonym of letters, digits, `-`, `.` and `_`, which is a token in both fields. Returns `None` for
    /// any other name.
    pub fn new(name: impl Into<String>) -> Option<Self> {
        let name = name.into();
        let valid = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
        if !valid {
            return None;
        }
        let value = |text: String| HeaderValue::try_from(text).expect("a token is a field value");
        Some(Self { via: RECEIVED.map(|received| value(format!("{received} {name}"))), name: value(name) })
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        self.name.to_str().expect("a token is text")
    }

    /// Returns the Via member for a message received with this version.
    pub fn via_value(&self, version: Version) -> HeaderValue {
        let [http09, http10, http11, http2, http3] = &self.via;
        match version {
            Version::HTTP_09 => http09,
            Version::HTTP_10 => http10,
            Version::HTTP_2 => http2,
            Version::HTTP_3 => http3,
            _ => http11,
        }
        .clone()
    }
}

/// Appends this proxy to Via.
pub fn append_via(fields: &mut HeaderMap, version: Version, pseudonym: &Pseudonym) {
    fields.append(VIA, pseudonym.via_value(version));
}

/// Appends this proxy to CDN-Loop (RFC 8586 2).
pub fn append_cdn_loop(fields: &mut HeaderMap, pseudonym: &Pseudonym) {
    fields.append(CDN_LOOP.clone(), pseudonym.name.clone());
}

/// Returns whether a request has passed here before, or has passed more than [`HOP_COUNT_MAX`] intermediaries.
pub fn loops(fields: &HeaderMap, pseudonym: &Pseudonym) -> bool {
    let name = pseudonym.name.as_bytes();
    let mut via_count = 0;
    for member in fields.get_all(VIA).iter().flat_map(|line| elements(line.as_bytes())) {
        via_count += 1;
        // A member is the received protocol, white space, and the receiver's name. A comment may follow.
        let mut parts = member.split(|byte| matches!(byte, b' ' | b'\t')).filter(|part| !part.is_empty());
        if parts.nth(1).is_some_and(|received_by| received_by.eq_ignore_ascii_case(name)) {
            return true;
        }
    }
    let in_cdn_loop = |member: &[u8]| {
        let cdn_id = member.split(|byte| matches!(byte, b';' | b' ' | b'\t')).next().unwrap_or_default();
        cdn_id.eq_ignore_ascii_case(name)
    };
    via_count > HOP_COUNT_MAX
        || fields.get_all(&CDN_LOOP).iter().flat_map(|line| elements(line.as_bytes())).any(in_cdn_loop)
}

//! Chooses content codings for responses to clients (RFC 9110 8.4, 12.5.3).
//!
//! These functions decide which coding a client prefers, which responses are encoded, and how their fields change. The
//! encoding itself is done elsewhere. Bodies that an origin has already encoded stay unchanged.
//!
//! Invariants: an encoded response keeps no length, ranges, digests or strong entity tag of the unencoded form. Every
//! response that could have been encoded has `Vary: Accept-Encoding`. `no-transform` in the request or the response is
//! obeyed (RFC 9111 5.2.1.6, 5.2.2.6).

use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Version,
    header::{
        ACCEPT_ENCODING, ACCEPT_RANGES, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, ETAG,
        IF_NONE_MATCH, VARY,
    },
};

use crate::{
    cache_control::directives,
    entity_tag::EntityTag,
    fields::media_type,
    list::{elements, tokens, trim},
};

/// A content coding, by which a body is compressed on its way to a client.
///
/// ```
/// use larder_http::coding::ContentCoding;
///
/// assert_eq!(ContentCoding::Brotli.token(), "br");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentCoding {
    /// `zstd` (RFC 8878).
    Zstd,
    /// `br` (RFC 7932).
    Brotli,
    /// `gzip` (RFC 1952).
    Gzip,
}

/// The operator's choice of responses to encode and of codings to use. By default, nothing is encoded.
///
/// ```
/// use http::{HeaderMap, StatusCode};
/// use larder_http::coding::{Compression, ContentCoding};
///
/// let compression = Compression { codings: vec![ContentCoding::Gzip], ..Compression::default() };
/// let mut fields = HeaderMap::new();
/// fields.insert("content-type", "application/json".parse()?);
/// assert!(compression.is_about(StatusCode::OK, &fields, Some(5000)));
/// assert!(!compression.is_about(StatusCode::OK, &fields, Some(50)), "it is too short");
/// fields.insert("content-type", "image/png".parse()?);
/// assert!(!compression.is_about(StatusCode::OK, &fields, Some(5000)), "it is compressed already");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compression {
    /// The codings offered to clients, best first. An empty list, the default, turns encoding off.
    pub codings: Vec<ContentCoding>,
    /// Media types to encode, in lower case: `text/html`, or `text/*`. The default is text and text-based formats such
    /// as JSON.
    pub types: Vec<String>,
    /// Minimum length of a body to encode, in bytes. It applies if the length is known. Default 1 KiB: a shorter body
    /// fits one packet unencoded.
    pub size_min: u64,
}

/// The parts of a request that determine the coding of its response.
///
/// ```
/// use http::{HeaderMap, Request, StatusCode};
/// use larder_http::coding::{self, CodingWish, Compression, ContentCoding};
///
/// let compression = Compression { codings: vec![ContentCoding::Zstd, ContentCoding::Gzip], ..Compression::default() };
/// let request = Request::get("/").header("accept-encoding", "gzip, br").body(())?;
/// let wish = CodingWish::of(&request).expect("a GET");
///
/// let mut fields = HeaderMap::new();
/// fields.insert("content-type", "text/html".parse()?);
/// assert!(compression.is_about(StatusCode::OK, &fields, Some(50_000)));
/// let coding = wish.coding(&compression).expect("both sides know gzip");
/// coding::encode(coding, &mut fields);
/// assert_eq!(fields["content-encoding"], "gzip");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct CodingWish {
    /// The request's method, GET or HEAD.
    pub method: Method,
    /// The lines of Accept-Encoding. Empty if the response must not be encoded.
    accepted: Vec<HeaderValue>,
    /// The lines of If-None-Match, which tell whether a client has the encoded form.
    asked_about: Vec<HeaderValue>,
}

impl ContentCoding {
    /// All codings.
    pub const ALL: [Self; 3] = [Self::Zstd, Self::Brotli, Self::Gzip];

    /// Returns the coding's name in Content-Encoding and Accept-Encoding.
    pub const fn token(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Brotli => "br",
            Self::Gzip => "gzip",
        }
    }

    /// Returns whether a name in Accept-Encoding means this coding. `x-gzip` is another name of `gzip` (RFC 9110
    /// 8.4.1.3).
    fn is_named(self, name: &[u8]) -> bool {
        name.eq_ignore_ascii_case(self.token().as_bytes()) || self == Self::Gzip && name.eq_ignore_ascii_case(b"x-gzip")
    }
}

impl Compression {
    /// Returns whether a response with this status, these fields and this body length is encoded for clients that
    /// accept a coding.
    pub fn is_about(&self, status: StatusCode, fields: &HeaderMap, len: Option<u64>) -> bool {
        let essence = media_type(fields).unwrap_or_default().to_ascii_lowercase();
        let is_named = |named: &String| match named.strip_suffix('*') {
            Some(kind) => essence.starts_with(kind),
            None => *named == essence,
        };
        matches!(status.as_u16(), 200 | 203 | 404 | 410)
            && !fields.contains_key(CONTENT_ENCODING)
            && !fields.contains_key(CONTENT_RANGE)
            && !forbids_transformation(fields)
            && len.is_none_or(|len| len >= self.size_min)
            && self.types.iter().any(is_named)
    }
}

impl Default for Compression {
    fn default() -> Self {
        Self { codings: Vec::new(), types: TYPES.map(str::to_owned).to_vec(), size_min: 1 << 10 }
    }
}

impl CodingWish {
    /// Returns what a request says about codings. `None` if its method is neither GET nor HEAD.
    pub fn of<T>(request: &Request<T>) -> Option<Self> {
        let method = request.method();
        let fields = request.headers();
        if method != Method::GET && method != Method::HEAD {
            return None;
        }
        let lines = |name| fields.get_all(name).iter().cloned().collect();
        // Over HTTP/1.0 a body of unknown length ends with the connection, so the client could not tell an interruption
        // from the end.
        let is_able = request.version() > Version::HTTP_10 && !forbids_transformation(fields);
        let accepted = if is_able { lines(ACCEPT_ENCODING) } else { Vec::new() };
        Some(Self { method: method.clone(), accepted, asked_about: lines(IF_NONE_MATCH) })
    }

    /// Returns the coding to use for the response. `None` if it stays unencoded.
    pub fn coding(&self, compression: &Compression) -> Option<ContentCoding> {
        preferred(&self.accepted, &compression.codings)
    }

    /// Gives a 304 the fields of the encoded response, if the request's validator names the encoded form.
    ///
    /// A 304 does not show whether its response could have been encoded, so every 304 gets `Vary` (RFC 9110 15.4.5).
    pub fn confirm(&self, fields: &mut HeaderMap) {
        vary(fields);
        let Some(own) = fields.get(ETAG).and_then(|tag| EntityTag::parse(tag.as_bytes())).filter(|tag| !tag.weak)
        else {
            return;
        };
        let mut asked = self.asked_about.iter().flat_map(|line| EntityTag::list(line.as_bytes()));
        if asked.any(|tag| tag.weak && tag.opaque == own.opaque)
            && let Some(weak) = fields.get(ETAG).and_then(weakened)
        {
            fields.insert(ETAG, weak);
        }
    }
}

/// Changes the fields of a response to those of its encoded form.
pub fn encode(coding: ContentCoding, fields: &mut HeaderMap) {
    for name in [CONTENT_LENGTH, ACCEPT_RANGES].into_iter().chain(BODY_DIGESTS) {
        fields.remove(name);
    }
    fields.insert(CONTENT_ENCODING, HeaderValue::from_static(coding.token()));
    if let Some(weak) = fields.get(ETAG).and_then(weakened) {
        fields.insert(ETAG, weak);
    }
}

/// Adds Accept-Encoding to Vary.
pub fn vary(fields: &mut HeaderMap) {
    let is_said = tokens(fields, &VARY).any(|name| name == b"*" || name.eq_ignore_ascii_case(b"accept-encoding"));
    if !is_said {
        fields.append(VARY, HeaderValue::from_static("Accept-Encoding"));
    }
}

/// Returns the coding that a request prefers among `offered`, which lists the best first. `None` if it prefers the
/// unencoded form or names no coding.
fn preferred(accepted: &[HeaderValue], offered: &[ContentCoding]) -> Option<ContentCoding> {
    let listed: Vec<(&[u8], u16)> = accepted.iter().flat_map(|line| elements(line.as_bytes())).map(weighted).collect();
    let weight = |coding: ContentCoding| {
        let named = listed.iter().find(|(token, _)| coding.is_named(token));
        named.or_else(|| listed.iter().find(|(token, _)| *token == b"*")).map(|(_, weight)| *weight)
    };
    // A client that does not mention identity accepts it, but prefers the codings it named.
    let identity =
        listed.iter().find(|(token, _)| token.eq_ignore_ascii_case(b"identity")).map_or(0, |(_, weight)| *weight);
    let weighed = offered.iter().filter_map(|coding| Some((*coding, weight(*coding)?)));
    let wanted = weighed.filter(|(_, weight)| *weight > 0 && *weight >= identity);
    // Among codings of equal weight, the first in `offered` wins.
    wanted
        .fold(None, |best: Option<(ContentCoding, u16)>, next| best.filter(|best| best.1 >= next.1).or(Some(next)))
        .map(|(coding, _)| coding)
}

/// Returns a member of Accept-Encoding and its weight in thousandths. A malformed weight is zero.
fn weighted(member: &[u8]) -> (&[u8], u16) {
    let mut parts = member.split(|octet| *octet == b';').map(trim);
    let name = parts.next().unwrap_or_default();
    let Some(parameter) = parts.next() else { return (name, 1000) };
    let text = parameter.strip_prefix(b"q=").or_else(|| parameter.strip_prefix(b"Q="));
    let value = text.and_then(|text| str::from_utf8(text).ok()).and_then(|text| text.parse::<f32>().ok());
    let weight = value.filter(|value| (0.0..=1.0).contains(value)).map_or(0, |value| (value * 1000.0) as u16);
    (name, weight)
}

fn forbids_transformation(fields: &HeaderMap) -> bool {
    let lines = fields.get_all(CACHE_CONTROL).iter();
    lines
        .flat_map(|line| directives(line.as_bytes()))
        .any(|directive| directive.name.eq_ignore_ascii_case(b"no-transform"))
}

/// Returns the weak form of a strong tag. `None` if the tag is weak or malformed.
fn weakened(tag: &HeaderValue) -> Option<HeaderValue> {
    let parsed = EntityTag::parse(tag.as_bytes()).filter(|tag| !tag.weak);
    parsed.and_then(|_| HeaderValue::from_bytes(&[b"W/", tag.as_bytes()].concat()).ok())
}

/// Media types that are encoded by default.
const TYPES: [&str; 8] = [
    "text/*",
    "application/javascript",
    "application/json",
    "application/ld+json",
    "application/wasm",
    "application/xhtml+xml",
    "application/xml",
    "image/svg+xml",
];

/// Fields with digests of a message's content. In a 206, the content is only a part of the body.
pub const CONTENT_DIGESTS: [HeaderName; 2] =
    [HeaderName::from_static("content-md5"), HeaderName::from_static("content-digest")];

/// Fields with digests of the unencoded body.
pub const BODY_DIGESTS: [HeaderName; 5] = [
    HeaderName::from_static("content-md5"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("repr-digest"),
    HeaderName::from_static("x-checksum-sha1"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let named = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        lines.iter().map(named).collect()
    }

    #[test]
    fn client_gets_the_coding_that_it_prefers() {
        use ContentCoding::{Brotli, Gzip, Zstd};
        for (accepted, expected) in [
            ("gzip, deflate, br, zstd", Some(Zstd)),
            ("gzip, br", Some(Brotli)),
            ("GZIP", Some(Gzip)),
            // RFC 9110 8.4.1.3.
            ("x-gzip", Some(Gzip)),
            ("X-Gzip;q=0.5, identity;q=0.1", Some(Gzip)),
            ("x-gzip;q=0, *", Some(Zstd)),
            ("x-gzip;q=0", None),
            ("gzip;q=1.0, br;q=0.5", Some(Gzip)),
            ("zstd;q=0, br;q=0.000, *", Some(Gzip)),
            ("*", Some(Zstd)),
            ("*;q=0", None),
            ("identity", None),
            ("identity, gzip;q=0.5", None),
            ("identity;q=0.5, gzip", Some(Gzip)),
            ("gzip;q=2", None),
            ("gzip;x=1", None),
            ("deflate", None),
            ("", None),
        ] {
            let found = preferred(&[HeaderValue::from_static(accepted)], &ContentCoding::ALL);
            assert_eq!(found, expected, "{accepted}");
        }
        assert_eq!(preferred(&[], &ContentCoding::ALL), None);
    }

    #[test]
    fn only_what_may_be_encoded_is() {
        let compression = Compression {
            codings: ContentCoding::ALL.to_vec(),
            types: vec!["text/*".into(), "application/json".into()],
            size_min: 10,
        };
        let html = ("content-type", "Text/HTML; charset=utf-8");
        for (status, lines, len, is_about) in [
            (200, vec![html], Some(10), true),
            (200, vec![html], None, true),
            (404, vec![("content-type", "application/json")], Some(10), true),
            (200, vec![html], Some(9), false),
            (206, vec![html], None, false),
            (200, vec![("content-type", "image/png")], None, false),
            (200, vec![], None, false),
            (200, vec![html, ("content-encoding", "br")], None, false),
            (200, vec![html, ("cache-control", "max-age=1, No-Transform")], None, false),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(compression.is_about(status, &fields(&lines), len), is_about, "{status} {lines:?} {len:?}");
        }
    }

    #[test]
    fn request_without_a_wish_gets_no_coding() {
        let compression = Compression { codings: ContentCoding::ALL.to_vec(), ..Compression::default() };
        let request = |method: Method, version, lines: &[(&'static str, &'static str)]| {
            let mut request = Request::new(());
            (*request.method_mut(), *request.version_mut(), *request.headers_mut()) = (method, version, fields(lines));
            request
        };
        let accepting = ("accept-encoding", "br");
        for (version, lines, coding) in [
            (Version::HTTP_11, vec![accepting], Some(ContentCoding::Brotli)),
            (Version::HTTP_2, vec![accepting], Some(ContentCoding::Brotli)),
            (Version::HTTP_10, vec![accepting], None),
            (Version::HTTP_11, vec![accepting, ("cache-control", "no-transform")], None),
            (Version::HTTP_11, vec![], None),
        ] {
            assert_eq!(
                CodingWish::of(&request(Method::GET, version, &lines)).unwrap().coding(&compression),
                coding,
                "{lines:?}"
            );
        }
        assert!(CodingWish::of(&request(Method::POST, Version::HTTP_11, &[accepting])).is_none());
    }

    #[test]
    fn encoded_form_has_a_validator_of_its_own() {
        let mut encoded =
            fields(&[("etag", "\"a\""), ("content-length", "5"), ("accept-ranges", "bytes"), ("digest", "x")]);
        encode(ContentCoding::Gzip, &mut encoded);
        assert_eq!(encoded, fields(&[("etag", "W/\"a\""), ("content-encoding", "gzip")]));
        for (asked, tag) in [("W/\"a\"", "W/\"a\""), ("\"b\", W/\"a\"", "W/\"a\""), ("\"a\"", "\"a\""), ("*", "\"a\"")]
        {
            let mut confirmed = fields(&[("etag", "\"a\"")]);
            let asked_about = vec![HeaderValue::from_str(asked).unwrap()];
            CodingWish { accepted: Vec::new(), method: Method::GET, asked_about }.confirm(&mut confirmed);
            assert_eq!(confirmed, fields(&[("etag", tag), ("vary", "Accept-Encoding")]), "{asked}");
        }
        let mut varied = fields(&[("vary", "Accept, ACCEPT-ENCODING")]);
        vary(&mut varied);
        assert_eq!(varied.get_all(VARY).iter().count(), 1);
    }
}

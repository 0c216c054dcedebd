//! Request fields that many frameworks and servers use to build a response without naming them in Vary.
//!
//! They state the "real" host, path, method or form of a request. A client that could get such a response stored for
//! others would poison the cache. So a response to a request with such a field is stored only for requests with the
//! same value ([`crate::vary`]). docs/reference/trusted-fields.md shows the table.
//!
//! Fields that only name the client's address, such as X-Forwarded-For, are left out: they would give each client its
//! own copy, and an origin that uses them says `private`. Cost: a few comparisons per request field when a response is
//! stored or confirmed.
//!
//! Fields in which a proxy names the user, such as Client-Cert, are believed only if a trusted proxy sent them
//! ([`drop_untrusted`]). Then they are part of the key too, and a response without them never answers a request with
//! them. Cost: one pass over the names of a request's fields.
//!
//! CGI, WSGI and Rack read `X_Forwarded_Host` like `X-Forwarded-Host`, so this module reads an underscore as a hyphen.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName};
use memchr::memchr;

/// A request field, or a family of fields, by which frameworks choose a response although Vary does not name it.
///
/// ```
/// use larder_http::telling::{TELLING_FIELDS, is_telling};
///
/// let named = TELLING_FIELDS.iter().find(|field| field.name == "x-http-method-override").expect("it is listed");
/// assert_eq!(named.tells, "the method");
/// assert!(is_telling(&http::HeaderName::from_static("x-forwarded-host")));
/// assert!(!is_telling(&http::HeaderName::from_static("x-forwarded-for")));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TellingField {
    /// The field's name in lower case. A `*` at its end makes it the prefix of all names of a family.
    pub name: &'static str,
    /// Fields of the family that only describe the client or the route and do not change the response.
    pub except: &'static [&'static str],
    /// The property of a request that origins take from the field.
    pub tells: &'static str,
}

/// Request fields that origins are known to use without naming them in Vary. Forwarded (RFC 7239) is handled
/// separately, because only its host and scheme count.
pub const TELLING_FIELDS: &[TellingField] = &[
    family("x-forwarded-*", &["x-forwarded-for"], "host, scheme, port, prefix, path and user of the request"),
    family("x-original-*", &["x-original-for", "x-original-forwarded-for"], "host, path and method before a rewrite"),
    family("x-rewrite-*", &[], "the path after a rewrite"),
    family(
        "x-envoy-*",
        &["x-envoy-attempt-count", "x-envoy-expected-rq-timeout-ms", "x-envoy-external-address"],
        "path and host before a rewrite, and Envoy's decisions",
    ),
    family("x-invoke-*", &[], "the page that Next.js should render, and its status"),
    family("x-middleware-*", &[], "decisions of the middleware of Next.js"),
    family("x-nextjs-*", &[], "whether Next.js should respond with data"),
    family("next-*", &[], "the part of a page that Next.js should return"),
    field("rsc", "whether React should respond with components"),
    field("x-matched-path", "the page that Next.js should render"),
    field("x-now-route-matches", "the page that Next.js should render"),
    field("x-host", "the host"),
    field("x-http-host-override", "the host"),
    field("x-proxy-host", "the host"),
    field("x-proxy-url", "the target"),
    field("x-http-destinationurl", "the target"),
    field("x-http-path-override", "the path"),
    field("x-http-method", "the method"),
    field("x-http-method-override", "the method"),
    field("x-method-override", "the method"),
    field("x-scheme", "the scheme"),
    field("x-url-scheme", "the scheme"),
    field("x-arr-ssl", "the scheme"),
    field("cf-visitor", "the scheme"),
    field("cloudfront-forwarded-proto", "the scheme"),
    field("front-end-https", "the scheme"),
];

/// Request fields in which a proxy in front of this one names a user that it has identified, or the properties of
/// that user.
pub const IDENTITY_FIELDS: &[TellingField] = &[
    field("client-cert", "the certificate of the client (RFC 9440)"),
    field("client-cert-chain", "the certificate of the client (RFC 9440)"),
    family("x-auth-request-*", &[], "the user, as oauth2-proxy names it"),
    family("remote-*", &[], "the user and its groups, as Authelia and many others name them"),
    family("x-remote-*", &[], "the user and its groups, as Kubernetes and others name them"),
    family("cf-access-*", &[], "the user, as Cloudflare Access names it"),
    family("x-amzn-oidc-*", &[], "the user, as the load balancer of AWS names it"),
    field("cf-ipcountry", "the country of the client, as Cloudflare names it"),
];

/// Returns whether a field is one of [`TELLING_FIELDS`].
pub fn is_telling(name: &HeaderName) -> bool {
    let name = name.as_str();
    // Compared first, because each lookup and each fetch asks this about every field of the request.
    let may_be = matches!(
        name.as_bytes(),
        [b'x', ..] | [b'n', b'e', ..] | [b'r', b's', ..] | [b'c', b'f' | b'l', ..] | [b'f', b'r', ..]
    );
    may_be && is_one_of(TELLING_FIELDS, name)
}

/// Returns whether a field is one of [`IDENTITY_FIELDS`].
pub fn is_identity(name: &HeaderName) -> bool {
    let name = name.as_str();
    // Compared first, because every request asks this about each of its fields.
    let may_be =
        matches!(name.as_bytes(), [b'c', b'f' | b'l', ..] | [b'r', b'e', b'm', ..] | [b'x', _, b'a' | b'r', ..]);
    may_be && is_one_of(IDENTITY_FIELDS, name)
}

/// Returns whether a request has one of [`IDENTITY_FIELDS`].
pub fn has_identity(fields: &HeaderMap) -> bool {
    fields.keys().any(is_identity)
}

/// The request fields of a client that are kept instead of removed as untrusted.
///
/// ```
/// use http::HeaderMap;
/// use larder_http::telling::{FieldTrust, drop_untrusted};
///
/// let mut fields = HeaderMap::new();
/// fields.insert("client-cert", ":AAAA:".parse()?);
/// fields.insert("x_forwarded_host", "evil.example".parse()?);
/// let of_stranger = FieldTrust { is_by_trusted_proxy: false, keeps_underscores: false };
/// drop_untrusted(&mut fields, of_stranger);
/// assert!(fields.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FieldTrust {
    /// Whether a trusted proxy sent the request, so that its [`IDENTITY_FIELDS`] are kept.
    pub is_by_trusted_proxy: bool,
    /// Whether fields with an underscore in their names are kept.
    pub keeps_underscores: bool,
}

/// Removes the request fields that a program behind the origin may misread, and [`IDENTITY_FIELDS`] unless a trusted
/// proxy sent them.
///
/// Some programs read a name with an underscore like the same name with a hyphen. `Transfer_Encoding` and
/// `Content_Length` are removed even if other names with underscores are kept, because their only use is to smuggle a
/// request. [`FieldTrust`] has an example.
pub fn drop_untrusted(fields: &mut HeaderMap, trust: FieldTrust) {
    let is_dropped = |name: &HeaderName| {
        let text = name.as_str();
        let is_mistakable = memchr(b'_', text.as_bytes()).is_some()
            && (!trust.keeps_underscores || matches!(text, "transfer_encoding" | "content_length"));
        is_mistakable || (!trust.is_by_trusted_proxy && is_identity(name))
    };
    if fields.keys().any(is_dropped) {
        let dropped: Vec<_> = fields.keys().filter(|name| is_dropped(name)).cloned().collect();
        for name in dropped {
            fields.remove(name);
        }
    }
}

fn is_one_of(table: &[TellingField], name: &str) -> bool {
    let name = if name.contains('_') { Cow::Owned(name.replace('_', "-")) } else { Cow::Borrowed(name) };
    table.iter().any(|telling| telling.is(&name))
}

impl TellingField {
    fn is(&self, name: &str) -> bool {
        match self.name.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning) && !self.except.contains(&name),
            None => name == self.name,
        }
    }
}

const fn family(name: &'static str, except: &'static [&'static str], tells: &'static str) -> TellingField {
    TellingField { name, except, tells }
}

const fn field(name: &'static str, tells: &'static str) -> TellingField {
    TellingField { name, except: &[], tells }
}

/// Stands for the host and scheme in Forwarded (RFC 7239 5.3, 5.4) as a selecting field.
///
/// Its `for` differs from client to client and says nothing about the target, so selecting by the whole field would
/// give each client its own variant.
pub(crate) static FORWARDED_TARGET: HeaderName = HeaderName::from_static("!forwarded-target");

//! Request fields that many frameworks and servers use to build a response without naming them in Vary.
//!
//! They state the "real" host, path, method or form of a request. A client that could get such a response stored for
//! others would poison the cache. So a response to a request with such a field is stored only for requests with the
//! same value ([`crate::vary`]). docs/reference/trusted-fields.md shows the table.
//!
//! Fields that only identify the client, such as X-Forwarded-For, are left out: they would give each client its own
//! copy, and an origin that uses them says `private`. Cost: a few comparisons per request field when a response is
//! stored or confirmed.

use http::HeaderName;

/// A field or a family of fields, and the software that uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TellingField {
    /// The field's name in lower case. With `*` at its end it is the prefix of a family's names.
    pub name: &'static str,
    /// Fields of the family that only describe the client or the route and do not change the response.
    pub except: &'static [&'static str],
    /// The property of a request that origins take from the field.
    pub tells: &'static str,
}

/// The fields. Forwarded (RFC 7239) is handled separately, because only its host and scheme count.
pub const TELLING_FIELDS: &[TellingField] = &[
    family("x-forwarded-*", &["x-forwarded-for"], "host, scheme, port, prefix, path and user of the request"),
    family("x-original-*", &["x-original-for", "x-original-forwarded-for"], "host, path and method before a rewrite"),
    family("x-rewrite-*", &[], "the path after a rewrite"),
    family(
        "x-envoy-*",
        &["x-envoy-attempt-count", "x-envoy-expected-rq-timeout-ms", "x-envoy-external-address"],
        "path and host before a rewrite, and Envoy's decisions",
    ),
    family("x-invoke-*", &[], "which page Next.js is to render, and with which status"),
    family("x-middleware-*", &[], "decisions of the middleware of Next.js"),
    family("x-nextjs-*", &[], "whether Next.js is to answer with data"),
    family("next-*", &[], "which part of a page Next.js is to answer with"),
    field("rsc", "whether React is to answer with components"),
    field("x-matched-path", "which page Next.js is to render"),
    field("x-now-route-matches", "which page Next.js is to render"),
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

/// Returns whether a field is one of [`TELLING_FIELDS`].
pub fn is_telling(name: &HeaderName) -> bool {
    let name = name.as_str();
    TELLING_FIELDS.iter().any(|telling| telling.is(name))
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

/// Represents the host and scheme in Forwarded (RFC 7239 5.3, 5.4).
///
/// Its `for` differs from client to client and says nothing about the target, so selecting by the whole field would
/// give each client its own variant.
pub(crate) static FORWARDED_TARGET: HeaderName = HeaderName::from_static("!forwarded-target");

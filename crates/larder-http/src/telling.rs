//! Request fields by which many frameworks and servers build their answers though no Vary says so: whom, how and by which
//! method the request "really" is for, and in which form the answer is wanted. Whoever can have such an answer stored for
//! others poisons the cache.
//!
//! Owns: the table, which docs/trusted-fields.md shows. Does not: say what follows, see [`crate::vary`]: what answers a
//! request with such a field is stored for those who send it with the same value, and for nobody else. Fields that name
//! the client alone (X-Forwarded-For and its kin) are not of it: they would give each client a copy of its own, and who
//! answers by them says `private`. Cost: a few comparisons per field of a request, where something is stored or confirmed.

use http::HeaderName;

/// A field, or a family of them, and who goes by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Telling {
    /// The field's name in lower case, or with `*` behind it how the names of a family begin.
    pub name: &'static str,
    /// Fields of the family that tell of the client or of the way, and change no answer.
    pub except: &'static [&'static str],
    /// What origins take from it.
    pub tells: &'static str,
}

/// The fields. Forwarded (RFC 7239) is besides, and only what it says of host and scheme.
pub const TELLING_FIELDS: &[Telling] = &[
    family("x-forwarded-*", &["x-forwarded-for"], "host, scheme, port, prefix, path and user of the request"),
    family("x-original-*", &["x-original-for", "x-original-forwarded-for"], "host, path and method before a rewrite"),
    family("x-rewrite-*", &[], "the path after a rewrite"),
    family(
        "x-envoy-*",
        &["x-envoy-attempt-count", "x-envoy-expected-rq-timeout-ms", "x-envoy-external-address"],
        "path and host before a rewrite, and what Envoy decided",
    ),
    family("x-invoke-*", &[], "which page Next.js is to render, and with which status"),
    family("x-middleware-*", &[], "what the middleware of Next.js decided"),
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

/// Whether a field is of [`TELLING_FIELDS`].
pub fn is_telling(name: &HeaderName) -> bool {
    let name = name.as_str();
    TELLING_FIELDS.iter().any(|telling| telling.is(name))
}

impl Telling {
    fn is(&self, name: &str) -> bool {
        match self.name.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning) && !self.except.contains(&name),
            None => name == self.name,
        }
    }
}

const fn family(name: &'static str, except: &'static [&'static str], tells: &'static str) -> Telling {
    Telling { name, except, tells }
}

const fn field(name: &'static str, tells: &'static str) -> Telling {
    Telling { name, except: &[], tells }
}

/// Stands for what Forwarded (RFC 7239 5.3, 5.4) tells of host and scheme. Its `for` is another for each client and says
/// nothing of the target, so the field as a whole would give each client a variant of its own.
pub(crate) static FORWARDED_TARGET: HeaderName = HeaderName::from_static("!forwarded-target");

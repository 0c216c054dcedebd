//! The build caches: which requests belong to one, who may write to it, and the keys of its entries.
//!
//! Owns: the table of paths, and the tokens of writers. `road::build_cache` answers the requests. Invariant: an
//! entry's key has an origin mark that no origin has, so a result of a build and a response of an origin never share a
//! key. Cost: one comparison per build cache and request.

use std::{net::IpAddr, sync::Arc};

use http::{
    HeaderMap, HeaderValue, Method, Request, Uri,
    header::{AUTHORIZATION, CONTENT_TYPE, FORWARDED, VIA, X_CONTENT_TYPE_OPTIONS},
    uri::Authority,
};
use larder_http::fields::media_type;

use crate::{
    ground::{
        cache::mark::OriginMark,
        config::{BuildCache, HostSent, LocalWriters, ProxyConfig},
        digest::NamedDigest,
        errors::Failure,
        target::{Origin, host_of},
        tokens::TokenRoles,
    },
    targets::{dots::may_climb, routes::Destination},
};

/// The host in the cache keys of all build caches, for listing and purging. No server can have it (RFC 6761 6.4).
pub(crate) const AUTHORITY: &str = "build-cache.invalid";
const SCHEME: &str = "http";
/// The origin mark in the cache keys of all build caches.
pub(crate) const MARK: OriginMark<'static> = OriginMark::of_own("build-cache");

/// The configured build caches.
pub(crate) struct BuildCacheTable(Vec<Arc<KnownBuildCache>>);

/// The tokens of each build cache's writers, in the order of the configuration. `None` for a build cache without
/// tokens.
pub(crate) struct BuildCacheTokens(Vec<Option<WriterTokens>>);

type WriterTokens = TokenRoles<WriterRole>;

/// The only role of a build cache's token: it permits writing.
#[derive(Clone, Copy, Debug)]
struct WriterRole;

struct KnownBuildCache {
    path: String,
    tokens: Option<WriterTokens>,
    local_writers: LocalWriters,
    /// The build cache from which missing entries are requested, and the path there that corresponds to this cache's
    /// path. `None` if missing entries are not requested.
    origin: Option<(Origin, String)>,
}

/// A request to a build cache.
#[derive(Clone)]
pub(crate) struct BuildCacheRequest {
    cache: Arc<KnownBuildCache>,
    /// Whether the client may write. Until [`BuildCacheRequest::judge_writer`] sets it, the client may not write.
    access: WriteAccess,
}

/// Whether a client may write to a build cache, and why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteAccess {
    Granted,
    /// The client may not write, because it sent no token.
    NoToken,
    /// The client may not write, because its token is not one of this build cache's tokens.
    WrongToken,
    /// The client may not write, because the build cache has no tokens, and its setting for local writers does not
    /// include this client.
    ReadOnly,
}

/// Facts about a request that decide whether its client may write to a build cache.
#[derive(Clone, Copy)]
pub(crate) struct WriterFacts<'a> {
    /// All fields of the request, before any was removed.
    pub(crate) fields: &'a HeaderMap,
    /// The authority in the request's target or Host field.
    pub(crate) authority: Option<&'a str>,
    /// Whether the connection comes from this machine without a PROXY header.
    pub(crate) is_near: bool,
    /// Returns whether the program that opened the connection runs as this proxy's user.
    pub(crate) is_own_user: &'a dyn Fn() -> bool,
}

impl BuildCacheTokens {
    /// Reads the token files of all build caches.
    ///
    /// # Errors
    /// A file cannot be used; the error says which and why.
    pub(crate) fn load(config: &ProxyConfig) -> Result<Self, String> {
        let load = |path| TokenRoles::load(path, "build cache tokens", &[("write", WriterRole)]);
        let tokens = config.build_caches.iter().map(|cache| cache.tokens.as_deref().map(load).transpose());
        tokens.collect::<Result<_, _>>().map(Self)
    }
}

impl BuildCacheTable {
    pub(crate) fn new(caches: &[BuildCache], tokens: BuildCacheTokens) -> Self {
        let known = |(cache, tokens): (&BuildCache, _)| {
            let origin = cache.origin.as_ref().map(|url| {
                let origin = Origin::of_mirror(&url.clone().with_host(HostSent::Origin));
                (origin, url.prefix.clone())
            });
            Arc::new(KnownBuildCache { path: cache.path.clone(), tokens, local_writers: cache.local_writers, origin })
        };
        let mut all: Vec<_> = caches.iter().zip(tokens.0).map(known).collect();
        // Of several matching paths, the longest wins, so it comes first.
        all.sort_by_key(|known| std::cmp::Reverse(known.path.len()));
        Self(all)
    }

    /// Returns whether there are no build caches.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the build cache that a request addresses, or `None` if it addresses none.
    ///
    /// `is_ours` returns whether the request is for this proxy itself, and not to be forwarded.
    ///
    /// # Errors
    /// Some programs could interpret the path as one outside the build cache.
    pub(crate) fn find(
        &self,
        request: &Request<impl Sized>,
        is_ours: impl FnOnce(&Uri) -> bool,
    ) -> Result<Option<BuildCacheRequest>, Failure> {
        if request.method() == Method::CONNECT {
            return Ok(None);
        }
        let path = request.uri().path();
        let found = self.0.iter().find(|known| is_below(path, &known.path));
        let Some(known) = found.filter(|_| is_ours(request.uri())) else { return Ok(None) };
        if may_climb(path) {
            return Err(Failure::BadRequest("its path leads outside the build cache"));
        }
        Ok(Some(BuildCacheRequest { cache: Arc::clone(known), access: WriteAccess::NoToken }))
    }
}

impl BuildCacheRequest {
    /// Returns the scheme, authority and origin mark in the cache keys of all entries.
    pub(crate) fn name() -> (&'static str, &'static str, OriginMark<'static>) {
        (SCHEME, AUTHORITY, MARK)
    }

    /// Returns whether missing entries are requested from another build cache.
    pub(crate) fn has_origin(&self) -> bool {
        self.cache.origin.is_some()
    }

    /// Returns the build cache from which missing entries are requested. If there is none, the destination is a host
    /// that is never contacted.
    pub(crate) fn destination(&self) -> Destination<'_> {
        let (scheme, authority, mark) = Self::name();
        let nowhere = || Origin { trusted: true, ..Origin::of_client(AUTHORITY, 80) };
        let origin = self.cache.origin.as_ref().map_or_else(nowhere, |(origin, _)| origin.clone());
        let prefix = self.cache.origin.as_ref().map_or("", |(_, prefix)| prefix);
        Destination { scheme, authority: authority.into(), origin, group: None, prefix, mark }
    }

    /// Returns the part of a path that follows the path of the build cache.
    pub(crate) fn rest<'a>(&self, path: &'a str) -> &'a str {
        path.strip_prefix(self.cache.path.as_str()).filter(|rest| !rest.is_empty()).unwrap_or("/")
    }

    /// Returns whether the client may write to the build cache.
    pub(crate) fn access(&self) -> WriteAccess {
        self.access
    }

    /// Decides whether the sender of a request may write to the build cache.
    pub(crate) fn judge_writer(&mut self, writer: &WriterFacts<'_>) {
        let is_local = || writer.is_near && !is_forwarded(writer.fields) && !is_of_page(writer);
        self.access = match (&self.cache.tokens, self.cache.local_writers) {
            (Some(tokens), _) if tokens.role_of(writer.fields).is_some() => WriteAccess::Granted,
            (Some(_), _) if writer.fields.contains_key(AUTHORIZATION) => WriteAccess::WrongToken,
            (Some(_), _) => WriteAccess::NoToken,
            (None, LocalWriters::All) if is_local() => WriteAccess::Granted,
            (None, LocalWriters::OwnUser) if is_local() && (writer.is_own_user)() => WriteAccess::Granted,
            (None, _) => WriteAccess::ReadOnly,
        };
    }
}

/// Changes a response's fields so that browsers do not run an entry as a page or script. Any client may have stored the
/// entry.
pub(crate) fn disarm(is_entry: bool, fields: &mut HeaderMap) {
    fields.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if is_entry && fields.contains_key(CONTENT_TYPE) && !media_type(fields).is_some_and(is_inert) {
        fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    }
}

/// Returns whether browsers never run content of this media type.
fn is_inert(kind: &str) -> bool {
    let kind = kind.to_ascii_lowercase();
    let Some((_, subtype)) = kind.split_once('/') else { return false };
    let is_document = ["html", "xml", "xsl", "svg", "pdf", "rfc822"].iter().any(|part| subtype.contains(part));
    let is_script = ["script", "wasm", "css"].iter().any(|part| subtype.contains(part));
    !is_document && !is_script && !kind.starts_with("multipart/")
}

/// Returns the digest that the content of an entry must have according to its path. `None` if the path contains no
/// digest.
///
/// # Errors
/// The path is one below `/cas/`, where names are digests, but its name is not a SHA-256 digest.
pub(crate) fn digest_of(path: &str) -> Result<Option<NamedDigest>, Failure> {
    let path = path.split('?').next().unwrap_or_default();
    match path.rsplit_once('/') {
        Some((before, digits)) if before.ends_with("/cas") && !digits.is_empty() => {
            let digest = NamedDigest::of_sha256(digits);
            digest.map(Some).ok_or(Failure::BadRequest("a name below /cas/ must be a SHA-256 digest, in lower case"))
        }
        _ => Ok(None),
    }
}

/// Returns whether `path` equals `prefix` or is below it. Only whole segments match.
pub(crate) fn is_below(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns whether the fields of a request show that a proxy forwarded it.
fn is_forwarded(fields: &HeaderMap) -> bool {
    let names_client = |name: &str| name.starts_with("x-forwarded-") || name == "x-real-ip";
    fields.contains_key(VIA) || fields.contains_key(FORWARDED) || fields.keys().any(|name| names_client(name.as_str()))
}

/// Returns whether a web page in a browser on this machine may have sent the request.
///
/// Such a page can use a host name of its own that resolves to this machine (DNS rebinding).
fn is_of_page(writer: &WriterFacts<'_>) -> bool {
    let host = writer.authority.and_then(|host| host.parse::<Authority>().ok());
    let is_plain = host.is_some_and(|host| {
        let name = host_of(host.as_str()).trim_matches(['[', ']']);
        name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
    });
    !is_plain || writer.fields.contains_key("sec-fetch-site") || writer.fields.contains_key("origin")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_below_cas_needs_a_digest_and_nothing_else_does() {
        let digest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        for path in [format!("/c/cas/{digest}"), format!("/cas/{digest}?x=y")] {
            assert!(digest_of(&path).unwrap().is_some(), "{path}");
        }
        for path in ["/c/ac/x", "/c/cas", "/c/xcas/y", "/c/cas/", "/c/cas/a/b", ""] {
            assert!(digest_of(path).unwrap().is_none(), "{path}");
        }
        for name in ["x", &digest[1..], &digest.to_uppercase()] {
            assert!(digest_of(&format!("/c/cas/{name}")).is_err(), "{name}");
        }
    }

    /// A request from a program on this machine, whose fields the program may set as it likes.
    struct Sent<'a> {
        fields: &'a [(&'static str, &'a str)],
        authority: &'a str,
        is_near: bool,
        is_own_user: bool,
    }

    const PLAIN: Sent<'_> = Sent { fields: &[], authority: "127.0.0.1:3128", is_near: true, is_own_user: true };

    fn access(local_writers: LocalWriters, sent: &Sent<'_>) -> WriteAccess {
        let config = BuildCache { local_writers, ..BuildCache::at("/c") };
        let table = BuildCacheTable::new(&[config], BuildCacheTokens(vec![None]));
        let mut fields = HeaderMap::new();
        sent.fields.iter().for_each(|(name, value)| drop(fields.insert(*name, value.parse().unwrap())));
        let authority = Some(sent.authority).filter(|authority| !authority.is_empty());
        let is_own_user = &|| sent.is_own_user;
        let mut request = BuildCacheRequest { cache: Arc::clone(&table.0[0]), access: WriteAccess::NoToken };
        request.judge_writer(&WriterFacts { fields: &fields, authority, is_near: sent.is_near, is_own_user });
        request.access()
    }

    #[test]
    fn without_tokens_only_the_configured_programs_on_this_machine_write() {
        use LocalWriters::{All, None, OwnUser};
        for authority in ["127.0.0.1:3128", "[::1]:3128", "localhost", "LOCALHOST:1"] {
            let sent = Sent { authority, ..PLAIN };
            assert_eq!(access(All, &sent), WriteAccess::Granted, "{authority}");
            assert_eq!(access(OwnUser, &sent), WriteAccess::Granted, "{authority}");
            assert_eq!(access(None, &sent), WriteAccess::ReadOnly, "{authority}");
        }
        let of_another_user = Sent { is_own_user: false, ..PLAIN };
        assert_eq!(access(All, &of_another_user), WriteAccess::Granted);
        assert_eq!(access(OwnUser, &of_another_user), WriteAccess::ReadOnly);
        assert_eq!(access(All, &Sent { is_near: false, ..PLAIN }), WriteAccess::ReadOnly);
        for authority in ["", "evil.example", "localhost.evil.example"] {
            assert_eq!(access(All, &Sent { authority, ..PLAIN }), WriteAccess::ReadOnly, "{authority}");
        }
        for name in
            ["origin", "sec-fetch-site", "via", "forwarded", "x-forwarded-for", "x-forwarded-proto", "x-real-ip"]
        {
            assert_eq!(access(All, &Sent { fields: &[(name, "x")], ..PLAIN }), WriteAccess::ReadOnly, "{name}");
        }
    }

    #[test]
    fn types_that_browsers_run_are_sent_as_bytes() {
        let sent = |content_type: &'static str| {
            let mut fields = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(content_type))]);
            disarm(true, &mut fields);
            assert_eq!(fields[X_CONTENT_TYPE_OPTIONS], "nosniff");
            fields[CONTENT_TYPE].clone()
        };
        for run in [
            "text/html",
            "TEXT/HTML; charset=utf-8",
            "application/xhtml+xml",
            "image/svg+xml",
            "text/javascript",
            "application/x-javascript",
            "application/ecmascript",
            "application/xml",
            "text/xml;q",
            "application/atom+xml",
            "text/css",
            "application/pdf",
            "multipart/x-mixed-replace; boundary=x",
            "",
            "html",
        ] {
            assert_eq!(sent(run), "application/octet-stream", "{run}");
        }
        for inert in ["application/octet-stream", "text/plain", "application/json", "a/b", "application/x-nix-nar"] {
            assert_eq!(sent(inert), inert);
        }
    }
}

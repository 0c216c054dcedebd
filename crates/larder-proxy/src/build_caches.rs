//! The build caches: which requests belong to one, who may write to it, and the keys of its entries.
//!
//! Owns: the table of paths, and the tokens of writers. `request::build_cache` answers the requests. Invariant: an
//! entry's key has an origin mark that no origin has, so a result of a build and a response of an origin never share a
//! key. Cost: one comparison per build cache and request.

use std::{net::IpAddr, sync::Arc};

use http::{
    HeaderMap, Method, Request, Uri,
    header::{AUTHORIZATION, HOST},
    uri::Authority,
};

use crate::{
    cache::mark::OriginMark,
    config::{BuildCache, HostSent, ProxyConfig},
    digest::NamedDigest,
    dots::may_climb,
    errors::Failure,
    origin::target::{Origin, host_of},
    routes::Destination,
    tokens::TokenRoles,
};

/// The host in the keys of all build caches, under which entries are listed and purged. No server can have it (RFC 6761
/// 6.4).
pub(crate) const AUTHORITY: &str = "build-cache.invalid";
const SCHEME: &str = "http";
/// The mark in the keys of all build caches.
pub(crate) const MARK: OriginMark<'static> = OriginMark::of_own("build-cache");

/// The configured build caches.
pub(crate) struct BuildCacheTable(Vec<Arc<KnownBuildCache>>);

/// The tokens of the build caches, in the order of the configuration. `None` for one without.
pub(crate) struct BuildCacheTokens(Vec<Option<WriterTokens>>);

type WriterTokens = TokenRoles<WriterRole>;

/// The role of a token.
#[derive(Clone, Copy, Debug)]
struct WriterRole;

struct KnownBuildCache {
    path: String,
    tokens: Option<WriterTokens>,
    /// The build cache from which missing entries are requested, and its path there.
    origin: Option<(Origin, String)>,
}

/// The build cache that a request is for. Kept in the request's extensions.
#[derive(Clone)]
pub(crate) struct BuildCacheRequest(Arc<KnownBuildCache>);

/// Whether a client may write to a build cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteAccess {
    Granted,
    /// The client sent no token.
    NoToken,
    /// The client's token is not one of the build cache's.
    WrongToken,
    /// The build cache has no tokens, and the client is not on this machine.
    ReadOnly,
}

impl BuildCacheTokens {
    /// Reads the files of tokens.
    ///
    /// # Errors
    /// A file is unusable, with the reason.
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
            Arc::new(KnownBuildCache { path: cache.path.clone(), tokens, origin })
        };
        let mut all: Vec<_> = caches.iter().zip(tokens.0).map(known).collect();
        // If several paths match, the longest wins.
        all.sort_by_key(|known| std::cmp::Reverse(known.path.len()));
        Self(all)
    }

    /// Returns whether there are no build caches.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Marks a request to a build cache. Returns whether it is one.
    ///
    /// `is_ours` says that the request is addressed to this proxy, not forwarded through it.
    ///
    /// # Errors
    /// Some clients could interpret the path as one outside the build cache.
    pub(crate) fn mark<B>(
        &self,
        request: &mut Request<B>,
        is_ours: impl FnOnce(&Uri) -> bool,
    ) -> Result<bool, Failure> {
        if request.method() == Method::CONNECT {
            return Ok(false);
        }
        let path = request.uri().path();
        let found = self.0.iter().find(|known| is_below(path, &known.path));
        let Some(known) = found.filter(|_| is_ours(request.uri())) else { return Ok(false) };
        if may_climb(path) {
            return Err(Failure::BadRequest("its path leads outside the build cache"));
        }
        let marked = BuildCacheRequest(Arc::clone(known));
        request.extensions_mut().insert(marked);
        Ok(true)
    }
}

impl BuildCacheRequest {
    /// Returns the build cache that a request is for, if any.
    pub(crate) fn of<B>(request: &Request<B>) -> Option<&Self> {
        request.extensions().get()
    }

    /// Returns the scheme, authority and mark in the keys of entries.
    pub(crate) fn name() -> (&'static str, &'static str, OriginMark<'static>) {
        (SCHEME, AUTHORITY, MARK)
    }

    /// Returns whether missing entries are requested elsewhere.
    pub(crate) fn has_origin(&self) -> bool {
        self.0.origin.is_some()
    }

    /// Returns the destination of the request. Without an origin it is never contacted.
    pub(crate) fn destination(&self) -> Destination<'_> {
        let (scheme, authority, mark) = Self::name();
        let nowhere = || Origin { trusted: true, ..Origin::of_client(AUTHORITY, 80) };
        let origin = self.0.origin.as_ref().map_or_else(nowhere, |(origin, _)| origin.clone());
        let prefix = self.0.origin.as_ref().map_or("", |(_, prefix)| prefix);
        Destination { scheme, authority: authority.into(), origin, group: None, prefix, mark }
    }

    /// Returns the part of a path below the build cache.
    pub(crate) fn rest<'a>(&self, path: &'a str) -> &'a str {
        path.strip_prefix(self.0.path.as_str()).filter(|rest| !rest.is_empty()).unwrap_or("/")
    }

    /// Returns whether the sender of a request with these fields may write.
    pub(crate) fn judge_writer(&self, fields: &HeaderMap, client: IpAddr) -> WriteAccess {
        match &self.0.tokens {
            Some(tokens) if tokens.role_of(fields).is_some() => WriteAccess::Granted,
            Some(_) if fields.contains_key(AUTHORIZATION) => WriteAccess::WrongToken,
            Some(_) => WriteAccess::NoToken,
            None if client.to_canonical().is_loopback() && !is_of_page(fields) => WriteAccess::Granted,
            None => WriteAccess::ReadOnly,
        }
    }
}

/// Returns the digest that an entry's path requires of its content. `None` if the path requires none.
///
/// # Errors
/// The path names content by its digest, but the name is not a SHA-256 digest.
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

/// Returns whether `path` is `prefix`, or below it in whole segments.
pub(crate) fn is_below(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns whether a web page may have made a browser on this machine send a request with these fields. Such a page can
/// use a host name of its own that resolves to this machine (DNS rebinding).
fn is_of_page(fields: &HeaderMap) -> bool {
    let host = fields.get(HOST).and_then(|host| host.to_str().ok()?.parse::<Authority>().ok());
    let is_plain = host.is_some_and(|host| {
        let name = host_of(host.as_str()).trim_matches(['[', ']']);
        name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
    });
    !is_plain || fields.contains_key("sec-fetch-site") || fields.contains_key("origin")
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

    #[test]
    fn without_tokens_only_programs_on_this_machine_write() {
        let table = BuildCacheTable::new(&[BuildCache::at("/c")], BuildCacheTokens(vec![None]));
        let cache = BuildCacheRequest(Arc::clone(&table.0[0]));
        let judge = |client: &str, lines: &[(&'static str, &str)]| {
            let mut fields = HeaderMap::new();
            lines.iter().for_each(|(name, value)| drop(fields.insert(*name, value.parse().unwrap())));
            cache.judge_writer(&fields, client.parse().unwrap())
        };
        for host in ["127.0.0.1:3128", "[::1]:3128", "localhost", "LOCALHOST:1"] {
            assert_eq!(judge("127.0.0.1", &[("host", host)]), WriteAccess::Granted, "{host}");
            assert_eq!(judge("::ffff:127.0.0.1", &[("host", host)]), WriteAccess::Granted, "{host}");
            assert_eq!(judge("10.0.0.1", &[("host", host)]), WriteAccess::ReadOnly, "{host}");
            for field in ["origin", "sec-fetch-site"] {
                assert_eq!(judge("::1", &[("host", host), (field, "x")]), WriteAccess::ReadOnly, "{host}");
            }
        }
        for lines in [&[][..], &[("host", "evil.example")], &[("host", "localhost.evil.example")]] {
            assert_eq!(judge("127.0.0.1", lines), WriteAccess::ReadOnly, "{lines:?}");
        }
    }
}

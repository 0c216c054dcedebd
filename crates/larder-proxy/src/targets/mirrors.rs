//! Mirrors: requests to a path of this proxy that stands for another server, and their responses.
//!
//! Owns: which requests belong to a mirror, how they are rewritten, and the links and redirects in responses that would
//! bypass the mirror. The servers come from the configuration.
//!
//! Invariants: the stored response is the one that the server sent, under the same key as for clients that request the
//! server directly through the proxy. A rewritten body has its own validator and no length, and ranges of it are not
//! served. Cost: one comparison per mirror and request; a body without links to rewrite passes unchanged.

use std::{
    collections::HashSet,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
};

use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri,
    header::{
        ACCEPT_ENCODING, ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_LOCATION, ETAG, Entry, IF_NONE_MATCH,
        IF_RANGE, LINK, LOCATION, RANGE, WWW_AUTHENTICATE,
    },
};

use larder_http::{
    coding::BODY_DIGESTS,
    fields::{Fields, media_type},
    key::normal_authority,
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::{
    ground::{
        cache::mark::OriginMark,
        config::{Mirror, MirrorLink},
        errors::Failure,
        target::Origin,
    },
    targets::{
        dots::may_climb,
        links::{LinkReplacements, LinkReplacer},
        registries::{self, OpenTokens, Registry},
        routes::Destination,
    },
};

/// The configured mirrors.
pub(crate) struct MirrorTable {
    known: Vec<Arc<KnownMirror>>,
    /// Tokens that container registries issued to clients without credentials. Any client can get such a token.
    pub(crate) open_tokens: OpenTokens,
}

struct KnownMirror {
    path: String,
    origin: Origin,
    scheme: &'static str,
    authority: String,
    /// The server's name in cache keys, if the Host field sent to it differs from the host of its URL.
    name: Option<String>,
    /// The path on the server that replaces the mirror's path.
    prefix: String,
    documents: Vec<String>,
    links: Vec<MirrorLink>,
    /// The state of the server as a container registry. `None` if it is not one.
    registry: Option<Registry>,
}

/// A request to a container registry that the mirror answers itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RegistryAsk {
    /// The API version check, by which a client learns where to get tokens.
    Version,
    /// A request for a token.
    Token,
}

/// The mirror that a request is for, and facts about its client.
#[derive(Clone)]
pub(crate) struct MirrorRequest {
    mirror: Arc<KnownMirror>,
    /// This proxy's scheme and host as the client sees them, for links to the mirror.
    base: Arc<str>,
    /// Whether any client can get the credentials of this request, such as an anonymous token.
    is_anybodys: bool,
}

impl MirrorTable {
    pub(crate) fn new(mirrors: &[Mirror]) -> Self {
        let known = |mirror: &Mirror| {
            let origin = Origin::of_mirror(&mirror.origin);
            let scheme = if origin.https { "https" } else { "http" };
            let authority = mirror.origin.authority();
            let name = origin.name_of_another(&mirror.origin);
            let path = mirror.path.clone();
            let prefix = mirror.origin.prefix.clone();
            let documents = mirror.documents.clone();
            let links = mirror.links.clone();
            let registry = mirror.is_registry.then(Registry::default);
            Arc::new(KnownMirror { path, origin, scheme, authority, name, prefix, documents, links, registry })
        };
        let mut all: Vec<_> = mirrors.iter().map(known).collect();
        // Of several matching paths, the longest wins, so it comes first.
        all.sort_by_key(|known| std::cmp::Reverse(known.path.len()));
        Self { known: all, open_tokens: OpenTokens::default() }
    }

    /// Returns whether there are no mirrors.
    pub(crate) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Returns the name of each mirrored server's registry and the server's authority.
    ///
    /// A mirror whose path begins with that of another and a hyphen belongs to the other's registry. So `/pypi-files`
    /// belongs to the registry `pypi`.
    pub(crate) fn registries(&self) -> Vec<(String, String)> {
        let names = || self.known.iter().map(|known| known.path.trim_start_matches('/'));
        let is_part = |name: &str, of: &str| name.strip_prefix(of).is_some_and(|rest| rest.starts_with('-'));
        let named = self.known.iter().zip(names()).map(|(known, name)| {
            let registry = names().filter(|of| is_part(name, of)).min_by_key(|of| of.len()).unwrap_or(name);
            (registry.to_owned(), known.authority.clone())
        });
        let mut registries: Vec<_> = named.collect();
        registries.sort();
        // A server that several registries use is counted for the first of them only.
        let mut seen = HashSet::new();
        registries.retain(|(_, authority)| seen.insert(authority.clone()));
        registries
    }

    /// Rewrites a request to a mirror so that it is a request to the mirrored server.
    ///
    /// Returns the mirror, and what to answer if the mirror answers the request itself. Returns `None` if the request
    /// is for no mirror. `is_ours` returns whether the request's target addresses this proxy itself.
    ///
    /// # Errors
    /// Some servers could interpret the path as one outside the mirror.
    pub(crate) fn divert<B>(
        &self,
        own_scheme: &str,
        request: &mut Request<B>,
        is_ours: impl FnOnce(&Uri) -> bool,
    ) -> Result<Option<(MirrorRequest, Option<RegistryAsk>)>, Failure> {
        if request.method() == Method::CONNECT {
            return Ok(None);
        }
        let Some((mirror, target)) = self.target(request.uri()).filter(|_| is_ours(request.uri())) else {
            return Ok(None);
        };
        if may_climb(request.uri().path()) {
            return Err(Failure::BadRequest("its path leads outside the mirror"));
        }
        let host = request.uri().authority().map(|authority| authority.as_str().to_owned());
        let host = host.or_else(|| {
            let host = request.headers().get(http::header::HOST)?;
            host.to_str().ok().map(str::to_owned)
        });
        // The URL is inserted into HTML and JSON, so octets that could end a string there are encoded. The URL stays
        // the same.
        let host = host.unwrap_or_default();
        let base = format!("{own_scheme}://{}", utf8_percent_encode(&host, NOT_IN_STRINGS)).into();
        let mut mirrored = MirrorRequest { mirror, base, is_anybodys: false };
        if mirrored.changes_documents() {
            mirrored.ask_for_whole(request.headers_mut());
        }
        let mut ask = None;
        if let Some(registry) = &mirrored.mirror.registry {
            mirrored.is_anybodys = self.open_tokens.covers(request.headers());
            registry.translate(request.headers_mut());
            ask = mirrored.registry_ask(&target);
        }
        *request.uri_mut() = target;
        Ok(Some((mirrored, ask)))
    }

    fn target(&self, uri: &Uri) -> Option<(Arc<KnownMirror>, Uri)> {
        let path = uri.path_and_query()?.as_str();
        let found = self.known.iter().find_map(|known| {
            let rest = path.strip_prefix(known.path.as_str())?;
            matches!(rest.as_bytes().first(), None | Some(b'/' | b'?')).then_some((known, rest))
        });
        let (known, rest) = found?;
        let at_registry = known.registry.as_ref().map(|_| registries::path_at(&known.origin.host, rest));
        let rest = at_registry.as_deref().unwrap_or(rest);
        let slash = if rest.starts_with('/') { "" } else { "/" };
        let target = format!("{}://{}{}{slash}{rest}", known.scheme, known.authority, known.prefix);
        Some((Arc::clone(known), target.parse().ok()?))
    }
}

impl MirrorTable {
    /// Returns the registry that has the repository which a client calls `name`, as a mirrored request. Also returns
    /// the repository's name at the registry.
    pub(crate) fn registry_of(&self, asking: &MirrorRequest, name: &str) -> Option<(MirrorRequest, String)> {
        if may_climb(name) {
            return None;
        }
        let api = asking.mirror.path.split("/v2").next().unwrap_or_default();
        let uri = format!("{api}/v2/{name}/manifests/x").parse().ok()?;
        let (mirror, target) = self.target(&uri)?;
        let name = target.path().strip_prefix(mirror.prefix.as_str())?.strip_suffix("/manifests/x")?;
        let name = name.trim_start_matches('/').to_owned();
        mirror.registry.as_ref()?;
        Some((MirrorRequest { mirror, ..asking.clone() }, name))
    }
}

impl MirrorTable {
    /// Returns whether one of the mirrors is for the server with this scheme and authority, in any spelling.
    pub(crate) fn leads_to(&self, scheme: &str, authority: &str) -> bool {
        let normal = normal_authority(scheme, authority);
        self.known.iter().any(|known| known.scheme == scheme && Some(&*known.authority) == normal.as_deref())
    }

    /// Returns where requests for a mirrored server are forwarded. The arguments are parts of the server's cache keys.
    /// `None` if no mirror is for such a server.
    pub(crate) fn destination_of(&self, scheme: &str, authority: &str, name: Option<&str>) -> Option<Destination<'_>> {
        let is_it = |known: &&Arc<KnownMirror>| {
            (known.scheme, &*known.authority, known.name.as_deref()) == (scheme, authority, name)
        };
        self.known.iter().find(is_it).map(|known| known.destination())
    }
}

impl KnownMirror {
    /// Returns the scheme, authority and origin mark in the server's cache keys.
    fn name(&self) -> (&str, &str, OriginMark<'_>) {
        (self.scheme, &self.authority, self.name.as_deref().map_or(OriginMark::NONE, OriginMark::of_origin))
    }

    fn destination(&self) -> Destination<'_> {
        let (scheme, authority, mark) = self.name();
        Destination { scheme, authority: authority.into(), origin: self.origin.clone(), group: None, prefix: "", mark }
    }
}

impl MirrorRequest {
    /// Returns what a registry request asks for if the mirror answers it itself. `None` if the registry answers it.
    fn registry_ask(&self, target: &Uri) -> Option<RegistryAsk> {
        // If the mirror's path contains the registry's name, everything below it belongs to repositories.
        let is_root = self.mirror.path.ends_with("/v2");
        match target.path().strip_prefix(self.mirror.prefix.as_str())?.trim_matches('/') {
            "" => Some(RegistryAsk::Version),
            registries::TOKEN if is_root => Some(RegistryAsk::Token),
            _ => None,
        }
    }

    /// Returns the state of the server as a container registry. `None` if it is not one.
    pub(crate) fn registry(&self) -> Option<&Registry> {
        self.mirror.registry.as_ref()
    }

    /// Returns whether a response has none of the fields that the mirror rewrites. Its body may still have to be
    /// rewritten.
    pub(crate) fn leaves(fields: &impl Fields) -> bool {
        ![LOCATION, CONTENT_LOCATION, LINK, WWW_AUTHENTICATE].iter().any(|name| fields.first(name).is_some())
    }

    /// Returns whether any client can get the credentials of the request.
    pub(crate) fn is_anybodys(&self) -> bool {
        self.is_anybodys
    }

    /// Returns the URL of the root of the registry's API.
    pub(crate) fn api_url(&self) -> String {
        let KnownMirror { scheme, authority, prefix, .. } = &*self.mirror;
        format!("{scheme}://{authority}{prefix}/")
    }

    /// Returns the authentication challenge that sends a registry's client to this mirror for its token.
    ///
    /// `registrys` is the registry's own challenge. Its scope is kept.
    pub(crate) fn challenge(&self, registrys: Option<&HeaderValue>) -> Option<HeaderValue> {
        let names = self.mirror.path.rsplit_once("/v2").map_or("", |(_, name)| name.trim_start_matches('/'));
        let names = if names.is_empty() { String::new() } else { format!("{names}/") };
        registries::own_challenge(&self.base, &names, registrys)
    }

    /// Returns the scheme, authority and origin mark in the server's cache keys.
    pub(crate) fn name(&self) -> (&str, &str, OriginMark<'_>) {
        self.mirror.name()
    }

    /// Returns where the request is forwarded.
    pub(crate) fn destination(&self) -> Destination<'_> {
        self.mirror.destination()
    }

    /// Returns whether links in some of the server's documents are rewritten.
    pub(crate) fn changes_documents(&self) -> bool {
        !self.mirror.links.is_empty() && !self.mirror.documents.is_empty()
    }

    /// Changes a request so that the server sends the whole document unencoded.
    ///
    /// Entity tags that this mirror changed for clients are changed back to those of the server.
    fn ask_for_whole(&self, fields: &mut HeaderMap) {
        fields.remove(RANGE);
        fields.remove(IF_RANGE);
        fields.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let suffix = format!("{}\"", self.suffix());
        let tags: Option<Vec<String>> =
            fields.get_all(IF_NONE_MATCH).iter().map(|line| line.to_str().ok().map(str::to_owned)).collect();
        let Some(line) = tags.filter(|lines| !lines.is_empty()).map(|lines| lines.join(", ")) else { return };
        // An entity tag from this mirror has a suffix that no server uses. Other tags stay unchanged.
        match HeaderValue::try_from(line.replace(&suffix, "\"")) {
            Ok(value) => fields.insert(IF_NONE_MATCH, value),
            Err(_) => fields.remove(IF_NONE_MATCH),
        };
    }

    /// Returns the suffix for entity tags of rewritten documents. It depends on everything that rewriting puts into
    /// links.
    fn suffix(&self) -> String {
        let mut hasher = DefaultHasher::new();
        self.base.hash(&mut hasher);
        for link in &self.mirror.links {
            (&link.url, &link.path).hash(&mut hasher);
        }
        format!("+larder-{:016x}", hasher.finish())
    }

    /// Rewrites the fields of a response, including redirects, so that the client stays on the mirror.
    ///
    /// Returns the replacements for the body, if it is a document whose links are rewritten.
    pub(crate) fn dress(&self, status: StatusCode, fields: &mut HeaderMap) -> Option<LinkReplacer> {
        self.lead_back(fields, &LOCATION);
        self.lead_back(fields, &CONTENT_LOCATION);
        self.lead_links_back(fields);
        if self.mirror.registry.is_some() && fields.contains_key(WWW_AUTHENTICATE) {
            let challenge = self.challenge(fields.get(WWW_AUTHENTICATE));
            fields.remove(WWW_AUTHENTICATE);
            if let Some(challenge) = challenge {
                fields.insert(WWW_AUTHENTICATE, challenge);
            }
        }
        if status == StatusCode::NOT_MODIFIED && self.changes_documents() {
            self.mark_tag(fields);
        }
        if status != StatusCode::OK || !self.is_document(fields) {
            return None;
        }
        self.mark_tag(fields);
        for name in [CONTENT_LENGTH, ACCEPT_RANGES].into_iter().chain(BODY_DIGESTS) {
            fields.remove(name);
        }
        let pairs = self.mirror.links.iter().flat_map(|link| {
            let by = format!("{}{}/", self.base, link.path);
            // The slash at the end prevents a match with a longer host name. A default port may be written or left out.
            link.spellings().map(move |url| (format!("{url}/"), by.clone()))
        });
        let replacements = LinkReplacements::new(pairs.collect());
        Some(LinkReplacer::new(Arc::new(replacements)))
    }

    /// Returns whether a body with these fields is a document whose links are rewritten. Compressed documents are not
    /// rewritten.
    fn is_document(&self, fields: &HeaderMap) -> bool {
        let is_listed = |kind: &str| self.mirror.documents.iter().any(|document| document.eq_ignore_ascii_case(kind));
        self.changes_documents()
            && fields.get(CONTENT_ENCODING).is_none_or(|coding| coding == "identity")
            && media_type(fields).is_some_and(is_listed)
    }

    fn mark_tag(&self, fields: &mut HeaderMap) {
        let Some(tag) = fields.get(ETAG).and_then(|tag| tag.to_str().ok()) else { return };
        let opaque = tag.strip_prefix("W/").unwrap_or(tag);
        let marked = opaque.strip_suffix('"').map(|start| format!("W/{start}{}\"", self.suffix()));
        match marked.and_then(|marked| HeaderValue::try_from(marked).ok()) {
            Some(marked) => fields.insert(ETAG, marked),
            None => fields.remove(ETAG),
        };
    }

    /// Rewrites the URL in a field so that it leads to the mirror.
    fn lead_back(&self, fields: &mut HeaderMap, name: &HeaderName) {
        let Some(reference) = fields.get(name).and_then(|value| value.to_str().ok()) else { return };
        if let Some(value) = self.led_back(reference).and_then(|led| HeaderValue::try_from(led).ok()) {
            fields.insert(name, value);
        }
    }

    /// Rewrites the URLs in Link fields (RFC 8288 3), in which paged lists name their next page.
    fn lead_links_back(&self, fields: &mut HeaderMap) {
        if let Entry::Occupied(mut lines) = fields.entry(LINK) {
            for line in lines.iter_mut() {
                let led = line.to_str().ok().map(|text| link_with(text, |reference| self.led_back(reference)));
                if let Some(led) = led.and_then(|led| HeaderValue::try_from(led).ok()) {
                    *line = led;
                }
            }
        }
    }

    /// Returns a URL that leads to the mirror in place of `reference`. `None` if `reference` does not lead to a
    /// mirrored server.
    fn led_back(&self, reference: &str) -> Option<String> {
        let KnownMirror { path, scheme, authority, prefix, .. } = &*self.mirror;
        let own = format!("{scheme}://{authority}{prefix}");
        let is_end = |rest: &str| rest.is_empty() || rest.starts_with(['/', '?', '#']);
        let below = |start: &str| reference.strip_prefix(start).filter(|rest| is_end(rest));
        match below(&own) {
            Some(rest) => Some(format!("{path}{rest}")),
            None if reference.starts_with("//") => None,
            None if reference.starts_with('/') => below(prefix).map(|rest| format!("{path}{rest}")),
            None => self.mirror.links.iter().find_map(|link| {
                let rest = link.spellings().find_map(|url| below(&url))?;
                Some(format!("{}{rest}", link.path))
            }),
        }
    }
}

/// Returns a Link field in which `change` has replaced the URLs: the parts in angle brackets outside of quotes.
fn link_with(line: &str, change: impl Fn(&str) -> Option<String>) -> String {
    let mut changed = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find(['<', '"']) {
        let (before, from) = rest.split_at(at + 1);
        changed.push_str(before);
        rest = from;
        if before.ends_with('<') {
            let Some((reference, after)) = rest.split_once('>') else { break };
            changed.push_str(change(reference).as_deref().unwrap_or(reference));
            changed.push('>');
            rest = after;
        } else {
            let mut escaped = false;
            let is_end = |(_, octet): &(usize, u8)| {
                let ends = *octet == b'"' && !escaped;
                escaped = *octet == b'\\' && !escaped;
                ends
            };
            let Some((end, _)) = rest.bytes().enumerate().find(is_end) else { break };
            let (quoted, after) = rest.split_at(end + 1);
            changed.push_str(quoted);
            rest = after;
        }
    }
    changed.push_str(rest);
    changed
}

/// Characters that are escaped in an authority, because they could end a string in HTML, JSON or a script.
const NOT_IN_STRINGS: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b':')
    .remove(b'[')
    .remove(b']')
    .remove(b'%');

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_of_link_are_changed_and_nothing_else_of_it() {
        let marked = |line| link_with(line, |reference| reference.strip_prefix('/').map(|rest| format!("/m/{rest}")));
        for (line, expected) in [
            ("</a?b=c&d>; rel=\"next\"", "</m/a?b=c&d>; rel=\"next\""),
            ("</a>; rel=next, <b>; rel=x,</c>", "</m/a>; rel=next, <b>; rel=x,</m/c>"),
            ("</a>; title=\"</b>, \\\" </c>\", </d>", "</m/a>; title=\"</b>, \\\" </c>\", </m/d>"),
            ("</a", "</a"),
            ("</a>; title=\"</b>", "</m/a>; title=\"</b>"),
            ("a \" <", "a \" <"),
            ("", ""),
        ] {
            assert_eq!(marked(line), expected);
        }
    }
}

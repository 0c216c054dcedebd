//! The built-in mirrors: the servers of each package registry, its files that never change, and the settings for its
//! clients.
//!
//! Owns: converting an entry of the table (see `registries`) to the proxy's configuration. `larder_proxy::Mirror`
//! serves. Invariants: an entry is data. The rules for its files apply to requests through the mirror and through
//! interception.

mod intercepted;
mod layouts;
mod registries;

use crate::ground::value::{self, BadValue};
use http::{
    HeaderName,
    header::{ACCEPT, ACCEPT_ENCODING},
};
pub(crate) use intercepted::{InterceptedHosts, Interception};
use larder_http::{
    Ruling,
    key_rules::KeyRule,
    rules::{MatchTexts, Rule, literal_path},
    ruling::{IgnoredParts, RedirectPolicy},
};
use larder_proxy::{Mirror, MirrorLink, OriginUrl, PackageIndex, ProxyConfig};
use layouts::{FileLifetime, PAGES, RegistryLayout};
use registries::BY_DIGEST;
pub(crate) use registries::REGISTRIES;
use std::time::Duration;

/// A package registry, or a group of registries of one kind.
#[derive(Debug)]
pub(crate) struct Registry {
    /// The name of the registry, such as `pypi`, from which the path of its mirror is made.
    pub(crate) name: &'static str,
    /// The servers of the registry. Documents come from the first one.
    pub(crate) servers: &'static [RegistryServer],
    /// Paths and media types by which a registry of the same kind is recognized on any host.
    pub(crate) layouts: &'static [RegistryLayout],
    /// Media types of documents in which links to the servers are rewritten to the mirror.
    pub(crate) documents: &'static [&'static str],
    /// Instructions for users. `{}` is replaced by the proxy's URL, such as `http://127.0.0.1:3128`, and `{host}` by
    /// its host.
    pub(crate) usage: &'static str,
    /// The kind of registry.
    pub(crate) kind: RegistryKind,
    /// Whether servers choose the form of a listing by Accept or Accept-Encoding, often without sending Vary.
    pub(crate) negotiates: bool,
    /// Whether the registry's clients demand a validation with every request. For files that never change, the proxy
    /// then ignores the demand.
    pub(crate) reloads_always: bool,
}

/// The kinds of registries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RegistryKind {
    /// A registry of files, whose mirrors are at paths with its name.
    Files,
    /// Container registries. Each has a mirror at `/v2/NAME`. The first one also has a mirror at `/v2` itself.
    Registries,
}

/// A server of a registry.
#[derive(Debug)]
pub(crate) struct RegistryServer {
    /// The end of the mirror's path, after the registry's name. For a container registry, the server's name.
    pub(crate) suffix: &'static str,
    pub(crate) url: &'static str,
    /// Other URLs with the same content.
    pub(crate) aliases: &'static [&'static str],
    /// Patterns of paths below the URL whose files never change.
    pub(crate) immutable: &'static [&'static str],
    /// Lifetime of all responses except the files that never change.
    pub(crate) fresh: Duration,
    /// Whether the proxy follows the server's redirects, to store the file instead of a link that expires.
    pub(crate) follows: bool,
    /// Whether the host serves only this registry, so that all its other URLs are listings.
    pub(crate) is_dedicated: bool,
}

/// Maximum age of stored responses that are served while their server cannot be reached.
const STALE_ON_ERROR: Duration = Duration::from_hours(30 * 24);

/// Returns the caching rules for clients that contact registries directly.
///
/// They are for the servers in the table, and for other hosts with files of the same layout.
pub(crate) fn rules_for_all() -> Vec<Rule> {
    let of_files = || REGISTRIES.iter().filter(|registry| registry.kind == RegistryKind::Files);
    // The rule for git comes first, because some package servers have git repositories too.
    let known = [rule_of_git(), rule_of_containers()].into_iter().chain(of_files().flat_map(Registry::rules_for_all));
    known.chain(of_files().flat_map(Registry::rules_anywhere)).collect()
}

/// Returns the rule for git repositories on any server: requests for objects are answered from the cache.
fn rule_of_git() -> Rule {
    let paths = ["/**/git-upload-pack", "/**/info/refs"].map(str::to_owned).to_vec();
    let ruling = Ruling { name: "git".to_owned(), caches_git: true, ..Ruling::default() };
    Rule::new(&MatchTexts { paths, ..MatchTexts::default() }, ruling).expect("they are patterns")
}

/// Returns the rule for the API version check of container registries on any server.
///
/// Every client begins with this check, so the cache answers it while the registry cannot be reached.
fn rule_of_containers() -> Rule {
    let texts =
        MatchTexts { paths: vec!["/v2/".to_owned()], statuses: vec!["200".to_owned()], ..MatchTexts::default() };
    Rule::new(&texts, the_rest("oci", Some(Duration::ZERO), true)).expect("they are patterns")
}

/// Returns the package servers whose listings are on other servers.
///
/// `first` returns the configured server that replaces the first one of a registry, if there is one.
pub(crate) fn package_indexes<'a>(first: impl Fn(&str) -> Option<&'a OriginUrl>) -> Vec<PackageIndex> {
    let url = |text: &str| text.parse::<OriginUrl>().expect("the table holds URLs");
    let of_files = REGISTRIES.iter().filter(|registry| registry.kind == RegistryKind::Files);
    let known = of_files.flat_map(|registry| {
        let index = first(registry.name).cloned().unwrap_or_else(|| url(registry.servers[0].url));
        registry.servers[1..].iter().map(move |server| PackageIndex { files: url(server.url), index: index.clone() })
    });
    let records = PackageIndex { files: url("https://proxy.golang.org"), index: url("https://sum.golang.org") };
    known.chain([records]).collect()
}

/// A registry whose first server is replaced by another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OriginOf {
    pub(crate) name: &'static str,
    pub(crate) url: OriginUrl,
}

/// Finds a registry by its name.
pub(crate) fn named(name: &str) -> Result<&'static Registry, BadValue> {
    REGISTRIES.iter().find(|registry| registry.name == name).ok_or_else(|| {
        let names = value::names_help("mirrors", name, REGISTRIES.iter().map(|registry| registry.name));
        let help = format!("{names}; mirror another server with a [[mirror]] in the configuration");
        BadValue::new(format!("unknown mirror: `{name}`"), help)
    })
}

/// Parses `NAME=URL`.
pub(crate) fn parse_origin_of(text: &str) -> Result<OriginOf, BadValue> {
    let bad = || {
        BadValue::new(
            format!("not NAME=URL: `{text}`"),
            "give a mirror and its server, such as pypi=https://pypi.company.example",
        )
    };
    let (name, url) = text.split_once('=').ok_or_else(bad)?;
    let name = named(name)?.name;
    Ok(OriginOf { name, url: crate::ground::value::origin(url)? })
}

impl Registry {
    /// Adds the mirrors and rules of this registry to the proxy's configuration. `first` replaces its first server.
    pub(crate) fn add_to(&self, proxy: &mut ProxyConfig, first: Option<&OriginUrl>) {
        if self.kind == RegistryKind::Registries {
            return self.add_registries_to(proxy, first);
        }
        let url = |index: usize, server: &RegistryServer| match first.filter(|_| index == 0) {
            Some(url) => url.clone(),
            None => server.url.parse().expect("the table holds URLs"),
        };
        let mut links = Vec::new();
        for (index, server) in self.servers.iter().enumerate() {
            let path = self.path_of(server);
            links.push(MirrorLink { url: url(index, server).to_short_string(), path });
        }
        let documents: Vec<String> = self.documents.iter().map(|document| (*document).to_owned()).collect();
        let mut rules = Vec::new();
        for (index, server) in self.servers.iter().enumerate() {
            let origin = url(index, server);
            let path = links[index].path.clone();
            rules.extend(server.rules(self, &origin));
            let (documents, links) = if index == 0 && !documents.is_empty() {
                (documents.clone(), links.clone())
            } else {
                (Vec::new(), Vec::new())
            };
            proxy.mirrors.push(Mirror { documents, links, ..Mirror::of_files(path, origin) });
        }
        proxy.rules.extend(rules);
    }
}

impl Registry {
    /// Returns the rules for the registry's files when clients request them from its own servers.
    fn rules_for_all(&self) -> Vec<Rule> {
        self.servers.iter().flat_map(|server| server.rules_for_all(self)).collect()
    }

    /// Returns the rules for files of the registry's layout on any host.
    fn rules_anywhere(&self) -> Vec<Rule> {
        self.layouts.iter().flat_map(|layout| layout.rules(self, &[])).collect()
    }

    fn add_registries_to(&self, proxy: &mut ProxyConfig, first: Option<&OriginUrl>) {
        for (index, server) in self.servers.iter().enumerate() {
            let given = first.filter(|_| index == 0);
            let origin = given.map_or_else(|| server.url.parse().expect("the table holds URLs"), api_of);
            let name = given.map_or_else(|| server.suffix.to_owned(), OriginUrl::authority);
            add_registry(proxy, (&name, index == 0), origin);
        }
    }
}

/// A container registry that is not in the table, with its URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedRegistry {
    pub(crate) name: String,
    pub(crate) url: OriginUrl,
}

impl NamedRegistry {
    /// Parses `NAME`, or `NAME=URL` if the URL of the registry is not `https://NAME`.
    pub(crate) fn parse(text: &str) -> Result<Self, BadValue> {
        let (name, url) = match text.split_once('=') {
            Some((name, url)) => (name, url.to_owned()),
            None => (text, format!("https://{text}")),
        };
        let is_name = name.bytes().all(|octet| octet.is_ascii_alphanumeric() || b"-.:".contains(&octet));
        // Without a dot or port, the name would be part of a repository's name.
        if !is_name || !name.contains(['.', ':']) {
            let help = "give a host such as registry.company.example:5000, or with its URL, such as \
                        registry.company.example=http://10.0.0.1:5000";
            return Err(BadValue::new(format!("not a registry: `{text}`"), help));
        }
        Ok(Self { name: name.to_ascii_lowercase(), url: api_of(&crate::ground::value::origin(&url)?) })
    }
}

impl Registry {
    /// Returns the path of this proxy under which a server is mirrored.
    pub(crate) fn path_of(&self, server: &RegistryServer) -> String {
        match self.kind {
            RegistryKind::Files => format!("/{}{}", self.name, server.suffix),
            RegistryKind::Registries => format!("/v2/{}", server.suffix),
        }
    }
}

/// Returns the URL of a registry's API. Adds the path `/v2` if the configured URL lacks it.
fn api_of(url: &OriginUrl) -> OriginUrl {
    let text = url.to_short_string();
    let api = if url.base_path().ends_with("/v2") { text } else { format!("{text}/v2") };
    api.parse().expect("a URL with a path is one")
}

/// Adds the mirrors and rules of a container registry to the proxy's configuration, under its name.
pub(crate) fn add_registry(proxy: &mut ProxyConfig, (name, is_first): (&str, bool), origin: OriginUrl) {
    for api in ["/v2", "/oci/v2"] {
        let own = is_first.then(|| api.to_owned());
        for path in own.into_iter().chain([format!("{api}/{name}")]) {
            proxy.mirrors.push(Mirror { is_registry: true, ..Mirror::of_files(path, origin.clone()) });
        }
    }
    let said = FileRules {
        immutable: BY_DIGEST,
        fresh: Some(Duration::ZERO),
        stands_in: true,
        follows: true,
        at_any_port: false,
        varies: &[],
        packages: None,
    };
    proxy.rules.extend(said.rules_with(&format!("oci {name}"), &origin, |ruling| {
        // Content that is named by its digest has only one media type.
        let varies = if ruling.immutable { Vec::new() } else { vec![ACCEPT] };
        Ruling { checks_authorization: true, checks_digest: true, varies, ..ruling }
    }));
    let api = KeyRule::joining_blobs(&origin.to_short_string()).expect("an origin's URL begins keys");
    proxy.policy.cache.http.key_rules.push(api);
}

impl RegistryServer {
    fn rules(&self, registry: &Registry, origin: &OriginUrl) -> Vec<Rule> {
        let immutable = self.immutable;
        let fresh = Some(self.fresh);
        let follows = self.follows;
        let varies = registry.varies();
        let packages = Some(registry);
        let said = FileRules { immutable, fresh, stands_in: true, follows, at_any_port: false, varies, packages };
        said.rules_with(registry.name, origin, |ruling| registry.adapt(ruling))
    }

    /// Returns the rules for the server's files when clients contact the server directly.
    ///
    /// The rules are those of the mirror, except that on a host with other content the server determines the lifetime.
    fn rules_for_all(&self, registry: &Registry) -> Vec<Rule> {
        let urls = [self.url].into_iter().chain(self.aliases.iter().copied());
        let rules = urls.flat_map(|url| {
            let immutable = self.immutable;
            let follows = self.follows;
            let fresh = self.is_dedicated.then_some(self.fresh);
            let varies = registry.varies();
            let packages = self.is_dedicated.then_some(registry);
            let said = FileRules { immutable, fresh, stands_in: true, follows, at_any_port: true, varies, packages };
            let origin = url.parse().expect("the table holds URLs");
            said.rules_with(registry.name, &origin, |ruling| registry.adapt(ruling))
        });
        rules.collect()
    }
}

/// The rules for the files of one server, which are selected by patterns of paths below the base path.
pub(crate) struct FileRules<'a> {
    /// Patterns of the files that never change.
    pub(crate) immutable: &'a [&'a str],
    /// Lifetime of files that may change. `None`: the lifetime that the server states.
    pub(crate) fresh: Option<Duration>,
    /// Whether files that may change can be served stale while the server cannot be reached.
    pub(crate) stands_in: bool,
    /// Whether the server's redirects are followed.
    pub(crate) follows: bool,
    /// Whether the rules apply to all ports of the server, and not only to the one in its URL.
    pub(crate) at_any_port: bool,
    /// Request fields that select the variant of a file that may change, even if the server sends no Vary.
    pub(crate) varies: &'a [HeaderName],
    /// A registry whose layouts also name files that never change, in addition to `immutable`. `None` if there is none.
    pub(crate) packages: Option<&'a Registry>,
}

/// Request fields by which servers choose the form of a listing.
const BY_FORM: &[HeaderName] = &[ACCEPT, ACCEPT_ENCODING];

/// Status codes of redirects that may be followed.
const REDIRECTS: &[&str] = &["301", "302", "303", "307", "308"];

impl FileRules<'_> {
    /// Returns the caching rules for these files. The names of the rules begin with `name`.
    pub(crate) fn rules(&self, name: &str, origin: &OriginUrl) -> Vec<Rule> {
        self.rules_with(name, origin, |ruling| ruling)
    }

    /// Returns the same rules as [`Self::rules`], but with each ruling changed by `change`.
    fn rules_with(&self, name: &str, origin: &OriginUrl, change: impl Fn(Ruling) -> Ruling) -> Vec<Rule> {
        let following = if self.follows { RedirectPolicy::Safe } else { RedirectPolicy::None };
        let port = if self.at_any_port { String::new() } else { format!(":{}", origin.port()) };
        let hosts = vec![format!("{}{port}", origin.host())];
        let rule = |patterns: &[&str], statuses: &[&str], ruling: Ruling| {
            let base = literal_path(origin.base_path());
            let paths = patterns.iter().map(|pattern| format!("{base}{pattern}")).collect();
            let statuses = statuses.iter().map(ToString::to_string).collect();
            let texts = MatchTexts { hosts: hosts.clone(), paths, statuses, ..MatchTexts::default() };
            Rule::new(&texts, ruling).expect("patterns are tried where they are read")
        };
        // A redirect that is not followed has the lifetime that its server states.
        let rules = |patterns: &[&str], ruling: Ruling| {
            // The files of a registry do not depend on cookies.
            let ignored = IgnoredParts { cookie: true, ..ruling.ignored.clone() };
            let of_files = change(Ruling { following, ignored, ..ruling });
            let of_redirects = Ruling { fresh: None, immutable: false, ..of_files.clone() };
            let redirects = self.follows.then(|| rule(patterns, REDIRECTS, of_redirects));
            [rule(patterns, &["200"], of_files)].into_iter().chain(redirects)
        };
        let kept = (!self.immutable.is_empty()).then(|| rules(self.immutable, never_changes(name)));
        let rest = Ruling { varies: self.varies.to_vec(), ..the_rest(name, self.fresh, self.stands_in) };
        let has_rest = self.fresh.is_some() || self.follows || self.stands_in || !self.varies.is_empty();
        let other = has_rest.then(|| rules(&["/**"], rest));
        // These come before the rule for all other files, which would set a lifetime.
        let packages = self.packages.into_iter().flat_map(|registry| {
            let files = registry.layouts.iter().filter(|layout| layout.keeps == FileLifetime::Always);
            files.flat_map(|layout| layout.rules(registry, &hosts)).collect::<Vec<_>>()
        });
        kept.into_iter().flatten().chain(packages).chain(other.into_iter().flatten()).collect()
    }
}

impl Registry {
    /// Returns the request fields by which listings vary, even if a server does not say so.
    fn varies(&self) -> &'static [HeaderName] {
        if self.negotiates { BY_FORM } else { &[] }
    }

    /// Adapts a ruling to the registry's clients. If they always demand a validation, the ruling for files that never
    /// change ignores the demand.
    fn adapt(&self, ruling: Ruling) -> Ruling {
        let client_directives = ruling.ignored.client_directives || self.reloads_always && ruling.immutable;
        Ruling { ignored: IgnoredParts { client_directives, ..ruling.ignored }, ..ruling }
    }
}

impl RegistryLayout {
    /// Returns the rules for files of this layout on `hosts`, or on any host if `hosts` is empty.
    ///
    /// Redirects of files that never change are followed, because their targets, such as links to an object store,
    /// expire. A web page in place of such a file is not stored.
    fn rules(&self, registry: &Registry, hosts: &[String]) -> Vec<Rule> {
        let name = registry.name;
        let rule = |statuses: &[&str], types: &[&str], ruling: Ruling| {
            let texts = |texts: &[&str]| texts.iter().map(ToString::to_string).collect();
            let paths = texts(self.paths);
            let statuses = texts(statuses);
            let types = texts(types);
            let texts = MatchTexts { hosts: hosts.to_vec(), paths, statuses, types, ..MatchTexts::default() };
            let rule = Rule::new(&texts, ruling).expect("patterns are tried where they are read");
            self.test.map_or(rule.clone(), |test| rule.only_if(test))
        };
        match self.keeps {
            FileLifetime::Always => {
                let following = RedirectPolicy::Safe;
                let redirect = Ruling { name: format!("{name}: followed"), following, ..Ruling::default() };
                let kept = registry.adapt(Ruling { following, ..never_changes(name) });
                let page = Ruling { immutable: false, contradicts_url: true, ..kept.clone() };
                vec![rule(&["200"], PAGES, page), rule(&["200"], self.types, kept), rule(REDIRECTS, &[], redirect)]
            }
            FileLifetime::Minutes(minutes) => {
                let fresh = Some(Duration::from_mins(minutes));
                let varies = registry.varies().to_vec();
                vec![rule(&["200"], self.types, Ruling { varies, ..the_rest(name, fresh, true) })]
            }
        }
    }
}

/// Returns the ruling for files that never change.
fn never_changes(name: &str) -> Ruling {
    Ruling { name: format!("{name}: never changes"), immutable: true, ..Ruling::default() }
}

/// Returns the ruling for all other files, which are mainly listings.
fn the_rest(name: &str, fresh: Option<Duration>, stands_in: bool) -> Ruling {
    Ruling {
        name: format!("{name}: everything else"),
        fresh,
        stale_if_error: stands_in.then_some(STALE_ON_ERROR),
        ignored: IgnoredParts {
            must_revalidate: stands_in,
            client_directives: fresh.is_some(),
            ..IgnoredParts::default()
        },
        ..Ruling::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_http::rules::RuledRequest;
    use std::sync::LazyLock;

    #[test]
    fn every_row_makes_a_configuration_that_starts() {
        let mut proxy = ProxyConfig { forward: false, ..ProxyConfig::default() };
        for registry in REGISTRIES {
            registry.add_to(&mut proxy, None);
            assert!(registry.usage.contains("{}"), "{}", registry.name);
        }
        proxy.check().unwrap();
        let mut paths: Vec<&str> = proxy.mirrors.iter().map(|mirror| mirror.path.as_str()).collect();
        paths.sort_unstable();
        paths.dedup();
        assert_eq!(paths.len(), proxy.mirrors.len());
    }

    /// Returns a GET without fields.
    fn get<'a>(scheme: &'a str, authority: &'a str, path: &'a str) -> RuledRequest<'a> {
        static NONE: LazyLock<http::HeaderMap> = LazyLock::new(http::HeaderMap::new);
        RuledRequest { method: &http::Method::GET, scheme, authority, path, fields: &NONE }
    }

    /// Returns the rules for files that never change, and for no others.
    fn for_files(name: &str, immutable: &[&str], origin: &OriginUrl) -> Vec<Rule> {
        let said = FileRules {
            immutable,
            fresh: None,
            stands_in: false,
            follows: false,
            at_any_port: false,
            varies: &[],
            packages: None,
        };
        said.rules(name, origin)
    }

    /// Returns the name of the rule for a file of a registry.
    fn rule_of(registry: &str, authority: &str, path: &str) -> String {
        let mut proxy = ProxyConfig::default();
        let registry = named(registry).unwrap();
        registry.add_to(&mut proxy, None);
        let scheme = registry.servers[0].url.split(':').next().unwrap();
        let found = proxy.rules.find(&get(scheme, authority, path), http::StatusCode::OK, &http::HeaderMap::new());
        found.map_or_else(String::new, |ruling| ruling.name.clone())
    }

    #[test]
    fn files_that_never_change_are_told_from_listings() {
        for (registry, authority, path, is_kept) in [
            ("pypi", "files.pythonhosted.org", "/packages/ab/cd/six-1.16.0-py2.py3-none-any.whl", true),
            ("pypi", "pypi.org", "/simple/six/", false),
            ("npm", "registry.npmjs.org", "/is-number/-/is-number-1.0.0.tgz", true),
            ("npm", "registry.npmjs.org", "/@types/node/-/node-1.0.0.tgz", true),
            ("npm", "registry.npmjs.org", "/is-number", false),
            ("cargo", "static.crates.io", "/crates/itoa/1.0.0/download", true),
            ("cargo", "index.crates.io", "/it/oa/itoa", false),
            ("go", "proxy.golang.org", "/github.com/google/uuid/@v/v1.6.0.zip", true),
            ("go", "proxy.golang.org", "/github.com/google/uuid/@v/list", false),
            ("maven", "repo.maven.apache.org", "/maven2/junit/junit/4.13.2/junit-4.13.2.pom", true),
            ("maven", "repo.maven.apache.org", "/maven2/junit/junit/maven-metadata.xml", false),
            ("maven", "repo.maven.apache.org", "/maven2/junit/junit/maven-metadata.xml.sha1", false),
            ("go", "proxy.golang.org", "/github.com/google/uuid/@v/master.info", false),
            ("go", "proxy.golang.org", "/sumdb/sum.golang.org/lookup/github.com/google/uuid@v1.6.0", true),
            ("github-releases", "github.com", "/a/b/releases/download/v1.0/b.tar.gz", true),
            ("github-releases", "github.com", "/a/b/releases/download/nightly/b.tar.gz", false),
            (
                "huggingface",
                "huggingface.co",
                "/a/b/resolve/0123456789abcdef0123456789abcdef01234567/model.safetensors",
                true,
            ),
            ("huggingface", "huggingface.co", "/a/b/resolve/main/model.safetensors", false),
            ("debian", "deb.debian.org", "/debian/pool/main/h/hello/hello_1_amd64.deb", true),
            ("debian", "deb.debian.org", "/debian/dists/bookworm/InRelease", false),
        ] {
            let expected = if is_kept { "never changes" } else { "everything else" };
            assert_eq!(rule_of(registry, authority, path), format!("{registry}: {expected}"), "{path}");
        }
        assert_eq!(rule_of("maven", "repo.maven.apache.org", "/other/a.jar"), "", "not below its URL");
    }

    /// Returns the effect of the rules on a response of this type to a GET, if clients contact registries directly:
    /// whether it never changes, and its lifetime in minutes.
    fn known(url: &str, content_type: &'static str, accept: &str) -> Option<(bool, Option<u64>)> {
        let rules = larder_http::Rules::new(rules_for_all());
        let (authority, path) = url.split_at(url.find('/').unwrap());
        let accepted = [(http::header::ACCEPT, http::HeaderValue::from_str(accept).unwrap())].into_iter().collect();
        let request = RuledRequest { method: &http::Method::GET, scheme: "https", authority, path, fields: &accepted };
        let fields = [(http::header::CONTENT_TYPE, http::HeaderValue::from_static(content_type))];
        let ruling = rules.find(&request, http::StatusCode::OK, &fields.into_iter().collect::<http::HeaderMap>())?;
        if ruling.contradicts_url {
            // A page in place of a file. It is not stored.
            return None;
        }
        assert_eq!(ruling.stale_if_error.is_some(), !ruling.immutable && ruling.name != "git", "{url}");
        Some((ruling.immutable, ruling.fresh.map(|fresh| fresh.as_secs() / 60)))
    }

    #[test]
    fn clients_that_ask_registries_themselves_have_the_rules_of_the_mirrors() {
        for (url, expected) in [
            ("repo1.maven.org/maven2/junit/junit/4.13.2/junit-4.13.2.pom", Some((true, None))),
            ("repo.maven.apache.org/maven2/junit/junit/maven-metadata.xml", Some((false, Some(10)))),
            ("files.pythonhosted.org/packages/ab/cd/six-1.16.0-py2.py3-none-any.whl", Some((true, None))),
            ("pypi.org/simple/six/", Some((false, Some(5)))),
            ("github.com/a/b/releases/download/v1.0/b.tar.gz", Some((true, None))),
            ("github.com/a/b", Some((false, None))),
            ("github.com/a/b/info/refs?service=git-upload-pack", Some((false, None))),
            ("www.example.com/a.jar", None),
            ("index.crates.io/it/oa/itoa", Some((false, Some(5)))),
            ("index.crates.io/crates/itoa/itoa-1.0.0.crate", Some((true, None))),
            ("index.crates.io/api/v1/crates/itoa/1.0.0/download", Some((true, None))),
            ("index.rubygems.org/info/rack", Some((false, Some(5)))),
            ("registry.example/v2/", Some((false, Some(0)))),
        ] {
            assert_eq!(known(url, "application/octet-stream", "*/*"), expected, "{url}");
        }
        let rules = larder_http::Rules::new(rules_for_all());
        let request = get("https", "github.com", "/a/b/info/refs?service=git-upload-pack");
        assert!(rules.find_before(&request).unwrap().caches_git, "a server of packages has repositories, too");
    }

    /// Checks the case of Maven 3.8, which sent `no-cache` with every request, so that the proxy fetched every file
    /// again.
    #[test]
    fn demand_that_a_client_makes_of_every_file_is_no_reload() {
        let rules = larder_http::Rules::new(rules_for_all());
        let content_type = http::HeaderValue::from_static("application/octet-stream");
        let fields: http::HeaderMap = [(http::header::CONTENT_TYPE, content_type)].into_iter().collect();
        for (authority, path, is_ignored) in [
            ("repo.maven.apache.org", "/maven2/junit/junit/4.13.2/junit-4.13.2.pom", true),
            ("nexus.example", "/repository/x/junit/junit/4.13.2/junit-4.13.2.jar", true),
            ("files.pythonhosted.org", "/packages/ab/cd/six-1.16.0-py2.py3-none-any.whl", false),
        ] {
            let ruling = rules.find(&get("https", authority, path), http::StatusCode::OK, &fields).unwrap();
            assert_eq!((ruling.immutable, ruling.ignored.client_directives), (true, is_ignored), "{authority}");
        }
    }

    /// A company's Artifactory or Nexus has a host that no table can list.
    #[test]
    fn registries_are_recognized_on_any_host_by_path_and_type() {
        let packument = "application/vnd.npm.install-v1+json; q=1.0, application/json; q=0.8";
        let simple = "application/vnd.pypi.simple.v1+json";
        let never_changes = Some((true, None));
        let listing = Some((false, Some(5)));
        for (url, content_type, accept, expected) in [
            ("a.example/artifactory/api/pypi/pypi/simple/six/", "text/html; charset=utf-8", "*/*", listing),
            ("a.example/index/six/", "application/vnd.pypi.simple.v1+json", simple, listing),
            (
                "a.example/repository/pypi/packages/six/1.16.0/six-1.16.0.tar.gz",
                "application/x-gzip",
                "*/*",
                never_changes,
            ),
            (
                "a.example/any/six-1.16.0-py2.py3-none-any.whl.metadata",
                "application/octet-stream",
                "*/*",
                never_changes,
            ),
            ("a.example/any/six-1.16.0-py2.py3-none-any.whl", "text/html", "*/*", None),
            ("a.example/repository/npm/@types%2fnode", "application/json", packument, listing),
            ("a.example/@types/node/-/node-1.0.0.tgz", "application/octet-stream", packument, never_changes),
            ("a.example/left-pad", "application/vnd.npm.install-v1+json", "", listing),
            ("a.example/left-pad", "application/json", "*/*", None),
            ("a.example/index/it/oa/itoa", "text/plain", "*/*", listing),
            ("a.example/api/v1/crates/itoa/1.0.0/download", "application/gzip", "*/*", never_changes),
            ("a.example/goproxy/github.com/google/uuid/@v/v1.6.0.zip", "application/zip", "*/*", never_changes),
            ("a.example/goproxy/github.com/google/uuid/@v/list", "text/plain", "*/*", listing),
            ("a.example/libs/junit/junit/4.13.2/junit-4.13.2.jar", "application/java-archive", "*/*", never_changes),
            ("a.example/libs/junit/junit/maven-metadata.xml", "application/xml", "*/*", listing),
            (
                "a.example/debian/pool/main/h/hello/hello_2.10_amd64.deb",
                "application/x-debian-package",
                "*/*",
                never_changes,
            ),
            (
                "a.example/debian/dists/bookworm/main/by-hash/SHA256/12",
                "application/octet-stream",
                "*/*",
                never_changes,
            ),
            ("a.example/debian/dists/bookworm/InRelease", "application/octet-stream", "*/*", listing),
        ] {
            assert_eq!(known(url, content_type, accept), expected, "{url} {content_type}");
        }
    }

    #[test]
    fn no_mirror_gives_an_error_or_a_redirect_a_lifetime() {
        let mut proxy = ProxyConfig::default();
        for registry in REGISTRIES {
            registry.add_to(&mut proxy, None);
        }
        proxy.rules.extend(rules_for_all());
        let find = |authority, path, status: u16| {
            let status = http::StatusCode::from_u16(status).unwrap();
            proxy
                .rules
                .find(&get("https", authority, path), status, &http::HeaderMap::new())
                .cloned()
                .unwrap_or_default()
        };
        for (authority, path) in [
            ("repo.maven.apache.org", "/maven2/a/b/1/b-1.jar"),
            ("registry.npmjs.org", "/a/-/a-1.tgz"),
            ("registry.npmjs.org", "/a"),
            ("github.com", "/a/b/releases/download/v1.0/b.tar.gz"),
        ] {
            let kept = find(authority, path, 200);
            assert!(kept.immutable || kept.fresh.is_some(), "{path}");
            for status in
                [300, 301, 302, 303, 307, 308, 400, 401, 403, 404, 405, 410, 414, 429, 500, 502, 503, 504, 511]
            {
                let ruling = find(authority, path, status);
                assert!(!ruling.immutable && ruling.fresh.is_none(), "{path} {status}");
                assert!(!ruling.ignores_client() || (300..400).contains(&status), "{path} {status}");
            }
        }
    }

    #[test]
    fn rules_of_two_mirrors_on_one_host_go_by_the_port() {
        let of = |name: &str, port: u16, immutable: &[&str]| {
            for_files(name, immutable, &format!("http://127.0.0.1:{port}").parse().unwrap())
        };
        let mut rules = of("one", 8081, &["/**"]);
        rules.extend(of("two", 8082, &["/**/*.jar"]));
        let rules = larder_http::Rules::new(rules);
        let find = |authority, path| {
            let request = get("http", authority, path);
            rules.find(&request, http::StatusCode::OK, &http::HeaderMap::new()).map(|ruling| ruling.name.clone())
        };
        assert_eq!(find("127.0.0.1:8081", "/a").as_deref(), Some("one: never changes"));
        assert_eq!(find("127.0.0.1:8082", "/a"), None);
        assert_eq!(find("127.0.0.1:8082", "/a.jar").as_deref(), Some("two: never changes"));
    }

    #[test]
    fn another_server_takes_the_place_of_the_first() {
        let OriginOf { name, url } = parse_origin_of("pypi=https://pypi.company.example/root").unwrap();
        let mut proxy = ProxyConfig::default();
        named(name).unwrap().add_to(&mut proxy, Some(&url));
        assert_eq!(proxy.mirrors[0].origin, url);
        assert_eq!(proxy.mirrors[0].links[0].url, "https://pypi.company.example/root");
        assert_eq!(proxy.mirrors[1].path, "/pypi-files");
    }

    /// Checks the case of a company's index server that also serves the packages. Without this, crates from it are
    /// fetched again after minutes.
    #[test]
    fn packages_on_the_server_of_the_listings_never_change_either() {
        let mut proxy = ProxyConfig::default();
        named("cargo").unwrap().add_to(&mut proxy, Some(&"https://crates.company.example".parse().unwrap()));
        let find = |path, content_type: &'static str| {
            let request = get("https", "crates.company.example", path);
            let fields = [(http::header::CONTENT_TYPE, http::HeaderValue::from_static(content_type))];
            let found = proxy
                .rules
                .find(&request, http::StatusCode::OK, &fields.into_iter().collect::<http::HeaderMap>())
                .unwrap();
            (found.immutable, found.contradicts_url)
        };
        assert_eq!(find("/api/v1/crates/itoa/1.0.0/download", "application/gzip"), (true, false));
        assert_eq!(find("/api/v1/crates/itoa/1.0.0/download", "text/html"), (false, true));
        assert_eq!(find("/it/oa/itoa", "text/plain"), (false, false));
    }

    #[test]
    fn listings_vary_by_what_registries_negotiate_and_files_do_not() {
        let mut proxy = ProxyConfig::default();
        for name in ["pypi", "npm", "cargo", "nix", "conda", "debian"] {
            named(name).unwrap().add_to(&mut proxy, None);
        }
        for (scheme, authority, path, expected) in [
            ("https", "pypi.org", "/simple/six/", BY_FORM),
            ("https", "registry.npmjs.org", "/six", BY_FORM),
            ("https", "index.crates.io", "/it/oa/itoa", BY_FORM),
            ("https", "cache.nixos.org", "/a.narinfo", BY_FORM),
            ("https", "conda.anaconda.org", "/conda-forge/noarch/repodata.json", BY_FORM),
            ("http", "deb.debian.org", "/debian/dists/bookworm/InRelease", &[]),
            ("https", "registry.npmjs.org", "/six/-/six-1.0.0.tgz", &[]),
        ] {
            let request = get(scheme, authority, path);
            let found = proxy.rules.find(&request, http::StatusCode::OK, &http::HeaderMap::new()).unwrap();
            assert_eq!(found.varies, expected, "{authority}");
        }
    }

    #[test]
    fn indexes_of_packages_follow_the_server_that_takes_the_place_of_the_first() {
        let url: OriginUrl = "https://pypi.company.example/root".parse().unwrap();
        let all = package_indexes(|name| (name == "pypi").then_some(&url));
        let index_of = |files: &str| {
            let found = all.iter().find(|one| one.files.host() == files).map(|one| one.index.to_short_string());
            found.unwrap_or_default()
        };
        assert_eq!(index_of("files.pythonhosted.org"), "https://pypi.company.example/root");
        assert_eq!(index_of("static.crates.io"), "https://index.crates.io");
        assert_eq!(index_of("proxy.golang.org"), "https://sum.golang.org");
    }

    #[test]
    fn base_path_of_a_server_is_no_pattern() {
        let origin: OriginUrl = "https://a.example/}releases[1]*".parse().unwrap();
        let rules = larder_http::Rules::new(for_files("a", &["/**/*.jar"], &origin));
        let find = |path| {
            let request = get("https", "a.example", path);
            rules.find(&request, http::StatusCode::OK, &http::HeaderMap::new()).is_some()
        };
        assert!(find("/}releases[1]*/b/c.jar") && !find("/}releases1x/b/c.jar"));
    }

    #[test]
    fn registries_are_behind_their_names() {
        let mut proxy = ProxyConfig::default();
        named("oci").unwrap().add_to(&mut proxy, None);
        let NamedRegistry { name, url } = NamedRegistry::parse("Registry.example:5000=http://10.0.0.1:5000").unwrap();
        add_registry(&mut proxy, (&name, false), url);
        let origin_of = |path: &str| {
            let found = proxy.mirrors.iter().find(|mirror| mirror.path == path && mirror.is_registry);
            found.map(|mirror| mirror.origin.to_short_string())
        };
        for (path, origin) in [
            ("/v2", "https://registry-1.docker.io/v2"),
            ("/v2/ghcr.io", "https://ghcr.io/v2"),
            ("/oci/v2/quay.io", "https://quay.io/v2"),
            ("/v2/registry.example:5000", "http://10.0.0.1:5000/v2"),
        ] {
            assert_eq!(origin_of(path).as_deref(), Some(origin), "{path}");
        }
        for (path, expected) in [
            ("/v2/library/debian/blobs/sha256:12", "oci docker.io: never changes"),
            ("/v2/library/debian/manifests/12", "oci docker.io: everything else"),
        ] {
            assert_eq!(rule_of("oci", "registry-1.docker.io", path), expected);
        }
        for text in ["", "company", "a b.example", "a.example=ftp://x"] {
            assert!(NamedRegistry::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn names_that_nobody_knows_are_refused_with_what_was_meant() {
        assert!(named("pypy").unwrap_err().help.contains("`pypi`"));
        assert!(parse_origin_of("pypi").is_err() && parse_origin_of("pypi=x y").is_err());
    }
}

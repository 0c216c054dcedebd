//! Container registries behind mirrors: where their clients get tokens, and how repository names are translated (OCI
//! distribution, and the token protocol of its reference implementation).
//!
//! Owns: challenges, scopes, and the tokens that need no credentials. Requests are sent in `road::registry`; the
//! operator's rules decide what is cached.
//!
//! Invariants: a client is directed to the mirror for its token. Its credentials are forwarded each time to the server
//! that the registry names, and are never kept. A token issued without credentials gives no more access than every
//! client has. Digests are kept of such tokens only.

use larder_device::IgnorePoison;
use std::{
    collections::HashMap,
    sync::Mutex,
    time::{Duration, Instant},
};

use http::{
    HeaderMap, HeaderValue,
    header::{AUTHORIZATION, WWW_AUTHENTICATE},
};
use ring::digest::{SHA256, digest};

/// The authentication that a container registry demands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RegistryChallenge {
    /// The registry demands no authentication.
    None,
    /// The client must send a user name and a password with each request (RFC 7617).
    Basic,
    /// The client must send a token, which the server at `realm` issues.
    Bearer { realm: String, service: Option<String> },
}

/// The remembered authentication challenge of a container registry.
#[derive(Default)]
pub(crate) struct Registry {
    challenge: Mutex<Option<(Instant, RegistryChallenge)>>,
}

/// Tokens that were issued without credentials: the SHA-256 digest of each, and the time at which it expires.
#[derive(Default)]
pub(crate) struct OpenTokens(Mutex<HashMap<Vec<u8>, Instant>>);

impl RegistryChallenge {
    /// Parses the challenge in a registry's response to a request without credentials.
    pub(crate) fn of(fields: &HeaderMap) -> Self {
        let line = fields.get(WWW_AUTHENTICATE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let (scheme, _) = line.split_once(' ').unwrap_or((line, ""));
        match parameter(line, "realm") {
            Some(realm) if scheme.eq_ignore_ascii_case("bearer") => {
                Self::Bearer { realm: realm.to_owned(), service: parameter(line, "service").map(str::to_owned) }
            }
            _ if scheme.eq_ignore_ascii_case("basic") => Self::Basic,
            _ => Self::None,
        }
    }
}

/// Returns the challenge that sends a client to the mirror for its token.
///
/// `base` is this proxy's scheme and host for the client, `names` the prefix of the registry's repositories in the
/// mirror, and `registrys` the registry's own challenge.
pub(crate) fn own_challenge(base: &str, names: &str, registrys: Option<&HeaderValue>) -> Option<HeaderValue> {
    let line = registrys.and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut text = format!("Bearer realm=\"{base}/v2/{TOKEN}\",service=\"larder\"");
    if let Some(scope) = parameter(line, "scope") {
        let scopes: Vec<String> = scope.split(' ').map(|scope| prefixed(scope, names)).collect();
        text.push_str(&format!(",scope=\"{}\"", scopes.join(" ")));
    }
    if let Some(error) = parameter(line, "error") {
        text.push_str(&format!(",error=\"{error}\""));
    }
    HeaderValue::try_from(text).ok()
}

/// Returns the repository's name in a scope such as `repository:NAME:pull`.
pub(crate) fn repository_of(scope: &str) -> Option<&str> {
    let (name, _) = scope.strip_prefix("repository:")?.rsplit_once(':')?;
    (!name.is_empty()).then_some(name)
}

/// Returns a scope in which `name`, the repository's name at its registry, replaces the client's name for it.
pub(crate) fn renamed(scope: &str, name: &str) -> Option<String> {
    let (_, actions) = scope.strip_prefix("repository:")?.rsplit_once(':')?;
    Some(format!("repository:{name}:{actions}"))
}

fn prefixed(scope: &str, names: &str) -> String {
    repository_of(scope).and_then(|name| renamed(scope, &format!("{names}{name}"))).unwrap_or_else(|| scope.to_owned())
}

/// Returns the path on the registry `host` for `rest`, the part of a client's path that begins with the repository's
/// name.
///
/// On Docker Hub, repositories with a name of one part are in `library`.
pub(crate) fn path_at(host: &str, rest: &str) -> String {
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut segments = path.trim_start_matches('/').split('/');
    let is_short = segments.next().is_some_and(|name| !name.is_empty() && !name.starts_with('_'))
        && matches!(segments.next(), Some("manifests" | "blobs" | "tags" | "referrers"));
    let library = if is_short && (host == "docker.io" || host.ends_with(".docker.io")) { "/library" } else { "" };
    // The query argument `ns` is dropped, because the path already says which registry is meant.
    let arguments: Vec<&str> = query.split('&').filter(|part| !part.is_empty() && !part.starts_with("ns=")).collect();
    let mark = if arguments.is_empty() { "" } else { "?" };
    format!("{library}{path}{mark}{}", arguments.join("&"))
}

impl Registry {
    /// Returns the registry's challenge if it was seen within [`KNOWN_FOR`]. With `stale`, returns it at any age.
    pub(crate) fn challenge(&self, stale: bool) -> Option<RegistryChallenge> {
        let known = self.challenge.lock().ignore_poison();
        known.as_ref().filter(|(at, _)| stale || at.elapsed() < KNOWN_FOR).map(|(_, challenge)| challenge.clone())
    }

    /// Remembers the registry's challenge.
    pub(crate) fn note(&self, challenge: RegistryChallenge) {
        *self.challenge.lock().ignore_poison() = Some((Instant::now(), challenge));
    }

    /// Replaces the token that the mirror gave to a client with the credentials that the registry expects.
    pub(crate) fn translate(&self, fields: &mut HeaderMap) {
        let Some(token) = bearer(fields) else { return };
        if token == ANONYMOUS {
            fields.remove(AUTHORIZATION);
        } else if self.challenge(true) == Some(RegistryChallenge::Basic)
            && let Ok(basic) = HeaderValue::try_from(format!("Basic {token}"))
        {
            fields.insert(AUTHORIZATION, basic);
        }
    }
}

impl OpenTokens {
    /// Remembers a token that was issued without credentials.
    pub(crate) fn insert(&self, token: &str, good_for: Duration) {
        let mut known = self.0.lock().ignore_poison();
        let now = Instant::now();
        if known.len() >= OPEN_TOKEN_COUNT_MAX {
            known.retain(|_, until| *until > now);
        }
        // Forgetting a token does no harm: its holder's next request goes to the registry.
        if known.len() >= OPEN_TOKEN_COUNT_MAX {
            known.clear();
        }
        known.insert(digest(&SHA256, token.as_bytes()).as_ref().to_vec(), now + good_for.min(TOKEN_AGE_MAX));
    }

    /// Returns whether a request's credentials are only a token that was issued without credentials.
    pub(crate) fn covers(&self, fields: &HeaderMap) -> bool {
        let Some(token) = bearer(fields) else { return false };
        let until = self.0.lock().ignore_poison().get(digest(&SHA256, token.as_bytes()).as_ref()).copied();
        until.is_some_and(|until| until > Instant::now())
    }
}

/// Returns the bearer token in a request's Authorization field.
pub(crate) fn bearer(fields: &HeaderMap) -> Option<&str> {
    let (scheme, token) = fields.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

/// Returns the value of a parameter in an authentication challenge.
fn parameter<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let mut rest = line;
    while let Some(at) = rest.find('=') {
        let before = &rest[..at];
        let after = &rest[at + 1..];
        let found = before.rsplit([' ', ',']).next().unwrap_or_default();
        let (value, next) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => after.split_once(',').unwrap_or((after, "")),
        };
        if found.eq_ignore_ascii_case(name) {
            return Some(value);
        }
        rest = next;
    }
    None
}

/// Path below `/v2/` at which clients get their tokens.
pub(crate) const TOKEN: &str = "token";
/// The token that the mirror gives to clients if the registry requires none, or cannot be reached.
pub(crate) const ANONYMOUS: &str = "larder-anonymous";
/// Time for which a registry's challenge is remembered.
const KNOWN_FOR: Duration = Duration::from_mins(10);
/// Maximum number of remembered tokens.
const OPEN_TOKEN_COUNT_MAX: usize = 4096;
/// Maximum time for which a token is remembered.
const TOKEN_AGE_MAX: Duration = Duration::from_hours(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(name: http::HeaderName, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_static(value))])
    }

    #[test]
    fn challenges_are_read() {
        let read = |line| RegistryChallenge::of(&fields(WWW_AUTHENTICATE, line));
        let bearer = |service: Option<&str>| RegistryChallenge::Bearer {
            realm: "https://auth.example/token?a=b".to_owned(),
            service: service.map(str::to_owned),
        };
        assert_eq!(read("Bearer realm=\"https://auth.example/token?a=b\",service=\"r\""), bearer(Some("r")));
        assert_eq!(read("bearer service=r, realm=\"https://auth.example/token?a=b\""), bearer(Some("r")));
        assert_eq!(read("Bearer realm=\"https://auth.example/token?a=b\""), bearer(None));
        assert_eq!(read("Basic realm=\"x\""), RegistryChallenge::Basic);
        for line in ["", "Bearer", "Bearer realm=\"open", "Digest realm=\"x\""] {
            assert_eq!(read(line), RegistryChallenge::None, "{line}");
        }
    }

    #[test]
    fn clients_are_led_to_us_by_the_names_that_they_know() {
        let registrys = HeaderValue::from_static(
            "Bearer realm=\"https://a/t\",service=\"s\",scope=\"repository:a/b:pull\",error=\"insufficient_scope\"",
        );
        assert_eq!(
            own_challenge("http://us:1", "ghcr.io/", Some(&registrys)).unwrap(),
            "Bearer realm=\"http://us:1/v2/token\",service=\"larder\",scope=\"repository:ghcr.io/a/b:pull\",error=\"insufficient_scope\""
        );
        assert_eq!(
            own_challenge("http://us", "", None).unwrap(),
            "Bearer realm=\"http://us/v2/token\",service=\"larder\""
        );
        assert_eq!(repository_of("repository:a/b:5000/c:pull,push"), Some("a/b:5000/c"));
        assert_eq!(repository_of("registry:catalog:*"), None);
    }

    #[test]
    fn images_of_docker_have_a_library() {
        for (host, rest, expected) in [
            ("registry-1.docker.io", "/debian/manifests/12", "/library/debian/manifests/12"),
            ("registry-1.docker.io", "/a/b/manifests/12?ns=docker.io", "/a/b/manifests/12"),
            ("registry-1.docker.io", "/_catalog?n=1&ns=x", "/_catalog?n=1"),
            ("ghcr.io", "/debian/blobs/sha256:12", "/debian/blobs/sha256:12"),
        ] {
            assert_eq!(path_at(host, rest), expected, "{rest}");
        }
    }

    #[test]
    fn tokens_of_nobody_are_known_and_become_what_the_registry_wants() {
        let tokens = OpenTokens::default();
        let registry = Registry::default();
        tokens.insert("abc", Duration::from_mins(5));
        tokens.insert("old", Duration::ZERO);
        let covers = |line| tokens.covers(&fields(AUTHORIZATION, line));
        assert_eq!(
            ["Bearer abc", "bearer abc", "Bearer abd", "Basic abc", "Bearer old"].map(covers),
            [true, true, false, false, false]
        );
        let mut open = fields(AUTHORIZATION, "Bearer larder-anonymous");
        registry.translate(&mut open);
        assert!(open.is_empty());
        registry.note(RegistryChallenge::Basic);
        let mut basic = fields(AUTHORIZATION, "Bearer YTpi");
        registry.translate(&mut basic);
        assert_eq!(basic[AUTHORIZATION], "Basic YTpi");
    }
}

//! Answers the requests of container registry clients that the mirror handles itself: the API version check and tokens.
//!
//! Owns: the request for a token, in the client's own name, to the server that the registry names. Tokens and
//! credentials are not kept.
//!
//! Invariants: a client's credentials go only to the server that its registry names, over TLS if the registry itself is
//! reached over TLS. The response is for this client alone.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri,
    header::{ACCEPT, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HOST, USER_AGENT, WWW_AUTHENTICATE},
};
use larder_cache::http::fetcher::RequestEdits;
use larder_http::{
    redirects::{is_same_origin, may_follow},
    ruling::RedirectPolicy,
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::{
    figures::outcome::Outcome,
    ground::{
        errors::Failure,
        received_body::IncomingBody,
        target::{Origin, is_plain_host},
    },
    origins::{ReplayableRequest, RetryRule},
    road::{
        admitted::AdmittedRequest,
        client::response_body::ResponseBody,
        exchange::ClientExchange,
        served::ServedResponse,
        target::{Target, TargetKind},
    },
    targets::{
        asked::RequestHead,
        mirrors::{MirrorRequest, MirrorTable, RegistryAsk},
        registries::{ANONYMOUS, RegistryChallenge, renamed, repository_of},
    },
};

impl ClientExchange {
    /// Answers a request that the mirror of a registry handles itself, without the cache.
    ///
    /// # Errors
    /// The registry or its token server is unreachable.
    pub(super) async fn answer_for_registry(
        &self,
        mirrored: &MirrorRequest,
        ask: RegistryAsk,
        request: &Request<IncomingBody>,
    ) -> Result<ServedResponse, Failure> {
        self.check_client()?;
        match ask {
            RegistryAsk::Version => Ok(version(mirrored, request.headers())),
            RegistryAsk::Token if request.method() != Method::GET => {
                Ok(local(StatusCode::METHOD_NOT_ALLOWED, &error("UNSUPPORTED", "use GET to request a token")))
            }
            RegistryAsk::Token => self.token(mirrored, request.uri(), request.headers()).await,
        }
    }
}

/// Answers the API version check. Without a token, the answer is a 401 that names this proxy as the token server.
fn version(mirrored: &MirrorRequest, fields: &HeaderMap) -> ServedResponse {
    let mut served = if fields.contains_key(AUTHORIZATION) {
        local(StatusCode::OK, "{}")
    } else {
        local(StatusCode::UNAUTHORIZED, &error("UNAUTHORIZED", "a token is needed"))
    };
    let fields = served.response.headers_mut();
    fields.insert("docker-distribution-api-version", HeaderValue::from_static("registry/2.0"));
    if served.response.status() == StatusCode::UNAUTHORIZED
        && let Some(challenge) = mirrored.challenge(None)
    {
        served.response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    }
    served
}

impl ClientExchange {
    /// Fetches a token for a client, from the token server that the client's registry names.
    async fn token(&self, asking: &MirrorRequest, uri: &Uri, fields: &HeaderMap) -> Result<ServedResponse, Failure> {
        let arguments = arguments_of(uri.query().unwrap_or_default());
        let scopes = arguments.iter().filter(|(name, _)| name == "scope").flat_map(|(_, value)| value.split(' '));
        let mut registry = asking.clone();
        let mut theirs = Vec::new();
        for scope in scopes {
            let Some((mirrored, name)) =
                repository_of(scope).and_then(|name| self.worker.shared.mirrors.registry_of(asking, name))
            else {
                continue;
            };
            if theirs.is_empty() {
                registry = mirrored;
            } else if registry.api_url() != mirrored.api_url() {
                continue;
            }
            theirs.extend(renamed(scope, &name));
        }
        let credentials = fields.get(AUTHORIZATION).cloned();
        let challenge = match self.challenge_of(&registry).await {
            // Public content can be served from the cache even if the registry is unreachable, so the client gets a
            // token anyway.
            Err(failure) if failure.is_origin_failure() && credentials.is_none() => RegistryChallenge::None,
            challenge => challenge?,
        };
        match (challenge, credentials) {
            (RegistryChallenge::None, _) | (RegistryChallenge::Basic, None) => {
                Ok(local(StatusCode::OK, &own_token(ANONYMOUS)))
            }
            (RegistryChallenge::Basic, Some(credentials)) => Ok(basic_token(&credentials)),
            (RegistryChallenge::Bearer { realm, service }, credentials) => {
                let api = self.api_request(&registry)?;
                let asked = &api.asked;
                let url = realm_url(&realm, service.as_deref(), &theirs, &arguments);
                let url = url.filter(|url| asked.uri().is_some_and(|api| may_follow(&api, url, RedirectPolicy::Safe)));
                let url = url.ok_or_else(|| broken(asked, "it names no token service that may be contacted"))?;
                let (status, content_type, body) = api.fetch_token(&url, credentials.clone()).await?;
                if status == StatusCode::OK && credentials.is_none() {
                    note_open(&self.worker.shared.mirrors, &body);
                }
                let mut served = local_of(status, ResponseBody::full(body));
                if let Some(content_type) = content_type {
                    served.response.headers_mut().insert(CONTENT_TYPE, content_type);
                }
                Ok(served)
            }
        }
    }

    /// Returns a registry's authentication challenge: a remembered one, or the one that the registry sends now.
    async fn challenge_of(&self, mirrored: &MirrorRequest) -> Result<RegistryChallenge, Failure> {
        let registry = mirrored.registry().ok_or_else(|| self.no_site())?;
        if let Some(challenge) = registry.challenge(false) {
            return Ok(challenge);
        }
        let AdmittedRequest { worker, asked } = self.api_request(mirrored)?;
        let outgoing = ReplayableRequest {
            origin: asked.origin.clone(),
            choice: None,
            key: None,
            repeat: RetryRule::Safe,
            client: Some(&asked.asking),
            make: || asked.outgoing(&worker.shared.marks, &RequestEdits::default()),
        };
        let (head, body) = worker.origins.ask(outgoing).await?;
        drop(body);
        let challenge = match head.status {
            StatusCode::UNAUTHORIZED => RegistryChallenge::of(&head.headers),
            status if status.is_server_error() => {
                return Err(broken(&asked, "it does not answer the request for its challenge"));
            }
            _ => RegistryChallenge::None,
        };
        registry.note(challenge.clone());
        Ok(challenge)
    }

    fn no_site(&self) -> Failure {
        Failure::NoSite { forwards: self.worker.shared.config.forward }
    }

    /// Creates a request for the root of a registry's API, without credentials.
    fn api_request(&self, mirrored: &MirrorRequest) -> Result<AdmittedRequest, Failure> {
        let uri: Uri = mirrored.api_url().parse().map_err(|_| self.no_site())?;
        let mut request = Request::new(());
        *request.uri_mut() = uri;
        let target = Target { kind: TargetKind::Mirror(mirrored.clone()), ..Target::default() };
        let asked = self.take_apart(&target, &mut request)?;
        Ok(AdmittedRequest { worker: Arc::clone(&self.worker), asked })
    }
}

impl AdmittedRequest {
    /// Fetches a token from `url`. Only the host of `url` receives the client's credentials.
    async fn fetch_token(
        &self,
        url: &Uri,
        credentials: Option<HeaderValue>,
    ) -> Result<(StatusCode, Option<HeaderValue>, Bytes), Failure> {
        let Self { worker, asked } = self;
        let bad = || broken(asked, "its token service has no valid URL");
        let authority = url.authority().filter(|authority| is_plain_host(authority.host())).ok_or_else(bad)?;
        let named = Origin::of_url(url).ok_or_else(bad)?;
        let is_registry = asked.uri().is_some_and(|api| is_same_origin(&api, url));
        let host = HeaderValue::try_from(authority.as_str()).map_err(|_| bad())?;
        let path = url.path_and_query().cloned().ok_or_else(bad)?;
        let outgoing = ReplayableRequest {
            origin: if is_registry { asked.origin.clone() } else { named },
            choice: None,
            key: None,
            repeat: RetryRule::Safe,
            client: Some(&asked.asking),
            make: || {
                let mut request = asked.outgoing(&worker.shared.marks, &RequestEdits::default());
                *request.uri_mut() = path.clone().into();
                let fields = request.headers_mut();
                fields.insert(HOST, host.clone());
                fields.insert(ACCEPT, HeaderValue::from_static("application/json"));
                fields.insert(USER_AGENT, HeaderValue::from_static("larder"));
                if let Some(credentials) = &credentials {
                    fields.insert(AUTHORIZATION, credentials.clone());
                }
                request
            },
        };
        let (head, body) = worker.origins.ask(outgoing).await?;
        let (body, _) = body
            .collect_up_to(TOKEN_BYTES_MAX)
            .await
            .ok_or_else(|| broken(asked, "the response of its token service is malformed"))?;
        Ok((head.status, head.headers.get(CONTENT_TYPE).cloned(), body))
    }
}

/// Remembers a token that was issued without credentials. Responses to requests with it may be shared between clients.
fn note_open(mirrors: &MirrorTable, body: &[u8]) {
    let Ok(serde_json::Value::Object(answer)) = serde_json::from_slice(body) else { return };
    let secs = answer.get("expires_in").and_then(serde_json::Value::as_u64).unwrap_or(TOKEN_SECS_USUAL);
    for name in ["token", "access_token"] {
        if let Some(token) = answer.get(name).and_then(serde_json::Value::as_str) {
            mirrors.open_tokens.insert(token, Duration::from_secs(secs));
        }
    }
}

/// Returns the URL at which a token server issues a token for these scopes.
fn realm_url(realm: &str, service: Option<&str>, scopes: &[String], asked: &[(String, String)]) -> Option<Uri> {
    let mut text = realm.to_owned();
    let mut add = |name: &str, value: &str| {
        text.push(if text.contains('?') { '&' } else { '?' });
        text.push_str(name);
        text.push('=');
        text.extend(utf8_percent_encode(value, ESCAPED));
    };
    if let Some(service) = service {
        add("service", service);
    }
    scopes.iter().for_each(|scope| add("scope", scope));
    asked
        .iter()
        .filter(|(name, _)| ["account", "client_id", "offline_token"].contains(&name.as_str()))
        .for_each(|(name, value)| add(name, value));
    text.parse().ok()
}

/// Returns the names and values in a URL's query, decoded.
fn arguments_of(query: &str) -> Vec<(String, String)> {
    let plain = |text: &str| percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned();
    let pairs = query.split('&').filter_map(|argument| argument.split_once('='));
    pairs.map(|(name, value)| (plain(name), plain(value))).collect()
}

/// Returns a client's Basic credentials as if they were a token, for a registry that does not use tokens.
///
/// Requests to that registry convert the token back to credentials.
fn basic_token(credentials: &HeaderValue) -> ServedResponse {
    let pair = credentials.to_str().ok().and_then(|text| text.split_once(' '));
    match pair.filter(|(scheme, token)| scheme.eq_ignore_ascii_case("basic") && is_token(token)) {
        Some((_, token)) => local(StatusCode::OK, &own_token(token)),
        None => local(StatusCode::UNAUTHORIZED, &error("UNAUTHORIZED", "a user and a password are needed")),
    }
}

fn is_token(text: &str) -> bool {
    text.bytes().all(|octet| octet.is_ascii_alphanumeric() || b"+/=-._~".contains(&octet))
}

fn own_token(token: &str) -> String {
    format!("{{\"token\":\"{token}\",\"access_token\":\"{token}\",\"expires_in\":{TOKEN_SECS_USUAL}}}")
}

fn error(code: &str, message: &str) -> String {
    format!("{{\"errors\":[{{\"code\":\"{code}\",\"message\":\"{message}\"}}]}}")
}

fn local(status: StatusCode, json: &str) -> ServedResponse {
    let mut served = local_of(status, ResponseBody::full(Bytes::copy_from_slice(json.as_bytes())));
    served.response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    served
}

fn local_of(status: StatusCode, body: ResponseBody) -> ServedResponse {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    ServedResponse { response: Box::new(response), outcome: Outcome::Miss, origin: None, why: None }
}

fn broken(asked: &RequestHead, why: &str) -> Failure {
    Failure::Broken { host: asked.origin.to_string(), why: why.to_owned() }
}

/// Characters that are escaped in a query's value. The punctuation in scopes need not be (RFC 3986 3.4).
const ESCAPED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/').remove(b':').remove(b',');
/// Maximum length of a token server's response, in bytes.
const TOKEN_BYTES_MAX: usize = 64 << 10;
/// Assumed lifetime of a token whose response states none, in seconds.
const TOKEN_SECS_USUAL: u64 = 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_come_and_go_as_they_are_meant() {
        let arguments = arguments_of("scope=repository%3Aa%2Fb%3Apull+x&account=me%40home&odd=%zz%4&empty");
        let expected = [("scope", "repository:a/b:pull x"), ("account", "me@home"), ("odd", "%zz%4")];
        assert_eq!(arguments, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        let url = realm_url("https://a/t?k=v", Some("my service"), &["repository:a/b:pull".to_owned()], &arguments);
        let expected = "https://a/t?k=v&service=my%20service&scope=repository:a/b:pull&account=me%40home";
        assert_eq!(url.unwrap().to_string(), expected);
    }
}

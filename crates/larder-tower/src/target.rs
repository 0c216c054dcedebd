//! The target of a request: its cache key, its URI, and the request fields that select among variants.
//!
//! Credentials and cookies are replaced by their SHA-256, so the cache's files do not contain them.

use http::{
    HeaderMap, HeaderName, HeaderValue, Request, Uri,
    header::{AUTHORIZATION, COOKIE, HOST, PROXY_AUTHORIZATION},
    uri::Scheme,
};
use larder_http::key::primary_key;
use sha2::{Digest, Sha256};

/// The resource that a request is for, and the request fields that select one of its variants.
pub(crate) struct Target {
    pub(crate) uri: Uri,
    pub(crate) key: Vec<u8>,
    /// The request's fields as the cache compares and stores them: secrets are replaced by digests.
    pub(crate) fields: HeaderMap,
}

/// Fields whose values must not appear in the cache's files.
static SECRET: [HeaderName; 3] = [AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION];

impl Target {
    /// Returns the target of a request, or `None` if its URI cannot be a cache key.
    ///
    /// `implied` are the fields that the client adds later. A field that the request has itself takes precedence.
    pub(crate) fn new<B>(request: &Request<B>, scheme: &Scheme, implied: &HeaderMap) -> Option<Self> {
        let uri = absolute(request, scheme)?;
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let key = primary_key(uri.scheme_str()?, uri.authority()?.as_str(), path).ok()?;
        let mut fields = request.headers().clone();
        for name in implied.keys().filter(|name| !request.headers().contains_key(*name)) {
            for value in implied.get_all(name) {
                fields.append(name.clone(), value.clone());
            }
        }
        SECRET.iter().for_each(|name| mask(&mut fields, name));
        Some(Self { uri, key, fields })
    }
}

/// Returns the cache key of a URI, or `None` if it cannot have one, for example without an authority.
pub(crate) fn key_of(uri: &Uri) -> Option<Vec<u8>> {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    primary_key(uri.scheme_str()?, uri.authority()?.as_str(), path).ok()
}

/// Returns the request's URI in absolute form. A request as servers receive it has its authority in the Host field.
fn absolute<B>(request: &Request<B>, scheme: &Scheme) -> Option<Uri> {
    let uri = request.uri();
    if uri.scheme().is_some() && uri.authority().is_some() {
        return Some(uri.clone());
    }
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok());
    let authority = uri.authority().map(|authority| authority.as_str()).or(host)?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    Uri::builder().scheme(scheme.clone()).authority(authority).path_and_query(path).build().ok()
}

/// Replaces the values of a field by one SHA-256 digest of all of them.
fn mask(fields: &mut HeaderMap, name: &HeaderName) {
    if !fields.contains_key(name) {
        return;
    }
    let mut hasher = Sha256::new();
    for value in fields.get_all(name) {
        hasher.update(value.as_bytes());
        hasher.update([0]);
    }
    let hex: String = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    fields.insert(name.clone(), HeaderValue::try_from(hex).expect("hexadecimal digits are a field value"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(uri: &str, fields: &[(&'static str, &'static str)], implied: &HeaderMap) -> Option<Target> {
        let mut request = Request::builder().uri(uri);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        Target::new(&request.body(()).unwrap(), &Scheme::HTTP, implied)
    }

    #[test]
    fn request_to_a_server_has_the_key_of_its_whole_url() {
        let origin_form = target("/a?b", &[("host", "Site.example:80")], &HeaderMap::new()).unwrap();
        let absolute_form = target("http://site.example/a?b#c", &[], &HeaderMap::new()).unwrap();
        assert_eq!(origin_form.key, absolute_form.key);
        assert_eq!(key_of(&absolute_form.uri), Some(origin_form.key));
        assert!(target("/a", &[], &HeaderMap::new()).is_none(), "no authority");
        assert!(target("ftp://site.example/", &[], &HeaderMap::new()).is_none(), "no HTTP");
    }

    #[test]
    fn secrets_are_compared_and_not_kept() {
        let fields = |value| target("http://a/", &[("authorization", value)], &HeaderMap::new()).unwrap().fields;
        let first = fields("Bearer one");
        assert_eq!(first, fields("Bearer one"));
        assert_ne!(first, fields("Bearer two"));
        assert!(!format!("{first:?}").contains("one"));
    }

    #[test]
    fn implied_fields_count_only_where_the_request_has_none() {
        let implied = HeaderMap::from_iter([(http::header::ACCEPT, HeaderValue::from_static("text/html"))]);
        let accept = |fields: &[(&'static str, &'static str)]| {
            target("http://a/", fields, &implied).unwrap().fields[http::header::ACCEPT].clone()
        };
        assert_eq!(accept(&[]), "text/html");
        assert_eq!(accept(&[("accept", "image/png")]), "image/png");
    }
}

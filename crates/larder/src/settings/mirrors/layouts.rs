//! Recognizes requests for the files of registries on any host.
//!
//! Owns: the tests for layouts that path patterns cannot describe. The layout of each registry is in `registries`.
//! Invariant: a test examines only the request.

use larder_http::rules::RuledRequest;

/// One kind of file of a registry, and how it is recognized on any host.
#[derive(Debug)]
pub(crate) struct RegistryLayout {
    /// Patterns of the files' paths. If empty, every path matches.
    pub(crate) paths: &'static [&'static str],
    /// An additional condition on the requests for these files. `None`: there is no such condition.
    pub(crate) test: Option<fn(&RuledRequest<'_>) -> bool>,
    /// Media types of this kind of file.
    pub(crate) types: &'static [&'static str],
    /// Lifetime of the files.
    pub(crate) keeps: FileLifetime,
}

/// The lifetime of files of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileLifetime {
    /// The files never change.
    Always,
    /// The files are listings, which change when packages are published. They are fresh for this many minutes.
    Minutes(u64),
}

/// Media types of pages that servers send in place of packages: login forms and errors.
pub(super) const PAGES: &[&str] = &["text/html", "application/xhtml+xml"];
/// Media types of packages and their metadata.
pub(super) const FILES: &[&str] = &["application/*", "binary/*", "text/plain", "text/xml"];
/// Media types of listings in text or JSON.
pub(super) const TEXTS: &[&str] =
    &["text/plain", "application/json", "application/octet-stream", "binary/octet-stream"];

/// Returns whether a Python client requests the list of a project's files.
pub(super) fn asks_simple_index(request: &RuledRequest<'_>) -> bool {
    request.accept().contains("application/vnd.pypi.simple.")
}

/// Returns whether an npm client requests the list of a package's versions.
pub(super) fn asks_packument(request: &RuledRequest<'_>) -> bool {
    request.accept().contains("application/vnd.npm.install-v1+json")
}

/// Returns whether a path is that of a file in cargo's sparse index, which ends like `1/a`, `2/ab`, `3/a/abc` or
/// `ab/cd/abcd...`.
pub(super) fn is_in_sparse_index(request: &RuledRequest<'_>) -> bool {
    let mut from_end = path_of(request).rsplit('/');
    let (Some(name), Some(parent)) = (from_end.next(), from_end.next()) else { return false };
    let grandparent = from_end.next().unwrap_or_default();
    let is_name = |octet: u8| octet.is_ascii_alphanumeric() || octet == b'-' || octet == b'_';
    if !name.bytes().all(is_name) {
        return false;
    }
    let name = name.to_ascii_lowercase();
    let parent = parent.to_ascii_lowercase();
    let grandparent = grandparent.to_ascii_lowercase();
    match name.len() {
        0 => false,
        1 => parent == "1",
        2 => parent == "2",
        3 => grandparent == "3" && parent == name[..1],
        _ => grandparent == name[..2] && parent == name[2..4],
    }
}

/// Returns whether a path is that of a file of a released version in a Maven repository:
/// `.../ARTIFACT/VERSION/ARTIFACT-VERSION...`.
///
/// Files of a snapshot count only if their names contain a time, because files without a time in the name are replaced.
pub(super) fn is_maven_release(request: &RuledRequest<'_>) -> bool {
    let mut from_end = path_of(request).rsplit('/');
    let (Some(file), Some(version), Some(artifact)) = (from_end.next(), from_end.next(), from_end.next()) else {
        return false;
    };
    let Some(rest) = file.strip_prefix(artifact).and_then(|rest| rest.strip_prefix('-')) else { return false };
    if artifact.is_empty() || !version.bytes().any(|octet| octet.is_ascii_digit()) {
        return false;
    }
    match version.strip_suffix("-SNAPSHOT") {
        None => rest.strip_prefix(version).is_some_and(|rest| rest.starts_with(['.', '-'])),
        Some(base) => {
            let time = rest.strip_prefix(base).and_then(|rest| rest.strip_prefix('-'));
            time.is_some_and(|time| time.starts_with(|first: char| first.is_ascii_digit()))
        }
    }
}

/// Returns the path of a request without its query.
fn path_of<'a>(request: &RuledRequest<'a>) -> &'a str {
    request.path.split('?').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is(test: fn(&RuledRequest<'_>) -> bool, path: &str) -> bool {
        let fields = http::HeaderMap::new();
        let method = &http::Method::GET;
        let scheme = "https";
        let authority = "a.example";
        test(&RuledRequest { method, scheme, authority, path, fields: &fields })
    }

    #[test]
    fn files_of_a_sparse_index_are_told_by_the_first_letters_of_their_names() {
        for (path, expected) in [
            ("/it/oa/itoa", true),
            ("/api/cargo/index/se/rd/Serde_json?x", true),
            ("/1/a", true),
            ("/index/2/ab", true),
            ("/3/l/log", true),
            ("/3/x/log", false),
            ("/it/oa/tokio", false),
            ("/it/oa/", false),
            ("/it/oa/itoa.html", false),
            ("/itoa", false),
            ("/ab/cd/abcé", false),
        ] {
            assert_eq!(is(is_in_sparse_index, path), expected, "{path}");
        }
    }

    #[test]
    fn files_of_a_maven_release_are_told_from_snapshots_and_pages() {
        for (path, expected) in [
            ("/maven2/junit/junit/4.13.2/junit-4.13.2.pom", true),
            ("/artifactory/libs/a/b/1.0/b-1.0-sources.jar.sha1", true),
            ("/r/a/b/1.0-SNAPSHOT/b-1.0-20240102.030405-6.jar", true),
            ("/r/a/b/1.0-SNAPSHOT/b-1.0-SNAPSHOT.jar", false),
            ("/r/a/b/1.0-SNAPSHOT/maven-metadata.xml", false),
            ("/maven2/junit/junit/maven-metadata.xml", false),
            ("/maven2/junit/junit/4.13.2/junit-4.13.jar", false),
            ("/download/app.jar", false),
            ("/a/latest/a-latest.jar", false),
        ] {
            assert_eq!(is(is_maven_release, path), expected, "{path}");
        }
    }
}

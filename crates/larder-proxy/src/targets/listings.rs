//! Listings of package registries: where the listing of a file is, and the digest that it names for the file.
//!
//! Owns: the layouts of Python, npm, cargo and Go. [`find`] reads the stored listings; the check of the body is in
//! `crate::ground::cache::body`.
//!
//! Invariant: whatever a listing contains, the result is a digest or none. Cost: one lookup per possible place of the
//! listing and one pass over it, for each fetch of a file and once for its ranges. A hit pays nothing. Memory:
//! [`LISTING_BYTES_MAX`] per fetch, and the request fields of [`VARIANT_COUNT_MAX`] listings.

mod find;

use larder_device::IgnorePoison;
use std::{collections::HashMap, sync::Mutex};

use http::{HeaderMap, HeaderValue};
use larder_http::SelectingFields;
use memchr::memmem;
use serde::Deserialize;

pub(crate) use find::{known_digest, knows_digest};

use crate::ground::{
    cache::key_set::KeySet,
    config::{OriginUrl, PackageIndex},
    digest::{NamedDigest, short_digest},
};

/// A file of a package, and the places where a listing with its digest may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListedFile {
    entry: ListingEntry,
    /// The path of the listing on a separate index server. `None` if no index server can have the listing.
    at_index: Option<String>,
    /// The paths at which the listing can be on the file's own server.
    own: Vec<String>,
}

/// The entry in a listing that describes a file.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ListingEntry {
    /// A file in a Python project's simple index (PEP 503, PEP 691), by its name.
    Python(String),
    /// A tarball in an npm packument, by its name.
    Npm(String),
    /// A crate in a file of cargo's sparse index, by its version.
    Crate(String),
    /// A module's `go.mod`, in a record of Go's checksum database, by the module's version.
    GoMod(String),
}

/// Package servers with separate index servers, and the recently stored variants of listings.
pub(crate) struct ListingTable {
    indexes: Vec<KnownIndex>,
    /// The selecting request fields of each listing's newest variant, by a digest of the listing's key.
    ///
    /// They are needed to find a listing that varies, because a request for a file has other fields than one for a
    /// listing.
    variants: Mutex<HashMap<u64, HeaderMap>>,
    /// The keys of files whose digest was known at an earlier request.
    known_files: KeySet,
}

struct KnownIndex {
    files: ServerUrl,
    index: ServerUrl,
}

struct ServerUrl {
    scheme: &'static str,
    authority: String,
    base: String,
}

impl ListingTable {
    pub(crate) fn new(indexes: &[PackageIndex]) -> Self {
        let known =
            |one: &PackageIndex| KnownIndex { files: ServerUrl::of(&one.files), index: ServerUrl::of(&one.index) };
        Self {
            indexes: indexes.iter().map(known).collect(),
            variants: Mutex::default(),
            known_files: KeySet::default(),
        }
    }

    /// Remembers the request fields that select a stored listing, so that it can be found again.
    pub(crate) fn note(&self, primary: &[u8], selecting: &SelectingFields) {
        let value = |octets: &bytes::Bytes| HeaderValue::from_bytes(octets).ok();
        let fields: HeaderMap =
            selecting.iter().filter_map(|(name, octets)| Some((name.clone(), octets.and_then(value)?))).collect();
        let mut variants = self.variants.lock().ignore_poison();
        if variants.len() >= VARIANT_COUNT_MAX {
            variants.clear();
        }
        variants.insert(short_digest(primary), fields);
    }

    /// Returns the request fields by which the newest variant of a listing is found. Empty if the listing does not
    /// vary, or if nothing is remembered of it.
    fn fields_of(&self, primary: &[u8]) -> HeaderMap {
        let variants = self.variants.lock().ignore_poison();
        variants.get(&short_digest(primary)).cloned().unwrap_or_default()
    }

    /// Iterates over the index servers that belong to a package server.
    fn indexes_of(&self, scheme: &str, authority: &str) -> impl Iterator<Item = &ServerUrl> {
        let is_it = move |one: &&KnownIndex| one.files.scheme == scheme && one.files.authority == authority;
        self.indexes.iter().filter(is_it).map(|one| &one.index)
    }
}

impl ServerUrl {
    fn of(url: &OriginUrl) -> Self {
        let text = url.to_short_string();
        let (scheme, rest) = match text.strip_prefix("https://") {
            Some(rest) => ("https", rest),
            None => ("http", text.strip_prefix("http://").unwrap_or(&text)),
        };
        let (authority, base) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        Self { scheme, authority: authority.to_owned(), base: base.trim_end_matches('/').to_owned() }
    }
}

impl ListedFile {
    /// Returns the file of a package that a path names, or `None` if the path names no such file.
    pub(crate) fn of_path(path: &str) -> Option<Self> {
        let path = path.split('?').next()?;
        let (folder, name) = path.rsplit_once('/')?;
        if let Some(module) = folder.strip_suffix("/@v") {
            return Self::go_mod(module, name);
        }
        if name.ends_with(".tgz")
            && let Some(package) = folder.strip_suffix("/-")
        {
            return Self::npm(package, name);
        }
        Self::of_crate(folder, name).or_else(|| Self::python(folder, name))
    }

    fn go_mod(module: &str, name: &str) -> Option<Self> {
        let version = name.strip_suffix(".mod")?;
        let lookup = format!("/lookup{module}@{version}");
        let own = vec![format!("/sumdb/sum.golang.org{lookup}")];
        Some(Self { entry: ListingEntry::GoMod(version.to_owned()), at_index: Some(lookup), own })
    }

    fn npm(package: &str, name: &str) -> Option<Self> {
        let mut own = vec![package.to_owned()];
        // Clients escape the slash in the name of a scoped npm package, such as `@scope%2fname`.
        if let Some((scope, rest)) = package.rsplit_once('/').filter(|(scope, _)| scope.contains("/@")) {
            own.extend(["%2f", "%2F"].map(|slash| format!("{scope}{slash}{rest}")));
        }
        Some(Self { entry: ListingEntry::Npm(name.to_owned()), at_index: None, own })
    }

    /// Returns the crate that a path names: `.../NAME/NAME-VERSION.crate` or `.../NAME/VERSION/download`.
    fn of_crate(folder: &str, name: &str) -> Option<Self> {
        let (before, last) = folder.rsplit_once('/')?;
        let (root, name, version) = match name.strip_suffix(".crate") {
            Some(stem) => (before, last, stem.strip_prefix(last)?.strip_prefix('-')?),
            None if name == "download" => {
                let (root, name) = before.rsplit_once('/')?;
                (root, name, last)
            }
            None => return None,
        };
        let index = sparse_path(&name.to_ascii_lowercase())?;
        let root = root.strip_suffix("/crates").unwrap_or(root);
        let own = ["", "/index"].map(|base| format!("{root}{base}{index}")).to_vec();
        Some(Self { entry: ListingEntry::Crate(version.to_owned()), at_index: Some(index), own })
    }

    fn python(folder: &str, name: &str) -> Option<Self> {
        let project = match name.strip_suffix(".whl") {
            Some(stem) => stem.split_once('-')?.0,
            None => {
                let stem = [".tar.gz", ".tar.bz2", ".zip"].into_iter().find_map(|end| name.strip_suffix(end))?;
                stem.rsplit_once('-')?.0
            }
        };
        let project = normal_project(project);
        let own = [("/packages", "/simple"), ("/+f", "/+simple")].into_iter().filter_map(|(files, simple)| {
            let at = folder.find(files)?;
            Some(format!("{}{simple}/{project}/", &folder[..at]))
        });
        let entry = ListingEntry::Python(name.to_owned());
        let own = own.collect();
        Some(Self { entry, at_index: Some(format!("/simple/{project}/")), own })
    }

    /// Returns the digest that a listing contains for this file, or `None`.
    fn digest_in(&self, listing: &[u8]) -> Option<NamedDigest> {
        match &self.entry {
            ListingEntry::Python(file) if listing.trim_ascii_start().starts_with(b"{") => {
                let index: SimpleIndex = serde_json::from_slice(listing).ok()?;
                let found = index.files.into_iter().find(|listed| listed.filename == *file)?;
                strongest(|name| found.hashes.get(name).map(String::as_str))
            }
            ListingEntry::Python(file) => digest_in_page(listing, file),
            ListingEntry::Npm(file) => {
                let packument: Packument = serde_json::from_slice(listing).ok()?;
                let mut all = packument.versions.into_values().map(|version| version.dist);
                let is_it = |dist: &PackageDist| dist.tarball.rsplit('/').next() == Some(file);
                let found = all.find(is_it)?;
                let integrity = found.integrity.as_deref().and_then(NamedDigest::of_integrity);
                integrity.or_else(|| NamedDigest::of_label(&format!("sha1:{}", found.shasum?)))
            }
            ListingEntry::Crate(version) => {
                let lines = listing.split(|octet| *octet == b'\n');
                let mut crates = lines.filter_map(|line| serde_json::from_slice::<IndexedCrate>(line).ok());
                let found = crates.find(|found| found.vers == *version)?;
                NamedDigest::of_label(&format!("sha256:{}", found.cksum))
            }
            ListingEntry::GoMod(version) => {
                let record = std::str::from_utf8(listing).ok()?;
                let wanted = format!("{version}/go.mod");
                record.lines().find_map(|line| {
                    let mut words = line.split(' ').skip(1);
                    (words.next() == Some(&wanted)).then(|| NamedDigest::of_go_mod(words.next()?))?
                })
            }
        }
    }
}

/// A Python project's listing in JSON (PEP 691): the parts that are used here.
#[derive(Deserialize)]
struct SimpleIndex {
    files: Vec<SimpleFile>,
}

#[derive(Deserialize)]
struct SimpleFile {
    filename: String,
    hashes: HashMap<String, String>,
}

/// An npm packument: the parts that contain digests.
#[derive(Deserialize)]
struct Packument {
    versions: HashMap<String, PackageVersion>,
}

#[derive(Deserialize)]
struct PackageVersion {
    dist: PackageDist,
}

#[derive(Deserialize)]
struct PackageDist {
    tarball: String,
    integrity: Option<String>,
    shasum: Option<String>,
}

/// A line of cargo's sparse index: the parts that are used here.
#[derive(Deserialize)]
struct IndexedCrate {
    vers: String,
    cksum: String,
}

/// Returns the digest in the link to `file` in a Python project's HTML listing (PEP 503): `.../FILE#sha256=HEX`.
fn digest_in_page(page: &[u8], file: &str) -> Option<NamedDigest> {
    let link = format!("{file}#");
    let of_place = |at: usize| {
        let before = at.checked_sub(1).and_then(|before| page.get(before))?;
        let fragment = &page[at + link.len()..];
        let end = fragment.iter().position(|octet| !octet.is_ascii_alphanumeric() && *octet != b'=')?;
        let (algorithm, digits) = std::str::from_utf8(&fragment[..end]).ok()?.split_once('=')?;
        let is_whole = b"/\"'".contains(before);
        strongest(|name| (is_whole && name == algorithm).then_some(digits))
    };
    memmem::find_iter(page, &link).find_map(of_place)
}

/// Returns the digest of the strongest algorithm for which `digits` returns hexadecimal digits.
fn strongest<'a>(digits: impl Fn(&str) -> Option<&'a str>) -> Option<NamedDigest> {
    ["sha512", "sha384", "sha256"]
        .into_iter()
        .find_map(|name| NamedDigest::of_label(&format!("{name}:{}", digits(name)?)))
}

/// Returns the normalized form of a Python project's name (PEP 503).
fn normal_project(name: &str) -> String {
    let words: Vec<&str> = name.split(['-', '_', '.']).filter(|word| !word.is_empty()).collect();
    words.join("-").to_ascii_lowercase()
}

/// Returns the path of a crate in cargo's sparse index. `name` must be in lower case.
fn sparse_path(name: &str) -> Option<String> {
    let is_name = |octet: u8| octet.is_ascii_alphanumeric() || octet == b'-' || octet == b'_';
    if !name.bytes().all(is_name) {
        return None;
    }
    match name.len() {
        0 => None,
        len @ (1 | 2) => Some(format!("/{len}/{name}")),
        3 => Some(format!("/3/{}/{name}", &name[..1])),
        _ => Some(format!("/{}/{}/{name}", &name[..2], &name[2..4])),
    }
}

/// Maximum length of a listing that is read, in bytes after decoding. npm's largest packuments have about 10 MB.
const LISTING_BYTES_MAX: u64 = 16 << 20;
/// Maximum number of listings whose variants are remembered.
const VARIANT_COUNT_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    /// The SHA-256 of an empty body, in hexadecimal digits, and its SHA-1 and SHA-512 in base64.
    const HEX: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    const SHA512: &str =
        "sha512-z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg==";

    /// Returns true if a listing contains the digest of an empty body for the file with this path, false for another
    /// digest. `None` if it contains no digest.
    fn named(path: &str, listing: &str) -> Option<bool> {
        let file = ListedFile::of_path(path).expect("a registry lists it");
        Some(file.digest_in(listing.as_bytes())?.check().matches())
    }

    #[test]
    fn listing_of_a_file_is_found_by_its_url() {
        for (path, at_index, own) in [
            ("/packages/ab/cd/ruamel.yaml_X-0.1-py3-none-any.whl", "/simple/ruamel-yaml-x/", "/simple/ruamel-yaml-x/"),
            ("/r/pypi/packages/six/1.16.0/my-six-1.16.0.tar.gz?x", "/simple/my-six/", "/r/pypi/simple/my-six/"),
            ("/team/dev/+f/ab/six-1.zip", "/simple/six/", "/team/dev/+simple/six/"),
            ("/is-number/-/is-number-1.0.0.tgz", "", "/is-number"),
            ("/r/@types/node/-/node-1.0.0.tgz", "", "/r/@types/node /r/@types%2fnode /r/@types%2Fnode"),
            ("/@types%2fnode/-/node-1.0.0.tgz", "", "/@types%2fnode"),
            ("/crates/itoa/itoa-1.0.0.crate", "/it/oa/itoa", "/it/oa/itoa /index/it/oa/itoa"),
            ("/crates/Log/0.4.0/download", "/3/l/log", "/3/l/log /index/3/l/log"),
            (
                "/github.com/google/uuid/@v/v1.6.0.mod",
                "/lookup/github.com/google/uuid@v1.6.0",
                "/sumdb/sum.golang.org/lookup/github.com/google/uuid@v1.6.0",
            ),
        ] {
            let file = ListedFile::of_path(path).unwrap_or_else(|| panic!("{path}"));
            assert_eq!(file.at_index.as_deref().unwrap_or_default(), at_index, "{path}");
            assert_eq!(file.own.join(" "), own, "{path}");
        }
        for path in
            ["", "/", "/a.mod", "/a/@v/v1.0.0.zip", "/a/b.tgz", "/crates/a/b-1.crate", "/six.tar.gz", "/a/é/1/download"]
        {
            assert_eq!(ListedFile::of_path(path), None, "{path}");
        }
    }

    #[test]
    fn listings_of_python_name_digests_in_html_and_in_json() {
        let path = "/packages/a/six-1-py3-none-any.whl";
        let page = format!(
            "<a href=\"https://f/x/not-six-1-py3-none-any.whl#sha256=00\">x</a>\n<a href='../six-1-py3-none-any.whl#sha256={HEX}' data-x>"
        );
        assert_eq!(named(path, &page), Some(true));
        assert_eq!(named(path, &page.replace("e3b0", "e3b1")), Some(false));
        for (found, by) in [("sha256", "md5"), ("six-1", "six-2"), ("e3b0", "e3b")] {
            assert_eq!(named(path, &page.replace(found, by)), None, "{found}");
        }
        let json = format!(
            "{{\"files\":[{{\"filename\":\"a.whl\",\"hashes\":{{}}}},{{\"filename\":\"six-1-py3-none-any.whl\",\"url\":\"u\",\"hashes\":{{\"sha256\":\"{HEX}\"}}}}]}}"
        );
        assert_eq!(named(path, &json), Some(true));
        assert_eq!(named(path, &json[..json.len() - 1]), None, "what is cut off names nothing");
        assert_eq!(named(path, &json.replace("sha256", "md5")), None);
    }

    #[test]
    fn listings_of_npm_name_digests_by_integrity_or_by_their_old_form() {
        let path = "/@a/b/-/b-1.0.0.tgz";
        let listing = |dist: &str| {
            format!(
                "{{\"name\":\"b\",\"versions\":{{\"0.9.0\":{{\"dist\":{{\"tarball\":\"http://r/@a/b/-/b-0.9.0.tgz\"}}}},\"1.0.0\":{{\"dependencies\":{{}},\"dist\":{{\"tarball\":\"http://r/@a/b/-/b-1.0.0.tgz\",{dist}}}}}}}}}"
            )
        };
        assert_eq!(named(path, &listing(&format!("\"integrity\":\"{SHA512}\",\"shasum\":\"00\""))), Some(true));
        assert_eq!(named(path, &listing("\"shasum\":\"da39a3ee5e6b4b0d3255bfef95601890afd80709\"")), Some(true));
        assert_eq!(named(path, &listing("\"shasum\":\"00\"")), None);
        assert_eq!(named("/@a/b/-/b-2.0.0.tgz", &listing("\"shasum\":\"00\"")), None);
    }

    #[test]
    fn index_of_cargo_and_records_of_go_name_digests() {
        let index = format!(
            "{{\"name\":\"itoa\",\"vers\":\"0.9.0\",\"cksum\":\"00\"}}\nx\n{{\"name\":\"itoa\",\"vers\":\"1.0.0\",\"deps\":[],\"cksum\":\"{HEX}\"}}\n"
        );
        assert_eq!(named("/crates/itoa/itoa-1.0.0.crate", &index), Some(true));
        assert_eq!(named("/api/v1/crates/itoa/1.0.0/download", &index), Some(true));
        assert_eq!(named("/crates/itoa/itoa-0.9.0.crate", &index), None);
        let record = "7\na.example/b v1.0.0 h1:TIyPZe4MgqvfeYDBFedMoGGpEw/LqOeaOT+nhxU+yHo=\na.example/b v1.0.0/go.mod h1:TIyPZe4MgqvfeYDBFedMoGGpEw/LqOeaOT+nhxU+yHo=\n\ngo.sum database tree\n";
        assert_eq!(named("/a.example/b/@v/v1.0.0.mod", record), Some(false));
        assert_eq!(named("/a.example/b/@v/v1.0.1.mod", record), None);
    }

    #[test]
    fn no_listing_makes_a_parser_fail() {
        let texts = [
            format!("<a href='six-1.zip#sha256={HEX}'>"),
            format!("{{\"files\":[{{\"filename\":\"six-1.zip\",\"hashes\":{{\"sha256\":\"{HEX}\"}}}}]}}"),
            format!("{{\"versions\":{{\"1\":{{\"dist\":{{\"tarball\":\"/a-1.tgz\",\"integrity\":\"{SHA512}\"}}}}}}}}"),
            format!("{{\"vers\":\"1\",\"cksum\":\"{HEX}\"}}\n"),
            "a v1/go.mod h1:TIyPZe4MgqvfeYDBFedMoGGpEw/LqOeaOT+nhxU+yHo=\n".to_owned(),
        ];
        let paths = ["/packages/six-1.zip", "/a/-/a-1.tgz", "/crates/a/a-1.crate", "/a/@v/v1.mod"];
        for text in texts.iter().map(String::as_bytes) {
            for at in 0..text.len() {
                for octet in [0, b'"', b'{', b'#', b'\n', 0xff] {
                    let mut changed = text.to_vec();
                    changed[at] = octet;
                    for path in paths {
                        let file = ListedFile::of_path(path).expect("a registry lists it");
                        let _ = (file.digest_in(&changed), file.digest_in(&text[..at]));
                    }
                }
            }
        }
    }
}

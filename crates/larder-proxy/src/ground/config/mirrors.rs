//! Mirrors: paths of this proxy that stand for other servers.

use super::OriginUrl;

/// A path of this proxy that stands for another server.
///
/// A response has the same cache key whether clients request it from the mirror or, through this proxy, from the server
/// itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    /// The path, such as `/pypi`. It begins with a slash and does not end with one. On the server, `origin`'s base path
    /// takes its place.
    pub path: String,
    /// The URL of the server, with the base path that replaces [`Self::path`].
    pub origin: OriginUrl,
    /// Media types of the documents in which links are replaced. Default none.
    pub documents: Vec<String>,
    /// The links that are replaced in documents. Default none.
    pub links: Vec<MirrorLink>,
    /// Whether the server is a container registry (OCI distribution), whose clients then get their tokens through this
    /// proxy.
    ///
    /// The path must end with `/v2`, or with `/v2/` and the name of the registry. Default no.
    pub is_registry: bool,
}

/// A prefix of links in documents, and a path of this proxy that replaces it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorLink {
    /// The prefix, such as `https://files.example`. It matches whole path segments.
    pub url: String,
    /// The path that replaces the prefix, after this proxy's scheme and host. For example `/files`.
    pub path: String,
}

/// A server of package files and the server of their listings, such as `https://files.pythonhosted.org` and
/// `https://pypi.org`.
///
/// Files are verified with the digests in a stored listing. Listings on the files' own server need no such entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackageIndex {
    /// The server of the package files.
    pub files: OriginUrl,
    /// The server of the listings.
    pub index: OriginUrl,
}

impl MirrorLink {
    /// Returns the ways to write the prefix: unchanged, and with the scheme's default port.
    pub(crate) fn spellings(&self) -> impl Iterator<Item = String> {
        let port = if self.url.starts_with("https:") { ":443" } else { ":80" };
        let authority_at = self.url.find("//").map_or(0, |at| at + 2);
        let end = self.url[authority_at..].find('/').map_or(self.url.len(), |at| authority_at + at);
        let has_port = self.url[authority_at..end].rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
        let spelled = (!has_port).then(|| format!("{}{port}{}", &self.url[..end], &self.url[end..]));
        std::iter::once(self.url.clone()).chain(spelled)
    }
}

impl Mirror {
    /// Creates a mirror that replaces no links in documents.
    pub fn of_files(path: impl Into<String>, origin: OriginUrl) -> Self {
        Self { path: path.into(), origin, documents: Vec::new(), links: Vec::new(), is_registry: false }
    }

    /// Returns the error in these settings, or `None` if they are valid.
    pub fn fault(&self) -> Option<String> {
        if !is_plain_path(&self.path) {
            return Some(format!(
                "a mirror's path must begin with a slash and consist of letters, digits and -_.~: {}",
                self.path
            ));
        }
        let is_link = |link: &&MirrorLink| link.url.len() < LINK_LEN_MIN || !link.path.starts_with('/');
        let link = self.links.iter().find(is_link);
        link.map(|link| format!("a mirror's link must be a URL without query and fragment: {}", link.url))
    }
}

/// Returns whether a path consists of whole segments with characters that are never percent-encoded.
pub(super) fn is_plain_path(path: &str) -> bool {
    let segments = path.strip_prefix('/').unwrap_or_default();
    let is_plain = |octet: u8| octet.is_ascii_alphanumeric() || b"-_.~:/".contains(&octet);
    !segments.split('/').any(str::is_empty) && segments.bytes().all(is_plain)
}

/// Minimum length of a link's prefix, in bytes. The shortest one is `http://a`.
const LINK_LEN_MIN: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_may_be_spelled_out() {
        for (url, spelled) in [
            ("https://a.example", "https://a.example:443"),
            ("http://a.example/b", "http://a.example:80/b"),
            ("https://[::1]/b", "https://[::1]:443/b"),
            ("https://a.example:8443/b", ""),
        ] {
            let link = MirrorLink { url: url.to_owned(), path: "/m".to_owned() };
            let all: Vec<String> = link.spellings().collect();
            let expected: Vec<&str> = [url, spelled].into_iter().filter(|text| !text.is_empty()).collect();
            assert_eq!(all, expected);
        }
    }

    #[test]
    fn paths_that_are_none_are_refused() {
        let origin: OriginUrl = "http://a".parse().unwrap();
        for (path, is_good) in
            [("/a", true), ("/a/b-1", true), ("a", false), ("/", false), ("/a/", false), ("/a?b", false)]
        {
            let mirror = Mirror::of_files(path, origin.clone());
            assert_eq!(mirror.fault().is_none(), is_good, "{path}");
        }
    }
}

//! The part of a key that names the responding origin.
//!
//! Owns: its form. The origin is chosen in `routes` and `mirrors`. Invariant: two origins never share a key. The URL
//! alone is the key of a response from the URL's own server. A configured origin responds to any Host, so the keys of
//! its responses also contain the origin's name.

/// The name of an origin that is not a URL's own server, as keys have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OriginMark<'a>(Option<&'a str>);

/// Knows the origins that may answer for a URL.
pub(crate) trait KeyMarks: Send + Sync {
    /// Returns the marks of the keys under which responses of a URL can be found. The URL's own server comes first, if
    /// it can be contacted.
    fn marks_of(&self, scheme: &str, authority: &str, path: &str) -> Vec<OriginMark<'_>>;
}

impl<'a> OriginMark<'a> {
    /// The mark of responses from a URL's own server.
    pub(crate) const NONE: Self = Self(None);

    /// Returns the mark of an origin with this name, which has no spaces.
    pub(crate) fn of_origin(name: &'a str) -> Self {
        debug_assert!(!name.contains(' '), "names of origins are made of URLs");
        Self(Some(name))
    }

    /// Returns the mark of a resource's key.
    pub(crate) fn of_key(primary: &'a [u8]) -> Self {
        let at = primary.windows(BEGINNING.len()).position(|window| window == BEGINNING);
        Self(at.and_then(|at| std::str::from_utf8(&primary[at + BEGINNING.len()..]).ok()))
    }

    /// Returns the key of a resource with this mark.
    pub(crate) fn on(self, mut key: Vec<u8>) -> Vec<u8> {
        if let Some(name) = self.0 {
            key.extend_from_slice(BEGINNING);
            key.extend_from_slice(name.as_bytes());
        }
        key
    }

    /// Returns the origin's name; `None` for a URL's own server.
    pub(crate) fn name(self) -> Option<&'a str> {
        self.0
    }
}

/// Precedes the name. No URL contains a space.
const BEGINNING: &[u8] = b" @";

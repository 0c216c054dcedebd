//! Marks a key with the origin that responds.
//!
//! `routes` and `mirrors` choose the origin. Invariant: two origins never share a key. If the URL's own server
//! responds, the key is the URL alone. A configured origin responds to any Host, so the keys of its responses also
//! contain the origin's name.

/// The part of a key that names the origin, for responses from an origin other than the URL's own server.
///
/// ```
/// use larder_cache::http::mark::OriginMark;
///
/// let mark = OriginMark::of_origin("http://10.0.0.5");
/// let key = mark.on(b"Phttps://a.example/".to_vec());
/// assert_eq!(key, b"Phttps://a.example/ @http://10.0.0.5");
/// assert_eq!(mark.without(&key), b"Phttps://a.example/");
/// assert_eq!(OriginMark::of_key(&key).name(), Some("http://10.0.0.5"));
/// assert_eq!(OriginMark::of_key(b"Phttps://a.example/"), OriginMark::NONE);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OriginMark<'a>(Option<&'a str>);

/// Tells which origins can respond for a URL.
pub trait KeyMarks: Send + Sync {
    /// Returns the marks of the keys under which responses of a URL can be found, one for each origin. The URL's own
    /// server comes first, if it can be contacted.
    fn marks_of(&self, scheme: &str, authority: &str, path: &str) -> Vec<OriginMark<'_>>;
}

impl<'a> OriginMark<'a> {
    /// The empty mark, for responses from a URL's own server.
    pub const NONE: Self = Self(None);

    /// Returns the mark of an origin with this name, which must not contain spaces.
    pub fn of_origin(name: &'a str) -> Self {
        debug_assert!(!name.contains(' '), "names of origins are made of URLs");
        Self(Some(name))
    }

    /// Returns the mark of content that this proxy makes itself. Its name is not a URL, so no origin has the same mark.
    pub const fn of_own(name: &'a str) -> Self {
        Self(Some(name))
    }

    /// Returns the mark that a resource's key has.
    pub fn of_key(primary: &'a [u8]) -> Self {
        let at = primary.windows(BEGINNING.len()).position(|window| window == BEGINNING);
        Self(at.and_then(|at| std::str::from_utf8(&primary[at + BEGINNING.len()..]).ok()))
    }

    /// Adds this mark to a resource's key.
    pub fn on(self, mut key: Vec<u8>) -> Vec<u8> {
        self.add_to(&mut key);
        key
    }

    /// Appends this mark to a resource's key in a buffer.
    #[inline]
    pub fn add_to(self, key: &mut Vec<u8>) {
        if let Some(name) = self.0 {
            key.extend_from_slice(BEGINNING);
            key.extend_from_slice(name.as_bytes());
        }
    }

    /// Returns a resource's key without this mark, which it must have.
    pub fn without(self, key: &[u8]) -> &[u8] {
        let len = self.0.map_or(0, |name| BEGINNING.len() + name.len());
        &key[..key.len().saturating_sub(len)]
    }

    /// Returns the origin's name. `None` for a URL's own server.
    pub fn name(self) -> Option<&'a str> {
        self.0
    }
}

/// Separates the URL from the origin's name. No URL contains a space.
const BEGINNING: &[u8] = b" @";

//! A common interface to the fields of received and stored messages.

use http::{HeaderMap, HeaderName, HeaderValue};

/// The fields of a message.
///
/// Rules that apply to stored and received responses take this trait, because the two keep their fields in different
/// forms: a received response has a map, a stored one has the octets that HTTP/1.1 sends.
///
/// ```
/// use http::{HeaderMap, header::SERVER};
/// use larder_http::fields::Fields;
///
/// fn server(fields: &impl Fields) -> Option<&[u8]> {
///     fields.single(&SERVER)
/// }
///
/// let mut received = HeaderMap::new();
/// received.insert(SERVER, "a".parse()?);
/// assert_eq!(server(&received), Some(&b"a"[..]));
/// received.append(SERVER, "b".parse()?);
/// assert_eq!(server(&received), None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Fields {
    /// Iterates over the names, in lower case, and the values.
    fn lines(&self) -> impl Iterator<Item = (&[u8], &[u8])>;

    /// Iterates over the values of the fields with the name `name`.
    fn values_of<'a>(&'a self, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> + use<'a, Self>;

    /// Returns the value of the first field with this name.
    fn first(&self, name: &HeaderName) -> Option<&[u8]> {
        self.values_of(name).next()
    }

    /// Returns the value of a field that may occur only once. `None` if it is absent or repeated.
    fn single(&self, name: &HeaderName) -> Option<&[u8]> {
        let mut values = self.values_of(name);
        let first = values.next()?;
        values.next().is_none().then_some(first)
    }
}

impl Fields for HeaderMap {
    fn lines(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.iter().map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()))
    }

    fn values_of<'a>(&'a self, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.get_all(name).iter().map(HeaderValue::as_bytes)
    }
}

/// Returns the values of a field that most messages lack and that has no constant in [`http::header`].
///
/// Compares the names one by one. Hashing a name that the library does not know takes longer than comparing it with all
/// names of a usual head.
pub(crate) fn unusual_lines(fields: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &[u8]> {
    fields.iter().filter(move |(other, _)| **other == name).map(|(_, value)| value.as_bytes())
}

//! The fields of a stored head as the octets that HTTP/1.1 sends, followed by the operator's ruling.
//!
//! Invariant: every line is `name: value` with its end, the name a token in lower case and the value without controls.
//! Content-Length is not among the lines, because the place of the body implies it. Nor is the ruling, which is never
//! sent. Cost: one buffer, made when the head is created. A hit copies it, and makes no map.

use std::sync::OnceLock;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, header::CONTENT_LENGTH};
use memchr::memchr;

use super::{FIELD_COUNT_MAX, reader::PackedReader, short};
use crate::{
    DecodeError, Ruling,
    codec::{NUMBER_LEN_MAX, push_bytes},
    fields::Fields,
    ruling,
};

/// The end-to-end fields of a stored head.
///
/// ```
/// # use http::{HeaderMap, StatusCode};
/// # use larder_http::{BodyPlace, ReceivedHead, StoredHead, TargetList};
/// # let mut fields = HeaderMap::new();
/// # fields.insert("date", "Sun, 06 Nov 1994 08:49:37 GMT".parse()?);
/// # fields.insert("etag", "\"v1\"".parse()?);
/// # let now = larder_http::Timestamp::from_secs(784_111_777);
/// # let received = ReceivedHead { status: StatusCode::OK, fields, request_time: now, response_time: now };
/// # let body = BodyPlace::Whole { len: 1000 };
/// # let stored = StoredHead::new(received, body, Default::default(), &TargetList::default());
/// use larder_http::fields::Fields;
///
/// // `stored` was received with Date and ETag.
/// assert_eq!(stored.fields().octets(), b"date: Sun, 06 Nov 1994 08:49:37 GMT\r\netag: \"v1\"\r\n");
/// assert_eq!(stored.fields().first(&http::header::ETAG), Some(&b"\"v1\""[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct StoredFields(FieldsForm);

#[derive(Clone, Debug)]
enum FieldsForm {
    Octets(FieldOctets),
    /// The form in memory: the text of the ruling after its length, then the lines as [`short`] writes them. The octets
    /// are made when they are first needed.
    Short(Bytes, OnceLock<FieldOctets>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct FieldOctets {
    /// The lines, then the text of the ruling, if there is one.
    octets: Bytes,
    lines_len: u32,
}

impl StoredFields {
    /// Creates the fields to store from received ones, which may contain the operator's ruling.
    pub(super) fn of(fields: &HeaderMap) -> Self {
        let mut lines_len = 0;
        let mut ruling: &[u8] = &[];
        for (name, value) in fields {
            if is_line_of(name) {
                lines_len += name.as_str().len() + value.len() + LINE_OVERHEAD;
            } else if *name == ruling::FIELD && ruling.is_empty() {
                ruling = value.as_bytes();
            }
        }
        let mut octets = Vec::with_capacity(lines_len + ruling.len());
        for (name, value) in fields.iter().filter(|(name, _)| is_line_of(name)) {
            octets.extend_from_slice(name.as_str().as_bytes());
            octets.extend_from_slice(SEPARATOR);
            octets.extend_from_slice(value.as_bytes());
            octets.extend_from_slice(b"\r\n");
        }
        Self::with_ruling_text(octets, ruling)
    }

    /// Creates fields from stored octets: lines of `lines_len` bytes in total, then the ruling. Read
    /// [`StoredFields::checked_lines`] before any other use.
    ///
    /// # Errors
    /// The lines are longer than the octets, or the ruling is malformed.
    pub(super) fn read(octets: Bytes, lines_len: usize) -> Result<Self, DecodeError> {
        let ruling = octets.get(lines_len..).ok_or(DecodeError::Truncated)?;
        if !is_value(ruling) {
            return Err(DecodeError::Invalid);
        }
        let lines_len = u32::try_from(lines_len).map_err(|_| DecodeError::Bound)?;
        Ok(Self(FieldsForm::Octets(FieldOctets { octets, lines_len })))
    }

    /// Iterates over the names and values of stored lines. Yields an error for a malformed line, and for one too many.
    pub(crate) fn checked_lines(&self) -> impl Iterator<Item = Result<(&[u8], &[u8]), DecodeError>> {
        let mut rest = self.octets();
        let mut count = 0;
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            count += 1;
            let line = split_line(rest).and_then(|(line, after)| {
                rest = after;
                name_and_value(line).filter(|(name, value)| is_name(name) && is_value(value))
            });
            Some(if count > FIELD_COUNT_MAX { Err(DecodeError::Bound) } else { line.ok_or(DecodeError::Invalid) })
        })
    }

    /// Returns the lines as HTTP/1.1 sends them, each with its CRLF.
    #[inline]
    pub fn octets(&self) -> &[u8] {
        let FieldOctets { octets, lines_len } = self.whole();
        &octets[..*lines_len as usize]
    }

    /// Appends the lines as HTTP/1.1 sends them, each with its CRLF.
    pub fn push_lines(&self, lines: &mut Vec<u8>) {
        match &self.0 {
            FieldsForm::Short(short, octets) if octets.get().is_none() => {
                let mut reader = PackedReader { rest: short };
                reader.bytes();
                short::expand(reader.rest, lines);
            }
            FieldsForm::Short(..) | FieldsForm::Octets(_) => lines.extend_from_slice(self.octets()),
        }
    }

    /// Creates fields from the form that [`StoredFields::push_short`] writes.
    pub(super) fn of_short(short: Bytes) -> Self {
        Self(FieldsForm::Short(short, OnceLock::new()))
    }

    /// Appends the short form of these fields, after its length.
    pub(super) fn push_short(&self, out: &mut Vec<u8>) {
        if let FieldsForm::Short(short, _) = &self.0 {
            return push_bytes(out, short);
        }
        let mut short = Vec::with_capacity(self.all_octets().len() + NUMBER_LEN_MAX);
        push_bytes(&mut short, self.ruling_text());
        self.lines().for_each(|(name, value)| short::push(&mut short, name, value));
        push_bytes(out, &short);
    }

    /// Returns the operator's ruling on the response, if there is one.
    pub fn ruling(&self) -> Option<Ruling> {
        Ruling::parse(self.ruling_text())
    }

    /// Returns these fields in a map, whose values share their memory.
    pub fn to_map(&self) -> HeaderMap {
        let mut map = HeaderMap::with_capacity(memchr::memchr_iter(b'\n', self.octets()).count());
        for (name, value) in self.lines() {
            let name = HeaderName::from_bytes(name).expect("names were checked");
            let value =
                HeaderValue::from_maybe_shared(self.whole().octets.slice_ref(value)).expect("values were checked");
            map.append(name, value);
        }
        map
    }

    /// Returns these fields in a map that includes the ruling as a field, as in a received response.
    pub(crate) fn to_received_map(&self) -> HeaderMap {
        let mut map = self.to_map();
        if !self.ruling_text().is_empty() {
            map.insert(ruling::FIELD, HeaderValue::from_bytes(self.ruling_text()).expect("it was a field's value"));
        }
        map
    }

    /// Returns these fields with another ruling.
    pub(super) fn with_ruling(&self, ruling: &Ruling) -> Self {
        Self::with_ruling_text(self.octets().to_vec(), ruling.to_value().as_bytes())
    }

    /// Returns the text of the ruling. It is empty if there is none.
    pub(crate) fn ruling_text(&self) -> &[u8] {
        let FieldOctets { octets, lines_len } = self.whole();
        &octets[*lines_len as usize..]
    }

    /// Returns all octets that the fields occupy: the lines, then the ruling.
    pub(super) fn all_octets(&self) -> &[u8] {
        &self.whole().octets
    }

    #[inline]
    fn whole(&self) -> &FieldOctets {
        match &self.0 {
            FieldsForm::Octets(octets) => octets,
            FieldsForm::Short(short, octets) => octets.get_or_init(|| FieldOctets::of_short(short)),
        }
    }

    fn with_ruling_text(mut octets: Vec<u8>, ruling: &[u8]) -> Self {
        let lines_len = u32::try_from(octets.len()).expect("heads are shorter than 4 GiB");
        octets.extend_from_slice(ruling);
        Self(FieldsForm::Octets(FieldOctets { octets: octets.into(), lines_len }))
    }
}

impl FieldOctets {
    #[cold]
    fn of_short(short: &[u8]) -> Self {
        let mut reader = PackedReader { rest: short };
        let ruling = reader.bytes();
        let mut octets = Vec::with_capacity(short.len() * EXPANSION);
        short::expand(reader.rest, &mut octets);
        let lines_len = u32::try_from(octets.len()).expect("heads are shorter than 4 GiB");
        octets.extend_from_slice(ruling);
        Self { octets: octets.into(), lines_len }
    }
}

impl PartialEq for StoredFields {
    fn eq(&self, other: &Self) -> bool {
        self.whole() == other.whole()
    }
}

impl Eq for StoredFields {}

impl Fields for StoredFields {
    fn lines(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest = self.octets();
        std::iter::from_fn(move || {
            let (line, after) = split_line(rest)?;
            rest = after;
            name_and_value(line)
        })
    }

    fn values_of<'a>(&'a self, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let name = name.clone();
        let mut rest = self.octets();
        std::iter::from_fn(move || {
            loop {
                let (line, after) = split_line(rest)?;
                rest = after;
                let value = line.strip_prefix(name.as_str().as_bytes()).and_then(|line| line.strip_prefix(SEPARATOR));
                if value.is_some() {
                    return value;
                }
            }
        })
    }
}

/// Returns whether a received field with this name is stored as a line.
#[inline]
fn is_line_of(name: &HeaderName) -> bool {
    *name != CONTENT_LENGTH && *name != ruling::FIELD
}

/// Splits lines into the first one, without its end, and the remainder.
#[inline]
fn split_line(lines: &[u8]) -> Option<(&[u8], &[u8])> {
    let (line, rest) = lines.split_at(memchr(b'\n', lines)? + 1);
    Some((line.strip_suffix(b"\r\n")?, rest))
}

/// Splits a line, without its end, into name and value.
#[inline]
fn name_and_value(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let (name, value) = line.split_at(memchr(b':', line)?);
    Some((name, value.strip_prefix(SEPARATOR)?))
}

fn is_name(name: &[u8]) -> bool {
    (1..=NAME_LEN_MAX).contains(&name.len())
        && name.iter().fold(true, |all, byte| all & IS_NAME_BYTE[usize::from(*byte)])
}

fn is_value(octets: &[u8]) -> bool {
    octets.iter().fold(true, |all, byte| all & (matches!(byte, b' '..=b'~' | b'\t') | (*byte >= 0x80)))
}

const SEPARATOR: &[u8] = b": ";
/// Maximum length, in bytes, of a field name that a [`HeaderMap`] accepts.
const NAME_LEN_MAX: usize = u16::MAX as usize;
/// Ratio of the length of usual lines to that of their short form.
const EXPANSION: usize = 4;
/// Octets of a line in addition to its name and value.
const LINE_OVERHEAD: usize = 4;
/// For each octet, whether a field name in lower case may contain it: the characters of a token (RFC 9110 5.6.2) except
/// upper-case letters.
static IS_NAME_BYTE: [bool; 256] = {
    let mut is_one = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        is_one[byte] = matches!(
            byte as u8,
            b'a'..=b'z' | b'0'..=b'9' | b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~'
        );
        byte += 1;
    }
    is_one
};

#[cfg(test)]
mod tests {
    use http::header::{ETAG, VARY};

    use super::*;

    fn fields(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        lines.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).fold(
            HeaderMap::new(),
            |mut map, (name, value)| {
                map.append(name, value);
                map
            },
        )
    }

    #[test]
    fn fields_are_the_octets_to_send_without_length_and_ruling() {
        let lines = [("vary", "a"), ("content-length", "3"), ("vary", "b"), ("etag", ""), ("larder-ruling", "never")];
        let stored = StoredFields::of(&fields(&lines));
        assert_eq!(stored.octets(), b"vary: a\r\nvary: b\r\netag: \r\n");
        assert!(stored.ruling().is_some_and(|ruling| ruling.is_never_stored));
        assert_eq!(stored.values_of(&VARY).collect::<Vec<_>>(), [b"a", b"b"]);
        assert_eq!(
            (stored.first(&ETAG), stored.single(&ETAG), stored.single(&VARY)),
            (Some(&b""[..]), Some(&b""[..]), None)
        );
        assert_eq!(stored.to_map(), fields(&[("vary", "a"), ("vary", "b"), ("etag", "")]));
        let plain = StoredFields::of(&HeaderMap::new());
        assert_eq!((plain.lines().count(), plain.ruling()), (0, None));
    }

    /// Reads stored octets, and returns the number of their lines.
    fn lines(octets: Bytes, lines_len: usize) -> Result<usize, DecodeError> {
        let read = StoredFields::read(octets, lines_len)?;
        read.checked_lines().try_fold(0, |count, line| line.map(|_| count + 1))
    }

    #[test]
    fn lines_that_no_head_has_are_refused() {
        for text in [
            "a",
            "a: b",
            "a: b\n",
            "A: b\r\n",
            "a:b\r\n",
            ": b\r\n",
            "a b: c\r\n",
            "\r\n",
            "a: b\rc\r\n",
            "a: \x7f\r\n",
        ] {
            assert_eq!(lines(Bytes::from(text), text.len()), Err(DecodeError::Invalid), "{text:?}");
        }
        let ruled = Bytes::from_static(b"a: \xff\tb\r\nnever");
        let read = StoredFields::read(ruled.clone(), ruled.len() - 5).unwrap();
        assert_eq!((read.octets(), read.ruling_text()), (&b"a: \xff\tb\r\n"[..], &b"never"[..]));
        assert_eq!(read.checked_lines().collect::<Vec<_>>(), [Ok((&b"a"[..], &b"\xff\tb"[..]))]);
        assert_eq!(lines(ruled, 99), Err(DecodeError::Truncated));
        assert_eq!(lines(Bytes::from_static(b"a: b\r\n\n"), 6), Err(DecodeError::Invalid));
        let many = "a: b\r\n".repeat(FIELD_COUNT_MAX + 1);
        assert_eq!(lines(Bytes::from(many.clone()), many.len()), Err(DecodeError::Bound));
    }
}

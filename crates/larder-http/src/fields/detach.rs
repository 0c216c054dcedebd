//! Copies fields into their own memory.
//!
//! An HTTP library returns field values as slices of its read buffer. Keeping one value would keep the whole buffer,
//! often several kilobytes. Cost: one allocation, and a copy of the values.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue};

/// Copies the values into a new buffer, so that the buffer they were read into can be freed.
pub fn detach(fields: &mut HeaderMap) {
    let mut copied = BytesMut::with_capacity(fields.values_mut().map(|value| value.len()).sum());
    fields.values_mut().for_each(|value| copied.extend_from_slice(value.as_bytes()));
    let mut copied = copied.freeze();
    for value in fields.values_mut() {
        *value = of_copy(copied.split_to(value.len()), value);
    }
}

fn of_copy(copy: Bytes, value: &HeaderValue) -> HeaderValue {
    let mut copied = HeaderValue::from_maybe_shared(copy).expect("the octets are those of a value");
    copied.set_sensitive(value.is_sensitive());
    copied
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, header};

    use super::*;

    #[test]
    fn detached_fields_are_the_same_and_leave_their_buffer() {
        let read = Bytes::from_static(b"GET / HTTP/1.1\r\nHost: a\r\n\xfc").slice(..).to_vec();
        let read = Bytes::from(read);
        let value = |range: std::ops::Range<usize>| HeaderValue::from_maybe_shared(read.slice(range)).unwrap();
        let mut fields = HeaderMap::new();
        fields.append(header::HOST, value(22..23));
        fields.append(HeaderName::from_static("x-more"), value(0..3));
        fields.append(HeaderName::from_static("x-more"), value(25..26));
        fields.append(header::COOKIE, HeaderValue::from_static(""));
        fields.values_mut().for_each(|value| value.set_sensitive(value.len() == 3));
        let before = fields.clone();
        detach(&mut fields);
        assert_eq!(fields, before);
        let sensitive = |fields: &HeaderMap| fields.values().map(HeaderValue::is_sensitive).collect::<Vec<_>>();
        assert_eq!(sensitive(&fields), sensitive(&before));
        drop((before, fields.clone()));
        assert!(read.is_unique(), "a field still refers to what it was read from");
        detach(&mut HeaderMap::new());
    }
}

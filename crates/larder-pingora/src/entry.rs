//! A stored response as values of the cache below: its meta data, and its body.
//!
//! A short body is in the same value as the meta data. A long one is a value of its own, so that a validation rewrites
//! only the meta data.

use bytes::{Bytes, BytesMut};
use larder_cache::{Cache, Error, Result, Value};
use pingora_cache::CacheMeta;

/// A stored response.
pub(crate) struct Entry {
    /// The meta data, as the two parts into which pingora serializes it.
    pub(crate) meta: (Bytes, Bytes),
    /// The tags by which the response can be removed.
    pub(crate) tags: Vec<String>,
    pub(crate) body: EntryBody,
}

/// The body of a response: stored with the meta data, or as a value of its own.
#[derive(Clone)]
pub(crate) enum EntryBody {
    /// The body, which was stored with the meta data.
    Inline(Bytes),
    /// The body is a value of its own, whose key contains `number`.
    Separate { number: u64, len_bytes: u64 },
}

/// Maximum length, in bytes, of a body that is stored in one entry with its meta data.
pub(crate) const INLINE_BYTES_MAX: u64 = 32 << 10;
/// Version of the format of entries. An entry of another version counts as a miss.
const FORMAT_VERSION: u8 = 1;
/// Length of the fields before the meta data, in bytes.
const FRONT_BYTES: usize = 29;
/// Ends each tag. A tag that contains it is read back as two tags.
const TAG_END: char = '\n';

impl Entry {
    pub(crate) fn encode(&self) -> Bytes {
        let internal = &self.meta.0[..];
        let header = &self.meta.1[..];
        let (number, len_bytes, inline) = match &self.body {
            EntryBody::Inline(bytes) => (0, bytes.len() as u64, bytes.as_ref()),
            EntryBody::Separate { number, len_bytes } => (*number, *len_bytes, &[][..]),
        };
        let tags: String = self.tags.iter().flat_map(|tag| [tag.as_str(), "\n"]).collect();
        let parts = [internal, header, tags.as_bytes()];
        let mut bytes =
            BytesMut::with_capacity(FRONT_BYTES + parts.map(<[u8]>::len).iter().sum::<usize>() + inline.len());
        bytes.extend_from_slice(&[FORMAT_VERSION]);
        bytes.extend_from_slice(&number.to_le_bytes());
        bytes.extend_from_slice(&len_bytes.to_le_bytes());
        for part in parts {
            let len = u32::try_from(part.len()).expect("meta data is far below 4 GiB");
            bytes.extend_from_slice(&len.to_le_bytes());
        }
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        bytes.extend_from_slice(inline);
        bytes.freeze()
    }

    /// Decodes an entry. Returns `None` if the bytes have another format version or are malformed.
    pub(crate) fn decode(bytes: &Bytes) -> Option<Self> {
        let front: &[u8; FRONT_BYTES] = bytes.first_chunk()?;
        let long = |at: usize| u64::from_le_bytes(front[at..at + 8].try_into().expect("eight bytes"));
        let short = |at: usize| u32::from_le_bytes(front[at..at + 4].try_into().expect("four bytes")) as usize;
        if front[0] != FORMAT_VERSION {
            return None;
        }
        let number = long(1);
        let len_bytes = long(9);
        let internal_end = FRONT_BYTES.checked_add(short(17))?;
        let header_end = internal_end.checked_add(short(21))?;
        let tags_end = header_end.checked_add(short(25)).filter(|end| *end <= bytes.len())?;
        let tags = std::str::from_utf8(&bytes[header_end..tags_end]).ok()?;
        let tags = tags.split_terminator(TAG_END).map(str::to_owned).collect();
        let inline = bytes.slice(tags_end..);
        let body = match number {
            0 if inline.len() as u64 == len_bytes => EntryBody::Inline(inline),
            _ if number != 0 && inline.is_empty() => EntryBody::Separate { number, len_bytes },
            _ => return None,
        };
        let meta = (bytes.slice(FRONT_BYTES..internal_end), bytes.slice(internal_end..header_end));
        Some(Self { meta, tags, body })
    }

    /// Reads the entry of a key. Returns `None` if there is none, or none that can be decoded.
    pub(crate) async fn read(cache: &Cache, key: &str) -> Result<Option<Self>> {
        let Some(value) = cache.get_value(meta_key(key)).await? else { return Ok(None) };
        match value.bytes().await {
            Ok(bytes) => Ok(Self::decode(&bytes)),
            Err(Error::Gone) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns pingora's form of the meta data, or `None` if another version of pingora wrote it.
    pub(crate) fn cache_meta(&self) -> Option<CacheMeta> {
        CacheMeta::deserialize(&self.meta.0, &self.meta.1).ok()
    }
}

impl EntryBody {
    /// Finds a body that is a value of its own. Returns `None` if there is none of this number and length.
    pub(crate) async fn find(cache: &Cache, key: &str, number: u64, len_bytes: u64) -> Result<Option<Value>> {
        let value = cache.get_value(body_key(key, number)).await?;
        Ok(value.filter(|value| value.len() == len_bytes))
    }
}

/// Returns the key of a response's meta data.
pub(crate) fn meta_key(key: &str) -> Vec<u8> {
    [b"M", key.as_bytes()].concat()
}

/// Returns the key of a body that is a value of its own.
pub(crate) fn body_key(key: &str, number: u64) -> Vec<u8> {
    [b"B", &number.to_le_bytes()[..], key.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(body: EntryBody) -> Bytes {
        let meta = (Bytes::from_static(b"internal"), Bytes::from_static(b"header"));
        Entry { meta, tags: vec!["one".to_owned(), "two".to_owned()], body }.encode()
    }

    #[test]
    fn entry_is_read_as_it_was_written() {
        let read = Entry::decode(&entry(EntryBody::Inline(Bytes::from_static(b"body")))).unwrap();
        assert_eq!((&read.meta.0[..], &read.meta.1[..]), (&b"internal"[..], &b"header"[..]));
        assert_eq!(read.tags, ["one", "two"]);
        assert!(matches!(read.body, EntryBody::Inline(body) if body == "body"));
        let read = Entry::decode(&entry(EntryBody::Separate { number: 7, len_bytes: 1 << 40 })).unwrap();
        assert!(matches!(read.body, EntryBody::Separate { number: 7, len_bytes } if len_bytes == 1 << 40));
    }

    #[test]
    fn truncated_entry_is_none() {
        let whole = entry(EntryBody::Inline(Bytes::from_static(b"body")));
        for len in 0..whole.len() {
            assert!(Entry::decode(&whole.slice(..len)).is_none(), "{len}");
        }
    }
}

//! Finds the digest of a requested file: in its URL, or in the stored listing that names the file.

use std::{io::Read, sync::Arc};

use bytes::Bytes;
use http::{StatusCode, header::CONTENT_ENCODING};
use larder_http::{fields::Fields as _, key_rules::KeyRules};

use super::{LISTING_BYTES_MAX, ListedFile, ListingTable};
use crate::{
    ground::{
        cache::{
            chunks::ChunkedBody,
            entry::{CHUNK_BYTES, EntryBody},
            lookup::{self, FoundResponse, LookupResult},
            mark::OriginMark,
            patience::ReadPatience,
        },
        digest::NamedDigest,
    },
    origins::fetcher::OriginFetcher,
    targets::asked::RequestHead,
};

/// Returns the digest that the body of a requested file must have. `None` if none is known.
pub(crate) async fn known_digest(fetcher: &OriginFetcher, asked: &RequestHead) -> Option<NamedDigest> {
    if asked.before.digest.is_some() {
        return asked.before.digest.clone();
    }
    if !asked.before.may_never_change {
        return None;
    }
    if let Some(named) = NamedDigest::of_path(asked.path()) {
        return Some(named);
    }
    let file = ListedFile::of_path(asked.path())?;
    for primary in keys(&fetcher.listings, &fetcher.cache.http.key_rules, asked, &file) {
        if let Some((listing, coding)) = read(fetcher, &primary.into()).await {
            let file = file.clone();
            // Reading a listing can take tens of milliseconds, so it is done on another thread.
            let reading = move || file.digest_in(&decode(&listing, &coding)?);
            if let Ok(Some(named)) = tokio::task::spawn_blocking(reading).await {
                return Some(named);
            }
        }
    }
    None
}

/// Returns whether the digest of a file is known, or was known at an earlier request. It stays the same, because the
/// file never changes.
pub(crate) async fn knows_digest(fetcher: &OriginFetcher, asked: &RequestHead, key: &[u8]) -> bool {
    let known_files = &fetcher.listings.known_files;
    let is_known = known_files.contains(key) || known_digest(fetcher, asked).await.is_some();
    if is_known {
        known_files.insert(key);
    }
    is_known
}

/// Returns the cache keys under which the listing that describes a file may be stored.
fn keys(table: &ListingTable, rules: &KeyRules, asked: &RequestHead, file: &ListedFile) -> Vec<Vec<u8>> {
    let scheme = asked.scheme.as_str();
    let authority = asked.host.to_str().unwrap_or_default();
    let mark = OriginMark::of_key(asked.key.as_deref().unwrap_or_default());
    let at_index = table.indexes_of(scheme, authority).filter_map(|index| {
        let path = format!("{}{}", index.base, file.at_index.as_ref()?);
        rules.key(index.scheme, &index.authority, &path).ok()
    });
    let own = file.own.iter().filter_map(|path| rules.key(scheme, authority, path).ok().map(|key| mark.on(key)));
    at_index.chain(own).collect()
}

/// Reads a stored listing. Returns its body and its content coding.
async fn read(fetcher: &OriginFetcher, primary: &Arc<[u8]>) -> Option<(Vec<Bytes>, String)> {
    let OriginFetcher { cache, listings, .. } = fetcher;
    let fields = listings.fields_of(primary);
    let LookupResult::Found(FoundResponse { entry, key, .. }) = lookup::find(cache, primary, &fields).await else {
        return None;
    };
    let is_listing = entry.head.status() == StatusCode::OK && entry.body_len() <= LISTING_BYTES_MAX;
    let coding = entry.head.fields().first(&CONTENT_ENCODING);
    let coding = coding.map_or("identity", |value| std::str::from_utf8(value).unwrap_or("?"));
    let pieces = match &entry.body {
        _ if !is_listing => return None,
        EntryBody::Whole(body) => vec![body.clone()],
        EntryBody::Chunks { len, .. } => {
            let chunks = ChunkedBody::of(cache, primary, &key, &entry)?;
            let mut pieces = Vec::new();
            let mut at = 0;
            while at < *len {
                let number = at / CHUNK_BYTES;
                pieces.push(chunks.read(number, chunks.span(number), ReadPatience::Short).await.ok()?);
                at = chunks.span(number).end;
            }
            pieces
        }
    };
    Some((pieces, coding.to_ascii_lowercase()))
}

/// Decodes a listing. Returns `None` if its content coding is unknown, or if it is damaged or too long.
fn decode(pieces: &[Bytes], coding: &str) -> Option<Vec<u8>> {
    let encoded = pieces.concat();
    let mut listing = Vec::new();
    let decoder: Box<dyn Read + '_> = match coding {
        "identity" => return Some(encoded),
        "gzip" | "x-gzip" => Box::new(flate2::read::MultiGzDecoder::new(&*encoded)),
        "br" => Box::new(brotli::Decompressor::new(&*encoded, DECODER_BUFFER_BYTES)),
        "zstd" => {
            let mut decoder = zstd::stream::read::Decoder::new(&*encoded).ok()?;
            decoder.window_log_max(WINDOW_LOG_MAX).ok()?;
            Box::new(decoder)
        }
        _ => return None,
    };
    decoder.take(LISTING_BYTES_MAX + 1).read_to_end(&mut listing).ok()?;
    (listing.len() as u64 <= LISTING_BYTES_MAX).then_some(listing)
}

/// Size of the input buffer of a decoder, in bytes.
const DECODER_BUFFER_BYTES: usize = 16 << 10;
/// Base-2 logarithm of the largest zstd window. Senders must not use a larger window (RFC 9659 2).
const WINDOW_LOG_MAX: u32 = 23;

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn listing_in_a_coding_is_read_up_to_a_bound() {
        let encoded = |len: u64| {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(&vec![b'a'; len as usize]).unwrap();
            Bytes::from(encoder.finish().unwrap())
        };
        let small = encoded(9);
        let halves = [small.slice(..5), small.slice(5..)];
        assert_eq!(decode(&halves, "gzip").unwrap(), b"aaaaaaaaa");
        assert_eq!(decode(&halves[..1], "gzip"), None, "it is cut off");
        assert_eq!(decode(&halves, "br"), None);
        assert_eq!(decode(&halves, "compress"), None);
        assert_eq!(decode(&halves, "identity").unwrap(), small);
        assert!(decode(&[encoded(LISTING_BYTES_MAX)], "gzip").is_some());
        assert_eq!(decode(&[encoded(LISTING_BYTES_MAX + 1)], "gzip"), None);
    }
}

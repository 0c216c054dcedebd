//! Published collections of traces whose columns have no names, recognized by their first line.
//!
//! Only reads count as requests; other operations are left out. Sources: Twitter's caches (OSDI 2020), IBM's object
//! storage (HotStorage 2020), Wikimedia's caches (2019), the disks of Microsoft Research Cambridge (FAST 2008).

use super::{
    Step,
    fields::{hashed, milliseconds, number},
};
use crate::Request;

/// A published collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Collection {
    /// `time,key,key size,value size,client,operation,TTL`, the time in seconds.
    Twitter,
    /// `time operation key size begin end`, the time in milliseconds; the last three may be missing.
    Ibm,
    /// `time key type size delay`, or without a type, the time in seconds.
    Wikimedia,
    /// `time,host,disk,type,offset,size,delay`, the time in tenths of microseconds.
    Cambridge,
}

/// The reads of [`Collection::Twitter`].
const TWITTER_READS: [&[u8]; 2] = [b"get", b"gets"];
/// The other operations.
const TWITTER_WRITES: [&[u8]; 9] =
    [b"set", b"add", b"replace", b"cas", b"append", b"prepend", b"delete", b"incr", b"decr"];
/// The read of [`Collection::Ibm`], and the beginning of all operations.
const IBM_READ: &[u8] = b"REST.GET.OBJECT";
const IBM_OPERATION: &[u8] = b"REST.";
/// Units of [`Collection::Cambridge`] in a millisecond.
const CAMBRIDGE_TICKS_PER_MS: u64 = 10_000;

impl Collection {
    /// Returns the collection that a line with these fields comes from.
    pub(super) fn of(fields: &[&[u8]], separator: u8) -> Option<Self> {
        match (fields, separator) {
            ([_, _, _, _, _, operation, _], b',')
                if TWITTER_READS.contains(operation) || TWITTER_WRITES.contains(operation) =>
            {
                Some(Self::Twitter)
            }
            ([_, operation, _, ..], b' ') if operation.starts_with(IBM_OPERATION) => Some(Self::Ibm),
            ([_, _, _, delay], b'\t') | ([_, _, _, _, delay], b'\t') if delay.contains(&b'.') => Some(Self::Wikimedia),
            ([_, _, _, b"Read" | b"Write", _, _, _], b',') => Some(Self::Cambridge),
            _ => None,
        }
    }

    /// Parses the fields of a line.
    pub(super) fn step(self, fields: &[&[u8]]) -> Step {
        match (self, fields) {
            (Self::Twitter, &[time, key, key_size, value_size, client, operation, _]) => {
                if TWITTER_WRITES.contains(&operation) {
                    return Step::LeftOut;
                }
                let size = number(key_size).zip(number(value_size)).map(|(key, value)| key.saturating_add(value));
                request(milliseconds(time), key, size, hashed(client))
            }
            (Self::Ibm, &[time, operation, key, ref rest @ ..]) => {
                if operation != IBM_READ {
                    return Step::LeftOut;
                }
                request(number(time), key, rest.first().and_then(|size| number(size)), 0)
            }
            (Self::Wikimedia, &[time, key, size, _] | &[time, key, _, size, _]) => {
                request(milliseconds(time), key, number(size), 0)
            }
            (Self::Cambridge, &[time, host, disk, operation, offset, size, _]) => {
                if operation != b"Read" {
                    return Step::LeftOut;
                }
                let key = [host, disk, offset].join(&b',');
                request(number(time).map(|ticks| ticks / CAMBRIDGE_TICKS_PER_MS), &key, number(size), 0)
            }
            _ => Step::Damaged("the line has another number of columns than the first one"),
        }
    }
}

fn request(time_ms: Option<u64>, key: &[u8], size_bytes: Option<u64>, client: u64) -> Step {
    let Some(time_ms) = time_ms else { return Step::Damaged("the time is no number") };
    let Some(size_bytes) = size_bytes else { return Step::Damaged("the size is no number") };
    Step::Request(Request { time_ms, key: hashed(key), size_bytes, site: 0, client })
}

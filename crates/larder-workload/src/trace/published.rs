//! Published collections of traces whose columns have no names, recognized by their first line.
//!
//! Only reads count as requests; other operations are left out. Sources: Twitter's caches (OSDI 2020), IBM's object
//! storage (HotStorage 2020), Wikimedia's caches (2019), the disks of Microsoft Research Cambridge (FAST 2008).

use super::{
    Step,
    fields::{hashed, milliseconds, number},
};
use crate::Request;

/// A published collection of traces, with its columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Collection {
    /// Twitter's caches: `time,key,key size,value size,client,operation,TTL`. The time is in seconds.
    Twitter,
    /// IBM's object storage: `time operation key size begin end`. The time is in milliseconds; the last three may be
    /// missing.
    Ibm,
    /// Wikimedia's caches: `time key type size delay`, or without the type. The time is in seconds.
    Wikimedia,
    /// Disks of Microsoft Research Cambridge: `time,host,disk,type,offset,size,delay`. The time is in tenths of
    /// microseconds.
    Cambridge,
}

/// Operations of [`Collection::Twitter`] that read.
const TWITTER_READS: [&[u8]; 2] = [b"get", b"gets"];
/// Operations of [`Collection::Twitter`] that do not read.
const TWITTER_WRITES: [&[u8]; 9] =
    [b"set", b"add", b"replace", b"cas", b"append", b"prepend", b"delete", b"incr", b"decr"];
/// The operation of [`Collection::Ibm`] that reads. `IBM_OPERATION` is the start of every operation of this collection.
const IBM_READ: &[u8] = b"REST.GET.OBJECT";
const IBM_OPERATION: &[u8] = b"REST.";
/// Number of time units of [`Collection::Cambridge`] per millisecond.
const CAMBRIDGE_TICKS_PER_MS: u64 = 10_000;

impl Collection {
    /// Returns the collection to which a line with these fields belongs; `None` if it is unknown.
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

    /// Converts the fields of a line to a request, or says why the line is not a request.
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

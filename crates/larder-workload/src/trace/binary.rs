//! Traces of binary records: libCacheSim's oracleGeneral, and Larder's own compact format.
//!
//! The compact format is `LDRtrc1\n`, then for each request: the time since the previous one, the key (8 bytes), the
//! size, and the site and client (0 or 8 bytes each, according to a flag byte). Times and sizes are in LEB128. A
//! request takes about 14 bytes, or 30 with site and client, and half of that under zstd.

use super::Step;
use crate::Request;
use std::io::{self, BufRead, Read, Write};

/// The first bytes of a file in Larder's compact format.
pub(super) const MAGIC: [u8; 8] = *b"LDRtrc1\n";
const ORACLE_RECORD_BYTES: usize = 24;
const HAS_SITE: u8 = 1;
const HAS_CLIENT: u8 = 2;
/// Maximum number of bytes that a 64-bit number takes in LEB128.
const LEB_BYTES_MAX: u32 = 10;
/// Maximum length of a record in the compact format, in bytes: flags, two numbers, key, site and client.
const COMPACT_RECORD_BYTES_MAX: usize = 1 + 2 * LEB_BYTES_MAX as usize + 3 * 8;

/// Reads oracleGeneral: records of 24 bytes with time in seconds (4 bytes), key (8), size (4) and next use (8).
pub(super) struct Oracle {
    input: Box<dyn BufRead + Send>,
}

impl Oracle {
    pub(super) fn new(input: Box<dyn BufRead + Send>) -> Self {
        Self { input }
    }

    pub(super) fn step(&mut self) -> io::Result<Option<Step>> {
        // Most records are complete in the buffer; only those across its end are assembled.
        if let Some(record) = self.input.fill_buf()?.first_chunk() {
            let request = oracle_request(record);
            self.input.consume(ORACLE_RECORD_BYTES);
            return Ok(Some(Step::Request(request)));
        }
        let mut record = [0; ORACLE_RECORD_BYTES];
        match fill(&mut self.input, &mut record)? {
            0 => Ok(None),
            ORACLE_RECORD_BYTES => Ok(Some(Step::Request(oracle_request(&record)))),
            _ => Ok(Some(Step::Damaged("the last record is cut short"))),
        }
    }
}

/// Returns whether `first`, the first bytes of a file, look like oracleGeneral: the times of the records are in order,
/// with few exceptions.
pub(super) fn looks_like_oracle(first: &[u8]) -> bool {
    let (records, _) = first.as_chunks::<ORACLE_RECORD_BYTES>();
    let times = records.iter().map(|record| oracle_request(record).time_ms);
    let back_count = times.clone().zip(times.skip(1)).filter(|(before, after)| after < before).count();
    !records.is_empty() && back_count * 10 <= records.len()
}

fn oracle_request(record: &[u8; ORACLE_RECORD_BYTES]) -> Request {
    let [t0, t1, t2, t3, k0, k1, k2, k3, k4, k5, k6, k7, s0, s1, s2, s3, ..] = *record;
    let time_ms = u64::from(u32::from_le_bytes([t0, t1, t2, t3])) * 1000;
    let key = u64::from_le_bytes([k0, k1, k2, k3, k4, k5, k6, k7]);
    let size_bytes = u64::from(u32::from_le_bytes([s0, s1, s2, s3]));
    Request { time_ms, key, size_bytes, site: 0, client: 0 }
}

/// Reads Larder's compact format.
pub(super) struct Compact {
    input: Box<dyn BufRead + Send>,
    time_ms: u64,
    is_over: bool,
}

impl Compact {
    pub(super) fn new(mut input: Box<dyn BufRead + Send>) -> Result<Self, &'static str> {
        let mut magic = [0; MAGIC.len()];
        match fill(&mut input, &mut magic) {
            Ok(_) if magic == MAGIC => Ok(Self { input, time_ms: 0, is_over: false }),
            _ => Err("this is no trace of larder's own format:"),
        }
    }

    pub(super) fn step(&mut self) -> io::Result<Option<Step>> {
        if self.is_over {
            return Ok(None);
        }
        let ready = self.input.fill_buf()?;
        if ready.is_empty() {
            return Ok(None);
        }
        // As above; more data may follow the end of the buffer.
        let read = if ready.len() >= COMPACT_RECORD_BYTES_MAX {
            let mut rest = ready;
            let read = compact_request(&mut rest, &mut self.time_ms);
            let read_bytes = ready.len() - rest.len();
            self.input.consume(read_bytes);
            read
        } else {
            compact_request(&mut self.input, &mut self.time_ms)
        };
        match read {
            Ok(request) => Ok(Some(Step::Request(request))),
            // Records have no magic, so nothing behind a damaged one can be found.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => self.end("a record is damaged"),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => self.end("the last record is cut short"),
            Err(error) => Err(error),
        }
    }

    fn end(&mut self, why: &'static str) -> io::Result<Option<Step>> {
        self.is_over = true;
        Ok(Some(Step::Damaged(why)))
    }
}

/// Reads one record. `time_ms` must be the time of the previous record, and is set to the time of this one.
fn compact_request(input: &mut impl Read, time_ms: &mut u64) -> io::Result<Request> {
    let [flags] = array(input)?;
    if flags & !(HAS_SITE | HAS_CLIENT) != 0 {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let passed_ms = read_leb128(input)?;
    *time_ms = time_ms.checked_add(passed_ms).ok_or(io::ErrorKind::InvalidData)?;
    let key = u64::from_le_bytes(array(input)?);
    let size_bytes = read_leb128(input)?;
    let site = if flags & HAS_SITE != 0 { u64::from_le_bytes(array(input)?) } else { 0 };
    let client = if flags & HAS_CLIENT != 0 { u64::from_le_bytes(array(input)?) } else { 0 };
    Ok(Request { time_ms: *time_ms, key, size_bytes, site, client })
}

fn array<const N: usize>(input: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    input.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn read_leb128(input: &mut impl Read) -> io::Result<u64> {
    let mut value = 0;
    for position in 0..LEB_BYTES_MAX {
        let [byte] = array(input)?;
        let part = u64::from(byte & 0x7f);
        if position == LEB_BYTES_MAX - 1 && part > 1 {
            break;
        }
        value |= part << (7 * position);
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}

/// Writes `requests` to `to` in Larder's compact format. The format cannot go back in time, so a request with an
/// earlier time gets that of the previous one.
///
/// # Errors
/// The error of `to`.
pub fn write_compact(requests: impl Iterator<Item = Request>, to: &mut impl Write) -> io::Result<()> {
    to.write_all(&MAGIC)?;
    let mut time_ms = 0;
    let mut record = Vec::new();
    for request in requests {
        record.clear();
        let site = if request.site == 0 { 0 } else { HAS_SITE };
        let client = if request.client == 0 { 0 } else { HAS_CLIENT };
        record.push(site | client);
        write_leb128(&mut record, request.time_ms.saturating_sub(time_ms));
        time_ms = time_ms.max(request.time_ms);
        record.extend(request.key.to_le_bytes());
        write_leb128(&mut record, request.size_bytes);
        for hash in [request.site, request.client].into_iter().filter(|&hash| hash != 0) {
            record.extend(hash.to_le_bytes());
        }
        to.write_all(&record)?;
    }
    Ok(())
}

fn write_leb128(record: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        record.push(value as u8 | 0x80);
        value >>= 7;
    }
    record.push(value as u8);
}

/// Reads until `to` is full or the input ends. Returns the number of bytes read.
fn fill(input: &mut impl Read, to: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < to.len() {
        match input.read(&mut to[done..]) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

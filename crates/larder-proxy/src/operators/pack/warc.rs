//! WARC 1.1 records: writes their heads, and reads them from an untrusted file.
//!
//! Owns: the syntax. The content is interpreted elsewhere. Invariant: for any input, reading continues with the next
//! record that can be found, or ends. Lines and heads have limits. Cost: a buffer of a few KiB.

use std::io::{self, BufRead, Read};

use larder_http::{Timestamp, date, steps};

/// The head of a record that is to be written.
pub(super) struct WarcHead<'a> {
    pub(super) kind: &'a str,
    pub(super) id: &'a str,
    pub(super) date: Timestamp,
    pub(super) content_type: &'a str,
    pub(super) content_bytes: u64,
    /// Additional fields, as names and values.
    pub(super) fields: &'a [(&'a str, &'a str)],
}

/// An item that a reader finds in a file.
pub(crate) enum WarcItem {
    /// A record. Its content follows.
    Record(WarcRecord),
    /// Bytes that are not a record and were skipped. The text describes them.
    Damage(String),
    End,
}

/// The head of a record that was read.
pub(crate) struct WarcRecord {
    fields: Vec<(String, String)>,
    pub(crate) content_bytes: u64,
}

/// Reads a file's records one after the other.
pub(crate) struct WarcReader<R> {
    source: R,
    /// Whether the reader, searching for the next record after damaged bytes, has already consumed that record's
    /// version line.
    has_version: bool,
}

impl WarcHead<'_> {
    /// Encodes the head. The caller appends the content and then [`END`].
    pub(super) fn encode(&self) -> Vec<u8> {
        let Self { kind, id, date, content_type, content_bytes, fields } = self;
        let date = date::format_instant(*date);
        let mut text = format!("WARC/1.1\r\nWARC-Type: {kind}\r\nWARC-Record-ID: {id}\r\nWARC-Date: {date}\r\n");
        for (name, value) in *fields {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str(&format!("Content-Type: {content_type}\r\nContent-Length: {content_bytes}\r\n\r\n"));
        text.into_bytes()
    }
}

impl WarcRecord {
    /// Returns the value of a field. `None` if the field is absent or repeated.
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        let mut values = self.fields.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
        let value = values.next()?;
        values.next().is_none().then_some(value.1.as_str())
    }

    /// Returns the URL that the record is about, if it names one.
    pub(super) fn url(&self) -> Option<&str> {
        self.field("WARC-Target-URI").map(|url| url.trim_start_matches('<').trim_end_matches('>'))
    }

    /// Returns the time at which the content was received, if the record names it.
    pub(super) fn date(&self) -> Option<Timestamp> {
        date::parse_instant(self.field("WARC-Date")?)
    }
}

impl<R: BufRead> WarcReader<R> {
    pub(crate) fn new(source: R) -> Self {
        Self { source, has_version: false }
    }

    /// Reads the head of the next record. The content of the previous one must have been read completely.
    ///
    /// # Errors
    /// The file cannot be read further.
    pub(crate) fn next(&mut self) -> io::Result<WarcItem> {
        let mut passed_bytes = 0;
        while !std::mem::take(&mut self.has_version) {
            let Some(line) = self.line()? else {
                return Ok(if passed_bytes > 0 { damage(passed_bytes) } else { WarcItem::End });
            };
            match line.strip_prefix(b"WARC/") {
                Some(b"1.0" | b"1.1") if passed_bytes > 0 => {
                    self.has_version = true;
                    return Ok(damage(passed_bytes));
                }
                Some(b"1.0" | b"1.1") => break,
                _ => passed_bytes += line.len() as u64,
            }
        }
        let (mut fields, mut head_bytes): (Vec<(String, String)>, usize) = (Vec::new(), 0);
        loop {
            let line = self.line()?.ok_or(io::ErrorKind::UnexpectedEof)?;
            head_bytes += line.len();
            if line.is_empty() {
                break;
            }
            let text = String::from_utf8_lossy(&line);
            let Some((name, value)) = text.split_once(':').filter(|_| head_bytes <= HEAD_BYTES_MAX) else {
                return Ok(WarcItem::Damage("the head of a record is malformed".to_owned()));
            };
            fields.push((name.trim().to_owned(), value.trim().to_owned()));
        }
        let mut record = WarcRecord { fields, content_bytes: 0 };
        match record.field("Content-Length").and_then(|len| len.parse().ok()) {
            Some(content_bytes) => {
                record.content_bytes = content_bytes;
                Ok(WarcItem::Record(record))
            }
            None => Ok(WarcItem::Damage("a record does not state its length".to_owned())),
        }
    }

    /// Returns a reader of a record's content, which has `len_bytes`.
    pub(crate) fn content(&mut self, len_bytes: u64) -> io::Take<&mut R> {
        (&mut self.source).take(len_bytes)
    }

    /// Reads a line, without its line end. A line longer than [`LINE_BYTES_MAX`] is cut.
    fn line(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        if (&mut self.source).take(LINE_BYTES_MAX).read_until(b'\n', &mut line)? == 0 {
            return Ok(None);
        }
        steps::take(line.len());
        let ending = line.iter().rev().take_while(|octet| matches!(octet, b'\r' | b'\n')).count();
        line.truncate(line.len() - ending);
        Ok(Some(line))
    }
}

fn damage(bytes: u64) -> WarcItem {
    WarcItem::Damage(format!("{bytes} bytes are not a record"))
}

/// The octets that end a record, after its content.
pub(super) const END: &[u8] = b"\r\n\r\n";
const LINE_BYTES_MAX: u64 = 16 << 10;
const HEAD_BYTES_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn told(bytes: &[u8]) -> Vec<String> {
        let mut reader = WarcReader::new(bytes);
        let mut told = Vec::new();
        loop {
            match reader.next() {
                Ok(WarcItem::Record(record)) => {
                    let mut content = Vec::new();
                    reader.content(record.content_bytes).read_to_end(&mut content).unwrap();
                    told.push(format!("{:?} {}", record.url(), String::from_utf8_lossy(&content)));
                }
                Ok(WarcItem::Damage(what)) => told.push(what),
                Ok(WarcItem::End) => return told,
                Err(error) => {
                    told.push(error.kind().to_string());
                    return told;
                }
            }
        }
    }

    #[test]
    fn what_is_written_is_read_and_what_is_no_record_is_passed_over() {
        let fields = [("WARC-Target-URI", "http://a.example/")];
        let date = Timestamp::from_secs(1);
        let head =
            WarcHead { kind: "response", id: "<urn:x>", date, content_type: "a/b", content_bytes: 3, fields: &fields };
        let record = [&head.encode()[..], b"abc", END].concat();
        let read = "Some(\"http://a.example/\") abc".to_owned();
        assert_eq!(told(&record), std::slice::from_ref(&read));
        assert_eq!(told(&[&record[..], &record].concat()), [read.clone(), read.clone()]);
        assert_eq!(
            told(&[b"rubbish\r\n", &record[..]].concat()),
            ["7 bytes are not a record".to_owned(), read.clone()]
        );
        assert_eq!(told(b"WARC/1.1\r\nno field\r\n\r\n"), ["the head of a record is malformed"]);
        assert_eq!(told(b"WARC/1.1\r\nX: y\r\n\r\n"), ["a record does not state its length"]);
        assert_eq!(told(b"WARC/1.1\r\nContent-Length: 1\r\n"), ["unexpected end of file"]);
        assert_eq!(told(b"WARC/9.9\r\n\r\n").len(), 1);
        let endless = [b"WARC/1.1\r\n".to_vec(), b"X: y\r\n".repeat(20_000)].concat();
        assert_eq!(told(&endless)[0], "the head of a record is malformed");
        assert_eq!(told(&vec![b'x'; 100_000]), ["100000 bytes are not a record"]);
    }
}

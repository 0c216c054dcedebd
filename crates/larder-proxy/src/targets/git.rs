//! Caches git requests by POST: protocol v2 questions to `git-upload-pack`, and their answers.
//!
//! Owns: which questions have only one answer, the parts of a question that determine its answer, and whether an answer
//! is complete. Other modules read bodies, store responses and decide lifetimes.
//!
//! Invariants: only known words are accepted in a question, so a shared answer never depends on anything that was not
//! compared. The requested objects determine a pack, so the same question has the same answer forever. References are
//! requested from the origin each time. Source: git's gitprotocol-v2(5) and gitprotocol-common(5).

use std::io::Read as _;

use bytes::Bytes;
use flate2::read::GzDecoder;
use http::{HeaderMap, Method, header};
use ring::digest::{Context, SHA256};

use crate::ground::digest::hex;

/// Maximum length, in bytes, of a git question that is read to look for its answer in the cache. Git sends longer
/// questions in pieces of unknown length.
pub(crate) const QUESTION_BYTES_MAX: u64 = 1 << 20;
/// Maximum length of a git question (a POST that only reads) after decompression, in bytes.
const UNPACKED_BYTES_MAX: u64 = 8 << 20;
/// Suffix of a repository's path in requests for objects.
const UPLOAD_PACK: &str = "/git-upload-pack";
/// Suffix of a repository's path and query in requests for references.
const REFERENCES: &str = "/info/refs?service=git-upload-pack";

/// The objects or references that a git request wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GitRequest {
    /// The client wants objects, which it names (command `fetch`).
    Pack,
    /// The client wants the current values of references (command `ls-refs`).
    References,
}

/// A git request (question) whose response (answer) depends on nothing but the request, and for references on the time.
#[derive(Debug)]
pub(crate) struct GitQuestion {
    pub(crate) wanted: GitRequest,
    /// The body of the request, as the client sent it.
    pub(crate) body: Bytes,
    /// Hash of all lines that determine the answer, in hexadecimal digits.
    digest: String,
}

/// Returns whether a request may be a git question, by its method, path and fields.
pub(crate) fn may_be_question(method: &Method, path: &str, fields: &HeaderMap) -> bool {
    let is = |name, expected: &[u8]| fields.get(name).is_some_and(|value| value.as_bytes() == expected);
    *method == Method::POST
        && path.ends_with(UPLOAD_PACK)
        && is(header::CONTENT_TYPE, b"application/x-git-upload-pack-request")
}

/// Returns whether a path and query request the references of a repository.
pub(crate) fn names_references(path: &str) -> bool {
    path.ends_with(REFERENCES)
}

impl GitQuestion {
    /// Parses a git question (a POST that only reads) from a request's fields and body. Returns `None` if its answer
    /// may depend on something else than the question.
    pub(crate) fn of(fields: &HeaderMap, body: Bytes) -> Option<Self> {
        let unpacked = match fields.get(header::CONTENT_ENCODING).map(http::HeaderValue::as_bytes) {
            None => body.clone(),
            Some(b"gzip" | b"x-gzip") => unpacked(&body)?,
            Some(_) => return None,
        };
        let mut context = Context::new(&SHA256);
        let wanted = read_question(&unpacked, |line| {
            context.update(&(line.len() as u64).to_le_bytes());
            context.update(line);
        })?;
        let digest = hex(context.finish().as_ref());
        Some(Self { wanted, body, digest })
    }

    /// Returns the cache key under which the answer is stored. `repository` is the key of the git repository. The key
    /// contains a `#`, which no key made from a URL contains, so it never equals another key.
    pub(crate) fn key(&self, repository: &[u8]) -> Vec<u8> {
        [repository, b"#", self.digest.as_bytes()].concat()
    }

    /// Begins to check whether an answer to this question is complete.
    pub(crate) fn check(&self) -> AnswerCheck {
        AnswerCheck { wanted: self.wanted, ..AnswerCheck::default() }
    }
}

/// Decompresses a body. Returns `None` if it is malformed, or longer than [`UNPACKED_BYTES_MAX`] when decompressed.
fn unpacked(body: &[u8]) -> Option<Bytes> {
    let mut unpacked = Vec::new();
    GzDecoder::new(body).take(UNPACKED_BYTES_MAX + 1).read_to_end(&mut unpacked).ok()?;
    (unpacked.len() as u64 <= UNPACKED_BYTES_MAX).then(|| unpacked.into())
}

/// Parses the body of a git question (a POST that only reads). Calls `note` with each line that determines its answer.
///
/// Returns `None` if the question contains a word that may make its answer depend on something else.
fn read_question(mut bytes: &[u8], mut note: impl FnMut(&[u8])) -> Option<GitRequest> {
    let wanted = match text(take_packet(&mut bytes)?)? {
        b"command=fetch" => GitRequest::Pack,
        b"command=ls-refs" => GitRequest::References,
        _ => return None,
    };
    note(if wanted == GitRequest::Pack { b"fetch" } else { b"ls-refs" });
    let mut has_delimiter = false;
    let mut wants = 0;
    loop {
        let packet = take_packet(&mut bytes)?;
        match packet {
            GitPacket::Flush => break,
            GitPacket::Delimiter if !has_delimiter => has_delimiter = true,
            GitPacket::Data(_) if !has_delimiter => {
                let capability = text(packet)?;
                // The client's name and session do not influence the answer.
                if !capability.starts_with(b"agent=") && !capability.starts_with(b"session-id=") {
                    capability.starts_with(b"object-format=").then(|| note(capability))?;
                }
            }
            GitPacket::Data(_) => {
                let argument = text(packet)?;
                let known = if wanted == GitRequest::Pack { &PACK_ARGUMENTS[..] } else { &REFERENCE_ARGUMENTS[..] };
                let word = argument.split(|octet| *octet == b' ').next().unwrap_or_default();
                if !known.contains(&word) {
                    return None;
                }
                wants += usize::from(word == b"want");
                note(argument);
            }
            GitPacket::Delimiter | GitPacket::End => return None,
        }
    }
    // Without `done`, the client still negotiates, and the question lists the client's objects. If the answer has a
    // pack, the pack is valid forever. An answer without a pack is not stored (see `AnswerCheck`).
    let is_whole = bytes.is_empty() && (wanted == GitRequest::References || wants > 0);
    is_whole.then_some(wanted)
}

/// Arguments of `fetch` that name objects, or say how to send them.
///
/// `want-ref` and `deepen-not` are left out, because they name references, whose values change.
const PACK_ARGUMENTS: [&[u8]; 12] = [
    b"want",
    b"have",
    b"done",
    b"thin-pack",
    b"no-progress",
    b"include-tag",
    b"ofs-delta",
    b"shallow",
    b"deepen",
    b"deepen-relative",
    b"deepen-since",
    b"filter",
];
const REFERENCE_ARGUMENTS: [&[u8]; 4] = [b"symrefs", b"peel", b"ref-prefix", b"unborn"];

/// A packet (pkt-line) of git's protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GitPacket<'a> {
    Flush,
    Delimiter,
    End,
    Data(&'a [u8]),
}

/// The first four octets of a packet.
enum PacketStart {
    Flush,
    Delimiter,
    End,
    /// Data follows. Its length in bytes is given.
    Data(usize),
}

/// Parses the four hexadecimal digits at the start of a packet.
fn start(digits: [u8; 4]) -> Option<PacketStart> {
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    match usize::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()? {
        0 => Some(PacketStart::Flush),
        1 => Some(PacketStart::Delimiter),
        2 => Some(PacketStart::End),
        len => len.checked_sub(digits.len()).map(PacketStart::Data),
    }
}

fn take_packet<'a>(bytes: &mut &'a [u8]) -> Option<GitPacket<'a>> {
    let (digits, rest) = bytes.split_first_chunk::<4>()?;
    let (packet, rest) = match start(*digits)? {
        PacketStart::Flush => (GitPacket::Flush, rest),
        PacketStart::Delimiter => (GitPacket::Delimiter, rest),
        PacketStart::End => (GitPacket::End, rest),
        PacketStart::Data(len) => rest.split_at_checked(len).map(|(data, rest)| (GitPacket::Data(data), rest))?,
    };
    *bytes = rest;
    Some(packet)
}

/// Returns the text of a packet without its line end. `None` for a packet without data.
fn text(packet: GitPacket<'_>) -> Option<&[u8]> {
    let GitPacket::Data(line) = packet else { return None };
    Some(line.strip_suffix(b"\n").unwrap_or(line))
}

/// Checks whether the answer to a git question is complete, while its bytes pass through.
#[derive(Debug, Default)]
pub(crate) struct AnswerCheck {
    wanted: GitRequest,
    /// The digits of the next packet's length that have arrived. A length has four digits.
    digits: Vec<u8>,
    /// Number of the current packet's data bytes that have not arrived yet.
    left: usize,
    /// The first bytes of the current packet's data, at most [`DATA_KEPT`].
    data: Vec<u8>,
    is_in_pack: bool,
    has_pack: bool,
    /// Whether the last packet received so far ends the answer.
    is_over: bool,
    is_wrong: bool,
}

impl AnswerCheck {
    /// Adds the next bytes of the answer.
    pub(crate) fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && !self.is_wrong {
            if self.left > 0 {
                let (now, rest) = bytes.split_at(self.left.min(bytes.len()));
                let kept = DATA_KEPT.saturating_sub(self.data.len()).min(now.len());
                self.data.extend_from_slice(&now[..kept]);
                self.left -= now.len();
                bytes = rest;
            } else {
                self.digits.push(bytes[0]);
                bytes = &bytes[1..];
                let Ok(digits) = <[u8; 4]>::try_from(self.digits.as_slice()) else { continue };
                self.digits.clear();
                self.begin_packet(digits);
                continue;
            }
            if self.left == 0 {
                self.end_packet();
            }
        }
    }

    /// Returns whether the answer is complete and reports no error. Call it at the end of the body.
    pub(crate) fn is_whole(&self) -> bool {
        let has_all = self.wanted == GitRequest::References || self.has_pack;
        !self.is_wrong && self.is_over && self.left == 0 && self.digits.is_empty() && has_all
    }

    fn begin_packet(&mut self, digits: [u8; 4]) {
        let start = start(digits);
        self.is_over = matches!(start, Some(PacketStart::Flush));
        self.is_in_pack &= matches!(start, Some(PacketStart::Data(_)));
        match start {
            Some(PacketStart::Data(len)) => {
                self.data.clear();
                self.left = len;
            }
            Some(PacketStart::Flush | PacketStart::Delimiter | PacketStart::End) => {}
            None => self.is_wrong = true,
        }
    }

    fn end_packet(&mut self) {
        match self.data.as_slice() {
            // Within a pack, band 3 carries the error that ends it.
            [band, ..] if self.is_in_pack => self.is_wrong = *band == 3,
            [b'E', b'R', b'R', b' ', ..] => self.is_wrong = true,
            b"packfile" | b"packfile\n" => (self.is_in_pack, self.has_pack) = (true, true),
            _ => {}
        }
    }
}

impl Default for GitRequest {
    /// Returns `Pack`, because an answer with a pack must meet more conditions to count as complete.
    fn default() -> Self {
        Self::Pack
    }
}

/// Number of bytes at the start of a packet that suffice to recognize its kind.
const DATA_KEPT: usize = 16;

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    /// Encodes packets. `0000` and similar lines are sent as they are; all other lines are data.
    fn packets(lines: &[&str]) -> Vec<u8> {
        let packet = |line: &&str| match *line {
            "0000" | "0001" | "0002" => (*line).to_owned(),
            data => format!("{:04x}{data}", data.len() + 4),
        };
        lines.iter().map(packet).collect::<String>().into_bytes()
    }

    fn question(lines: &[&str]) -> Option<GitQuestion> {
        GitQuestion::of(&HeaderMap::new(), packets(lines).into())
    }

    const CLONE: [&str; 9] = [
        "command=fetch",
        "agent=git/2.39.5",
        "object-format=sha1",
        "0001",
        "thin-pack",
        "ofs-delta",
        "want 8b137891791fe96927ad78e64b0aad7bded08bdc\n",
        "done\n",
        "0000",
    ];

    #[test]
    fn the_same_objects_have_the_same_key_whoever_asks() {
        let asked = question(&CLONE).unwrap();
        assert_eq!(asked.wanted, GitRequest::Pack);
        let other = |at: usize, line: &'static str| {
            let mut lines = CLONE;
            lines[at] = line;
            question(&lines).map(|other| other.key(b"r") == asked.key(b"r"))
        };
        assert_eq!(other(1, "agent=jgit/6"), Some(true));
        assert_eq!(other(1, "session-id=abc"), Some(true));
        assert_eq!(other(2, "object-format=sha256"), Some(false));
        assert_eq!(other(5, "deepen 1"), Some(false));
        assert_eq!(other(6, "want 0000000000000000000000000000000000000000\n"), Some(false));
        assert_ne!(asked.key(b"r"), asked.key(b"s"));
        // Arguments that are unknown or name references, and questions that are incomplete, must be refused.
        for line in ["want-ref refs/heads/main", "deepen-not v1", "packfile-uris https", "sideband-all", "0001", "0002"]
        {
            assert_eq!(other(5, line), None, "{line}");
        }
        assert_eq!((other(1, "server-option=x"), other(6, "ofs-delta")), (None, None));
        assert_eq!(
            other(7, "have 8b137891791fe96927ad78e64b0aad7bded08bdc\n"),
            Some(false),
            "a negotiation is another"
        );
    }

    #[test]
    fn questions_are_unpacked_and_damaged_ones_are_none() {
        let plain = packets(&CLONE);
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&plain).unwrap();
        let packed = encoder.finish().unwrap();
        let fields = HeaderMap::from_iter([(header::CONTENT_ENCODING, http::HeaderValue::from_static("gzip"))]);
        let unpacked = GitQuestion::of(&fields, packed.clone().into()).unwrap();
        assert_eq!(unpacked.key(b"r"), question(&CLONE).unwrap().key(b"r"));
        assert!(unpacked.body == packed, "it is passed on as it came");
        assert!(GitQuestion::of(&fields, plain.clone().into()).is_none());
        for end in 0..plain.len() {
            assert!(GitQuestion::of(&HeaderMap::new(), Bytes::copy_from_slice(&plain[..end])).is_none(), "{end}");
        }
        let mut bomb = GzEncoder::new(Vec::new(), Compression::best());
        bomb.write_all(&vec![b'0'; 9 << 20]).unwrap();
        assert!(GitQuestion::of(&fields, bomb.finish().unwrap().into()).is_none());
    }

    #[test]
    fn references_are_asked_for_by_their_own_words() {
        let asked = |line| question(&["command=ls-refs\n", "agent=x", "0001", "peel\n", line, "0000"]);
        assert_eq!(asked("ref-prefix refs/heads/\n").map(|asked| asked.wanted), Some(GitRequest::References));
        assert!(asked("want 1").is_none() && question(&["command=object-info", "0001", "0000"]).is_none());
    }

    #[test]
    fn only_an_answer_that_is_whole_and_tells_no_error_is_kept() {
        let is_whole = |wanted, answer: &[u8], piece: usize| {
            let mut check = AnswerCheck { wanted, ..AnswerCheck::default() };
            answer.chunks(piece).for_each(|piece| check.push(piece));
            check.is_whole()
        };
        let pack = packets(&["packfile\n", "\u{1}PACK1234", "\u{2}counting", "\u{1}5678", "0000"]);
        for piece in [1, 3, 7, pack.len()] {
            assert!(is_whole(GitRequest::Pack, &pack, piece));
        }
        for end in 0..pack.len() {
            assert!(!is_whole(GitRequest::Pack, &pack[..end], 5), "{end}");
        }
        for wrong in [
            &["ERR upload-pack: not our ref", "0000"][..],
            &["packfile\n", "\u{1}PACK", "\u{3}it died", "0000"],
            &["acknowledgments\n", "NAK\n", "0000"],
        ] {
            assert!(!is_whole(GitRequest::Pack, &packets(wrong), 5), "{wrong:?}");
        }
        assert!(!is_whole(GitRequest::Pack, b"<html>", 5));
        assert!(is_whole(GitRequest::References, &packets(&["8b13 HEAD symref-target:refs/heads/main\n", "0000"]), 5));
        assert!(!is_whole(GitRequest::References, &packets(&["ERR no", "0000"]), 5));
    }
}

//! The entries of a shared log: the purges of one command on one node, or a note about the log itself.
//!
//! Owns: their format, and the check of their codes. Invariant: only a node with the fleet's secret can have written an
//! entry that is accepted, and only for this stream.
//!
//! ```text
//! larder shared log 1
//! purges cache-a 0123456789abcdef 8 00112233445566778899aabbccddeeff
//! 8 hard 1764041481000 tag product-17
//! CODE
//! ```
//!
//! The second line has the kind, the node's name, the identity of its own log, the number of its purge, and a nonce.

use std::fmt::Write as _;

use crate::{
    fleet::{message::is_possible, secret::FleetSecret},
    ground::cache::purges::{Purge, parse_purge, purge_line},
};

/// An entry of the shared log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LogEntry {
    /// The identity of the log that the writing node itself keeps.
    pub(super) log: u64,
    /// The number, in the writing node's own log, of the last purge that this entry covers.
    pub(super) number: u64,
    /// A random number that no other entry has. A second entry with it is a repetition of the first.
    pub(super) nonce: u128,
    pub(super) content: EntryContent,
}

/// The content of an entry: purges, or a note about the log itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum EntryContent {
    /// The purges of one command.
    Purges(Vec<Purge>),
    /// A note that some purges are missing from the log, so every node must validate what it stored before.
    Unknown,
    /// The first entry of a new stream. It contains no purges.
    Start,
}

impl LogEntry {
    /// Formats the entry. `node` is the name of the writing node.
    pub(super) fn encode(&self, secret: &FleetSecret, stream: &str, node: &str) -> String {
        let Self { log, number, nonce, content } = self;
        let kind = match content {
            EntryContent::Purges(_) => PURGES,
            EntryContent::Unknown => UNKNOWN,
            EntryContent::Start => START,
        };
        let mut text = format!("{TITLE}\n{kind} {node} {log:016x} {number} {nonce:032x}\n");
        if let EntryContent::Purges(purges) = content {
            for purge in purges {
                writeln!(text, "{}", purge_line(purge)).expect("a string takes what is written to it");
            }
        }
        let code = secret.sign(&signed_parts(stream, &text));
        text + &code
    }

    /// Parses an entry.
    ///
    /// # Errors
    /// The octets are not an entry that a node with the secret wrote to this stream. The text says why.
    pub(super) fn decode(octets: &[u8], secret: &FleetSecret, stream: &str) -> Result<Self, &'static str> {
        let whole = std::str::from_utf8(octets).map_err(|_| "it is no text")?;
        let (text, code) = whole.rsplit_once('\n').ok_or("it is not from Larder, or from another version")?;
        let mut lines = text.split('\n');
        if lines.next() != Some(TITLE) {
            return Err("it is not from Larder, or from another version");
        }
        if !secret.verify(&signed_parts(stream, &whole[..=text.len()]), code) {
            return Err("it does not prove that its node knows the secret of the fleet");
        }
        let head: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
        let &[kind, _, log, number, nonce] = head.as_slice() else { return Err("its second line is malformed") };
        let log = u64::from_str_radix(log, 16).map_err(|_| "its second line is malformed")?;
        let number: u64 = number.parse().map_err(|_| "its second line is malformed")?;
        let nonce = u128::from_str_radix(nonce, 16).map_err(|_| "its second line is malformed")?;
        let is_own = |purge: &Purge| purge.number == number && is_possible(purge);
        let purges: Option<Vec<Purge>> = lines.map(|line| parse_purge(line).filter(is_own)).collect();
        let content = match (kind, purges.ok_or("a line is no purge")?) {
            (PURGES, purges) if !purges.is_empty() => EntryContent::Purges(purges),
            (UNKNOWN, purges) if purges.is_empty() => EntryContent::Unknown,
            (START, purges) if purges.is_empty() => EntryContent::Start,
            _ => return Err("its kind is unknown, or does not fit its purges"),
        };
        Ok(Self { log, number, nonce, content })
    }
}

fn signed_parts<'a>(stream: &'a str, text: &'a str) -> [&'a str; 3] {
    ["shared log", stream, text]
}

const TITLE: &str = "larder shared log 1";
const PURGES: &str = "purges";
const UNKNOWN: &str = "unknown";
const START: &str = "start";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ground::cache::purges::{PurgeMode, PurgeScope};

    fn secret() -> FleetSecret {
        FleetSecret::new("0123456789abcdef")
    }

    fn purge(number: u64, mode: PurgeMode) -> Purge {
        Purge { number, mode, at_ms: 7, scope: PurgeScope::Tag("a b".into()) }
    }

    fn entry(content: EntryContent) -> LogEntry {
        LogEntry { log: 0xab, number: 8, nonce: 7, content }
    }

    #[test]
    fn entry_arrives_as_it_was_written_and_only_with_its_secret_and_stream() {
        let purges = vec![purge(8, PurgeMode::Hard), purge(8, PurgeMode::Soft)];
        for content in [EntryContent::Purges(purges), EntryContent::Unknown, EntryContent::Start] {
            let text = entry(content.clone()).encode(&secret(), "s", "a");
            assert_eq!(LogEntry::decode(text.as_bytes(), &secret(), "s"), Ok(entry(content)));
            assert!(LogEntry::decode(text.as_bytes(), &secret(), "t").unwrap_err().contains("does not prove"));
            let other = FleetSecret::new("another secret!!");
            assert!(LogEntry::decode(text.as_bytes(), &other, "s").unwrap_err().contains("does not prove"));
            for at in 0..text.len() {
                let mut changed = text.clone().into_bytes();
                changed[at] ^= 1;
                assert!(LogEntry::decode(&changed, &secret(), "s").is_err(), "{at}");
                assert!(LogEntry::decode(&text.as_bytes()[..at], &secret(), "s").is_err(), "{at}");
            }
        }
    }

    /// Guards against a node that accepts an entry that no node wrote, and so skips purges or purges what no operator
    /// named.
    #[test]
    fn what_no_node_writes_is_refused_even_with_a_right_code() {
        let head = "larder shared log 1\npurges a ab 8 00\n";
        for text in [
            "larder shared log 2\nstart a ab 8 00\n",
            "larder shared log 1\n",
            "larder shared log 1\nstart a ab 8\n",
            "larder shared log 1\nstart a xx 8 00\n",
            "larder shared log 1\nstart a ab -8 00\n",
            "larder shared log 1\nstart a ab 8 nonce\n",
            "larder shared log 1\nfinish a ab 8 00\n",
            "larder shared log 1\nstart a ab 8 00\n8 hard 0 tag t\n",
            head,
            &format!("{head}8 hard 0 tag \n"),
            &format!("{head}9 hard 0 tag t\n"),
            &format!("{head}8 validate 0 all -\n"),
            &format!("{head}8 hard 0 tag t\n\n"),
        ] {
            let signed = format!("{text}{}", secret().sign(&signed_parts("s", text)));
            assert!(LogEntry::decode(signed.as_bytes(), &secret(), "s").is_err(), "{text}");
        }
        for octets in [&b""[..], b"\n", b"\xff\n", b"SSH-2.0-OpenSSH_9.2\r\n"] {
            assert!(LogEntry::decode(octets, &secret(), "s").is_err());
        }
    }
}

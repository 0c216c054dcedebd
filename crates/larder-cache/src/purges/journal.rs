//! The purge record: a file next to the store with one line per purge, and one per position in another node's log.
//!
//! Owns: the line format. Judging is done elsewhere. Other nodes get the lines of purges in the same form, without
//! checksums: [`purge_line`], [`parse_purge`].
//!
//! Invariants: a purge is durable once [`PurgeJournal::append`] or [`PurgeJournal::rewrite`] has returned. A complete
//! line with a wrong checksum is damage, and then the whole file is rejected.
//!
//! Cost: one line per purge, and one sync for all purges that are written together.

use std::{
    fmt::Write as _,
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use crc_fast::{CrcAlgorithm::Crc32IsoHdlc, checksum as crc};
use larder_device::{Journal, whole_lines};

use super::{
    index::{Purge, PurgeMode, PurgeScope},
    log::LogPosition,
    tag_file,
};

/// The file that holds the record of purges, one purge or fact a line.
pub(super) struct PurgeJournal(Journal);

/// The content of the journal's file when the program starts.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum JournalState {
    Nothing,
    /// The file is valid: the lines of the record, and the label (a random number) of the store that it belongs to.
    Lines {
        label: u64,
        lines: Vec<RecordLine>,
    },
    /// The file cannot be read or parsed, for this reason.
    Damaged(String),
}

/// A line of the record of purges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RecordLine {
    /// A purge that was made on this node. It applies to this node's responses, and is sent to other nodes.
    Made(Purge),
    /// A purge that applies to this node's responses, but is not sent to other nodes: it came from one of them, is
    /// recorded for them by another line, or is no longer in the log.
    Judged(Purge),
    /// A purge that is only sent to other nodes. Another line says what applies here.
    Logged(Purge),
    /// The log of purges made on this node begins after the purge with this number.
    LogStart(u64),
    /// All purge numbers up to this one were used, even if no purge with such a number is kept.
    Number(u64),
    Position(LogPosition),
}

impl PurgeJournal {
    pub(super) fn new(path: PathBuf) -> Self {
        // It is rewritten before anything is appended, so the length does not matter.
        Self(Journal::new(path, 0))
    }

    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Reads and checks the whole file.
    pub(super) fn read(&self) -> JournalState {
        let octets = match fs::read(self.path()) {
            Ok(octets) => octets,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return JournalState::Nothing,
            Err(error) => return JournalState::Damaged(error.to_string()),
        };
        if octets.starts_with(tag_file::MAGIC) {
            return tag_file::read(&octets).unwrap_or_else(|| JournalState::Damaged("it is damaged".to_owned()));
        }
        let Ok(whole) = std::str::from_utf8(whole_lines(&octets)) else {
            return JournalState::Damaged("it is not text".to_owned());
        };
        let mut lines = whole.split_terminator('\n').map(unseal);
        let label = lines.next().flatten().and_then(|line| u64::from_str_radix(line.strip_prefix(TITLE)?, 16).ok());
        let Some(label) = label else { return JournalState::Damaged("its first line is unknown".to_owned()) };
        match lines.map(|line| parse(line?)).collect() {
            Some(lines) => JournalState::Lines { label, lines },
            None => JournalState::Damaged("a line is damaged".to_owned()),
        }
    }

    /// Returns whether lines can be appended to the file. It must have been rewritten since the start and since the
    /// last error, and must not have grown too long.
    pub(super) fn takes_more(&self) -> bool {
        self.0.is_open() && !self.0.has_grown(GROWN_BYTES_MIN)
    }

    /// Appends lines to the file, and syncs it.
    ///
    /// # Errors
    /// On an error, the lines may not be durable, and the file must be rewritten.
    pub(super) fn append(&mut self, lines: &[RecordLine]) -> io::Result<()> {
        let lines: String = lines.iter().map(show).collect();
        self.0.append(lines.as_bytes())?;
        self.0.sync()
    }

    /// Replaces the file by one with these lines, for the store that has this label.
    ///
    /// # Errors
    /// On an error, the lines may not be durable.
    pub(super) fn rewrite(&mut self, label: u64, lines: &[RecordLine]) -> io::Result<()> {
        let mut text = seal(&format!("{TITLE}{label:016x}"));
        lines.iter().for_each(|line| text.push_str(&show(line)));
        self.0.replace(&mut |file| file.write_all(text.as_bytes()))
    }
}

fn show(line: &RecordLine) -> String {
    seal(&match line {
        RecordLine::Made(purge) => purge_line(purge),
        RecordLine::Judged(purge) => format!("judged {}", purge_line(purge)),
        RecordLine::Logged(purge) => format!("logged {}", purge_line(purge)),
        RecordLine::LogStart(number) => format!("log-start {number}"),
        RecordLine::Number(number) => format!("number {number}"),
        RecordLine::Position(LogPosition { peer, log, number, sent: 0 }) => {
            format!("position {log:016x} {number} {peer}")
        }
        RecordLine::Position(LogPosition { peer, log, number, sent }) => {
            format!("shared-position {log:016x} {number} {sent} {peer}")
        }
    })
}

fn parse(line: &str) -> Option<RecordLine> {
    let (word, rest) = line.split_once(' ')?;
    Some(match word {
        "judged" => RecordLine::Judged(parse_purge(rest)?),
        "logged" => RecordLine::Logged(parse_purge(rest)?),
        "log-start" => RecordLine::LogStart(rest.parse().ok()?),
        "number" => RecordLine::Number(rest.parse().ok()?),
        "position" => {
            let (log, rest) = rest.split_once(' ')?;
            let (number, peer) = rest.split_once(' ')?;
            let log = u64::from_str_radix(log, 16).ok()?;
            let number = number.parse().ok()?;
            RecordLine::Position(LogPosition { peer: peer.into(), log, number, sent: 0 })
        }
        "shared-position" => {
            let mut words = rest.splitn(4, ' ');
            let log = u64::from_str_radix(words.next()?, 16).ok()?;
            let number = words.next()?.parse().ok()?;
            let sent = words.next()?.parse().ok()?;
            RecordLine::Position(LogPosition { peer: words.next()?.into(), log, number, sent })
        }
        _ => RecordLine::Made(parse_purge(line)?),
    })
}

/// Formats a purge as a line, without the newline.
pub fn purge_line(purge: &Purge) -> String {
    let Purge { number, mode, at_ms, scope } = purge;
    let mode = match mode {
        PurgeMode::Hard => "hard",
        PurgeMode::Soft => "soft",
        PurgeMode::Validate => "validate",
    };
    let kind = match scope {
        PurgeScope::All => "all",
        PurgeScope::Site(_) => "site",
        PurgeScope::Prefix(_) => "prefix",
        PurgeScope::Url(_) => "url",
        PurgeScope::Tag(_) => "tag",
    };
    let name = if *scope == PurgeScope::All { "-" } else { scope.name() };
    format!("{number} {mode} {at_ms} {kind} {name}")
}

/// Parses a line that [`purge_line`] formatted. `None` if it is malformed.
pub fn parse_purge(line: &str) -> Option<Purge> {
    let mut words = line.splitn(5, ' ');
    let number = words.next()?.parse().ok()?;
    let mode = match words.next()? {
        "hard" => PurgeMode::Hard,
        "soft" => PurgeMode::Soft,
        "validate" => PurgeMode::Validate,
        _ => return None,
    };
    let at_ms = words.next()?.parse().ok()?;
    let kind = words.next()?;
    let name = words.next()?;
    let scope = match kind {
        "all" => PurgeScope::All,
        "site" => PurgeScope::Site(name.into()),
        "prefix" => PurgeScope::Prefix(name.into()),
        "url" => PurgeScope::Url(name.into()),
        "tag" => PurgeScope::Tag(name.into()),
        _ => return None,
    };
    Some(Purge { number, mode, at_ms, scope })
}

/// Formats a line of the file: the checksum of `text`, and `text`.
fn seal(text: &str) -> String {
    let mut line = String::with_capacity(text.len() + 10);
    writeln!(line, "{:08x} {text}", checksum(text)).expect("a string takes what is written to it");
    line
}

fn unseal(line: &str) -> Option<&str> {
    let (sum, text) = line.split_once(' ')?;
    (u32::from_str_radix(sum, 16).ok()? == checksum(text)).then_some(text)
}

fn checksum(text: &str) -> u32 {
    crc(Crc32IsoHdlc, text.as_bytes()) as u32
}

const TITLE: &str = "larder purges 1 ";
/// Size in bytes below which the file is not rewritten, however much it has grown since the last rewriting.
const GROWN_BYTES_MIN: u64 = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn lines() -> Vec<RecordLine> {
        let scopes = [
            PurgeScope::All,
            PurgeScope::Site("a.example".into()),
            PurgeScope::Prefix("http://a.example/x y".into()),
            PurgeScope::Url("http://a.example/é".into()),
            PurgeScope::Tag("t".into()),
        ];
        let modes = [PurgeMode::Hard, PurgeMode::Soft, PurgeMode::Validate].into_iter().cycle();
        let purge = |(number, (mode, scope))| Purge { number, mode, at_ms: -5, scope };
        let position = LogPosition { peer: "b.example:80".into(), log: 77, number: 12, sent: 0 };
        let shared = LogPosition { peer: "redis://h:1/s".into(), log: 78, number: 13, sent: 9 };
        let mut lines: Vec<RecordLine> = (1..).zip(modes.zip(scopes)).map(purge).map(RecordLine::Made).collect();
        let (RecordLine::Made(first), RecordLine::Made(last)) = (lines[1].clone(), lines[4].clone()) else { panic!() };
        let others =
            [RecordLine::Judged(first), RecordLine::Logged(last), RecordLine::LogStart(2), RecordLine::Number(9)];
        let positions = [position, shared].map(RecordLine::Position);
        lines.splice(2..2, others.into_iter().chain(positions));
        lines
    }

    #[test]
    fn what_was_added_is_read_and_a_line_that_was_cut_off_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.purges");
        let mut journal = PurgeJournal::new(path.clone());
        assert_eq!(journal.read(), JournalState::Nothing);
        assert!(!journal.takes_more());
        journal.rewrite(7, &lines()[..2]).unwrap();
        assert!(journal.takes_more());
        journal.append(&lines()[2..]).unwrap();
        assert_eq!(PurgeJournal::new(path.clone()).read(), JournalState::Lines { label: 7, lines: lines() });
        let whole = fs::read(&path).unwrap();
        for cut in 1..show(&lines()[10]).len() {
            fs::write(&path, &whole[..whole.len() - cut]).unwrap();
            let recorded = PurgeJournal::new(path.clone()).read();
            assert!(
                matches!(&recorded, JournalState::Lines { lines: read, .. } if *read == lines()[..10]),
                "{cut}: {recorded:?}"
            );
        }
    }

    /// Guards against a purge that is undone because a bit on the disk flipped.
    #[test]
    fn every_flipped_bit_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.purges");
        PurgeJournal::new(path.clone()).rewrite(7, &lines()).unwrap();
        let whole = fs::read(&path).unwrap();
        for bit in 0..whole.len() * 8 {
            let mut changed = whole.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, &changed).unwrap();
            let recorded = PurgeJournal::new(path.clone()).read();
            // Without its line end, the last line counts as incomplete.
            let is_last = bit / 8 == whole.len() - 1;
            assert!(
                is_last || !matches!(&recorded, JournalState::Lines { lines: read, .. } if *read != lines()),
                "{bit}: {recorded:?}"
            );
        }
    }

    #[test]
    fn file_that_cannot_be_written_takes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = PurgeJournal::new(folder.path().join("no folder/store.purges"));
        assert!(journal.rewrite(1, &[]).is_err() && !journal.takes_more());
    }
}

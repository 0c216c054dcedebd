//! Block lists and allow lists of hosts, in files of the usual published formats.
//!
//! Owns: reading the files, and finding a host in them. `errors` has the refusal. Invariants: a list stays in use until
//! its replacement has been read completely and without errors. An allow list takes precedence over a block list.
//!
//! Design: a name is kept as a keyed 64-bit hash, sorted. A million names take 8 MB, and the chance that a host is
//! mistaken for one of them is a million in 2^64. A trie or a set of strings would take 40 to 100 bytes per name. Cost:
//! one binary search for each label of a host.

use larder_device::IgnorePoison;
use std::{
    fs::File,
    hash::{BuildHasher as _, RandomState},
    io::{BufRead as _, BufReader, Read as _},
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
    sync::RwLock,
};

use crate::ground::{
    file_watcher::{FileStamp, stamp},
    target::bare_host,
};

/// The block lists and allow lists in use.
pub(crate) struct ActiveLists {
    config: HostLists,
    sets: RwLock<HostSets>,
}

/// The files with the operator's block lists and allow lists of hosts. They have the format of hosts files, or one name
/// per line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostLists {
    /// Files with hosts that are refused.
    pub block: Vec<PathBuf>,
    /// Files with hosts that are served even if a block list contains them.
    pub allow: Vec<PathBuf>,
    /// Whether a host that no allow list contains is refused. Default: it is served.
    pub default_deny: bool,
}

/// The verdict of the lists on a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListVerdict {
    /// Nothing forbids the host, so it is served: no block list contains it, and `default_deny` is off.
    Not,
    /// A block list contains the host and no allow list does, so it is refused.
    Blocked,
    /// No allow list contains the host, and `default_deny` is on, so it is refused.
    NotAllowed,
    /// An allow list contains the host, which would otherwise be refused.
    Allowed,
}

struct HostSets {
    block: NameSet,
    allow: NameSet,
}

/// The names in all block lists, or in all allow lists. An entry may stand for a name, or for all names below it.
#[derive(Default)]
struct NameSet {
    hasher: RandomState,
    /// Hashes of the names, sorted and without duplicates.
    hashes: Vec<u64>,
}

/// The hosts that an entry of a list matches, in relation to its name. It is part of what is hashed for the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ListEntryKind {
    /// Only the host with the entry's name.
    Exact,
    /// All hosts whose names are below the entry's name.
    Below,
}

/// The content of one line of a list.
#[derive(Debug, PartialEq, Eq)]
enum ListLine<'a> {
    Nothing,
    /// Names in the format of a hosts file. They do not include the names below them.
    Hosts(Vec<&'a str>),
    /// All names below a name. The flag says whether the name itself is included too.
    Domain(&'a str, bool),
    Bad,
}

impl HostLists {
    /// Returns whether these lists refuse no host: no list is configured, and unlisted hosts are served.
    pub fn is_empty(&self) -> bool {
        self.block.is_empty() && self.allow.is_empty() && !self.default_deny
    }
}

impl ActiveLists {
    /// Reads all lists.
    ///
    /// # Errors
    /// A file cannot be read, has lines that name no host, or has too many names. The error says which file or line.
    pub(crate) fn load(config: &HostLists) -> Result<Self, String> {
        Ok(Self { config: config.clone(), sets: RwLock::new(HostSets::load(config)?) })
    }

    /// Reads all lists again. If that fails, the current lists stay in use.
    ///
    /// # Errors
    /// A file cannot be read, has lines that name no host, or has too many names. The error says which file or line.
    pub(crate) fn reload(&self) -> Result<(), String> {
        let sets = HostSets::load(&self.config)?;
        *self.sets.write().ignore_poison() = sets;
        Ok(())
    }

    /// Returns the metadata of each list's file. It changes whenever the file changes.
    pub(crate) fn stamps(&self) -> Vec<FileStamp> {
        self.config.block.iter().chain(&self.config.allow).map(|path| stamp(path)).collect()
    }

    /// Returns whether the lists refuse a host. `host` is a name, or an address without brackets.
    pub(crate) fn block(&self, host: &str) -> bool {
        matches!(self.listed(host), ListVerdict::Blocked | ListVerdict::NotAllowed)
    }

    /// Returns the verdict of the lists on a host, which is a name or an address, with or without brackets.
    pub(crate) fn listed(&self, host: &str) -> ListVerdict {
        let host = canonical(host);
        let sets = self.sets.read().ignore_poison();
        let is_blocked = sets.block.contains(&host);
        match (is_blocked || self.config.default_deny, sets.allow.contains(&host)) {
            (true, true) => ListVerdict::Allowed,
            (true, false) if is_blocked => ListVerdict::Blocked,
            (true, false) => ListVerdict::NotAllowed,
            (false, _) => ListVerdict::Not,
        }
    }
}

/// Returns a host in the form in which lists store and compare it.
///
/// Names are in lower case without a final dot. Addresses are in standard form, and IPv4-mapped IPv6 addresses become
/// IPv4 addresses.
fn canonical(host: &str) -> String {
    match bare_host(host).parse::<IpAddr>() {
        Ok(address) => address.to_canonical().to_string(),
        Err(_) => host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase(),
    }
}

impl HostSets {
    fn load(config: &HostLists) -> Result<Self, String> {
        Ok(Self { block: NameSet::load(&config.block)?, allow: NameSet::load(&config.allow)? })
    }
}

impl NameSet {
    fn load(paths: &[PathBuf]) -> Result<Self, String> {
        let mut set = Self::default();
        for path in paths {
            set.read(path)?;
        }
        set.hashes.sort_unstable();
        set.hashes.dedup();
        set.hashes.shrink_to_fit();
        Ok(set)
    }

    fn read(&mut self, path: &Path) -> Result<(), String> {
        let shown = path.display();
        let file = File::open(path).map_err(|error| format!("cannot read a list of hosts: {error}: {shown}"))?;
        let mut reader = BufReader::new(file);
        let mut text = Vec::new();
        let mut number = 0;
        let mut bad = Vec::new();
        loop {
            text.clear();
            let read = reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut text);
            if read.map_err(|error| format!("cannot read a list of hosts: {error}: {shown}"))? == 0 {
                break;
            }
            number += 1;
            match str::from_utf8(&text).map_or(ListLine::Bad, read_line) {
                ListLine::Nothing => {}
                ListLine::Hosts(names) => names.into_iter().for_each(|name| self.insert(ListEntryKind::Exact, name)),
                ListLine::Domain(name, is_itself) => {
                    self.insert(ListEntryKind::Below, name);
                    if is_itself {
                        self.insert(ListEntryKind::Exact, name);
                    }
                }
                ListLine::Bad => bad.push((number, String::from_utf8_lossy(text.trim_ascii()).into_owned())),
            }
            if self.hashes.len() > NAME_COUNT_MAX {
                return Err(format!("lists of hosts may have at most {NAME_COUNT_MAX} names: {shown}"));
            }
        }
        let Some((number, line)) = bad.first() else { return Ok(()) };
        let line: String = line.chars().take(SHOWN_CHARS_MAX).collect();
        let more = if bad.len() > 1 { format!(" (and {} lines more)", bad.len() - 1) } else { String::new() };
        Err(format!("a line of a list of hosts contains no host: {shown}:{number}: `{line}`{more}"))
    }

    fn insert(&mut self, kind: ListEntryKind, name: &str) {
        let hash = self.hash(kind, &canonical(name));
        self.hashes.push(hash);
    }

    fn contains(&self, host: &str) -> bool {
        let has = |kind, name| self.hashes.binary_search(&self.hash(kind, name)).is_ok();
        let mut parents = host.match_indices('.').map(|(dot, _)| &host[dot + 1..]);
        !self.hashes.is_empty()
            && (has(ListEntryKind::Exact, host) || parents.any(|parent| has(ListEntryKind::Below, parent)))
    }

    fn hash(&self, kind: ListEntryKind, name: &str) -> u64 {
        self.hasher.hash_one((kind, name))
    }
}

/// Parses a line of a list.
///
/// A line of a hosts file is an address with names. Other lines are `name`, `.name` or `||name^` (the name and all
/// names below it), or `*.name` (only the names below it).
fn read_line(line: &str) -> ListLine<'_> {
    let line = line.trim_start_matches('\u{feff}');
    let line = line.split('#').next().unwrap_or_default().trim();
    if line.is_empty() || line.starts_with('!') {
        return ListLine::Nothing;
    }
    let mut words = line.split_ascii_whitespace();
    let first = words.next().unwrap_or_default();
    let names: Vec<&str> = words.collect();
    // A link-local address may end in its interface, as in `fe80::1%lo0`.
    let is_address = first.split('%').next().is_some_and(|address| address.parse::<IpAddr>().is_ok());
    if is_address && !names.is_empty() {
        if !names.iter().all(|name| is_name(name)) {
            return ListLine::Bad;
        }
        let is_own = |name: &&str| !OWN_NAMES.contains(name) && name.parse::<Ipv4Addr>().is_err();
        return ListLine::Hosts(names.into_iter().filter(is_own).collect());
    }
    if !names.is_empty() {
        return ListLine::Bad;
    }
    let (name, is_itself) = match first.strip_prefix("*.") {
        Some(name) => (name, false),
        None => {
            let adblock = first.strip_prefix("||").and_then(|rest| rest.strip_suffix('^'));
            (adblock.or_else(|| first.strip_prefix('.')).unwrap_or(first), true)
        }
    };
    let name = name.strip_suffix('.').unwrap_or(name);
    if is_address || is_name(name) { ListLine::Domain(name, is_itself) } else { ListLine::Bad }
}

fn is_name(name: &str) -> bool {
    let is_inside = |octet: u8| octet.is_ascii_alphanumeric() || octet == b'-' || octet == b'_';
    let is_label = |label: &str| (1..=63).contains(&label.len()) && label.bytes().all(is_inside);
    (1..=253).contains(&name.len()) && name.split('.').all(is_label)
}

/// Names for this machine and its networks that hosts files usually contain. They are skipped.
const OWN_NAMES: [&str; 11] = [
    "localhost",
    "localhost.localdomain",
    "local",
    "broadcasthost",
    "ip6-localhost",
    "ip6-loopback",
    "ip6-localnet",
    "ip6-mcastprefix",
    "ip6-allnodes",
    "ip6-allrouters",
    "ip6-allhosts",
];
/// Maximum number of names in all block lists, and in all allow lists. That many names take 128 MB.
const NAME_COUNT_MAX: usize = 16 << 20;
/// Maximum length of a line, in bytes. A longer line is invalid.
const LINE_BYTES_MAX: u64 = 4096;
/// Number of characters of an invalid line that the error shows.
const SHOWN_CHARS_MAX: usize = 80;

#[cfg(test)]
mod tests {
    use std::{env, fmt::Write as _, fs, process::Command};

    use super::*;

    fn lists(block: &str, allow: &str) -> ActiveLists {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = directory.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let config = HostLists { block: vec![file("b", block)], allow: vec![file("a", allow)], default_deny: false };
        ActiveLists::load(&config).unwrap()
    }

    #[test]
    fn lines_are_read_as_they_are_published() {
        for (line, expected) in [
            ("", ListLine::Nothing),
            ("# comment", ListLine::Nothing),
            ("! comment", ListLine::Nothing),
            ("\u{feff}# mark", ListLine::Nothing),
            ("0.0.0.0 ads.example b.example # both", ListLine::Hosts(vec!["ads.example", "b.example"])),
            ("::1\tads.example\r\n", ListLine::Hosts(vec!["ads.example"])),
            ("127.0.0.1 localhost", ListLine::Hosts(Vec::new())),
            ("fe80::1%lo0 localhost", ListLine::Hosts(Vec::new())),
            ("0.0.0.0 0.0.0.0", ListLine::Hosts(Vec::new())),
            ("ads.example", ListLine::Domain("ads.example", true)),
            (".ads.example.", ListLine::Domain("ads.example", true)),
            ("*.ads.example", ListLine::Domain("ads.example", false)),
            ("||ads.example^", ListLine::Domain("ads.example", true)),
            ("192.0.2.1", ListLine::Domain("192.0.2.1", true)),
            ("ads.example b.example", ListLine::Bad),
            ("0.0.0.0 a..b", ListLine::Bad),
            ("http://ads.example/", ListLine::Bad),
            ("a*.example", ListLine::Bad),
            ("\u{e4}.example", ListLine::Bad),
        ] {
            assert_eq!(read_line(line), expected, "{line:?}");
        }
    }

    #[test]
    fn hosts_are_found_and_exceptions_count() {
        let lists = lists("0.0.0.0 host.example\ndomain.example\n*.below.example\nbad.example", "good.bad.example\n");
        for host in
            ["host.example", "HOST.example.", "domain.example", "a.b.domain.example", "x.below.example", "bad.example"]
        {
            assert!(lists.block(host), "{host}");
        }
        for host in [
            "a.host.example",
            "xdomain.example",
            "below.example",
            "example",
            "good.bad.example",
            "a.good.bad.example",
            "",
        ] {
            assert!(!lists.block(host), "{host}");
        }
    }

    #[test]
    fn address_is_found_however_it_is_written() {
        let lists = lists("127.0.0.2\n2001:DB8:0::1\n::ffff:192.0.2.1\n", "");
        for host in
            ["127.0.0.2", "::ffff:127.0.0.2", "[::ffff:127.0.0.2]", "[::FFFF:7f00:2]", "[2001:db8::1]", "192.0.2.1"]
        {
            assert!(lists.block(host), "{host}");
        }
        assert!(!lists.block("[::ffff:127.0.0.3]"));
    }

    #[test]
    fn only_what_is_allowed_is_served_if_that_is_said() {
        let mut lists = lists("", "school.example");
        lists.config.default_deny = true;
        assert!(lists.block("other.example") && !lists.block("www.school.example"));
    }

    #[test]
    fn bad_lines_are_told_and_lists_in_use_stay() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("list");
        fs::write(&path, "a.example\n").unwrap();
        let lists = ActiveLists::load(&HostLists { block: vec![path.clone()], ..HostLists::default() }).unwrap();
        fs::write(&path, "b.example\n<html>\nx y\n").unwrap();
        let why = lists.reload().unwrap_err();
        assert!(why.ends_with("list:2: `<html>` (and 1 lines more)"), "{why}");
        assert!(lists.block("a.example") && !lists.block("b.example"));
        fs::write(&path, "b.example\n").unwrap();
        lists.reload().unwrap();
        assert!(!lists.block("a.example") && lists.block("b.example"));
        fs::remove_file(&path).unwrap();
        assert!(lists.reload().unwrap_err().starts_with("cannot read a list of hosts: "));
    }

    /// Returns the resident memory of this process in bytes.
    fn resident_bytes() -> u64 {
        let pages = fs::read_to_string("/proc/self/statm").unwrap();
        pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
    }

    const ALONE: &str = "LARDER_TEST_ALONE";

    /// Runs the test in a process of its own. Otherwise the memory of other tests that run at the same time would be
    /// counted too.
    #[test]
    fn million_names_take_less_than_32_mb() {
        if env::var_os(ALONE).is_none() {
            let mut alone = Command::new(env::current_exe().unwrap());
            alone.args(["--exact", "targets::lists::tests::million_names_take_less_than_32_mb"]).env(ALONE, "1");
            let output = alone.output().unwrap();
            let report = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && report.contains("1 passed"), "{report}");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("list");
        let mut text = String::new();
        for number in 0..1_000_000 {
            writeln!(text, "0.0.0.0 tracker-{number}.some-network-{}.example", number % 1000).unwrap();
        }
        fs::write(&path, &text).unwrap();
        drop(text);
        let before = resident_bytes();
        let lists = ActiveLists::load(&HostLists { block: vec![path], ..HostLists::default() }).unwrap();
        let taken = resident_bytes().saturating_sub(before);
        let held = lists.sets.read().unwrap().block.hashes.capacity() * size_of::<u64>();
        println!("held {held} bytes, the process grew by {taken}");
        assert_eq!(held, 8_000_000);
        assert!(taken < 32 << 20, "{taken}");
        assert!(lists.block("tracker-999999.some-network-999.example"));
        assert!(!lists.block("tracker-999999.some-network-998.example"));
    }
}

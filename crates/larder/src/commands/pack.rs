//! `larder pack` and `larder unpack`: transfer cached responses to another cache in a file.
//!
//! Owns: the flags, the file, and the summary. The proxy packs and unpacks. Invariants: the file gets its name only
//! once it is complete. A response is reported as stored only if the proxy confirmed it.

use crate::{
    commands::{
        self,
        admin_client::{self, AdminFlags, ProgressEvent, SentBody},
    },
    ground::{
        duration,
        failure::Failure,
        output::{print_line, tell},
        progress::ProgressLine,
        size,
    },
    settings::mirrors::{self, Registry},
};
use clap::Args;
use larder_http::UrlPattern;
use serde_json::{Value, json};
use std::{
    fs::File,
    io::{self, Read, Write},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};
use tempfile::NamedTempFile;

const PACK_EXAMPLES: &str = "\
Examples:
  larder pack ship.warc.gz 'https://docs.example.com/*'   a site, compressed
  larder pack ship.warc urls.txt --newer 7d               a list, the last week
  larder pack ship.warc.gz --mirror pypi,npm              responses of mirrors
  larder pack all.warc.gz --all
  larder unpack ship.warc.gz                              on the other side

The file is WARC 1.1 (ISO 28500), as web archives read it, with a digest of each body. Responses that a \
client's cookies or credentials chose are left out and counted. The running proxy packs; responses that \
are only in its memory are not packed. Exit codes: 0 done, 1 failed, or nothing was stored.";

const UNPACK_EXAMPLES: &str = "\
Examples:
  larder unpack ship.warc.gz
  larder unpack crawl.warc       of other programs, if its records have digests

Each response is stored with the age that the file gives it. Records with a wrong length or digest, \
responses that may not be stored, and responses that are already stored and at least as new are counted \
and left out. Exit codes: 0 all stored, 1 some left out.";

/// The flags of `larder pack`.
#[derive(Debug, Args)]
#[command(after_help = PACK_EXAMPLES)]
pub(crate) struct PackFlags {
    /// File to write; with .gz, each record is compressed
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Patterns of URLs, and files that list them, as for larder pin
    #[arg(value_name = "PATTERN|LIST", required_unless_present_any = ["mirror", "all"])]
    sources: Vec<String>,

    /// Stored responses of these mirrors, such as pypi,npm; `larder mirror list` names all
    #[arg(long, value_name = "NAME,..", value_delimiter = ',', value_parser = mirrors::named)]
    mirror: Vec<&'static Registry>,

    /// All stored responses
    #[arg(long, conflicts_with_all = ["sources", "mirror"])]
    all: bool,

    /// Only responses fetched or confirmed within this time, such as 7d
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    newer: Option<Duration>,

    /// Only responses fetched or confirmed before this time
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    older: Option<Duration>,

    /// Overwrite an existing file
    #[arg(long)]
    force: bool,

    /// Print the summary as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    admin: AdminFlags,
}

/// The flags of `larder unpack`.
#[derive(Debug, Args)]
#[command(after_help = UNPACK_EXAMPLES)]
pub(crate) struct UnpackFlags {
    /// Files from larder pack, compressed or not
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    /// Print the summary as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    admin: AdminFlags,
}

/// Runs `larder pack`.
///
/// # Errors
/// The file cannot be written, the proxy is unreachable or refuses, or no response is selected.
pub(crate) fn pack(flags: &PackFlags) -> Result<(), Failure> {
    let path = &flags.file;
    let request = packing_request(flags)?;
    if path.exists() && !flags.force {
        let help = "choose another name, or overwrite it with --force";
        return Err(Failure::usage(format!("the file already exists: {}", path.display()), help));
    }
    let cannot = |error: io::Error| {
        let help = "choose a file in a writable directory with enough space";
        Failure::runtime(format!("cannot write {}: {error}", path.display()), help)
    };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = NamedTempFile::new_in(folder).map_err(cannot)?;
    let shown = ProgressLine::new("packing");
    let mut before = 0;
    let sent = SentBody { len_bytes: request.len() as u64, reader: &mut request.as_bytes() };
    let done = admin_client::converse(flags.admin, "PACK /", sent, &mut |told| {
        match told {
            ProgressEvent::Progress { done, of } => {
                shown.advance(done.saturating_sub(before), of);
                before = done;
            }
            ProgressEvent::Line(line) => tell_left_out("left out", line),
            ProgressEvent::Data(bytes) => file.write_all(bytes).map_err(cannot)?,
        }
        Ok(())
    })?;
    shown.finish();
    let count = number(&done["responses"]);
    if count == 0 {
        let help = "larder explain URL shows what is stored; patterns are those of larder pin";
        return Err(Failure::runtime("no stored response matches; no file was created", help));
    }
    file.as_file().sync_all().map_err(cannot)?;
    let persisted = if flags.force { file.persist(path) } else { file.persist_noclobber(path) };
    let file_bytes = persisted.map_err(|error| cannot(error.error))?.metadata().map_or(0, |data| data.len());
    if flags.json {
        return print_line!("{done}");
    }
    let responses = size::show_things(count, "response", "responses");
    let left_out = size::show_count(number(&done["left_out"]));
    let bodies = size::show(number(&done["body_bytes"]));
    print_line!(
        "packed {responses} with bodies of {bodies}, skipped {left_out}: {}, {}",
        path.display(),
        size::show(file_bytes)
    )
}

/// Runs `larder unpack`.
///
/// # Errors
/// A file cannot be read, the proxy is unreachable or refuses, or some responses in the files are not stored.
pub(crate) fn unpack(flags: &UnpackFlags) -> Result<(), Failure> {
    let mut bad_count = 0;
    for path in &flags.files {
        let done = unpack_one(path, flags.admin)?;
        let why_ended = done["why_ended"].as_str();
        if let Some(why) = why_ended {
            tell!("cut off: {}: {why}", path.display());
        }
        bad_count += number(&done["refused"]) + u64::from(why_ended.is_some());
        if flags.json {
            print_line!("{done}")?;
            continue;
        }
        let [stored, there, refused] = ["stored", "there", "refused"].map(|name| size::show_count(number(&done[name])));
        let bodies = size::show(number(&done["body_bytes"]));
        print_line!("{}: {stored} stored ({bodies}), {there} already stored, {refused} refused", path.display())?;
    }
    match bad_count {
        0 => Ok(()),
        _ => Err(Failure::runtime(
            "some responses were not stored",
            "the reasons are above; if the file is cut off or damaged, copy it again: the stored responses stay",
        )),
    }
}

fn unpack_one(path: &Path, admin: AdminFlags) -> Result<Value, Failure> {
    let cannot = |error: io::Error| {
        Failure::runtime(format!("cannot read {}: {error}", path.display()), "give a file written by larder pack")
    };
    let mut file = File::open(path).map_err(cannot)?;
    let data = file.metadata().map_err(cannot)?;
    if !data.is_file() {
        return Err(cannot(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")));
    }
    let shown = ProgressLine::new("unpacking");
    let of = data.len();
    let mut counted = CountedFile { file: &mut file, shown: &shown, of };
    let sent = SentBody { len_bytes: of, reader: &mut counted };
    let done = admin_client::converse(admin, "UNPACK /", sent, &mut |told| {
        if let ProgressEvent::Line(line) = told {
            tell_left_out("not stored", line);
        }
        Ok(())
    });
    shown.finish();
    done
}

/// A file that is being sent, and the number of bytes sent so far.
struct CountedFile<'a> {
    file: &'a mut File,
    shown: &'a ProgressLine,
    of: u64,
}

impl Read for CountedFile<'_> {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(target)?;
        self.shown.advance(count as u64, self.of);
        Ok(count)
    }
}

/// Returns the body of the request to pack: a line of JSON with the options, then the patterns.
fn packing_request(flags: &PackFlags) -> Result<String, Failure> {
    let mut patterns = commands::pin::patterns(&flags.sources)?;
    for server in flags.mirror.iter().flat_map(|registry| registry.servers) {
        patterns.push(below(server.url)?);
    }
    if flags.all {
        patterns.push(below("*")?);
    }
    let before = |age: Duration| {
        let moment = SystemTime::now().checked_sub(age)?;
        i64::try_from(moment.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_millis()).ok()
    };
    let gzip = flags.file.extension().is_some_and(|extension| extension == "gz");
    let wanted = json!({ "gzip": gzip, "since": flags.newer.and_then(before), "until": flags.older.and_then(before) });
    let lines: String = patterns.iter().map(|pattern| format!("{pattern}\n")).collect();
    Ok(format!("{wanted}\n{lines}"))
}

/// Returns a pattern for all URLs below `url`.
fn below(url: &str) -> Result<UrlPattern, Failure> {
    crate::commands::url_list::pattern(&format!("{}/*", url.trim_end_matches('/')))
}

fn tell_left_out(what: &str, line: &Value) {
    let text = |name: &str| line["left_out"][name].as_str().unwrap_or_default().to_owned();
    match (text("url"), text("why")) {
        (url, why) if url.is_empty() => tell!("{what}: {why}"),
        (url, why) => tell!("{what}: {url}: {why}"),
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

//! Compares larder-wire's reading of HTTP/1.1 with hyper's.
//!
//! Each stream is read by hyper in one piece, octet by octet, and in two pieces, and by larder-wire in these ways and
//! in every two pieces. Fails if larder-wire's reading depends on the pieces, if it takes more steps than its bound, or
//! if the two readers differ in a way that no clause of `differences` explains.
//!
//! ```text
//! cargo run --release --manifest-path fuzz/oracle/Cargo.toml -- [OCTETS] [SEED]
//! ```

mod differences;
mod generate;
mod hyper_reading;
mod transcript;
mod wire;

use std::{collections::BTreeMap, env, panic, process::ExitCode};

use larder_device::SplitMix64;
use larder_http::steps;

use crate::{
    differences::Verdict,
    transcript::{BodyEnd, Transcript},
    wire::{Side, WireReading},
};

fn main() -> ExitCode {
    let mut numbers = env::args().skip(1).map(|argument| argument.replace('_', "").parse());
    let (Ok(octets), Ok(seed)) = (numbers.next().unwrap_or(Ok(OCTETS)), numbers.next().unwrap_or(Ok(1))) else {
        eprintln!("usage: larder-oracle [OCTETS] [SEED]");
        return ExitCode::from(2);
    };
    let outcome = compare(octets, seed);
    outcome.print();
    if outcome.unexplained.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What was found in all streams.
#[derive(Default)]
struct Outcome {
    octets: u64,
    streams: u64,
    messages: u64,
    /// Streams in which both readers understood the same to the end.
    equal: u64,
    /// Streams by the clause that explains their difference.
    explained: BTreeMap<&'static str, u64>,
    /// Descriptions of differences that nothing explains.
    unexplained: Vec<String>,
    steps: u64,
}

fn compare(octets: u64, seed: u64) -> Outcome {
    let mut random = SplitMix64::new(seed);
    let mut outcome = Outcome::default();
    while outcome.octets < octets && outcome.unexplained.len() < UNEXPLAINED_MAX {
        let side = match random.below(6) {
            0 | 1 => Side::Origin { is_head: false },
            2 => Side::Origin { is_head: random.below(4) == 0 },
            _ => Side::Client,
        };
        let stream = generate::stream(side, &mut random);
        outcome.octets += stream.len() as u64;
        outcome.streams += 1;
        judge(side, &stream, &mut random, &mut outcome);
    }
    outcome
}

fn judge(side: Side, stream: &[u8], random: &mut SplitMix64, outcome: &mut Outcome) {
    let before = steps::total();
    let read_whole = || steps::bounded(stream.len(), || wire::read(side, [stream]));
    let Ok(whole) = panic::catch_unwind(read_whole) else {
        return outcome.note(side, stream, "larder-wire panics or takes too many steps");
    };
    outcome.steps += steps::total() - before;
    outcome.messages += whole.transcript.messages.len() as u64;
    if let Some(why) = split_everywhere(side, stream, &whole, random) {
        return outcome.note(side, stream, &why);
    }
    let at = random.below(stream.len() as u64 + 1) as usize;
    let by_hyper = |pieces: &[&[u8]]| hyper_reading::read(side, pieces.iter().copied());
    let oracle = by_hyper(&[stream]);
    let octets: Vec<&[u8]> = stream.chunks(1).collect();
    for pieces in [&octets[..], &[&stream[..at], &stream[at..]]] {
        if !is_same_in(pieces, stream, &oracle, by_hyper) {
            // Nothing can be learned from an oracle that depends on the pieces itself.
            *outcome.explained.entry("hyper's own reading depends on the pieces").or_default() += 1;
            return;
        }
    }
    match differences::judge(side, stream, &whole, &oracle) {
        Verdict::Equal => outcome.equal += 1,
        Verdict::Explained(clause) => *outcome.explained.entry(clause).or_default() += 1,
        Verdict::Unexplained(why) => {
            outcome.note(side, stream, &format!("{why}\n  wire  {:?}\n  hyper {oracle:?}", whole.transcript))
        }
    }
}

/// Reads a stream in pieces. Returns what depends on them.
fn split_everywhere(side: Side, stream: &[u8], whole: &WireReading, random: &mut SplitMix64) -> Option<String> {
    let octets: Vec<&[u8]> = stream.chunks(1).collect();
    let by_octet = panic::catch_unwind(|| steps::bounded(stream.len(), || wire::read(side, octets.iter().copied())));
    if by_octet.is_err() {
        return Some("larder-wire panics or takes too many steps by octets".to_owned());
    }
    let by_wire = |pieces: &[&[u8]]| wire::read(side, pieces.iter().copied()).transcript;
    let step = stream.len().div_ceil(SPLITS_MAX).max(1);
    let first = random.below(step as u64) as usize;
    let splits = (first..stream.len()).step_by(step).map(|at| vec![&stream[..at], &stream[at..]]);
    let mut ways = std::iter::once(octets).chain(splits);
    let differing = ways.find(|pieces| !is_same_in(pieces, stream, &whole.transcript, by_wire))?;
    let lens: Vec<usize> = differing.iter().map(|piece| piece.len()).collect();
    Some(format!("in pieces of {lens:?}: {:?}\n  whole {:?}", by_wire(&differing), whole.transcript))
}

/// Returns whether a reader understands a stream in pieces as it does in one piece.
fn is_same_in(pieces: &[&[u8]], stream: &[u8], whole: &Transcript, read: impl Fn(&[&[u8]]) -> Transcript) -> bool {
    let split = read(pieces);
    if alike(&split, whole) {
        return true;
    }
    // A faulty head may be refused before it is whole, or only then.
    let end = &b"\r\n\r\n"[..];
    has_refused(&split) != has_refused(whole) && alike(&read(&[pieces, &[end]].concat()), &read(&[stream, end]))
}

fn has_refused(transcript: &Transcript) -> bool {
    transcript.fault().is_some()
}

/// Returns whether two readings are the same. The reason of a refusal may depend on how much had arrived.
fn alike(one: &Transcript, other: &Transcript) -> bool {
    let without_reason = |transcript: &Transcript| {
        let mut transcript = transcript.clone();
        transcript.refusal = transcript.refusal.map(|_| String::new());
        if let Some(last) = transcript.messages.last_mut()
            && matches!(last.end, BodyEnd::Refused(_))
        {
            last.end = BodyEnd::Refused(String::new());
        }
        transcript
    };
    one == other || without_reason(one) == without_reason(other)
}

impl Outcome {
    fn note(&mut self, side: Side, stream: &[u8], why: &str) {
        let text = stream.escape_ascii().to_string();
        self.unexplained.push(format!("{side:?}: {}\n  {why}", text.chars().take(TEXT_MAX).collect::<String>()));
    }

    fn print(&self) {
        println!("{} octets in {} streams, {} messages", self.octets, self.streams, self.messages);
        println!(
            "{:.2} steps an octet, at most {} in each stream",
            self.steps as f64 / self.octets as f64,
            steps::PER_OCTET_MAX
        );
        println!("{:>9}  read alike to the end", self.equal);
        for (clause, count) in &self.explained {
            println!("{count:>9}  {clause}");
        }
        println!("{:>9}  unexplained", self.unexplained.len());
        for why in &self.unexplained {
            println!("\n{why}");
        }
    }
}

/// Octets that are read without an argument.
const OCTETS: u64 = 1_000_000;
/// Differences after which the comparison ends.
const UNEXPLAINED_MAX: usize = 10;
/// Maximum number of positions at which a stream is split in two. Nearly all streams are shorter.
const SPLITS_MAX: usize = 600;
/// Maximum number of characters of a stream that are printed.
const TEXT_MAX: usize = 2_000;

//! `larder sim cluster`: computes the shares of a cluster's nodes, with the program's own function for the owner of a
//! key.

use super::{OutputFlags, Progress, show, source::parse_count};
use crate::ground::{failure::Failure, value::BadValue};
use clap::Args;
use larder_sim::ClusterTest;

const EXAMPLES: &str = "\
Examples:
  larder sim cluster --nodes 3
  larder sim cluster --nodes 1000 --keys 1e9
  larder sim cluster --nodes 100 --zipf 0.7 --kept 100";

/// The flags of `larder sim cluster`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ClusterFlags {
    /// Number of nodes, up to 65000
    #[arg(long, value_name = "COUNT", default_value = "10", value_parser = parse_count)]
    nodes: u64,

    /// Number of keys, such as 1000000 or 1e9
    #[arg(long, value_name = "COUNT", default_value = "1e7", value_parser = parse_keys)]
    keys: u64,

    /// Exponent of Zipf's law: 0 requests all keys equally often, 1 the popular ones much more often
    #[arg(long, value_name = "EXPONENT", default_value = "0.9", value_parser = parse_exponent)]
    zipf: f64,

    /// Number of the most popular keys that every node keeps
    #[arg(long, value_name = "COUNT", default_value = "1000", value_parser = parse_kept)]
    kept: u64,

    /// Number of cases in which one node leaves, and in which one joins
    #[arg(long, value_name = "COUNT", default_value = "4", value_parser = parse_count)]
    moves: u64,

    #[command(flatten)]
    output: OutputFlags,
}

pub(super) fn run(flags: &ClusterFlags) -> Result<(), Failure> {
    flags.output.prepare()?;
    let count = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
    let test = ClusterTest {
        node_count: count(flags.nodes),
        key_count: flags.keys,
        exponent: flags.zipf,
        kept_count: flags.kept,
        move_count: count(flags.moves),
        jobs: flags.output.jobs(),
    };
    if test.node_count > NODES_MAX {
        return Err(Failure::usage(format!("too many nodes: {}", flags.nodes), "give up to 65,000"));
    }
    let shown = Progress::new("hashing");
    let ran = test.run(&|count, of| shown.advance(count, of));
    shown.finish();
    let report = ran.map_err(|error| Failure::usage(error.to_string(), "give --nodes from 1 to 65000"))?;
    show(&report, &flags.output)
}

fn parse_keys(text: &str) -> Result<u64, BadValue> {
    let count = text.parse::<f64>().ok().filter(|count| count.fract() == 0.0 && (1.0..=KEYS_MAX).contains(count));
    count
        .map(|count| count as u64)
        .ok_or_else(|| BadValue::new(format!("not a count of keys: `{text}`"), "give 1 to 1e10, such as 1e9"))
}

fn parse_exponent(text: &str) -> Result<f64, BadValue> {
    let exponent = text.parse().ok().filter(|exponent| (0.0..=2.0).contains(exponent));
    exponent.ok_or_else(|| BadValue::new(format!("not an exponent: `{text}`"), "give a number from 0 to 2"))
}

fn parse_kept(text: &str) -> Result<u64, BadValue> {
    let count = text.parse().ok().filter(|count| *count <= KEPT_MAX);
    count.ok_or_else(|| BadValue::new(format!("not a count of kept keys: `{text}`"), "give 0 to 5000"))
}

/// Maximum number of nodes. It leaves room for the node that joins.
const NODES_MAX: usize = 65_000;
/// Maximum number of keys. With more, the count of keys in one slot of the table could overflow.
const KEYS_MAX: f64 = 1e10;
/// Maximum number of kept keys. The simulation counts each of them separately, with its own weight.
const KEPT_MAX: u64 = 5000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_whole_and_within_their_limits() {
        assert_eq!(["1", "1e9", "200000"].map(|text| parse_keys(text).unwrap()), [1, 1_000_000_000, 200_000]);
        assert!(["0", "1.5", "1e11", "-1", "nan", "x"].into_iter().all(|text| parse_keys(text).is_err()));
        assert!(parse_exponent("0.9").is_ok() && parse_exponent("-1").is_err() && parse_exponent("nan").is_err());
        assert!(parse_kept("5000").is_ok() && parse_kept("5001").is_err());
    }
}

//! Parses the value of `--sweep`: sizes of the store or of the memory cache, or shares of the store in use.

use crate::ground::{size, value::BadValue};
use larder_sim::Steps;

/// Distance between two shares in a range, in percent.
const SHARE_STEP: u64 = 5;

/// Parses the value of `--sweep`: a list such as `size=100GB,1TB`, or a range such as `size=100GB..4TB`. The sizes in a
/// range double up to and including the last.
///
/// `memory-cache` takes sizes, too. `utilization` takes shares in percent, which rise by [`SHARE_STEP`] in a range.
pub(super) fn parse(text: &str) -> Result<Steps, BadValue> {
    let bad = || BadValue::new(format!("not a sweep: `{text}`"), HELP);
    let (what, steps) = text.split_once('=').ok_or_else(bad)?;
    match what {
        "size" => sizes(steps).map(Steps::Disk),
        "memory-cache" => sizes(steps).map(Steps::Memory),
        "utilization" => shares(steps).map(Steps::Utilization),
        _ => Err(bad()),
    }
}

const HELP: &str = "give size=FROM..TO or memory-cache=FROM..TO with two sizes, such as size=100GB..4TB; \
                    utilization=FROM..TO with two percentages, such as utilization=50..95; or a list, such as \
                    size=100GB,1TB";

fn sizes(text: &str) -> Result<Vec<u64>, BadValue> {
    let size = |text: &str| {
        let size = size::parse(text)?;
        (size > 0)
            .then_some(size)
            .ok_or_else(|| BadValue::new("size out of range", "the sizes of a sweep must be above 0"))
    };
    steps(text, size, |before| before.checked_mul(2))
}

fn shares(text: &str) -> Result<Vec<u64>, BadValue> {
    let share = |text: &str| {
        let share = text.strip_suffix('%').unwrap_or(text).parse().ok().filter(|share| (1..=99).contains(share));
        share.ok_or_else(|| {
            BadValue::new(format!("not a share of a store: `{text}`"), "give whole percentages from 1 to 99")
        })
    };
    steps(text, share, |before| before.checked_add(SHARE_STEP))
}

fn steps(
    text: &str,
    parse: impl Fn(&str) -> Result<u64, BadValue>,
    next: impl Fn(&u64) -> Option<u64>,
) -> Result<Vec<u64>, BadValue> {
    let Some((from, to)) = text.split_once("..") else {
        let mut listed = text.split(',').map(parse).collect::<Result<Vec<_>, _>>()?;
        listed.sort_unstable();
        listed.dedup();
        return Ok(listed);
    };
    let from = parse(from)?;
    let to = parse(to)?;
    if from > to {
        return Err(BadValue::new(format!("the sweep goes backwards: `{text}`"), HELP));
    }
    Ok(std::iter::successors(Some(from), next).take_while(|step| *step < to).chain([to]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_has_steps_and_ends_where_it_is_told() {
        let gigabytes = |sizes: &[u64]| sizes.iter().map(|size| size * 1_000_000_000).collect::<Vec<_>>();
        assert_eq!(parse("size=100GB..1TB").unwrap(), Steps::Disk(gigabytes(&[100, 200, 400, 800, 1000])));
        assert_eq!(parse("memory-cache=5GB,1GB,5GB").unwrap(), Steps::Memory(gigabytes(&[1, 5])));
        assert_eq!(parse("utilization=80..91").unwrap(), Steps::Utilization(vec![80, 85, 90, 91]));
        assert_eq!(parse("utilization=71%").unwrap(), Steps::Utilization(vec![71]));
        for (bad, told) in [
            ("100GB..1TB", "not a sweep"),
            ("disk=1GB..2GB", "not a sweep"),
            ("size=", "not a size"),
            ("size=2TB..1TB", "goes backwards"),
            ("size=0..1TB", "size out of range"),
            ("size=1XB..2TB", "unknown unit"),
            ("utilization=50..100", "not a share of a store: `100`"),
            ("utilization=0.5", "not a share of a store: `0.5`"),
        ] {
            let error = parse(bad).unwrap_err().problem;
            assert!(error.contains(told), "{bad}: {error}");
        }
    }
}

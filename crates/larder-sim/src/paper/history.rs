//! The history of the account: its counts after each change of the models or of the account.
//!
//! Owns: `papers/history.tsv`, and the hash of the files that the results depend on. Invariant: the last entry has the
//! hash of the present models and the counts of the page that is published; a test checks this, so that a changed model
//! cannot keep an old account.

use super::{beds, ranges};
use crate::{MODELS, Table};

static HISTORY: &str = include_str!("../../papers/history.tsv");

/// Returns a hash of all machines, test beds and ranges: 64-bit FNV-1a of their names and texts.
pub(super) fn models_hash() -> u64 {
    let files =
        MODELS.iter().flat_map(|(name, text)| [*name, *text]).chain(["beds", beds::TEXT, "ranges", ranges::TEXT]);
    let bytes = files.flat_map(|text| text.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Returns a table of the history, with the oldest entry first.
pub(super) fn table() -> Table {
    let columns = ["models, what changed", "claims compared", "within 25%", "predicted"];
    let mut table = Table::new("History of the account", &columns);
    for (hash, counts, what) in entries() {
        table.push(format!("{hash}: {what}"), counts.to_vec());
    }
    table
}

/// Returns the entries of the history. Each has the hash of the models, the numbers of claims compared, met and
/// predicted, and what was changed.
fn entries() -> impl Iterator<Item = (&'static str, [f64; 3], &'static str)> {
    HISTORY.lines().skip(1).map(|line| {
        let fields: Vec<_> = line.split('\t').collect();
        let [hash, compared, met, predicted, what] = fields[..] else { panic!("not an entry of the history: {line}") };
        let count = |text: &str| text.parse().unwrap_or_else(|_| panic!("not a count in the history: {text}"));
        (hash, [count(compared), count(met), count(predicted)], what)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guards against a published account that belongs to earlier models.
    #[test]
    fn history_ends_with_the_models_and_the_page_there_are() {
        let (hash, [compared, met, predicted], _) = entries().last().unwrap();
        assert_eq!(hash, format!("{:016x}", models_hash()), "the models changed: run the account and add its counts");
        let counts = format!("{compared} are compared, {met} agree within 25% in all their rows, and {predicted} is");
        let sentence = format!("**Of 74 claims, {counts} predicted.**");
        let page = include_str!("../../../../docs/internals/laboratory.md");
        assert!(page.contains(&sentence), "the page does not begin with: {sentence}");
    }
}

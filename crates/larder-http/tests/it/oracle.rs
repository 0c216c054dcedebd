//! Compares Larder on random exchanges with `http-cache-semantics`, an independent implementation of the RFCs.
//!
//! Where the two read the RFCs differently, `differences` translates a message into one that means the same to the
//! other crate. Any remaining difference is a bug in one of the two. `tests/differences.txt` lists each translation
//! with its clause, and an example shows that each is needed.

mod case;
mod differences;
mod validators;

use case::{Case, any_case};
use differences::{DIFFERENCES, Difference, translated};
use proptest::prelude::*;

/// The list that docs/internals/conformance.md shows: name, clause, Larder, the oracle, why.
const LISTED: &str = include_str!("../differences.txt");

fn check(case: &Case) {
    let ours = case.ours();
    let theirs = translated(case).theirs();
    assert_eq!(ours, theirs, "Larder left, oracle right\n{case:#?}\ntranslated {:#?}", translated(case));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, ..ProptestConfig::default() })]

    #[test]
    fn larder_and_the_oracle_agree_but_for_the_listed_differences(case in any_case()) {
        check(&case);
    }
}

#[test]
fn every_listed_difference_shows_in_its_example_and_is_settled_by_its_translation() {
    for Difference { name, example, .. } in DIFFERENCES {
        let case = example();
        assert_ne!(case.ours(), case.theirs(), "{name} makes no difference: {case:#?}");
        check(&case);
    }
}

#[test]
fn differences_are_listed_with_their_clauses_and_only_those() {
    let listed: Vec<_> = LISTED.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    let names: Vec<_> = listed.iter().map(|line| line.split(" | ").next().unwrap_or_default()).collect();
    let known: Vec<_> = DIFFERENCES.iter().map(|difference| difference.name).chain(validators::NAMES).collect();
    assert_eq!(names, known);
    assert!(listed.iter().all(|line| line.split(" | ").count() == 5), "name | clause | Larder | oracle | why");
}

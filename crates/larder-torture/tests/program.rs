//! Runs the program on schedules of all policies under all kinds of faults, ten rounds of each. The gate runs it as
//! this test, because a separate build of the program would compile most of its dependencies a second time.

use std::process::Command;

#[test]
fn the_first_3000_seeds_of_values_keep_the_laws() {
    expect_lawful("values", 3000);
}

#[test]
fn the_first_1000_seeds_of_responses_keep_the_laws() {
    expect_lawful("responses", 1000);
}

#[test]
fn the_first_2310_seeds_keep_the_law() {
    expect_lawful("store", 2310);
}

/// Runs the first seeds of a face.
fn expect_lawful(face: &str, seeds: u64) {
    let arguments = ["--face", face, "--seeds", &seeds.to_string()];
    let run = Command::new(env!("CARGO_BIN_EXE_larder-torture")).args(arguments).output().expect("the program starts");
    let told = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{told}{}", String::from_utf8_lossy(&run.stderr));
    assert!(told.contains(&format!("{seeds} of {seeds} seeds in")), "{told}");
}

//! Runs the program on schedules of all policies under all kinds of faults, ten rounds of each. The gate runs it as
//! this test, because a separate build of the program would compile most of its dependencies a second time.

use std::process::Command;

#[test]
fn the_first_3000_seeds_of_values_keep_the_laws() {
    let arguments = ["--face", "values", "--seeds", "3000"];
    let run = Command::new(env!("CARGO_BIN_EXE_larder-torture")).args(arguments).output().unwrap();
    let told = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{told}{}", String::from_utf8_lossy(&run.stderr));
    assert!(told.contains("3000 of 3000 seeds in"), "{told}");
}

#[test]
fn the_first_2310_seeds_keep_the_law() {
    let run = Command::new(env!("CARGO_BIN_EXE_larder-torture")).args(["--seeds", "2310"]).output().unwrap();
    let told = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{told}{}", String::from_utf8_lossy(&run.stderr));
    assert!(told.contains("2310 of 2310 seeds in"), "{told}");
}

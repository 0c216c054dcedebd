//! The program as the gate runs it: schedules of all rows under all kinds of faults, two rounds of them. A program of its own in the gate
//! would be compiled, with most of what it needs, a second time.

use std::process::Command;

#[test]
fn the_first_512_seeds_keep_the_law() {
    let run = Command::new(env!("CARGO_BIN_EXE_larder-torture")).args(["--seeds", "512"]).output().unwrap();
    let told = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{told}{}", String::from_utf8_lossy(&run.stderr));
    assert!(told.contains("512 seeds in"), "{told}");
}

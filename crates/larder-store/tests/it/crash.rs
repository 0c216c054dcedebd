//! Checks that, wherever the machine stops, the store opens again and shows nothing that was not stored. Every policy's
//! workload is stopped at every single transfer, part of which reaches the device, by a kill and by a power loss. Every
//! other time, the recovery is stopped too.

use larder_store::Policy;
use larder_torture::{Crash, Operation, Tally, Trial, faults, options};

/// Returns operations that fill a small store and include every kind.
fn workload() -> Vec<Operation> {
    let mut operations = Vec::new();
    for round in 0..120_u64 {
        let key = (round * round + round / 3) % 20;
        operations.push(match round % 16 {
            3 => Operation::Remove { key },
            7 => Operation::Sync,
            11 => Operation::UpdateHead { key },
            13 => Operation::Wait { milliseconds: 6_500 },
            14 => Operation::Read { key },
            15 if round % 64 == 15 => Operation::Clear,
            15 if round % 64 == 47 => Operation::Reopen,
            _ => Operation::Insert { key, body_bytes: round * 6151 % 50_000, short_lived: false },
        });
    }
    operations
}

/// Stops the workload after `count` transfers. Returns `None` if the workload ended before that.
fn check_stop(policy: &'static Policy, how: Crash, count: u64) -> Result<Option<Tally>, String> {
    let mut trial = Trial::new(options(policy, 1), &faults::named("none").expect("it is there"), count)?;
    trial.die_after(count);
    for operation in workload() {
        trial.step(operation)?;
        if trial.is_dead() {
            break;
        }
    }
    let is_cut = trial.is_dead();
    let again_after = (count % 2 == 1).then_some(count / 2 % 30);
    trial.step(Operation::Crash { how, again_after })?;
    trial.check_all()?;
    let found = trial.tally();
    // And it works on.
    trial.step(Operation::Insert { key: 1000, body_bytes: 5000, short_lived: false })?;
    trial.step(Operation::Wait { milliseconds: 6_500 })?;
    trial.step(Operation::Reopen)?;
    trial.check_all()?;
    Ok(is_cut.then_some(found))
}

#[test]
fn a_store_cut_at_any_transfer_opens_clean() {
    for policy in Policy::all() {
        for how in [Crash::Kill, Crash::PowerCut] {
            let mut total = Tally::default();
            let mut count = 0;
            while let Some(tally) =
                check_stop(policy, how, count).unwrap_or_else(|broken| panic!("{policy}, {how:?} at {count}: {broken}"))
            {
                total += tally;
                count += 1;
            }
            println!("{policy}: {how:?} at each of {count} transfers: {total}");
            assert!(count > 30, "row {policy} has something to be cut");
            assert!(total.hits > count, "row {policy} finds something");
        }
    }
}

/// Runs the workload with transfer `number` failing, then kills the store and checks it. Returns whether there was such
/// a transfer.
fn check_failure(policy: &'static Policy, number: u64) -> Result<bool, String> {
    let mut faults = faults::named("none").expect("it is there");
    faults.plan.error_at = Some(number);
    let mut trial = Trial::new(options(policy, 1), &faults, 1)?;
    workload().into_iter().try_for_each(|operation| trial.step(operation))?;
    trial.step(Operation::Crash { how: Crash::Kill, again_after: None })?;
    trial.check_all()?;
    Ok(trial.tally().faults > 0)
}

/// Guards against a call that treats a failed transfer as done. Every fifth of a policy's transfers fails, each alone;
/// with `LARDER_FAILURES=every`, every one.
#[test]
fn the_law_holds_whichever_transfer_fails() {
    let step = if std::env::var("LARDER_FAILURES").is_ok_and(|which| which == "every") { 1 } else { 5 };
    for policy in Policy::all() {
        let fails = |number| {
            check_failure(policy, number).unwrap_or_else(|broken| panic!("{policy}, transfer {number}: {broken}"))
        };
        // The first transfers create the store. No faults occur before that is done.
        let first = (0..100).find(|&number| fails(number)).expect("a workload has transfers");
        let failed = 1 + (1..).take_while(|times| fails(first + times * step)).count() as u64;
        println!("{policy}: one of {} transfers failed, {failed} times", failed * step);
        assert!(failed * step > 30, "row {policy} has something that can fail");
    }
}

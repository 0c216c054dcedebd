//! Named kinds of faults, for schedules and for developers who repeat one.

use larder_device::FaultPlan;

/// A named kind of faults that a test device or the engine has.
#[derive(Clone, Debug)]
pub struct Faults {
    /// The name as given to `--faults`.
    pub name: &'static str,
    /// Description of the faults in a few words.
    pub about: &'static str,
    /// The faults of the device, and their rates.
    pub plan: FaultPlan,
    /// Whether one more operation of the device fails. The seed chooses the operation.
    pub fails_once: bool,
    /// Whether the engine panics once, in an operation that the seed chooses.
    pub panics_once: bool,
}

/// Returns all kinds of faults. The first two, `none` and `slow`, harm nothing.
pub fn all() -> Vec<Faults> {
    let harmless = FaultPlan { slow_transfers_ppm: 400_000, short_transfers_ppm: 100_000, ..FaultPlan::default() };
    let often = 20_000;
    let with = |name, about, plan| Faults { name, about, plan, fails_once: false, panics_once: false };
    vec![
        with("none", "transfers complete at once", FaultPlan::default()),
        with("slow", "transfers complete late, in any order and in pieces", harmless.clone()),
        with(
            "torn",
            "writes land in part and are acknowledged",
            FaultPlan { torn_writes_ppm: often, ..harmless.clone() },
        ),
        with(
            "lost",
            "writes never land and are acknowledged",
            FaultPlan { lost_writes_ppm: often, ..harmless.clone() },
        ),
        with(
            "misdirected",
            "transfers go to another place",
            FaultPlan { misdirected_writes_ppm: often, misdirected_reads_ppm: often, ..harmless.clone() },
        ),
        with(
            "flipped",
            "single bits are wrong, on the medium or on the way",
            FaultPlan { flipped_writes_ppm: often, flipped_reads_ppm: often, ..harmless.clone() },
        ),
        with(
            "errors",
            "transfers fail",
            FaultPlan { write_errors_ppm: often, read_errors_ppm: often, sync_errors_ppm: often, ..harmless.clone() },
        ),
        with(
            "syncs",
            "syncs fail and lose what was written since the last good one",
            FaultPlan { sync_losses_ppm: 5 * often, ..harmless.clone() },
        ),
        with("full", "after a while nothing can be written", FaultPlan { full_after: Some(150), ..harmless.clone() }),
        with("dead", "after a while nothing works", FaultPlan { dead_after: Some(250), ..harmless.clone() }),
        Faults { fails_once: true, ..with("once", "one transfer fails", harmless.clone()) },
        with("all", "everything but the end of the device", everything(harmless.clone())),
        Faults { panics_once: true, ..with("panics", "the engine panics once, as at a failed assertion", harmless) },
    ]
}

/// Returns the kind of faults with the name `name`, or `None` if there is none.
pub fn named(name: &str) -> Option<Faults> {
    all().into_iter().find(|faults| faults.name == name)
}

fn everything(harmless: FaultPlan) -> FaultPlan {
    let rare = 5_000;
    FaultPlan {
        torn_writes_ppm: rare,
        lost_writes_ppm: rare,
        misdirected_writes_ppm: rare,
        flipped_writes_ppm: rare,
        write_errors_ppm: rare,
        misdirected_reads_ppm: rare,
        flipped_reads_ppm: rare,
        read_errors_ppm: rare,
        sync_errors_ppm: rare,
        ..harmless
    }
}

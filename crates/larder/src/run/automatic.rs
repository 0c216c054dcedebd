//! Chooses the policy for `--policy auto`: the one that a plan recommends for this disk and memory.
//!
//! Owns: the facts about the disk that need no measurement (whether it rotates), and the line that names the choice.
//! `larder_store::plan` plans. An existing store keeps its policy.

use crate::{
    ground::{failure::Failure, size},
    run::report,
    settings::{RunSettings, memory_plan, store_path, tuning::PolicyChoice, volumes},
};
use larder_store::{
    PathContent, Policy, inspect,
    plan::{DeviceFigures, Plan, PlanWishes, Sizes},
};
use std::{
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::Path,
};

/// Replaces the policy `auto` in the settings by the one that a plan recommends. Returns a line that names it and the
/// reason.
///
/// Returns `None` if the policy is not `auto`.
///
/// # Errors
/// The store's path cannot be used, or the memory is too small for every policy.
pub(crate) fn choose(settings: &mut RunSettings) -> Result<Option<String>, Failure> {
    if settings.store.policy != Some(PolicyChoice::Auto) {
        return Ok(None);
    }
    let memory_bytes = memory_plan::index_and_cache_bytes(settings)?;
    let store = &mut settings.store;
    store.policy = None;
    let mut size_bytes = 0;
    let mut first = None;
    for (index, disk) in store.disks.iter().enumerate() {
        let Some(path) = store_path::find(disk, None)? else { continue };
        let content = inspect(&path).unwrap_or(PathContent::Nothing);
        if let PathContent::Store(info) = &content {
            let row = info.policy.map_or("unknown to this version", |policy| policy.name);
            return Ok(Some(format!("auto: {row}, the policy of the existing store")));
        }
        size_bytes += volumes::options_of(&path, &content, store, index).size_bytes;
        first.get_or_insert(path);
    }
    let Some(path) = first else { return Ok(None) };
    let spins = spins(&path);
    let figures = if spins { DeviceFigures::typical_spinning() } else { DeviceFigures::typical_solid_state() };
    let mut wishes = PlanWishes::new(size_bytes, memory_bytes);
    wishes.sizes = Sizes::Mean(store.mean_entry_bytes(size_bytes) as f64);
    wishes.tuning = store.tuning.clone();
    wishes.set_constants = store.set_constants.clone();
    wishes.chooses_constants = true;
    let plan = Plan::new(&wishes, &figures);
    let chosen = plan.rows.iter().find(|row| Some(row.policy) == plan.recommended);
    let Some((chosen, row)) = chosen.and_then(|chosen| Some((chosen, Policy::named(chosen.policy)?))) else {
        let help = "give more memory with --memory, or choose a policy with --policy";
        return Err(Failure::usage(format!("no policy fits this disk and memory: {}", plan.reason), help));
    };
    store.policy = Some(PolicyChoice::Row(row));
    store.tuning = chosen.tuning.clone();
    let rate = report::rate(chosen.requests_per_second);
    let index = size::show(chosen.index_bytes as u64);
    let basis = "(figures of";
    let constants: String = chosen.constants.iter().map(|constant| format!(", {constant}")).collect();
    Ok(Some(format!(
        "auto: {row}{constants}, about {rate} requests/s from the store, {index} for its index: {} {basis} {}; larder plan --measure measures this one)",
        plan.reason, plan.device
    )))
}

/// Returns whether the disk under `path` rotates, as far as the kernel knows.
pub(crate) fn spins(path: &Path) -> bool {
    let existing = path.ancestors().find_map(|place| fs::metadata(place).ok()).or_else(|| fs::metadata(".").ok());
    let Some(metadata) = existing else { return false };
    let number = if metadata.file_type().is_block_device() { metadata.rdev() } else { metadata.dev() };
    let major = rustix::fs::major(number);
    let minor = rustix::fs::minor(number);
    // A partition has no queue directory, but its disk has one, in the parent directory.
    ["queue", "../queue"].iter().any(|queue| {
        let said = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/{queue}/rotational"));
        said.is_ok_and(|said| said.trim() == "1")
    })
}

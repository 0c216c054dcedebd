//! Judges the events of a cache: laws 10 and 12.

use super::super::plan::LawTally;
use super::model::{Model, Version, VersionOrigin};
use crate::content;
use larder_cache::CacheEvent;

/// Checks that what an event of the cache reports has happened (law 12), and notes the event in the model.
pub(super) fn note_event(model: &mut Model, tally: &mut LawTally, event: CacheEvent<'_>) {
    let find = |model: &Model, key: &[u8], len: u64| {
        let key = content::key_number(key);
        let found = model.versions.iter().find(|version| Some(version.key) == key && version.len == len);
        found.filter(|version| version.complete.is_some()).map(|version| version.number)
    };
    match event {
        CacheEvent::Stored { key, len_bytes } => match find(model, key, len_bytes) {
            Some(number) => model.settle(number, true),
            None => model.chronicle.break_law(format!("law 12: {len_bytes} bytes are stored that were never complete")),
        },
        CacheEvent::Fetched { key, len_bytes } if find(model, key, len_bytes).is_none() => {
            model.chronicle.break_law(format!("law 12: {len_bytes} bytes are fetched that were never complete"));
        }
        CacheEvent::NotAdmitted { key } => {
            let key = content::key_number(key);
            let is_open = |version: &&Version| {
                Some(version.key) == key
                    && version.origin == VersionOrigin::Fetched
                    && version.complete.is_some()
                    && version.settled.is_none()
            };
            let open: Vec<u64> = model.versions.iter().filter(is_open).map(|version| version.number).collect();
            let refused = open.iter().copied().find(|number| model.may_refuse(*number));
            match refused.or(open.first().copied()) {
                Some(number) => {
                    if refused.is_none() {
                        model.chronicle.break_law(format!("law 10: version {number} is not stored without a reason"));
                    }
                    model.settle(number, false);
                }
                None => model.chronicle.break_law("law 12: a value is not stored that was not fetched".to_owned()),
            }
        }
        CacheEvent::StoreFailed { error, .. }
            if model.chronicle.is_harmless && model.has_room() && !model.is_crowded() =>
        {
            model.chronicle.break_law(format!("law 10: the store fails although its device does not: {error}"));
        }
        CacheEvent::MemoryHit { key } | CacheEvent::DiskHit { key } => {
            tally.hits += 1;
            let key = content::key_number(key);
            if !model.versions.iter().any(|version| Some(version.key) == key && version.complete.is_some()) {
                model.chronicle.break_law("law 12: a hit on a key without a value".to_owned());
            }
        }
        _ => {}
    }
}

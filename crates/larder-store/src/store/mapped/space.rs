//! The layouts of the mapped rows, seen as one: places for records, and what they take.
//!
//! Owns: which layout a row has, and how full it may become. Does not: decide; each layout does.

use crate::{
    LayoutAxis, Tuning,
    device::Device,
    layout::{
        levels::{Levels, LevelsShape, Run},
        slots::Slots,
    },
    units::{SECTOR_BYTES, Sector},
};
use std::ops::Range;

/// The space of a volume.
pub(super) enum Space {
    Slots(Slots),
    Levels(Levels),
}

impl Space {
    /// All of `area` (bytes of the volume), free.
    pub(super) fn new(layout: LayoutAxis, area: Range<u64>, device: &dyn Device, tuning: &Tuning) -> Self {
        let (start, len_sectors) = (Sector(area.start / SECTOR_BYTES), (area.end - area.start) / SECTOR_BYTES);
        let alignment_bytes = u64::from(device.alignment_bytes());
        match layout {
            LayoutAxis::MultilevelBitmap => {
                let shape = LevelsShape {
                    block_bytes: tuning.esp_block_bytes.max(alignment_bytes),
                    level_count: tuning.esp_level_count,
                    threshold_bytes: tuning.esp_threshold_bytes,
                };
                Self::Levels(Levels::new(start, len_sectors, shape))
            }
            _ => Self::Slots(Slots::new(start, len_sectors, SECTOR_BYTES.max(alignment_bytes))),
        }
    }

    /// Takes room for a record; `None` if there is none in one piece.
    pub(super) fn take(&mut self, sectors: u64) -> Option<u64> {
        let place = match self {
            Self::Slots(slots) => slots.take(sectors),
            Self::Levels(levels) => levels.take(sectors),
        };
        place.map(|Sector(place)| place)
    }

    /// Takes the room of a record that lies at `place`, if that is free room.
    pub(super) fn take_at(&mut self, place: u64, sectors: u64) -> bool {
        match self {
            Self::Slots(slots) => slots.take_at(Sector(place), sectors),
            Self::Levels(levels) => levels.take_at(Sector(place), sectors),
        }
    }

    pub(super) fn free(&mut self, place: u64, sectors: u64) {
        match self {
            Self::Slots(slots) => slots.free(Sector(place), sectors),
            Self::Levels(levels) => levels.free(Sector(place), sectors),
        }
    }

    pub(super) fn point_at(&mut self, place: u64) {
        match self {
            Self::Slots(slots) => slots.point_at(Sector(place)),
            Self::Levels(levels) => levels.point_at(Sector(place)),
        }
    }

    pub(super) fn pointer(&self) -> u64 {
        match self {
            Self::Slots(slots) => slots.pointer().0,
            Self::Levels(levels) => levels.pointer().0,
        }
    }

    /// What a record takes, in sectors.
    pub(super) fn taken_by(&self, sectors: u64) -> u64 {
        match self {
            Self::Slots(slots) => slots.taken_by(sectors),
            Self::Levels(levels) => levels.taken_by(sectors),
        }
    }

    pub(super) fn capacity_sectors(&self) -> u64 {
        match self {
            Self::Slots(slots) => slots.capacity_sectors(),
            Self::Levels(levels) => levels.capacity_sectors(),
        }
    }

    /// How many sectors may be used at a time; more are made free by evicting. No bound where eviction is paced.
    pub(super) fn used_sectors_max(&self, tuning: &Tuning) -> u64 {
        match self {
            Self::Slots(slots) => slots.capacity_sectors() * u64::from(tuning.stream_used_percent) / 100,
            Self::Levels(_) => u64::MAX,
        }
    }

    /// The run of free blocks found last, in layouts that pace eviction by it.
    pub(super) fn last_run(&self) -> Option<Run> {
        match self {
            Self::Slots(_) => None,
            Self::Levels(levels) => levels.last_run(),
        }
    }

    /// Whether room in one piece is made by evicting until there is some.
    pub(super) fn makes_runs_by_evicting(&self) -> bool {
        matches!(self, Self::Slots(_))
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        match self {
            Self::Slots(slots) => slots.memory_bytes(),
            Self::Levels(levels) => levels.memory_bytes(),
        }
    }
}

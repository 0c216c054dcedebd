//! One interface to the layouts of the mapped policies: places for records, the room they take, and their positions.
//!
//! Owns: the choice of layout for each policy, and the limit on used space. Each layout makes the other decisions.

pub(crate) mod classes;
pub(crate) mod files;
pub(crate) mod levels;
pub(crate) mod slots;

use super::map::{MapPlace, PLACE_BITS};
use crate::{
    FileNaming, MappedRow,
    device::FileName,
    units::{SECTOR_BYTES, Sector, Site},
    volume::Volume,
};
use classes::SizeClasses;
use files::{DirectoryTurns, FileNames, FileStore};
use levels::{BlockLevels, FreeRun, LevelsShape};
use slots::SlotArea;

/// The space of a volume.
pub(super) enum Allocator {
    Slots {
        slots: SlotArea,
        used_sectors_max: u64,
    },
    Levels(BlockLevels),
    /// One file per length, and one file for each long record.
    Classes {
        classes: SizeClasses,
        /// The directories of long records' files: all in one, or one per site.
        long: [FileStore; 2],
        /// Whether new files go to the directory of their site.
        is_long_by_site: bool,
        used_sectors_max: u64,
    },
    /// One file for each record.
    Files {
        files: FileStore,
        used_sectors_max: u64,
    },
}

/// The present or future place of a record.
pub(super) enum RecordPlace {
    /// An offset in the volume, in bytes.
    Volume(u64),
    /// An offset in a file, in bytes.
    File(FileName, u64),
}

/// A way to make room for a record that found none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RoomRemedy {
    /// Evict any entry.
    AnyEntry,
    /// Evict entries of the same length.
    EntryOfLength,
    /// Nothing helps but waiting.
    Nothing,
}

/// The directory for the files of long entries, next to the files of slots.
const LONG_PREFIX: &str = "long";
/// Set in the place of a long record whose file is in its site's directory. So a volume finds its files whatever the
/// present setting.
const BY_SITE_BIT: u64 = 1;

/// Returns the directories that have the file of a long record at `place`.
fn long_files(long: &[FileStore; 2], place: MapPlace) -> &FileStore {
    &long[(place.0 & BY_SITE_BIT) as usize]
}

impl Allocator {
    /// Creates the allocator of a volume with all space free.
    pub(super) fn new(volume: &Volume, row: MappedRow) -> Self {
        let area = volume.shape.data_area();
        let tuning = &volume.options.tuning;
        let start = Sector(area.start / SECTOR_BYTES);
        let len_sectors = (area.end - area.start) / SECTOR_BYTES;
        let alignment_bytes = u64::from(volume.device.alignment_bytes());
        let block_bytes = volume.directory.as_ref().map_or(SECTOR_BYTES, |directory| directory.block_bytes().into());
        let block_sectors = (block_bytes / SECTOR_BYTES).max(1);
        let files_sectors = volume.shape.files_bytes() / SECTOR_BYTES;
        let files =
            |naming| Self::Files { files: FileStore::new(naming, block_sectors), used_sectors_max: files_sectors };
        match row {
            MappedRow::Bitmap => {
                let shape = LevelsShape {
                    block_bytes: tuning.esp_block_bytes.max(alignment_bytes),
                    level_count: tuning.esp_level_count,
                    threshold_bytes: tuning.esp_threshold_bytes,
                };
                Self::Levels(BlockLevels::new(start, len_sectors, shape))
            }
            MappedRow::Files(FileNaming::OneDirectory) => files(FileNames::OneDirectory),
            MappedRow::Files(FileNaming::RoundRobin) => {
                let entries = volume.size_bytes() / volume.options.mean_entry_bytes;
                files(FileNames::InTurn(DirectoryTurns::new(tuning.squid_directory_files, entries)))
            }
            MappedRow::Files(FileNaming::BySite) => files(FileNames::BySite),
            MappedRow::SizeClasses => Self::Classes {
                classes: SizeClasses::new(tuning.buddy_threshold_bytes / SECTOR_BYTES, files_sectors),
                long: [FileNames::OneDirectory, FileNames::BySite].map(|naming| FileStore::new(naming, block_sectors)),
                is_long_by_site: tuning.buddy_long_by_site,
                used_sectors_max: files_sectors * u64::from(tuning.buddy_used_percent) / 100,
            },
            MappedRow::Slots(_) => {
                let slots = SlotArea::new(start, len_sectors, SECTOR_BYTES.max(alignment_bytes));
                let used_sectors_max = slots.capacity_sectors() * u64::from(tuning.stream_used_percent) / 100;
                Self::Slots { slots, used_sectors_max }
            }
        }
    }

    /// Takes room for a record. Returns `None` if there is no contiguous room.
    pub(super) fn take(&mut self, sectors: u64, site: Site) -> Option<MapPlace> {
        assert!(sectors > 0, "a record takes room");
        let place = match self {
            Self::Slots { slots, .. } => slots.take(sectors)?.0,
            Self::Levels(levels) => levels.take(sectors)?.0,
            Self::Classes { classes, long, is_long_by_site, .. } => {
                let slot = classes.take(sectors)?;
                let is_by_site = *is_long_by_site && classes.is_long(sectors);
                if is_by_site { long[1].take(site) | BY_SITE_BIT } else { slot }
            }
            Self::Files { files, .. } => files.take(site),
        };
        assert!(place < 1 << PLACE_BITS, "the map has room for every place: {place}");
        Some(MapPlace(place))
    }

    /// Takes the room of an existing record at `place`, if it is free.
    pub(super) fn take_at(&mut self, place: MapPlace, sectors: u64) -> bool {
        let is_taken = match self {
            Self::Slots { slots, .. } => slots.take_at(Sector(place.0), sectors),
            Self::Levels(levels) => levels.take_at(Sector(place.0), sectors),
            Self::Classes { classes, long, .. } if classes.is_long(sectors) => {
                long_files(long, place).is_place(place.0) && classes.take_at(0, sectors)
            }
            Self::Classes { classes, .. } => classes.take_at(place.0, sectors),
            Self::Files { files, .. } => files.is_place(place.0),
        };
        assert!(!is_taken || place.0 < 1 << PLACE_BITS, "what is taken is a place: {place:?}");
        is_taken
    }

    pub(super) fn free(&mut self, place: MapPlace, sectors: u64) {
        assert!(sectors > 0, "what is freed took room");
        match self {
            Self::Slots { slots, .. } => slots.free(Sector(place.0), sectors),
            Self::Levels(levels) => levels.free(Sector(place.0), sectors),
            Self::Classes { classes, .. } => classes.free(place.0, sectors),
            Self::Files { .. } => {}
        }
    }

    /// Returns the position of the record that write `sequence` stores at `place`.
    pub(super) fn spot(&self, place: MapPlace, sectors: u64, sequence: u32) -> RecordPlace {
        match self {
            Self::Slots { .. } | Self::Levels(_) => RecordPlace::Volume(place.0 * SECTOR_BYTES),
            Self::Classes { classes, .. } if !classes.is_long(sectors) => {
                RecordPlace::File(file_name(format!("{sectors:03}")), place.0 * sectors * SECTOR_BYTES)
            }
            Self::Classes { long, .. } => {
                let name = long_files(long, place).name(place.0, sequence);
                RecordPlace::File(file_name(format!("{LONG_PREFIX}/{name}")), 0)
            }
            Self::Files { files, .. } => RecordPlace::File(file_name(files.name(place.0, sequence)), 0),
        }
    }

    /// Returns the file that must be removed with a record, if it has its own.
    pub(super) fn file_to_remove(&self, place: MapPlace, sectors: u64, sequence: u32) -> Option<FileName> {
        let has_file = match self {
            Self::Slots { .. } | Self::Levels(_) => false,
            Self::Classes { classes, .. } => classes.is_long(sectors),
            Self::Files { .. } => true,
        };
        match self.spot(place, sectors, sequence) {
            RecordPlace::File(file, _) if has_file => Some(file),
            _ => None,
        }
    }

    pub(super) fn point_at(&mut self, pointer: u64) {
        match self {
            Self::Slots { slots, .. } => slots.point_at(Sector(pointer)),
            Self::Levels(levels) => levels.point_at(Sector(pointer)),
            Self::Classes { .. } => {}
            Self::Files { files, .. } => files.set_turn(pointer),
        }
        debug_assert!(self.pointer() < 1 << PLACE_BITS, "the pointer is at a place");
    }

    pub(super) fn pointer(&self) -> u64 {
        match self {
            Self::Slots { slots, .. } => slots.pointer().0,
            Self::Levels(levels) => levels.pointer().0,
            Self::Classes { .. } => 0,
            Self::Files { files, .. } => files.turn(),
        }
    }

    /// Returns the number of slots in each file of slots.
    pub(super) fn slot_counts(&self) -> Vec<u32> {
        match self {
            Self::Classes { classes, .. } => classes.slot_counts().collect(),
            _ => Vec::new(),
        }
    }

    /// Adopts the lengths of existing files. Returns `false` if they are too long, or do not fit this layout.
    pub(super) fn set_slot_counts(&mut self, counts: &[u32]) -> bool {
        let is_taken_over = match self {
            Self::Classes { classes, .. } => classes.set_slot_counts(counts),
            _ => counts.is_empty(),
        };
        debug_assert!(!is_taken_over || self.slot_counts() == counts, "files are as long as they were said to be");
        is_taken_over
    }

    /// Notes that a record of `sectors` once existed at `place`. Must be called before any room is taken.
    pub(super) fn note_place(&mut self, place: MapPlace, sectors: u64) {
        if let Self::Classes { classes, .. } = self {
            classes.grow_to(place.0, sectors);
        }
    }

    /// Returns the number of slots for records of `sectors`, in layouts with a file per length.
    pub(super) fn slot_count(&self, sectors: u64) -> Option<u64> {
        if let Self::Classes { classes, .. } = self { classes.slot_count(sectors) } else { None }
    }

    /// Returns the sectors that a record takes.
    pub(super) fn taken_by(&self, sectors: u64) -> u64 {
        match self {
            Self::Slots { slots, .. } => slots.taken_by(sectors),
            Self::Levels(levels) => levels.taken_by(sectors),
            Self::Classes { .. } => sectors,
            Self::Files { files, .. } => files.taken_by(sectors),
        }
    }

    /// Returns the sectors that are written for a record: all that it takes if the device requires that, otherwise its
    /// length.
    pub(super) fn written_by(&self, sectors: u64) -> u64 {
        match self {
            Self::Slots { .. } | Self::Levels(_) => self.taken_by(sectors),
            Self::Classes { .. } | Self::Files { .. } => sectors,
        }
    }

    /// Checks the layout's own invariants.
    pub(super) fn check(&self) {
        match self {
            Self::Slots { slots, .. } => slots.check(),
            Self::Levels(levels) => levels.check(),
            Self::Classes { classes, .. } => classes.check(),
            Self::Files { .. } => {}
        }
    }

    /// Returns the sectors in use, in layouts that count them.
    pub(super) fn sectors_in_use(&self) -> Option<u64> {
        match self {
            Self::Slots { slots, .. } => Some(slots.sectors_in_use()),
            Self::Levels(levels) => Some(levels.sectors_in_use()),
            Self::Classes { .. } | Self::Files { .. } => None,
        }
    }

    pub(super) fn capacity_sectors(&self) -> u64 {
        match self {
            Self::Slots { slots, .. } => slots.capacity_sectors(),
            Self::Levels(levels) => levels.capacity_sectors(),
            Self::Classes { classes, .. } => classes.capacity_sectors(),
            Self::Files { used_sectors_max, .. } => *used_sectors_max,
        }
    }

    /// Returns the limit on used sectors, above which entries are evicted. There is none if eviction is paced.
    pub(super) fn used_sectors_max(&self) -> u64 {
        match self {
            Self::Slots { used_sectors_max, .. }
            | Self::Classes { used_sectors_max, .. }
            | Self::Files { used_sectors_max, .. } => *used_sectors_max,
            Self::Levels(_) => u64::MAX,
        }
    }

    /// Returns the last run of free blocks found, in layouts whose eviction is paced by it.
    pub(super) fn last_run(&self) -> Option<FreeRun> {
        match self {
            Self::Levels(levels) => levels.last_run(),
            _ => None,
        }
    }

    pub(super) fn remedy(&self) -> RoomRemedy {
        match self {
            Self::Slots { .. } => RoomRemedy::AnyEntry,
            Self::Classes { .. } => RoomRemedy::EntryOfLength,
            Self::Levels(_) | Self::Files { .. } => RoomRemedy::Nothing,
        }
    }

    /// Returns whether a record of `sectors` fits in the room of one of `others`.
    pub(super) fn is_of_class(&self, sectors: u64, others: u64) -> bool {
        match self {
            Self::Classes { classes, .. } if classes.is_long(others) => classes.is_long(sectors),
            _ => sectors == others,
        }
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        match self {
            Self::Slots { slots, .. } => slots.memory_bytes(),
            Self::Levels(levels) => levels.memory_bytes(),
            Self::Classes { classes, .. } => classes.memory_bytes(),
            Self::Files { .. } => 0,
        }
    }
}

fn file_name(name: String) -> FileName {
    FileName::new(name).expect("digits and letters with a slash between are a name")
}

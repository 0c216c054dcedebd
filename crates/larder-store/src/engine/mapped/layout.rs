//! One interface to the layouts of the mapped policies: places for records, the room they take, and their positions.
//!
//! Owns: the choice of layout for each policy, and the directories around the layouts in files. Each layout makes the
//! other decisions.

pub(crate) mod classes;
pub(crate) mod files;
pub(crate) mod levels;
pub(crate) mod slots;

use super::map::MapPlace;
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

/// The space of a volume with a map of all entries. Only the layouts of this module implement it.
pub(super) trait SpaceLayout: Send {
    /// Takes space for a record of `sectors`. Returns `None` if there is no contiguous space.
    fn take(&mut self, sectors: u64, site: Site) -> Option<MapPlace>;

    /// Takes the space of an existing record at `place`. Returns `false` if that space is not free.
    fn take_at(&mut self, place: MapPlace, sectors: u64) -> bool;

    /// Frees the space of a record.
    ///
    /// # Panics
    /// If the space is not used.
    fn free(&mut self, place: MapPlace, sectors: u64);

    /// Returns the location of the record that the write with the number `sequence` stores at `place`: on the volume or
    /// in a file.
    fn spot(&self, place: MapPlace, _sectors: u64, _sequence: u32) -> RecordPlace {
        RecordPlace::Volume(place.0 * SECTOR_BYTES)
    }

    /// Returns whether a record of `sectors` has a file of its own, which must be removed with it.
    fn has_own_file(&self, _sectors: u64) -> bool {
        false
    }

    /// Continues writing at `pointer`, which an earlier run has saved.
    fn point_at(&mut self, _pointer: u64) {}

    /// Returns the position at which the next record is written, if it fits there.
    fn pointer(&self) -> u64 {
        0
    }

    /// Returns the number of slots in each file of slots, for the snapshot. Empty in layouts without such files.
    fn slot_counts(&self) -> Vec<u32> {
        Vec::new()
    }

    /// Takes over the files of slots of an earlier run, given the number of slots in each file. Returns `false` if the
    /// files are too long or this layout has no such files.
    fn set_slot_counts(&mut self, counts: &[u32]) -> bool {
        counts.is_empty()
    }

    /// Notes that a record of `sectors` once was at `place`, so that the file for this length must have that slot. Must
    /// be called before any space is taken.
    fn note_place(&mut self, _place: MapPlace, _sectors: u64) {}

    /// Returns the number of slots in the file for records of `sectors`; `None` in layouts without such a file.
    fn slot_count(&self, _sectors: u64) -> Option<u64> {
        None
    }

    /// Returns the sectors of the volume that a record of `sectors` takes.
    fn taken_by(&self, sectors: u64) -> u64;

    /// Returns how many sectors a write of a record has. The default is `sectors`, the record alone. Layouts that
    /// always fill the allocated space return `taken_by(sectors)`.
    fn written_by(&self, sectors: u64) -> u64 {
        sectors
    }

    /// Checks the invariants of this layout.
    fn check(&self) {}

    /// Returns the number of used sectors; `None` in layouts that do not count them.
    fn sectors_in_use(&self) -> Option<u64> {
        None
    }

    fn capacity_sectors(&self) -> u64;

    /// Returns the number of used sectors above which entries are evicted; [`u64::MAX`] in layouts that evict entries
    /// as time passes.
    fn used_sectors_max(&self) -> u64;

    /// Returns the free run that the last search found, in layouts whose rate of eviction depends on it. Returns `None`
    /// in other layouts, and while the volume is being filled for the first time.
    fn last_run(&self) -> Option<FreeRun> {
        None
    }

    fn remedy(&self) -> RoomRemedy {
        RoomRemedy::Nothing
    }

    /// Returns whether the space of a record of `others` sectors can be used for a record of `sectors`.
    fn is_of_class(&self, sectors: u64, others: u64) -> bool {
        sectors == others
    }

    fn memory_bytes(&self) -> u64 {
        0
    }
}

/// The place where a record is, or will be written.
pub(super) enum RecordPlace {
    /// On the volume, at this offset in bytes.
    Volume(u64),
    /// In a file, at this offset in bytes.
    File(FileName, u64),
}

/// The way to get space for a record if there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RoomRemedy {
    /// Evict the least recently used entry.
    AnyEntry,
    /// Evict the least recently used entry of the same length.
    EntryOfLength,
    /// Wait, because no eviction frees usable space.
    Nothing,
}

/// Creates the layout of a volume, with all space free.
pub(super) fn layout_of(volume: &Volume, row: MappedRow) -> Box<dyn SpaceLayout> {
    let area = volume.shape.data_area();
    let tuning = &volume.options.tuning;
    let start = Sector(area.start / SECTOR_BYTES);
    let len_sectors = (area.end - area.start) / SECTOR_BYTES;
    let alignment_bytes = u64::from(volume.device.alignment_bytes());
    let block_bytes = volume.directory.as_ref().map_or(SECTOR_BYTES, |directory| directory.block_bytes().into());
    let block_sectors = (block_bytes / SECTOR_BYTES).max(1);
    let files_sectors = volume.shape.files_bytes() / SECTOR_BYTES;
    let names = match row {
        MappedRow::Bitmap => {
            let shape = LevelsShape {
                block_bytes: tuning.esp_block_bytes.max(alignment_bytes),
                level_count: tuning.esp_level_count,
                threshold_bytes: tuning.esp_threshold_bytes,
            };
            return Box::new(BlockLevels::new(start, len_sectors, shape));
        }
        MappedRow::SizeClasses => {
            return Box::new(ClassFiles {
                classes: SizeClasses::new(tuning.buddy_threshold_bytes / SECTOR_BYTES, files_sectors),
                long: [FileNames::OneDirectory, FileNames::BySite].map(|naming| FileStore::new(naming, block_sectors)),
                is_long_by_site: tuning.buddy_long_by_site,
                used_sectors_max: files_sectors * u64::from(tuning.buddy_used_percent) / 100,
            });
        }
        MappedRow::Slots(_) => {
            let slot_bytes = SECTOR_BYTES.max(alignment_bytes);
            return Box::new(SlotArea::new(start, len_sectors, slot_bytes, tuning.stream_used_percent));
        }
        MappedRow::Files(FileNaming::OneDirectory) => FileNames::OneDirectory,
        MappedRow::Files(FileNaming::RoundRobin) => {
            let entries = volume.size_bytes() / volume.options.mean_entry_bytes;
            FileNames::InTurn(DirectoryTurns::new(tuning.squid_directory_files, entries))
        }
        MappedRow::Files(FileNaming::BySite) => FileNames::BySite,
    };
    Box::new(OwnFiles { files: FileStore::new(names, block_sectors), capacity_sectors: files_sectors })
}

/// The layout with one file for each record.
struct OwnFiles {
    files: FileStore,
    capacity_sectors: u64,
}

impl SpaceLayout for OwnFiles {
    fn take(&mut self, _: u64, site: Site) -> Option<MapPlace> {
        Some(MapPlace(self.files.take(site)))
    }

    fn take_at(&mut self, place: MapPlace, _: u64) -> bool {
        self.files.is_place(place.0)
    }

    fn free(&mut self, _: MapPlace, _: u64) {}

    fn spot(&self, place: MapPlace, _: u64, sequence: u32) -> RecordPlace {
        RecordPlace::File(file_name(self.files.name(place.0, sequence)), 0)
    }

    fn has_own_file(&self, _: u64) -> bool {
        true
    }

    fn point_at(&mut self, pointer: u64) {
        self.files.set_turn(pointer);
    }

    fn pointer(&self) -> u64 {
        self.files.turn()
    }

    fn taken_by(&self, sectors: u64) -> u64 {
        self.files.taken_by(sectors)
    }

    fn capacity_sectors(&self) -> u64 {
        self.capacity_sectors
    }

    fn used_sectors_max(&self) -> u64 {
        self.capacity_sectors
    }
}

/// The layout with a file of slots for each length, and a file for each long record.
struct ClassFiles {
    classes: SizeClasses,
    /// Directories of the files of long records: one for all of them, or one for each site.
    long: [FileStore; 2],
    /// Whether a new long record's file goes to the directory of its site.
    is_long_by_site: bool,
    used_sectors_max: u64,
}

/// Directory for the files of long records, next to the files of slots.
const LONG_PREFIX: &str = "long";
/// Bit in the place of a long record: its file is in the directory of its site. Because of this bit, the file is found
/// even if the setting has changed since.
const BY_SITE_BIT: u64 = 1;

impl ClassFiles {
    /// Returns the directories that the file of the long record at `place` belongs to.
    fn long_files(&self, place: MapPlace) -> &FileStore {
        &self.long[(place.0 & BY_SITE_BIT) as usize]
    }
}

impl SpaceLayout for ClassFiles {
    fn take(&mut self, sectors: u64, site: Site) -> Option<MapPlace> {
        let slot = self.classes.take(sectors)?;
        let is_by_site = self.is_long_by_site && self.classes.is_long(sectors);
        Some(MapPlace(if is_by_site { self.long[1].take(site) | BY_SITE_BIT } else { slot }))
    }

    fn take_at(&mut self, place: MapPlace, sectors: u64) -> bool {
        if self.classes.is_long(sectors) {
            return self.long_files(place).is_place(place.0) && self.classes.take_at(0, sectors);
        }
        self.classes.take_at(place.0, sectors)
    }

    fn free(&mut self, place: MapPlace, sectors: u64) {
        self.classes.free(place.0, sectors);
    }

    fn spot(&self, place: MapPlace, sectors: u64, sequence: u32) -> RecordPlace {
        if self.classes.is_long(sectors) {
            let name = self.long_files(place).name(place.0, sequence);
            return RecordPlace::File(file_name(format!("{LONG_PREFIX}/{name}")), 0);
        }
        RecordPlace::File(file_name(format!("{sectors:03}")), place.0 * sectors * SECTOR_BYTES)
    }

    fn has_own_file(&self, sectors: u64) -> bool {
        self.classes.is_long(sectors)
    }

    fn slot_counts(&self) -> Vec<u32> {
        self.classes.slot_counts().collect()
    }

    fn set_slot_counts(&mut self, counts: &[u32]) -> bool {
        self.classes.set_slot_counts(counts)
    }

    fn note_place(&mut self, place: MapPlace, sectors: u64) {
        self.classes.grow_to(place.0, sectors);
    }

    fn slot_count(&self, sectors: u64) -> Option<u64> {
        self.classes.slot_count(sectors)
    }

    fn taken_by(&self, sectors: u64) -> u64 {
        sectors
    }

    fn check(&self) {
        self.classes.check();
    }

    fn capacity_sectors(&self) -> u64 {
        self.classes.capacity_sectors()
    }

    fn used_sectors_max(&self) -> u64 {
        self.used_sectors_max
    }

    fn remedy(&self) -> RoomRemedy {
        RoomRemedy::EntryOfLength
    }

    fn is_of_class(&self, sectors: u64, others: u64) -> bool {
        if self.classes.is_long(others) { self.classes.is_long(sectors) } else { sectors == others }
    }

    fn memory_bytes(&self) -> u64 {
        self.classes.memory_bytes()
    }
}

fn file_name(name: String) -> FileName {
    FileName::new(name).expect("digits and letters with a slash between are a name")
}

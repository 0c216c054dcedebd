//! One file per entry: the directories chosen by the policies `simple`, `squid` and `multiple-dirs`.
//!
//! A file is named by the number of the write that created it, so that no two entries ever use the same file, not even
//! in different runs. Owns: the choice of the directory, and the current one if they are used in turn. Files are not
//! accessed here. Invariant: a place and a number always name the same file. Cost: only the memory for the current
//! directory.
//!
//! Idea: the file system layouts of Markatos et al., USITS'99: one directory, Squid's 16 x 256, one per server.
//! Markatos uses Squid's directories in turn. Squid, from 2.3 on, puts 256 consecutive numbers into one directory
//! before the next, and reuses numbers in a circle. So files written together are close together, in only as many
//! directories as the files need.

use crate::units::Site;

/// Number of bits of a site that select its directory. Sites with the same bits share a directory.
const SITE_BITS: u32 = 36;
/// Number of directories in Squid's first level.
const FIRST_LEVEL_COUNT: u64 = 16;
const SECOND_LEVEL_COUNT: u64 = 256;

/// The rule that chooses the directory of an entry's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileNames {
    /// A single directory.
    OneDirectory,
    /// 16 x 256 directories, used one after the other: 0/00, 0/01 to 0/FF, 1/00 and so on.
    InTurn(DirectoryTurns),
    /// One directory for each site.
    BySite,
}

/// The order in which Squid's directories get files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DirectoryTurns {
    /// Number of consecutive files that go to the same directory.
    files_each: u64,
    /// Number of files after which the first directory is used again.
    round: u64,
}

impl DirectoryTurns {
    /// Returns the order for a store of up to `entries` files. A round is a power of two, as in Squid's map of file
    /// numbers, and at most the number of files that all directories hold. With one file per directory, every directory
    /// is used.
    pub(crate) fn new(files_each: u32, entries: u64) -> Self {
        let files_each = u64::from(files_each.max(1));
        let directories = FIRST_LEVEL_COUNT * SECOND_LEVEL_COUNT;
        let numbers = if files_each == 1 { directories } else { entries.max(files_each).next_power_of_two() };
        Self { files_each, round: numbers.min(directories * files_each) }
    }
}

/// The directories of a store with one file per entry.
pub(crate) struct FileStore {
    naming: FileNames,
    turn: u64,
    block_sectors: u64,
}

impl FileStore {
    /// Creates a store whose files take whole blocks of `block_sectors` on the disk.
    pub(crate) fn new(naming: FileNames, block_sectors: u64) -> Self {
        assert!(block_sectors > 0);
        Self { naming, turn: 0, block_sectors }
    }

    /// Returns the place for a new file of an entry of `site`. The place stands for a directory.
    pub(crate) fn take(&mut self, site: Site) -> u64 {
        match self.naming {
            FileNames::OneDirectory => 0,
            FileNames::InTurn(DirectoryTurns { files_each, round }) => {
                let place = self.turn / files_each;
                assert!(self.is_place(place), "a directory that there is: {place}");
                self.turn = (self.turn + 1) % round;
                place
            }
            FileNames::BySite => site.0 & ((1 << SITE_BITS) - 1),
        }
    }

    /// Returns whether `place` can be a place that [`Self::take`] returned.
    pub(crate) fn is_place(&self, place: u64) -> bool {
        match self.naming {
            FileNames::OneDirectory => place == 0,
            FileNames::InTurn(_) => place < FIRST_LEVEL_COUNT * SECOND_LEVEL_COUNT,
            FileNames::BySite => place < 1 << SITE_BITS,
        }
    }

    /// Returns the path of the file at `place` that the write with the number `sequence` created.
    pub(crate) fn name(&self, place: u64, sequence: u32) -> String {
        match self.naming {
            FileNames::OneDirectory => format!("{sequence:08X}"),
            FileNames::InTurn(_) => {
                let first = place / SECOND_LEVEL_COUNT;
                let second = place % SECOND_LEVEL_COUNT;
                format!("{first:X}/{second:02X}/{sequence:08X}")
            }
            FileNames::BySite => format!("{place:09X}/{sequence:08X}"),
        }
    }

    /// Returns the sectors of the disk that a file of `sectors` takes.
    pub(crate) fn taken_by(&self, sectors: u64) -> u64 {
        sectors.next_multiple_of(self.block_sectors)
    }

    /// Returns the number of files created in this round, with which the next run continues.
    pub(crate) fn turn(&self) -> u64 {
        self.turn
    }

    /// Continues the order of directories as if `turn` files of this round had been created.
    pub(crate) fn set_turn(&mut self, turn: u64) {
        if let FileNames::InTurn(DirectoryTurns { round, .. }) = self.naming {
            assert!(round > 0, "there are files to take in turn");
            self.turn = turn % round;
        }
    }
}

/// Returns the number of the write that created the file with this name; `None` if it is not the file of an entry.
pub(crate) fn sequence_of(name: &str) -> Option<u32> {
    let own = name.rsplit('/').next().filter(|own| own.len() == SEQUENCE_DIGITS)?;
    u32::from_str_radix(own, 16).ok()
}

/// Number of digits of a write's number in a file name.
const SEQUENCE_DIGITS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn squid_goes_round_its_directories_in_order() {
        let mut files = FileStore::new(FileNames::InTurn(DirectoryTurns::new(1, 10)), 8);
        let names: Vec<_> = (0..4097)
            .map(|sequence| {
                let place = files.take(Site(7));
                assert!(files.is_place(place));
                files.name(place, sequence)
            })
            .collect();
        assert_eq!((sequence_of(&names[4096]), sequence_of("007")), (Some(4096), None));
        assert_eq!((&names[0][..], &names[1][..]), ("0/00/00000000", "0/01/00000001"));
        assert_eq!((&names[255][..], &names[256][..]), ("0/FF/000000FF", "1/00/00000100"));
        assert_eq!((&names[4095][..], &names[4096][..]), ("F/FF/00000FFF", "0/00/00001000"));
    }

    /// Checks the directory of file n against Squid's formula: ((n / 256) / 256 mod 16, n / 256 mod 256), with n below
    /// the next power of two.
    #[test]
    fn squid_fills_a_directory_and_then_the_next_and_uses_numbers_again() {
        let mut files = FileStore::new(FileNames::InTurn(DirectoryTurns::new(256, 100_000)), 8);
        let places: Vec<u64> = (0..=1 << 17).map(|_| files.take(Site(7))).collect();
        let names: Vec<_> = places.iter().map(|&place| files.name(place, 9)).collect();
        let folder = |n: usize| names[n].rsplit_once('/').unwrap().0;
        assert_eq!([0, 255, 256, 65_535, 65_536].map(folder), ["0/00", "0/00", "0/01", "0/FF", "1/00"]);
        assert_eq!(
            [(1 << 17) - 1, 1 << 17].map(folder),
            ["1/FF", "0/00"],
            "no more directories than there are files for"
        );
        let mut most = FileStore::new(FileNames::InTurn(DirectoryTurns::new(256, 5_000_000)), 8);
        most.set_turn((1 << 20) - 1);
        assert_eq!([(); 2].map(|()| most.take(Site(7))), [4095, 0]);
    }

    #[test]
    fn one_directory_or_one_per_site() {
        let mut one = FileStore::new(FileNames::OneDirectory, 8);
        assert_eq!(
            [1, 2].map(|site| {
                let place = one.take(Site(site));
                one.name(place, 9)
            }),
            ["00000009", "00000009"]
        );
        let mut by_site = FileStore::new(FileNames::BySite, 8);
        let [a, b, again] = [1, u64::MAX, 1].map(|site| by_site.take(Site(site)));
        assert!(a == again && a != b && by_site.is_place(b) && !by_site.is_place(1 << 36));
        assert_eq!(by_site.name(b, 1), "FFFFFFFFF/00000001");
        assert_eq!([1, 8, 9].map(|sectors| by_site.taken_by(sectors)), [8, 8, 16]);
    }
}

//! Recognizes foreign content of a device by its signatures, so that it is not overwritten.
//!
//! Owns: the positions of the signatures of file systems, partition tables and volume managers. The device is read
//! elsewhere, and Larder's own format is not known here. Invariant: a device counts as blank only if its first 64 KiB
//! are zeros and no signature is found at either end. Cost: one comparison per position. Source: the signatures that
//! libblkid (util-linux) probes for.

/// Bytes at each end of a device that may have signatures.
pub(crate) const ENDS_BYTES: u64 = 1 << 20;

/// The bytes at both ends of a device.
pub(crate) struct DeviceEnds<'a> {
    /// Length of the device in bytes.
    pub(crate) len_bytes: u64,
    /// The first [`ENDS_BYTES`] of the device, or all of it if it is shorter.
    pub(crate) head: &'a [u8],
    /// The last [`ENDS_BYTES`] of the device, or all of it if it is shorter.
    pub(crate) tail: &'a [u8],
}

/// Returns what the device contains, such as a file system; `None` if it is blank.
pub(crate) fn find(ends: &DeviceEnds<'_>) -> Option<&'static str> {
    let marked = MARKS.iter().find(|mark| ends.holds(mark.at, mark.bytes));
    if let Some(mark) = marked {
        return Some(mark.of);
    }
    if ends.has_raid_member() {
        return Some("a member of a Linux RAID");
    }
    if ends.has_zfs_label() {
        return Some("a member of a ZFS pool");
    }
    if ends.holds(ProbePlace::Start(510), &[0x55, 0xAA]) {
        return Some("a partition table or a boot sector (MBR)");
    }
    let first = &ends.head[..ends.head.len().min(BLANK_BYTES)];
    if first.iter().any(|byte| *byte != 0) {
        return Some("something that is not known here");
    }
    None
}

impl DeviceEnds<'_> {
    fn holds(&self, at: ProbePlace, bytes: &[u8]) -> bool {
        let found = match at {
            ProbePlace::Start(offset) => self.at(offset, bytes.len()),
            ProbePlace::End(back) => self.len_bytes.checked_sub(back).and_then(|offset| self.at(offset, bytes.len())),
        };
        found == Some(bytes)
    }

    /// Returns `len` bytes at `offset` of the device; `None` if they are not within one of the ends.
    fn at(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let part = |bytes: &[u8], start: u64| {
            let start = usize::try_from(start).ok()?;
            Some(start..start.checked_add(len)?).filter(|range| range.end <= bytes.len())
        };
        if let Some(range) = part(self.head, offset) {
            return Some(&self.head[range]);
        }
        let tail_start = self.len_bytes.checked_sub(self.tail.len() as u64)?;
        let range = part(self.tail, offset.checked_sub(tail_start)?)?;
        Some(&self.tail[range])
    }

    /// Returns whether the device is a member of a Linux software RAID (md). Its superblock is at the start (versions
    /// 1.1 and 1.2), or at an offset that depends on the length.
    fn has_raid_member(&self) -> bool {
        let sectors = self.len_bytes / 512;
        let old = (self.len_bytes & !0xFFFF).checked_sub(64 << 10);
        let at_end = sectors.checked_sub(16).map(|sector| (sector & !7) * 512);
        let places = [Some(0), Some(4096), old, at_end];
        places.into_iter().flatten().any(|offset| self.holds(ProbePlace::Start(offset), &0xA92B_4EFC_u32.to_le_bytes()))
    }

    /// Returns whether the device belongs to ZFS. ZFS writes four labels of 256 KiB, two at each end; the second half
    /// of a label is a ring of uberblocks.
    fn has_zfs_label(&self) -> bool {
        const LABEL_BYTES: u64 = 256 << 10;
        let magic = 0x00BA_B10C_u64;
        let end = self.len_bytes & !(LABEL_BYTES - 1);
        let labels = [Some(0), Some(LABEL_BYTES), end.checked_sub(2 * LABEL_BYTES), end.checked_sub(LABEL_BYTES)];
        labels.into_iter().flatten().any(|label| {
            (LABEL_BYTES / 2..LABEL_BYTES).step_by(1 << 10).any(|offset| {
                let at = ProbePlace::Start(label + offset);
                self.holds(at, &magic.to_le_bytes()) || self.holds(at, &magic.to_be_bytes())
            })
        })
    }
}

/// Number of bytes at the start of a blank device that must be zeros.
const BLANK_BYTES: usize = 64 << 10;

#[derive(Clone, Copy)]
enum ProbePlace {
    /// Number of bytes from the start of the device.
    Start(u64),
    /// Number of bytes from the end of the device.
    End(u64),
}

struct ForeignMark {
    of: &'static str,
    at: ProbePlace,
    bytes: &'static [u8],
}

const fn mark(of: &'static str, at: ProbePlace, bytes: &'static [u8]) -> ForeignMark {
    ForeignMark { of, at, bytes }
}

const EXT: &str = "an ext2, ext3 or ext4 file system";
const SWAP: &str = "swap space";
const LVM: &str = "a physical volume of LVM";
const LUKS: &str = "an encrypted volume (LUKS)";
const GPT: &str = "a partition table (GPT)";
const FAT: &str = "a FAT file system";
const REISER: &str = "a ReiserFS file system";
const UDF: &str = "a UDF or ISO 9660 file system";

const MARKS: [ForeignMark; 41] = [
    mark(EXT, ProbePlace::Start(0x438), &[0x53, 0xEF]),
    mark("an XFS file system", ProbePlace::Start(0), b"XFSB"),
    mark("a Btrfs file system", ProbePlace::Start(0x1_0040), b"_BHRfS_M"),
    mark("an NTFS file system", ProbePlace::Start(3), b"NTFS    "),
    mark("an exFAT file system", ProbePlace::Start(3), b"EXFAT   "),
    mark(FAT, ProbePlace::Start(0x36), b"FAT12   "),
    mark(FAT, ProbePlace::Start(0x36), b"FAT16   "),
    mark(FAT, ProbePlace::Start(0x52), b"FAT32   "),
    mark("an F2FS file system", ProbePlace::Start(0x400), &[0x10, 0x20, 0xF5, 0xF2]),
    mark("an EROFS file system", ProbePlace::Start(0x400), &[0xE2, 0xE1, 0xF5, 0xE0]),
    mark("a NILFS2 file system", ProbePlace::Start(0x406), &[0x34, 0x34]),
    mark("a JFS file system", ProbePlace::Start(0x8000), b"JFS1"),
    mark(REISER, ProbePlace::Start(0x1_0034), b"ReIsEr"),
    mark(REISER, ProbePlace::Start(0x2034), b"ReIsEr"),
    mark("an HFS+ file system", ProbePlace::Start(0x400), b"H+"),
    mark("an HFS+ file system", ProbePlace::Start(0x400), b"HX"),
    mark("an APFS container", ProbePlace::Start(0x20), b"NXSB"),
    mark("a SquashFS file system", ProbePlace::Start(0), b"hsqs"),
    mark(UDF, ProbePlace::Start(0x8001), b"CD001"),
    mark(UDF, ProbePlace::Start(0x8001), b"BEA01"),
    mark(SWAP, ProbePlace::Start(0xFF6), b"SWAPSPACE2"),
    mark(SWAP, ProbePlace::Start(0xFF6), b"SWAP-SPACE"),
    mark(SWAP, ProbePlace::Start(0x1FF6), b"SWAPSPACE2"),
    mark(SWAP, ProbePlace::Start(0x3FF6), b"SWAPSPACE2"),
    mark(SWAP, ProbePlace::Start(0xFFF6), b"SWAPSPACE2"),
    mark("a hibernated system", ProbePlace::Start(0xFF6), b"S1SUSPEND"),
    mark(LVM, ProbePlace::Start(0), b"LABELONE"),
    mark(LVM, ProbePlace::Start(0x200), b"LABELONE"),
    mark(LVM, ProbePlace::Start(0x400), b"LABELONE"),
    mark(LVM, ProbePlace::Start(0x600), b"LABELONE"),
    mark(LUKS, ProbePlace::Start(0), b"LUKS\xBA\xBE"),
    mark(LUKS, ProbePlace::Start(0x4000), b"SKUL\xBA\xBE"),
    mark("a bcache device", ProbePlace::Start(0x1018), b"\xC6\x85\x73\xF6\x4E\x1A\x45\xCA"),
    mark("a bcachefs file system", ProbePlace::Start(0x1018), b"\xC6\x85\x73\xF6\x66\xCE\x90\xA9"),
    mark("a Ceph BlueStore device", ProbePlace::Start(0), b"bluestore block device"),
    mark("a member of an Intel RAID", ProbePlace::End(0x400), b"Intel Raid ISM Cfg Sig."),
    mark("a member of a DDF RAID", ProbePlace::End(0x200), b"\xDE\x11\xDE\x11"),
    mark(GPT, ProbePlace::Start(0x200), b"EFI PART"),
    mark(GPT, ProbePlace::Start(0x1000), b"EFI PART"),
    mark(GPT, ProbePlace::End(0x200), b"EFI PART"),
    mark(GPT, ProbePlace::End(0x1000), b"EFI PART"),
];

#[cfg(test)]
mod tests {
    use super::*;

    const LEN_BYTES: u64 = 3 << 20;

    fn found(device: &[u8]) -> Option<&'static str> {
        let ends = (ENDS_BYTES as usize).min(device.len());
        let head = &device[..ends];
        let tail = &device[device.len() - ends..];
        find(&DeviceEnds { len_bytes: device.len() as u64, head, tail })
    }

    #[track_caller]
    fn check_found(offset: u64, bytes: &[u8], of: &str) {
        let mut device = vec![0; LEN_BYTES as usize];
        device[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        assert_eq!(found(&device), Some(of), "{bytes:x?} at {offset:#x}");
    }

    /// Guards against overwriting the data of other programs whose signature is not found.
    #[test]
    fn every_mark_is_found_where_its_owner_leaves_it() {
        for mark in &MARKS {
            let offset = match mark.at {
                ProbePlace::Start(offset) => offset,
                ProbePlace::End(back) => LEN_BYTES - back,
            };
            check_found(offset, mark.bytes, mark.of);
        }
        let raid = 0xA92B_4EFC_u32.to_le_bytes();
        for offset in [0, 4096, LEN_BYTES - (64 << 10), LEN_BYTES - 8192] {
            check_found(offset, &raid, "a member of a Linux RAID");
        }
        for label in [0, 256 << 10, LEN_BYTES - (512 << 10), LEN_BYTES - (256 << 10)] {
            check_found(label + (131 << 10), &0x00BA_B10C_u64.to_le_bytes(), "a member of a ZFS pool");
        }
        check_found(510, &[0x55, 0xAA], "a partition table or a boot sector (MBR)");
        for offset in [0, 1, 700, (64 << 10) - 1] {
            check_found(offset, &[1], "something that is not known here");
        }
    }

    #[test]
    fn zeros_are_blank_whatever_lies_between_the_ends() {
        let mut device = vec![0; LEN_BYTES as usize];
        assert_eq!(found(&device), None);
        device[1 << 20..2 << 20].fill(7);
        assert_eq!(found(&device), None);
        for len in [0, 1, 512, 4096, 100_000, 1 << 20] {
            assert_eq!(found(&vec![0; len]), None, "{len}");
        }
    }
}

//! The names of packs, in a folder and in a bucket.

use super::index::PackName;

/// Returns the name of a tier's folder. The folders of several tiers can be in one place.
pub(super) fn folder_of(tier: u64) -> String {
    format!("larder-{tier:016x}")
}

/// Returns the name of the file, or of the object in a bucket, that contains a pack.
pub(super) fn file_of(name: PackName) -> String {
    format!("{:08x}-{:016x}.pack", name.number, name.salt)
}

/// Returns the pack to which a file name belongs, even that of an incomplete file. `None` if the name is not that of a
/// pack.
pub(super) fn parse(file: &str) -> Option<PackName> {
    let (number, rest) = file.split_once('-')?;
    let (salt, kind) = rest.split_once('.')?;
    let is_pack = (number.len(), salt.len()) == (8, 16) && matches!(kind, "pack" | "pack.new");
    let number = u32::from_str_radix(number, 16).ok()?;
    let salt = u64::from_str_radix(salt, 16).ok()?;
    is_pack.then_some(PackName { number, salt })
}

//! Machines as data: a disk, a file system and a processor, whose times are computed instead of waited for.
//!
//! Owns: the parameters of a machine, read from a TOML file in which each value names its source, and the simulated
//! devices of a machine ([`ModelDevice`], [`ModelDirectory`]), on which the shipping engine runs in virtual time. It
//! does not know policies and workloads. Invariant: all operations complete inside `submit`; their time is summed,
//! never waited for. Source: Markatos et al. (USITS 1999); `models/` states the source of each constant.

mod bounds;
mod device;
mod directory;
mod disk;
mod one_file;
mod open_files;
mod parameters;
mod recent;
mod sparse;
mod tree;

pub use device::ModelDevice;
pub use directory::ModelDirectory;
pub use disk::{Disk, DiskOperation, DiskWork, PieceReads};
pub use parameters::{Arm, DiskParameters, FileParameters, Flash, Model, ModelError, Note, SystemParameters};

/// The machines that come with Larder, each with its name and the text of its file.
pub const MODELS: [(&str, &str); 15] = [
    ("st15150wc-ufs", include_str!("../models/st15150wc-ufs.toml")),
    ("st15150wc-ext2", include_str!("../models/st15150wc-ext2.toml")),
    ("hdd-7200", include_str!("../models/hdd-7200.toml")),
    ("ssd-sata", include_str!("../models/ssd-sata.toml")),
    ("nvme", include_str!("../models/nvme.toml")),
    ("hashcache-sata", include_str!("../models/hashcache-sata.toml")),
    ("hashcache-scsi", include_str!("../models/hashcache-scsi.toml")),
    ("hashcache-scsi-15k", include_str!("../models/hashcache-scsi-15k.toml")),
    ("hashcache-usb", include_str!("../models/hashcache-usb.toml")),
    ("esp-ide", include_str!("../models/esp-ide.toml")),
    ("squid-scsi", include_str!("../models/squid-scsi.toml")),
    ("guide-ffs", include_str!("../models/guide-ffs.toml")),
    ("guide-ext2", include_str!("../models/guide-ext2.toml")),
    ("atlas-10k-ufs", include_str!("../models/atlas-10k-ufs.toml")),
    ("atlas-10k-async", include_str!("../models/atlas-10k-async.toml")),
];

//! What is stored: finding it, serving it, dropping it.

pub(crate) mod chunk_reader;
pub(crate) mod chunks;
pub(crate) mod entry;
pub(crate) mod epochs;
pub(crate) mod groups;
pub(crate) mod hit;
pub(crate) mod hot;
pub(crate) mod lonely;
pub(crate) mod lookup;
pub(crate) mod neighbours;
pub(crate) mod parts;
pub(crate) mod patience;
pub(crate) mod presence;
pub(crate) mod sightings;
pub(crate) mod storing;

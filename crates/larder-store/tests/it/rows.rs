//! Compares the policies with the claims of their papers, by counting transfers and bits.

mod hashcache;
mod log;
mod log_checkpoint;
mod log_groups;
mod mapped;
mod mapped_files;
mod tiny;
mod ucfs;

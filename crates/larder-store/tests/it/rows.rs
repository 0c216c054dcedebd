//! Rows of the policy table against what their papers say: transfers and bits counted.

mod hashcache;
mod log;
mod log_checkpoint;
mod mapped;
mod mapped_files;
mod tiny;
mod ucfs;

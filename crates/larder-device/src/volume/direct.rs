//! Direct I/O, which bypasses the page cache: enabled if the file system or device supports it, with the alignment that
//! it needs.
//!
//! Owns: the flag of an opened file. The only I/O here is one probe. Invariant: a read with the reported alignment
//! succeeded once. Cost: a few system calls and one read per open.

use std::fs::File;

/// Makes I/O on `file` bypass the page cache. Returns the alignment in bytes that this requires; `None` if it is not
/// possible.
#[cfg(target_os = "linux")]
pub(super) fn turn_on(file: &File, is_block_device: bool) -> Option<u32> {
    use std::os::unix::fs::FileExt;

    use crate::buffer::{AlignedBuffer, BUFFER_ALIGNMENT_BYTES};
    use rustix::fs::OFlags;

    let alignment_bytes = alignment_bytes(file, is_block_device)?;
    let flags = rustix::fs::fcntl_getfl(file).ok()?;
    rustix::fs::fcntl_setfl(file, flags | OFlags::DIRECT).ok()?;
    // Some file systems accept the flag and then refuse every operation.
    let mut probe = AlignedBuffer::with_len(BUFFER_ALIGNMENT_BYTES);
    match file.read_at(probe.as_mut_slice(), 0) {
        Ok(_) => Some(alignment_bytes),
        Err(_) => {
            rustix::fs::fcntl_setfl(file, flags).ok()?;
            None
        }
    }
}

/// Returns the alignment in bytes that direct I/O requires. `None` if it is larger than the alignment of buffers and
/// records.
#[cfg(target_os = "linux")]
fn alignment_bytes(file: &File, is_block_device: bool) -> Option<u32> {
    use super::ALIGNMENT_BYTES_MIN;
    use crate::buffer::BUFFER_ALIGNMENT_BYTES;
    use rustix::fs::{AtFlags, StatxFlags};

    if is_block_device {
        let block_bytes = rustix::fs::ioctl_blksszget(file).ok()?;
        let is_possible = block_bytes.is_power_of_two() && block_bytes as usize <= BUFFER_ALIGNMENT_BYTES;
        return is_possible.then_some(block_bytes.max(ALIGNMENT_BYTES_MIN));
    }
    let asked = StatxFlags::DIOALIGN;
    match rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, asked) {
        Ok(answer) if answer.stx_mask & asked.bits() != 0 => {
            let offset = answer.stx_dio_offset_align;
            let memory = answer.stx_dio_mem_align;
            let is_possible = offset.is_power_of_two()
                && memory.is_power_of_two()
                && offset.max(memory) as usize <= BUFFER_ALIGNMENT_BYTES;
            is_possible.then_some(offset.max(ALIGNMENT_BYTES_MIN))
        }
        // Before Linux 6.1 the kernel does not report the alignment; a page is enough for every disk.
        _ => Some(BUFFER_ALIGNMENT_BYTES as u32),
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn turn_on(_file: &File, _is_block_device: bool) -> Option<u32> {
    None
}

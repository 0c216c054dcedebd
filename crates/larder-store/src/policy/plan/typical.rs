//! Figures of typical devices, for a plan without measurements.
//!
//! Owns: two devices; the kernel's information about a disk selects one. A plan made with them says so, because the
//! real device may differ.
//!
//! Sources: HashCache (NSDI 2009) for the spinning disk: 1000 / (13.7 ms + length / 50 MB/s) seeks per second, and 1.5
//! times as many with queueing. For the solid-state disk, the sustained rates in data sheets of SATA drives.

use super::{DeviceFigures, FileFigures, READ_BYTES, READ_DEPTHS, ReadFigure, WriteFigure};

impl DeviceFigures {
    /// Returns typical figures of a SATA solid-state disk.
    pub fn typical_solid_state() -> Self {
        let per_second = |bytes: u64, depth: u32| {
            let alone_us = 90.0;
            let bytes_per_second = 520e6;
            let queued = f64::from(depth) / (alone_us / 1e6 + bytes as f64 / bytes_per_second);
            queued.min(85_000.0).min(bytes_per_second / bytes as f64)
        };
        let files = FileFigures {
            file_bytes: 8192,
            depth: 16,
            replace_per_second: 8000.0,
            read_per_second: 25_000.0,
            replace_cpu_us: 120.0,
            read_cpu_us: 40.0,
        };
        made("a typical SATA solid-state disk", per_second, 0.35, 480e6, files)
    }

    /// Returns typical figures of a spinning disk with 7200 revolutions per minute.
    pub fn typical_spinning() -> Self {
        let per_second = |bytes: u64, depth: u32| {
            let alone = 1.0 / (0.0137 + bytes as f64 / 50e6);
            if depth >= 16 { alone * 1.5 } else { alone }
        };
        let files = FileFigures {
            file_bytes: 8192,
            depth: 16,
            replace_per_second: 35.0,
            read_per_second: 40.0,
            replace_cpu_us: 120.0,
            read_cpu_us: 40.0,
        };
        made("a typical disk of 7200 revolutions a minute", per_second, 1.0, 150e6, files)
    }
}

/// Creates the figures of a device from formulas. `write_share` is the number of random writes that take as long as one
/// random read.
fn made(
    path: &str,
    per_second: impl Fn(u64, u32) -> f64,
    write_share: f64,
    sequential: f64,
    files: FileFigures,
) -> DeviceFigures {
    let cpu_us = 5.0;
    let reads = READ_BYTES.iter().flat_map(|&read_bytes| READ_DEPTHS.map(|depth| (read_bytes, depth)));
    let reads = reads.map(|(read_bytes, depth)| {
        let per_second = per_second(read_bytes, depth);
        let mean_us = f64::from(depth) * 1e6 / per_second;
        ReadFigure { read_bytes, depth, per_second, mean_us, p99_us: 3.0 * mean_us, cpu_us }
    });
    let writes = [(4096, 1), (4096, 16), (8192, 1), (8192, 16)].map(|(write_bytes, depth)| {
        let per_second = per_second(write_bytes, depth) * write_share;
        WriteFigure { write_bytes, depth, per_second, cpu_us }
    });
    DeviceFigures {
        path: path.to_owned(),
        io: "typical".to_owned(),
        is_direct: true,
        span_bytes: 0,
        load_average: 0.0,
        reads: reads.collect(),
        writes: writes.to_vec(),
        sequential_read: sequential,
        sequential_write: sequential,
        beside_reads: None,
        files: Some(files),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spinning_disk_seeks_as_often_as_the_papers_say() {
        let figures = DeviceFigures::typical_spinning();
        let per_second = |bytes| 1.0 / figures.read_seconds(bytes, 1);
        assert!((70.0..74.0).contains(&per_second(8192.0)), "{}", per_second(8192.0));
        assert!((59.0..63.0).contains(&per_second(131_072.0)), "{}", per_second(131_072.0));
        assert_eq!((figures.fault(), DeviceFigures::typical_solid_state().fault()), (None, None));
    }
}

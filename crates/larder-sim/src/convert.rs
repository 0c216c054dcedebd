//! Converts traces and workloads to Larder's own trace format, which is compact and quick to read.
//!
//! Owns: [`Conversion`]. [`write_compact`] defines the format. Invariant: a file is complete or absent, unless the
//! process was killed. Cost: one pass in bounded memory.

use crate::{RequestSource, SweepError, TraceFile};
use larder_workload::{Progress, Request, Workload, write_compact};
use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::Path,
};

/// Compression level of zstd.
const ZSTD_LEVEL: i32 = 3;
/// Number of requests between two calls of `progress`.
const TOLD_EVERY: u64 = 65_536;

/// Settings of a conversion.
#[derive(Clone, Debug)]
pub struct Conversion {
    /// Source of the requests.
    pub source: RequestSource,
    /// Maximum number of requests to convert from a trace; for a workload, the number of requests.
    pub requests: u64,
    /// Size in bytes of the memory cache for which a workload is generated.
    pub memory_bytes: u64,
    /// Bytes of the objects that a workload requests repeatedly.
    pub working_set_bytes: u64,
}

/// The result of a conversion: the number of requests written and left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConversionSummary {
    /// Number of requests written.
    pub requests: u64,
    /// Size of the new file in bytes.
    pub file_bytes: u64,
    /// Number of lines of a trace that are not requests to a cache. For a workload, the number of requests whose
    /// responses must not be stored.
    pub left_out: u64,
    /// Number of damaged lines or records.
    pub damaged: u64,
    /// The first damaged line or record: its number, and what is wrong with it.
    pub first_damage: Option<(u64, &'static str)>,
}

impl Conversion {
    /// Writes the requests to the new file `to`, compressed if its name ends in `.zst`. Calls `progress` with the
    /// number of requests done since the last call, and the total number.
    ///
    /// # Errors
    /// If the source cannot be read or the file cannot be written.
    pub fn run(&self, to: &Path, progress: &dyn Fn(u64, u64)) -> Result<ConversionSummary, SweepError> {
        let not_written = |error| SweepError::Write(to.to_owned(), error);
        let file = File::create_new(to).map_err(not_written)?;
        let is_packed = to.extension().is_some_and(|ending| ending == "zst");
        let written = match &self.source {
            RequestSource::Trace(trace) => self.of_trace(trace, progress, |requests| write(requests, file, is_packed)),
            RequestSource::Workload(name, seed) => {
                Workload::named(name, *seed, self.memory_bytes, self.working_set_bytes)
                    .ok_or_else(|| SweepError::Workload(name.clone()))
                    .map(|workload| self.of_workload(workload, progress, |requests| write(requests, file, is_packed)))
            }
        };
        let written = written.and_then(|(converted, outcome)| {
            let file_bytes = outcome.and_then(|()| fs::metadata(to)).map_err(not_written)?.len();
            Ok(ConversionSummary { file_bytes, ..converted })
        });
        if written.is_err() {
            // An incomplete file would be mistaken for a trace. If it cannot be removed either, the first error counts.
            let _ = fs::remove_file(to);
        }
        written
    }

    fn of_trace(
        &self,
        file: &TraceFile,
        progress: &dyn Fn(u64, u64),
        write: impl FnOnce(&mut dyn Iterator<Item = Request>) -> io::Result<()>,
    ) -> Result<(ConversionSummary, io::Result<()>), SweepError> {
        let mut trace = file.open()?;
        let mut count = 0;
        let mut told_bytes = 0;
        let mut failure = None;
        let outcome = write(&mut std::iter::from_fn(|| {
            if count == self.requests {
                return None;
            }
            match trace.next()? {
                Ok(request) => {
                    count += 1;
                    if count.is_multiple_of(TOLD_EVERY) {
                        let Progress { read_bytes, file_bytes, .. } = trace.progress();
                        progress(read_bytes - told_bytes, file_bytes);
                        told_bytes = read_bytes;
                    }
                    Some(request)
                }
                Err(error) => {
                    failure = Some(error);
                    None
                }
            }
        }));
        let Progress { left_out, damaged, first_damage, .. } = trace.progress();
        match failure {
            Some(error) => Err(SweepError::Trace(error)),
            None => {
                trace.progress().check(&file.name).map_err(SweepError::Trace)?;
                Ok((ConversionSummary { requests: count, file_bytes: 0, left_out, damaged, first_damage }, outcome))
            }
        }
    }

    fn of_workload(
        &self,
        workload: Workload,
        progress: &dyn Fn(u64, u64),
        write: impl FnOnce(&mut dyn Iterator<Item = Request>) -> io::Result<()>,
    ) -> (ConversionSummary, io::Result<()>) {
        let mut count = 0;
        let mut left_out = 0;
        let mut drawn = workload.inspect(|asked| left_out += u64::from(!asked.is_storable));
        let outcome = write(&mut std::iter::from_fn(|| {
            if count == self.requests {
                return None;
            }
            count += 1;
            if count.is_multiple_of(TOLD_EVERY) {
                progress(TOLD_EVERY, self.requests);
            }
            drawn.by_ref().find(|asked| asked.is_storable).map(|asked| asked.request)
        }));
        drop(drawn);
        (ConversionSummary { requests: count, left_out, ..ConversionSummary::default() }, outcome)
    }
}

fn write(requests: &mut dyn Iterator<Item = Request>, file: File, is_packed: bool) -> io::Result<()> {
    let mut file = BufWriter::new(file);
    if is_packed {
        let mut packed = zstd::Encoder::new(file, ZSTD_LEVEL)?;
        write_compact(requests, &mut packed)?;
        file = packed.finish()?;
    } else {
        write_compact(requests, &mut file)?;
    }
    file.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn convert(source: RequestSource, to: &Path) -> Result<ConversionSummary, SweepError> {
        let conversion = Conversion { source, requests: 20_000, memory_bytes: 16 << 20, working_set_bytes: 256 << 20 };
        conversion.run(to, &|_, _| {})
    }

    fn trace(path: PathBuf) -> RequestSource {
        RequestSource::Trace(TraceFile { path, format: None, name: "a trace".to_owned() })
    }

    /// Guards against results that cannot be reproduced on another machine. The checksums are those of the first 20,000
    /// requests.
    #[test]
    fn workloads_are_the_same_bytes_on_every_machine() {
        let folder = tempfile::tempdir().unwrap();
        let sums = Workload::NAMES.map(|name| {
            let plain = folder.path().join(name);
            convert(RequestSource::Workload(name.to_owned(), 11), &plain).unwrap();
            // FNV-1a.
            let added = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
            (name, fs::read(&plain).unwrap().iter().fold(0xcbf2_9ce4_8422_2325, added))
        });
        assert_eq!(sums, WORKLOAD_SUMS, "{sums:#x?}");
    }

    const WORKLOAD_SUMS: [(&str, u64); 7] = [
        ("zipf", 0x9591_4701_0db6_5f5d),
        ("zipf-0.8", 0x1b64_1c7f_1cde_e63d),
        ("zipf-1.0", 0x247e_f224_350b_eeca),
        ("small-objects", 0xe240_b61c_8153_894d),
        ("markatos", 0x6867_30ba_f7eb_4f40),
        ("polymix-3", 0x4330_7029_ae17_0532),
        ("polymix-4", 0x6b02_83e0_226e_89ea),
    ];

    #[test]
    fn what_was_written_is_read_again_and_what_fails_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let plain = folder.path().join("plain");
        let packed = folder.path().join("packed.zst");
        let drawn = convert(RequestSource::Workload("polymix-4".to_owned(), 1), &plain).unwrap();
        assert!(drawn.requests == 20_000 && drawn.left_out > 2000, "{drawn:?}");
        let converted = convert(trace(plain.clone()), &packed).unwrap();
        assert!(converted.requests == 20_000 && converted.file_bytes < drawn.file_bytes, "{converted:?}");
        let read =
            |path: &Path| larder_workload::Trace::open(path, None).unwrap().map(Result::unwrap).collect::<Vec<_>>();
        assert_eq!(read(&plain), read(&packed));
        assert!(convert(trace(plain.clone()), &packed).unwrap_err().to_string().contains("exists"));
        let failed = folder.path().join("failed");
        fs::write(&plain, b"no, number, here").unwrap();
        assert!(convert(trace(plain), &failed).is_err() && !failed.exists());
    }
}

//! Reads a machine's parameters: every value with its source.
//!
//! Owns: the sections `disk`, `system` and `files` of a model file. It computes no times. Invariant: every value is a
//! number with a source; all required values are present, and no unknown ones.

use super::{MODELS, bounds};
use std::{fmt, fs, io::ErrorKind, path::Path};
use toml::{Table, Value};

/// A machine: its disk, its processor and its file system, as numbers with sources.
///
/// ```
/// use larder_sim::Model;
///
/// let model = Model::open("hdd-7200")?;
/// assert!(model.disk.capacity_bytes() > 1e9);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Name of the machine.
    pub name: String,
    /// Description of the machine in one sentence.
    pub about: String,
    /// The disk.
    pub disk: DiskParameters,
    /// The processor and the page cache.
    pub system: SystemParameters,
    /// The file system, for policies that keep entries in files.
    pub files: FileParameters,
    /// All values, each with its source.
    pub notes: Vec<Note>,
}

/// A value of a machine and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Section and name of the value, such as `disk.overhead_ms`.
    pub name: String,
    /// The value.
    pub value: String,
    /// Source of the value, such as a data sheet.
    pub source: String,
}

/// The parameters of a disk.
#[derive(Clone, Debug, PartialEq)]
pub enum DiskParameters {
    /// A spinning disk, which has an arm.
    Spinning(Arm),
    /// A flash disk, which has no arm.
    Flash(Flash),
}

impl DiskParameters {
    /// Returns the size of the disk in bytes.
    pub fn capacity_bytes(&self) -> f64 {
        match self {
            Self::Spinning(arm) => arm.capacity_bytes,
            Self::Flash(flash) => flash.capacity_bytes,
        }
    }

    /// Returns the number of operations that the disk executes at the same time.
    pub fn channel_count(&self) -> f64 {
        match self {
            Self::Spinning(_) => 1.0,
            Self::Flash(flash) => flash.channel_count,
        }
    }
}

/// Defines a section of a model file in which all values are numbers.
macro_rules! section {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $field:ident,)* } $($extra:tt)*) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name {
            $($(#[$doc])* pub $field: f64,)*
            $(#[doc = "Write amplification by the share of the disk in use, for writes that are short and scattered."]
            pub $extra: Vec<(f64, f64)>,)*
        }

        impl $name {
            fn read(section: &mut Section<'_>) -> Result<Self, ModelError> {
                Ok(Self { $($field: section.number(stringify!($field))?,)* $($extra: section.curve(stringify!($extra))?,)* })
            }
        }
    };
}

section! {
    /// A disk with an arm. A seek over a distance of x, as a share of the disk, takes `seek_fixed_ms + seek_root_ms *
    /// sqrt(x) + seek_linear_ms * x`.
    Arm {
        /// Size of the disk in bytes.
        capacity_bytes,
        /// Distance, as a share of the disk, below which a seek takes no time.
        seek_none_below_share,
        /// Time that every seek takes, in milliseconds.
        seek_fixed_ms,
        /// Coefficient of the square root of the distance in the formula for the seek time, in milliseconds.
        seek_root_ms,
        /// Coefficient of the distance in the formula for the seek time, in milliseconds.
        seek_linear_ms,
        /// Time of one revolution, in milliseconds.
        revolution_ms,
        /// Time that controller and bus take for an operation, in milliseconds. Operations that continue the previous
        /// one do not take this time.
        overhead_ms,
        /// Bytes per second under the head, at the outer edge.
        media_bytes_per_s,
        /// Bytes per second of operations that continue the previous one.
        sequential_bytes_per_s,
        /// Share by which the inner edge is slower than the outer edge.
        inner_loss_share,
        /// Maximum distance forward, in bytes, over which the head waits instead of seeking.
        near_bytes,
        /// Time that a wait over up to `near_bytes` takes, in milliseconds, beyond the time in which this distance
        /// passes under the head.
        near_ms,
    }
}

section! {
    /// A disk without an arm, such as an SSD.
    Flash {
        /// Size of the disk in bytes.
        capacity_bytes,
        /// Time of a read without the transfer of its bytes, in microseconds.
        read_us,
        /// Time of a write without the transfer of its bytes, in microseconds.
        write_us,
        /// Bytes per second of one read.
        read_bytes_per_s,
        /// Bytes per second of one write.
        write_bytes_per_s,
        /// Number of operations that are executed at the same time.
        channel_count,
        /// Bytes per second that all writes together can sustain, without amplification.
        sustained_write_bytes_per_s,
        /// Minimum length in bytes of a write that is not amplified. A write that continues the previous one is not
        /// amplified either.
        unamplified_bytes,
    }
    amplification
}

section! {
    /// The processor and the page cache of a machine.
    SystemParameters {
        /// Processor time of each request, whatever it does, in microseconds.
        request_us,
        /// Size of a page of the page cache, in bytes.
        page_bytes,
        /// Number of pages in the page cache.
        page_cache_pages,
        /// Maximum number of bytes of adjacent dirty pages that are written at once.
        write_cluster_bytes,
        /// Number of reads in a row that the system executes before a write.
        reads_kept_together,
        /// Cost of writing a part of a page if the page before it was just written: 1 if the page is read ahead, 0 if
        /// reading it takes as long as any other read.
        reads_ahead,
    }
}

section! {
    /// A file system of cylinder groups. Each group has its inodes at the start, then directories, then data.
    FileParameters {
        /// Bytes of a group.
        group_bytes,
        /// Bytes of each group that are for inodes.
        group_inode_bytes,
        /// Bytes of each group that are for directories.
        group_directory_bytes,
        /// Bytes of a block, in which inodes and directories are read and written.
        block_bytes,
        /// Unit in bytes to which the size of a file is rounded up.
        fragment_bytes,
        /// Bytes of an inode.
        inode_bytes,
        /// Bytes of a name in a directory.
        name_bytes,
        /// Number of blocks with inodes that are kept in memory.
        inode_cache_blocks,
        /// Number of blocks of directories that are kept in memory.
        directory_cache_blocks,
        /// Number of directory blocks that are kept in memory if there is only one directory.
        one_directory_cache_blocks,
        /// Processor time to compare a name in a directory, in microseconds.
        name_us,
        /// Number of inode and directory writes before a new file's data is written. Creating the file waits for them.
        create_writes,
        /// Number of inode and directory writes after a new file's data is written. Creating the file waits for them.
        create_writes_after,
        /// Number of writes that removing a file waits for.
        remove_writes,
        /// Number of writes that creating or removing a directory waits for.
        directory_writes,
        /// Whether reading a file updates its inode: 1 for yes, 0 for no (the mount option noatime).
        access_times,
        /// Size in bytes from which a file has an indirect block, which must also be written.
        indirect_from_bytes,
        /// Time between two background writes of inode and directory blocks, in seconds.
        delay_s,
        /// Number of groups from one new directory to the next, if directories are created one after the other.
        group_step,
        /// Bytes of an open file that are placed next to each other on the disk.
        run_bytes,
        /// Number of dirty pages of open files that may wait in memory.
        dirty_pages,
    }
}

impl Model {
    /// Returns the machine with this name, or the machine that the file at this path describes.
    ///
    /// # Errors
    /// The machine does not exist, or the file is invalid.
    pub fn open(name: &str) -> Result<Self, ModelError> {
        if let Some((_, text)) = MODELS.iter().find(|(known, _)| *known == name) {
            return Self::parse(name, text);
        }
        let names = MODELS.map(|(name, _)| name).join(", ");
        let text = fs::read_to_string(Path::new(name)).map_err(|error| match error.kind() {
            ErrorKind::NotFound => ModelError(format!("no model and no file of this name, models are {names}: {name}")),
            _ => ModelError(format!("cannot read the model: {error}: {name}")),
        })?;
        Self::parse(name, &text)
    }

    /// Returns the machine with this name, with another value of one parameter. `field` is the parameter, such as
    /// `disk.overhead_ms`.
    ///
    /// # Errors
    /// The machine does not exist, has no such parameter, or is invalid with this value.
    pub(crate) fn with_value(name: &str, field: &str, value: f64) -> Result<Self, ModelError> {
        let missing = || ModelError(format!("{name} has no {field}"));
        let (_, text) = MODELS.iter().find(|(known, _)| *known == name).ok_or_else(missing)?;
        let mut table: Table = text.parse().expect("the machines that come along are TOML");
        let (section, field) = field.split_once('.').ok_or_else(missing)?;
        let parameter = table.get_mut(section).and_then(|section| section.get_mut(field)).ok_or_else(missing)?;
        *parameter.get_mut("value").ok_or_else(missing)? = Value::Float(value);
        Self::parse(name, &table.to_string())
    }

    /// Makes disk and caches `times` smaller, for experiments with a part of the keys.
    #[must_use]
    pub fn smaller(mut self, times: f64) -> Self {
        match &mut self.disk {
            DiskParameters::Spinning(arm) => arm.capacity_bytes /= times,
            DiskParameters::Flash(flash) => flash.capacity_bytes /= times,
        }
        let smaller = |count: &mut f64| *count = (*count / times).max(4.0);
        smaller(&mut self.system.page_cache_pages);
        smaller(&mut self.files.inode_cache_blocks);
        smaller(&mut self.files.directory_cache_blocks);
        smaller(&mut self.files.one_directory_cache_blocks);
        smaller(&mut self.files.dirty_pages);
        // As many cylinder groups as on the whole disk. With fewer, directories would share groups, and their files
        // would lie closer together than on the whole disk.
        let files = &mut self.files;
        for bytes in [&mut files.group_bytes, &mut files.group_inode_bytes, &mut files.group_directory_bytes] {
            *bytes = (*bytes / times).max(files.block_bytes);
        }
        // With a longer delay, the same share of the blocks is touched between two writes, so that as few are touched
        // twice.
        self.files.delay_s /= times;
        self
    }

    /// Makes the disk at least as large as `bytes`.
    #[must_use]
    pub fn holding(mut self, bytes: u64) -> Self {
        let capacity_bytes = match &mut self.disk {
            DiskParameters::Spinning(arm) => &mut arm.capacity_bytes,
            DiskParameters::Flash(flash) => &mut flash.capacity_bytes,
        };
        *capacity_bytes = capacity_bytes.max(bytes as f64);
        self
    }

    /// Makes the disk as large as `bytes`. Seeks over all of it take as long as on the present disk.
    #[must_use]
    pub(crate) fn filled_by(mut self, bytes: u64) -> Self {
        match &mut self.disk {
            DiskParameters::Spinning(arm) => arm.capacity_bytes = bytes as f64,
            DiskParameters::Flash(flash) => flash.capacity_bytes = bytes as f64,
        }
        self
    }

    /// Parses the text of a model file.
    ///
    /// # Errors
    /// If a value is missing, unknown, not a number, or has no source.
    pub fn parse(name: &str, text: &str) -> Result<Self, ModelError> {
        let table: Table = text.parse().map_err(|error| ModelError(format!("{name} is no TOML: {error}")))?;
        let mut notes = Vec::new();
        let about = table.get("about").and_then(Value::as_str);
        let about = about.ok_or_else(|| ModelError(format!("{name} does not say what it is about")))?.to_owned();
        let mut unknown = table.keys().filter(|key| !["about", "disk", "system", "files"].contains(&key.as_str()));
        if let Some(key) = unknown.next() {
            return Err(ModelError(format!("{name} has a section that means nothing: {key}")));
        }
        let mut section = Section::of(&table, "disk", &mut notes)?;
        let disk = match section.kind()? {
            "spinning" => DiskParameters::Spinning(Arm::read(&mut section)?),
            "flash" => DiskParameters::Flash(Flash::read(&mut section)?),
            other => return Err(ModelError(format!("disk.kind is neither spinning nor flash: {other}"))),
        };
        section.finish()?;
        let mut section = Section::of(&table, "system", &mut notes)?;
        let system = SystemParameters::read(&mut section)?;
        section.finish()?;
        let mut section = Section::of(&table, "files", &mut notes)?;
        let files = FileParameters::read(&mut section)?;
        section.finish()?;
        if let Some(what) = bounds::disorder(&disk, &system, &files) {
            return Err(ModelError(what.to_owned()));
        }
        Ok(Self { name: name.to_owned(), about, disk, system, files, notes })
    }
}

/// A section of a model file that is being read.
struct Section<'a> {
    name: &'static str,
    table: &'a Table,
    taken: Vec<&'static str>,
    notes: &'a mut Vec<Note>,
}

impl<'a> Section<'a> {
    fn of(table: &'a Table, name: &'static str, notes: &'a mut Vec<Note>) -> Result<Self, ModelError> {
        let found = table.get(name).and_then(Value::as_table);
        let table = found.ok_or_else(|| ModelError(format!("there is no section {name}")))?;
        Ok(Self { name, table, taken: Vec::new(), notes })
    }

    fn kind(&mut self) -> Result<&'a str, ModelError> {
        self.taken.push("kind");
        let kind = self.table.get("kind").and_then(Value::as_str);
        kind.ok_or_else(|| ModelError(format!("{}.kind is missing", self.name)))
    }

    fn number(&mut self, field: &'static str) -> Result<f64, ModelError> {
        let value = self.value(field)?;
        let bounds = bounds::of(field);
        let number = as_number(value).filter(|number| bounds.contains(number));
        number.ok_or_else(|| {
            let least = crate::report::number(*bounds.start());
            let most = crate::report::number(*bounds.end());
            ModelError(format!("{}.{field} is no number from {least} to {most}: {value}", self.name))
        })
    }

    fn curve(&mut self, field: &'static str) -> Result<Vec<(f64, f64)>, ModelError> {
        let value = self.value(field)?;
        let wrong = || {
            let what = "is no list of pairs of a share and a factor from 1 on, in rising order";
            ModelError(format!("{}.{field} {what}: {value}", self.name))
        };
        let pair = |pair: &Value| match pair.as_array().map(Vec::as_slice) {
            Some([share, factor]) => {
                let pair = (as_number(share)?, as_number(factor)?);
                ((0.0..=1.0).contains(&pair.0) && (1.0..=1e6).contains(&pair.1)).then_some(pair)
            }
            _ => None,
        };
        let pairs: Option<Vec<_>> = value.as_array().ok_or_else(wrong)?.iter().map(pair).collect();
        pairs.filter(|pairs| !pairs.is_empty() && pairs.is_sorted()).ok_or_else(wrong)
    }

    fn value(&mut self, field: &'static str) -> Result<&'a Value, ModelError> {
        let missing = |what: &str| ModelError(format!("{}.{field} {what}", self.name));
        let entry = self.table.get(field).ok_or_else(|| missing("is missing"))?;
        let value = entry.get("value").ok_or_else(|| missing("has no value"))?;
        let source = entry.get("source").and_then(Value::as_str).ok_or_else(|| missing("names no source"))?;
        self.taken.push(field);
        let name = format!("{}.{field}", self.name);
        let source = source.to_owned();
        self.notes.push(Note { name, value: value.to_string(), source });
        Ok(value)
    }

    fn finish(self) -> Result<(), ModelError> {
        match self.table.keys().find(|key| !self.taken.contains(&key.as_str())) {
            Some(key) => Err(ModelError(format!("{}.{key} means nothing", self.name))),
            None => Ok(()),
        }
    }
}

fn as_number(value: &Value) -> Option<f64> {
    value.as_float().or_else(|| value.as_integer().map(|number| number as f64))
}

/// The reason why a machine cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelError(String);

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ModelError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Experiment;
    use larder_store::Policy;
    use larder_workload::Workload;

    #[test]
    fn every_model_can_be_read_and_each_value_names_its_source() {
        for (name, _) in MODELS {
            let model = Model::open(name).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(model.notes.len() > 30);
            for Note { name: value, source, .. } in &model.notes {
                assert!(source.len() > 2, "{name}: {value} has no source");
            }
        }
    }

    /// Guards against a user's file that makes the program fail or run forever. The test tries every value at its
    /// limits and beyond.
    #[test]
    fn a_machine_that_is_accepted_can_be_simulated() {
        let rows = ["log", "squid", "buddy", "multiple-dirs"].map(|name| Policy::named(name).expect("a row"));
        let mut accepted = 0;
        let mut refused = 0;
        for (name, text) in MODELS.into_iter().filter(|(name, _)| ["hdd-7200", "ssd-sata"].contains(name)) {
            for (number, line) in text.lines().enumerate() {
                let Some((field, rest)) = line.split_once(" = { value = ") else { continue };
                let source = &rest[rest.find("source").unwrap_or(0)..];
                for value in ["-1", "0", "0.3", "1", "511", "70000", "1e9", "1e18", "nan", "[[0.5, 1], [0.2, 3]]", "[]"]
                {
                    let changed = format!("{field} = {{ value = {value}, {source}");
                    let lines = text.lines().enumerate();
                    let text: String =
                        lines.map(|(at, line)| if at == number { &changed } else { line }.to_owned() + "\n").collect();
                    let Ok(model) = Model::parse(name, &text) else {
                        refused += 1;
                        continue;
                    };
                    accepted += 1;
                    for policy in rows {
                        let experiment = Experiment::new(policy, model.clone().holding(64 << 20), 64 << 20, 1 << 20);
                        let drawn = Workload::named("zipf", 1, 1 << 20, 64 << 20).expect("a workload");
                        let outcome = experiment.sampled(2).run(drawn.take(60));
                        assert!(outcome.is_ok_and(|outcome| outcome.requests == 60), "{changed}: {policy}");
                    }
                }
            }
        }
        assert!(accepted > 200 && refused > 200, "{accepted} {refused}");
    }

    #[test]
    fn what_is_wrong_with_a_model_is_said() {
        let text = MODELS[0].1;
        for (from, to, problem) in [
            ("kind = \"spinning\"", "kind = \"magnetic\"", "disk.kind is neither spinning nor flash: magnetic"),
            ("revolution_ms", "rotation_ms", "disk.revolution_ms is missing"),
            ("[system]", "[system]\nspeed = 1", "system.speed means nothing"),
            (
                "revolution_ms = { value = 8.333",
                "revolution_ms = { value = \"fast\"",
                "disk.revolution_ms is no number from 0 to",
            ),
            ("[files]", "[folders]", "has a section that means nothing: folders"),
        ] {
            let error = Model::parse("m", &text.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains(problem), "{error}");
        }
        assert!(Model::open("no-such").unwrap_err().to_string().contains("st15150wc-ufs"));
    }
}

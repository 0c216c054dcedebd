//! `larder store`: creates a store on request, examines one that is not in use, or serves one to other programs.
//!
//! Owns: the flags of these commands and their output. `larder_store` knows the layout of stores. Invariants: a command
//! names what it would destroy before it does so. `info` and `check` change nothing, and `upgrade` loses nothing
//! without consent. Results go to standard output.

use crate::{
    commands::{
        self,
        serve::{SERVE_EXAMPLES, ServeFlags},
    },
    ground::{
        failure::Failure,
        output::{print_line, tell},
        progress::{ProgressLine, while_waiting},
        size,
    },
    run::report,
    settings::{
        store_path,
        tuning::{self, TunedConstant},
        volumes::{self, SIZE_BYTES_DEFAULT, fitting_size_bytes},
    },
};
use clap::{Args, Subcommand};
use larder_store::{
    CheckFindings, Error, ErrorKind, PathContent, Policy, Stats, StoreDamage, StoreInfo, StoreOptions, UpgradePlan,
    inspect, mean_entry_bytes_default,
};
use std::path::{Path, PathBuf};

/// Maximum number of damages that are printed one by one.
const DAMAGES_SHOWN_MAX: usize = 20;

/// The subcommands of `larder store`.
#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Show the content of a store.
    Info {
        /// The file, block device or directory [default: the store in your cache directory]
        path: Option<PathBuf>,
    },
    /// Read a whole store and verify every byte; the exit code is 1 if anything is damaged.
    Check {
        /// The file, block device or directory [default: the store in your cache directory]
        path: Option<PathBuf>,
    },
    /// Convert a store of an older format to the newest one of its policy.
    Upgrade(UpgradeStoreFlags),
    /// Create an empty store in a new file or on a block device.
    Format(FormatFlags),
    /// Serve a store of values to other programs, over a Unix socket.
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(ServeFlags),
}

/// The flags of `larder store upgrade`.
#[derive(Debug, Args)]
pub(crate) struct UpgradeStoreFlags {
    /// The file, block device or directory [default: the store in your cache directory]
    path: Option<PathBuf>,

    /// Continue even if that loses the store's entries
    #[arg(long)]
    yes: bool,
}

/// The flags of `larder store format`.
#[derive(Debug, Args)]
pub(crate) struct FormatFlags {
    /// The file or block device; a directory for policies that keep a file per entry.
    path: PathBuf,

    #[arg(long, value_name = "POLICY", value_parser = tuning::parse_policy,
        help = "Storage policy; `larder help tuning` lists them [default: log]")]
    policy: Option<&'static Policy>,

    /// Size of the store, such as 100GB [default: the whole device, or 1GB for a file]
    #[arg(long, value_name = "SIZE", value_parser = size::parse_of_store)]
    size: Option<u64>,

    #[command(flatten)]
    layout: LayoutFlags,

    /// Destroy the existing content
    #[arg(long)]
    force: bool,
}

/// The flags that decide how a policy divides a new store.
#[derive(Clone, Debug, Args)]
pub(crate) struct LayoutFlags {
    /// Expected mean size of stored objects [default: 8KiB; from 128GiB to 256GiB rising to 16KiB]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    mean_object_size: Option<u64>,

    #[arg(long, value_name = "NAME=VALUE", value_parser = tuning::parse_tuned,
        help = "Constant of the policy; `larder help tuning` lists them (repeatable)")]
    tune: Vec<TunedConstant>,
}

impl LayoutFlags {
    /// Applies the flags to the options of a new store.
    pub(crate) fn apply(self, options: &mut StoreOptions) {
        options.mean_entry_bytes = self.mean_object_size.unwrap_or(options.mean_entry_bytes);
        for TunedConstant { name, value } in self.tune {
            options.tuning.set(name, value).expect("it was checked when it was read");
        }
    }
}

/// Runs `larder store`.
///
/// # Errors
/// The store is unusable or damaged, or the flags are invalid.
pub(crate) fn run(command: StoreCommand) -> Result<(), Failure> {
    match command {
        StoreCommand::Info { path } => info(&existing(path)?),
        StoreCommand::Check { path } => check(&existing(path)?),
        StoreCommand::Upgrade(flags) => upgrade(flags),
        StoreCommand::Format(flags) => format(flags),
        StoreCommand::Serve(flags) => commands::serve::run(&flags),
    }
}

/// Returns the path of an existing store: `path` itself, the store in that directory, or the default store.
fn existing(path: Option<PathBuf>) -> Result<PathBuf, Failure> {
    let (place, what, help) = match path {
        Some(path) => {
            (path, "file", "give the path of a store, as for --disk; without a path, the default store is used")
        }
        None => (
            store_path::default_store()?,
            "default store",
            "larder run and larder exec create it; give the path of another store, as for --disk",
        ),
    };
    match place.try_exists() {
        Ok(false) => Err(Failure::runtime(format!("there is no such {what}: {}", place.display()), help)),
        _ => Ok(store_path::existing(&place)),
    }
}

fn info(path: &Path) -> Result<(), Failure> {
    let surveyed = while_waiting("reading the index", || larder_store::survey(path));
    let (info, stats) = surveyed.map_err(|error| failure(path, "look into", &error))?;
    let mut memory = format!("{} for the index", size::show(stats.index_bytes));
    if info.policy.is_some_and(Policy::index_assumes_mean) {
        // The memory is shown for the mean size that `larder run` assumes by default.
        let mean = size::show(mean_entry_bytes_default(info.size_bytes));
        memory.push_str(&format!(", for entries of {mean} on average"));
    }
    let mut lines = vec![
        ("policy", info.policy.map_or_else(String::new, |policy| format!("{policy}: {}", policy.about))),
        ("size", size::show(info.size_bytes)),
        ("format", format!("{}{}", info.format, if info.has_probation { ", with probation" } else { "" })),
        ("identity", info.identity.clone()),
        ("entries", report::entries(&stats)),
        ("memory", memory),
        ("kill -9", format!("keeps {}", info.kept_after_kill)),
        ("written", format!("the superblock {} times", info.generation)),
    ];
    if info.is_block_device {
        lines.insert(3, ("device", size::show(info.volume_bytes)));
    }
    if let Some(all) = info.size_bytes.checked_div(info.segment_size_bytes) {
        let used = stats.segments_in_use;
        let each = size::show(info.segment_size_bytes);
        lines.insert(3, ("segments", format!("{used} of about {all} in use, {each} each")));
    }
    print_line!("{}", path.display())?;
    lines.iter().try_for_each(|(name, value)| print_line!("  {name:9}{value}"))
}

fn check(path: &Path) -> Result<(), Failure> {
    let shown = ProgressLine::new("checking");
    let mut before_bytes = 0;
    let checked = larder_store::check(path, &mut |done_bytes, total_bytes| {
        shown.advance(done_bytes.saturating_sub(before_bytes), total_bytes);
        before_bytes = done_bytes;
    });
    shown.finish();
    let findings = checked.map_err(|error| failure(path, "check", &error))?;
    // The exit code must say that the store is damaged, even if the reader of the output has gone.
    let printed = print_findings(path, &findings);
    if findings.damage_count == 0 {
        return printed;
    }
    Err(Failure::runtime(
        format!(
            "{} in {}",
            size::show_things(findings.damage_count, "damaged place", "damaged places"),
            path.display()
        ),
        "the proxy serves damaged entries as misses; if their number grows, the disk is failing",
    ))
}

fn print_findings(path: &Path, findings: &CheckFindings) -> Result<(), Failure> {
    let &CheckFindings { entries, expired, invalidated, removals, lost, segments, .. } = findings;
    print_line!("{}", path.display())?;
    print_line!("  entries  {} whole, {}", size::show_count(entries), size::show(findings.entry_bytes))?;
    print_line!("  useless  {} expired, {} invalidated", size::show_count(expired), size::show_count(invalidated))?;
    print_line!("  removals {} noted", size::show_count(removals))?;
    if lost != 0 {
        print_line!("  lost     {}, cut off by a kill", size::show_things(lost, "entry", "entries"))?;
    }
    if segments != 0 {
        print_line!("  segments {} in use", size::show_count(segments))?;
    }
    for StoreDamage { offset_bytes, what } in findings.damages.iter().take(DAMAGES_SHOWN_MAX) {
        print_line!("  damaged  {what} at byte {offset_bytes}")?;
    }
    if findings.damage_count == 0 {
        print_line!("  damaged  nothing")?;
    }
    Ok(())
}

fn upgrade(flags: UpgradeStoreFlags) -> Result<(), Failure> {
    let path = existing(flags.path)?;
    let plan = larder_store::plan_upgrade(&path).map_err(|error| failure(&path, "upgrade", &error))?;
    let shown = path.display();
    let UpgradePlan { from, to, loses_entries } = plan;
    if from == to {
        return print_line!("{shown}: format {from} is the newest one of its policy; nothing to do");
    }
    if loses_entries {
        let (_, stats) = larder_store::survey(&path).map_err(|error| failure(&path, "look into", &error))?;
        let entries = entries_in(&stats);
        if !flags.yes {
            return Err(Failure::runtime(
                format!("format {to} has another layout for {shown}: all its {entries} would be lost"),
                "nothing was changed, and the store stays usable; add --yes to format it again, which takes seconds",
            ));
        }
        print_line!("{shown}: upgrading from format {from} to {to}; all its {entries} are lost")?;
    }
    while_waiting("upgrading", || larder_store::upgrade(&path)).map_err(|error| failure(&path, "upgrade", &error))?;
    print_line!("{shown}: upgraded to format {to}. Versions of larder that do not know format {to} refuse it")
}

fn entries_in(stats: &Stats) -> String {
    size::show_things(stats.entries, "entry", "entries")
}

fn format(flags: FormatFlags) -> Result<(), Failure> {
    let path = flags.path.display();
    if let Some(kind) = volumes::unusable_kind(&flags.path) {
        let help = "give the path of a file, or a block device such as /dev/sdb (lsblk lists them)";
        return Err(Failure::runtime(format!("{path} is {kind}, which cannot hold a store"), help));
    }
    let content = look(&flags.path)?;
    if let PathContent::OtherFile = content {
        let help = "only stores and block devices can be formatted: give another path, or remove the file yourself";
        return Err(Failure::runtime(format!("{path} exists and is not a Larder store"), help));
    }
    if let (Some(what), false) = (destroyed(&content), flags.force) {
        return Err(Failure::runtime(
            format!("{path} holds {what}"),
            "nothing was changed; to destroy the content, add --force",
        ));
    }
    let size_there = match &content {
        PathContent::Store(info) if !info.is_block_device => Some(info.size_bytes),
        PathContent::Store(info) => Some(info.volume_bytes),
        PathContent::Blank(size_bytes) | PathContent::OtherDevice { size_bytes, .. } => Some(*size_bytes),
        _ => None,
    };
    let fitting = || fitting_size_bytes(&flags.path, SIZE_BYTES_DEFAULT);
    let size_bytes = flags.size.or(size_there).unwrap_or_else(fitting);
    let mut options = StoreOptions::new(&flags.path, size_bytes);
    options.policy = flags.policy.unwrap_or_else(Policy::default_policy);
    flags.layout.apply(&mut options);
    volumes::check_room(&options)?;
    let formatted = while_waiting("formatting", || larder_store::format(&options));
    formatted.map_err(|error| volumes::format_failure(&error, &options))?;
    if let Some(what) = destroyed(&content) {
        tell!("destroyed {what}");
    }
    print_line!("{path}: an empty store of {}, policy {}", size::show(size_bytes), options.policy)
}

/// Describes the existing content that formatting would destroy. `None` if there is none.
fn destroyed(content: &PathContent) -> Option<String> {
    match content {
        PathContent::Store(info) => Some(describe(info)),
        PathContent::OtherDevice { what, size_bytes } => {
            Some(format!("{what}, on a device of {}", size::show(*size_bytes)))
        }
        _ => None,
    }
}

fn describe(info: &StoreInfo) -> String {
    let policy = info.policy.map_or("unknown", |policy| policy.name);
    format!("a store of {}, policy {policy}", size::show(info.size_bytes))
}

pub(crate) fn look(path: &Path) -> Result<PathContent, Failure> {
    inspect(path).map_err(|error| failure(path, "look at", &error))
}

fn failure(path: &Path, what: &str, error: &Error) -> Failure {
    let shown = path.display();
    let told = error.to_string();
    let no_store = match volumes::unusable_kind(path) {
        Some(kind) => Some(format!("{shown} is {kind}, not a Larder store")),
        None => Some(told.clone()).filter(|told| *told == format!("{shown} is not a Larder store")),
    };
    if let Some(problem) = no_store {
        let help = "give the path of a store: larder run prints it in its line `store`; without a path, the default \
                    store is used";
        return Failure::runtime(problem, help);
    }
    let problem = format!("cannot {what} {shown}: {told}");
    let help = match error.kind() {
        ErrorKind::InUse => {
            format!("stop the process that uses it (fuser -v {shown} names it), and run the command again")
        }
        ErrorKind::Corrupt => format!("move {shown} away; larder run then creates a new store in its place"),
        _ => "check the path, and that you may read and write it".to_owned(),
    };
    Failure::runtime(problem, help)
}

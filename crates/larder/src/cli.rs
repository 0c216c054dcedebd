//! The command line.
//!
//! Owns: the flags, their help, and applying them to the settings. Nothing is started here. Invariant: every value is
//! parsed by the same parser as in the configuration file.

mod usage_error;

use crate::{
    ca_command::CaCommand,
    cluster_command::ClusterCommand,
    duration,
    env_command::EnvFlags,
    exec_command::{ExecFlags, isolated::IsolatedFlags},
    exec_server::{EXEC_SERVER, ExecServerFlags},
    explain_command::{EXPLAIN_EXAMPLES, RequestFlags, SHOW_EXAMPLES},
    ls_command::LsFlags,
    manual_command::{CompletionsFlags, ManualFlags},
    memory_plan::TotalMemory,
    mirror_command::MirrorCommand,
    mirrors::{self, InterceptedHosts, OriginOf},
    missing_command::MissingFlags,
    offline_command::OfflineFlags,
    pack_command::{PackFlags, UnpackFlags},
    pin_command::{PinFlags, UnpinFlags},
    purge_command::PurgeFlags,
    reload_command::ReloadFlags,
    settings::{self, DiskSettings, RunSettings},
    size,
    store_command::StoreCommand,
    top_command::TopFlags,
    tuning::{self, PolicyChoice, TunedConstant},
    upgrade_command::UpgradeFlags,
    value,
    warm_command::WarmFlags,
};
use clap::{Args, Parser, Subcommand};
use ipnet::IpNet;
use larder_proxy::{AccessLogTarget, Direct, Listener, LogFormat, Offline, OriginUrl, Parent, TlsIdentity};
use larder_store::IoChoice;
use std::{net::SocketAddr, path::PathBuf, time::Duration};
pub(crate) use usage_error::failure;

const EXAMPLES: &str = "\
Examples:
  larder run                                  forward proxy on 127.0.0.1:3128
  curl -x http://127.0.0.1:3128 http://example.com/
  larder run --origin http://127.0.0.1:8080   cache in front of one web server
  larder exec -- pip install requests         cache what one command downloads
  larder store format /dev/sdb                create a store on a whole disk
  larder plan --disk 2TB --memory 256MB       compare policies and their speed
  larder config check larder.toml             check a configuration file

Exit codes: 0 done or stopped by a signal, 1 something failed, 2 wrong flag or configuration.";

const RUN_EXAMPLES: &str = "\
Examples:
  larder run
  larder run --disk /var/cache/larder --size 100GB --memory 1GB
  larder run --listen 0.0.0.0:3128 --allow-client 192.168.0.0/16
  larder run --mirror pypi,npm,cargo
  larder run --listen 8080 --origin http://127.0.0.1:9000 --admin 3180
  larder run --config larder.toml --access-log -

Flags override the configuration file. SIGTERM and SIGINT let running exchanges finish (--drain-timeout); a \
second signal exits at once. SIGHUP and `larder reload` apply a changed configuration. SIGUSR1 reopens \
the access log and reloads certificates.";

const LISTENERS: &str = "Listeners and clients";
const STORE: &str = "Store and memory";
const ORIGINS: &str = "Origins and mirrors";
const FORWARD: &str = "Forward proxy";
const OBSERVATION: &str = "Observation";

/// The hidden command with which `larder exec --offline` runs its command in a network of its own.
pub(crate) const EXEC_ISOLATED: &str = "exec-isolated";

/// A caching web proxy: forward and reverse, with a store on disk that survives restarts.
#[derive(Debug, Parser)]
#[command(name = "larder", version, after_help = EXAMPLES, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: CliCommand,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Run the proxy.
    Run(Box<RunFlags>),
    /// Run a command with all its requests, https:// included, through a caching Larder.
    Exec(ExecFlags),
    /// Print shell lines that send the shell's programs through the running Larder.
    Env(EnvFlags),
    /// Delete stored responses of a running proxy, or make them stale.
    Purge(PurgeFlags),
    /// Explain how a running proxy would respond to a request.
    #[command(after_help = EXPLAIN_EXAMPLES)]
    Explain(RequestFlags),
    /// Show the activity of a running proxy in the terminal.
    Top(TopFlags),
    /// List the stored responses of a running proxy.
    Ls(LsFlags),
    /// Show the details of a stored response of a running proxy.
    #[command(after_help = SHOW_EXAMPLES)]
    Show(RequestFlags),
    /// Apply a changed configuration to a running proxy.
    Reload(ReloadFlags),
    /// Replace the running proxy with a newer program, without losing a request.
    Upgrade(UpgradeFlags),
    /// Switch the offline mode of a running proxy, or show it.
    Offline(OfflineFlags),
    /// List requests that a running proxy could not serve while offline.
    Missing(MissingFlags),
    /// Protect stored responses of a running proxy from eviction, or list the protected ones.
    Pin(PinFlags),
    /// Allow a running proxy to evict pinned responses again.
    Unpin(UnpinFlags),
    /// Export stored responses of a running proxy to a file.
    Pack(PackFlags),
    /// Import responses from a file into a running proxy.
    Unpack(UnpackFlags),
    /// Fetch URLs into the cache of a running proxy.
    Warm(WarmFlags),
    /// Manage stores that are not in use.
    #[command(subcommand)]
    Store(StoreCommand),
    #[cfg(feature = "lab")]
    #[command(flatten)]
    Lab(crate::lab::LabCommand),
    /// List the package registries that can be mirrored, with the settings of their clients.
    #[command(subcommand)]
    Mirror(MirrorCommand),
    /// Manage the local CA, which signs intercepted hosts.
    #[command(subcommand)]
    Ca(CaCommand),
    /// Show which of several Larders owns a key.
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Check and print configuration files.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// List the storage policies and their constants, for --policy and --tune.
    #[command(after_help = tuning::reference())]
    Tuning,
    /// Print completions for a shell.
    Completions(CompletionsFlags),
    /// Write manual pages and completions, for packages.
    #[command(hide = true)]
    Manual(ManualFlags),
    /// Serve the commands of `larder exec`.
    #[command(name = EXEC_SERVER, hide = true)]
    ExecServer(ExecServerFlags),
    /// Become the command of `larder exec --offline`.
    #[command(name = EXEC_ISOLATED, hide = true)]
    ExecIsolated(IsolatedFlags),
}

/// The subcommands of `larder config`.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check a configuration file and show the first error with its place
    Check {
        /// Configuration file
        file: PathBuf,
    },
    /// Print a configuration file with the default of every key
    Default,
    /// Print the settings of a configuration file, with the defaults of all other keys
    Print {
        /// Configuration file
        file: PathBuf,
    },
}

/// The flags of `larder run`.
#[derive(Clone, Debug, Default, Args)]
#[command(after_help = RUN_EXAMPLES)]
pub(crate) struct RunFlags {
    /// Read settings from this TOML file (see docs/configuration.md)
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Threads that serve requests [default: one per processor]
    #[arg(long, value_name = "COUNT", value_parser = value::workers)]
    workers: Option<usize>,

    /// Time for running exchanges after SIGTERM or SIGINT [default: 10s]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    drain_timeout: Option<Duration>,

    /// Address to listen on; a port alone is on 127.0.0.1 (repeatable) [default: 127.0.0.1:3128]
    #[arg(long, value_name = "ADDRESS", value_parser = value::listen_address, help_heading = LISTENERS)]
    listen: Vec<SocketAddr>,

    /// Address to listen on for TLS; requires --certificate (repeatable)
    #[arg(long, value_name = "ADDRESS", value_parser = value::listen_address, help_heading = LISTENERS)]
    listen_tls: Vec<SocketAddr>,

    /// Certificate chain and private key, two PEM files or one; reloaded when changed (repeatable)
    #[arg(long, value_name = "FILE[,KEY]", value_parser = value::identity, help_heading = LISTENERS)]
    certificate: Vec<TlsIdentity>,

    /// Network that may use the proxy, in addition to this machine (repeatable)
    #[arg(long, value_name = "NETWORK", value_parser = value::network, help_heading = LISTENERS)]
    allow_client: Vec<IpNet>,

    /// Require a user and password from this `htpasswd -B` file
    #[arg(long, value_name = "FILE", value_parser = value::path, help_heading = LISTENERS)]
    passwords: Option<PathBuf>,

    /// Store file, directory or block device, or `none` for memory only (repeatable) [default: in your cache directory]
    #[arg(long, value_name = "PATH", value_parser = DiskSettings::parse, help_heading = STORE)]
    disk: Vec<DiskSettings>,

    /// Hard limit on the store, one for all disks or one each [default: the existing size, or 1GB]
    #[arg(long, value_name = "SIZE", value_parser = size::parse, help_heading = STORE)]
    size: Vec<u64>,

    /// Storage policy, or auto; `larder help tuning` lists them [default: the existing one, or log]
    #[arg(long, value_name = "POLICY", value_parser = tuning::parse_choice, help_heading = STORE)]
    policy: Option<PolicyChoice>,

    /// Constant of a policy; `larder help tuning` lists them (repeatable)
    #[arg(long, value_name = "NAME=VALUE", value_parser = tuning::parse_tuned, help_heading = STORE)]
    tune: Vec<TunedConstant>,

    /// Expected mean size of stored objects [default: 8KiB; 16KiB from 256GiB of store]
    #[arg(long, value_name = "SIZE", value_parser = size::parse, help_heading = STORE)]
    mean_object_size: Option<u64>,

    /// I/O interface of the store: auto, uring or threads [default: auto]
    #[arg(long, value_name = "HOW", value_parser = settings::parse_io, help_heading = STORE)]
    io: Option<IoChoice>,

    /// Memory for the whole process, such as 256MB; auto takes half of what is free and gives it back [default: auto]
    #[arg(long, value_name = "SIZE", value_parser = TotalMemory::parse, help_heading = STORE)]
    memory: Option<TotalMemory>,

    /// Size of the memory cache [default: the rest of --memory]
    #[arg(long, value_name = "SIZE", value_parser = size::parse, help_heading = STORE)]
    memory_cache: Option<u64>,

    /// Reverse proxy: origin for every host, such as http://127.0.0.1:8080
    #[arg(long, value_name = "URL", value_parser = settings::parse_origin, help_heading = ORIGINS)]
    origin: Option<OriginUrl>,

    /// Package registries to mirror, such as pypi,npm; `larder mirror list` names all
    #[arg(long, value_name = "NAME,..", value_delimiter = ',', help_heading = ORIGINS,
        value_parser = |name: &str| mirrors::named(name).map(|registry| registry.name))]
    mirror: Vec<&'static str>,

    /// Server of a mirror, such as pypi=https://pypi.company.example (repeatable)
    #[arg(long, value_name = "NAME=URL", value_parser = mirrors::parse_origin_of, help_heading = ORIGINS)]
    origin_of: Vec<OriginOf>,

    /// Proxy that reaches origins, such as http://user:password@proxy.example:3128 (repeatable)
    #[arg(long, value_name = "URL", value_parser = value::parent, help_heading = ORIGINS)]
    parent: Vec<Parent>,

    /// Host to contact without the parent: a name, *.NAME or a network (repeatable)
    #[arg(long, value_name = "HOST", value_parser = value::direct, help_heading = ORIGINS)]
    no_parent: Vec<Direct>,

    /// When to contact no origins: off, auto, on or on-even-forbidden [default: off]
    #[arg(long, value_name = "WHEN", value_parser = value::offline, help_heading = ORIGINS)]
    offline: Option<Offline>,

    /// Host whose https:// is decrypted and cached: a name, *.NAME, all, or a registry such as npm (repeatable)
    #[arg(long, value_name = "HOST", value_parser = InterceptedHosts::parse, help_heading = FORWARD)]
    intercept: Vec<InterceptedHosts>,

    /// Loopback, link-local or private network that clients may request (repeatable)
    #[arg(long, value_name = "NETWORK", value_parser = value::network, help_heading = FORWARD)]
    allow_target: Vec<IpNet>,

    /// List of hosts to refuse: a hosts file, or one name per line (repeatable)
    #[arg(long, value_name = "FILE", value_parser = value::path, help_heading = FORWARD)]
    block_list: Vec<PathBuf>,

    /// List of hosts to serve even if a block list names them (repeatable)
    #[arg(long, value_name = "FILE", value_parser = value::path, help_heading = FORWARD)]
    allow_list: Vec<PathBuf>,

    /// Address of the dashboard, /metrics and /healthz
    #[arg(long, value_name = "ADDRESS", value_parser = value::listen_address, help_heading = OBSERVATION)]
    admin: Option<SocketAddr>,

    /// Access log file, or `-` for standard output
    #[arg(long, value_name = "PATH", value_parser = settings::parse_access_log, help_heading = OBSERVATION)]
    access_log: Option<AccessLogTarget>,

    /// squid, common, combined, json, or directives of Apache's LogFormat [default: squid]
    #[arg(long, value_name = "FORMAT", value_parser = value::log_format, help_heading = OBSERVATION)]
    log_format: Option<LogFormat>,

    /// Take over from a running proxy. `larder upgrade` sets this flag.
    #[arg(long, hide = true)]
    pub(crate) take_over: bool,
}

impl RunFlags {
    /// Applies the flags to `settings`. A list that is given replaces the list in `settings`.
    pub(crate) fn apply(self, settings: &mut RunSettings) {
        fn set<T>(target: &mut T, value: Option<T>) {
            if let Some(value) = value {
                *target = value;
            }
        }
        fn set_list<T>(target: &mut Vec<T>, values: Vec<T>) {
            if !values.is_empty() {
                *target = values;
            }
        }
        let proxy = &mut settings.proxy;
        let tls = self.listen_tls.into_iter().map(Listener::tls);
        set_list(&mut proxy.listeners, self.listen.into_iter().map(Listener::plain).chain(tls).collect());
        set_list(&mut proxy.identities, self.certificate);
        set(&mut settings.memory, self.memory);
        set(&mut settings.memory_cache, self.memory_cache.map(Some));
        set_list(&mut settings.worlds.names, self.mirror);
        settings.worlds.origins.extend(self.origin_of);
        set(&mut proxy.default_origin, self.origin.map(Some));
        set(&mut proxy.worker_count, self.workers);
        set(&mut proxy.access_log, self.access_log.map(Some));
        set(&mut proxy.log_format, self.log_format);
        set(&mut proxy.admin, self.admin.map(Some));
        set(&mut proxy.passwords, self.passwords.map(Some));
        set(&mut proxy.offline, self.offline);
        set_list(&mut proxy.clients, self.allow_client);
        set_list(&mut proxy.targets.allow, self.allow_target);
        set_list(&mut proxy.parents.members, self.parent.into_iter().map(|parent| (parent, 1)).collect());
        set_list(&mut proxy.parents.except, self.no_parent);
        set_list(&mut proxy.lists.block, self.block_list);
        set_list(&mut proxy.lists.allow, self.allow_list);
        if !self.intercept.is_empty() {
            settings.intercept.set_hosts(&self.intercept);
        }
        let store = &mut settings.store;
        if self.disk == [DiskSettings::None] {
            // The sizes in the file belong to the disks that the flags replace.
            store.sizes.clear();
        }
        set_list(&mut store.disks, self.disk);
        set_list(&mut store.sizes, self.size);
        set(&mut store.policy, self.policy.map(Some));
        for TunedConstant { name, value } in self.tune {
            store.tuning.set(name, value).expect("it was checked when it was read");
        }
        set(&mut store.mean_object_size_bytes, self.mean_object_size.map(Some));
        set(&mut store.io, self.io);
        set(&mut settings.drain, self.drain_timeout);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Failure;
    use clap::CommandFactory;
    use std::ffi::OsString;

    fn parse(arguments: &[&str]) -> Result<RunSettings, Failure> {
        let arguments: Vec<OsString> = ["larder", "run"].iter().chain(arguments).map(OsString::from).collect();
        let cli = Cli::try_parse_from(&arguments)
            .map_err(|error| failure(&error, arguments.clone()).expect("no help was requested"))?;
        let CliCommand::Run(flags) = cli.command else { panic!("the command was run") };
        let mut settings = RunSettings::default();
        flags.apply(&mut settings);
        Ok(settings)
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn no_flags_are_the_defaults() {
        assert_eq!(format!("{:?}", parse(&[]).unwrap()), format!("{:?}", RunSettings::default()));
    }

    #[test]
    fn flags_lie_over_the_settings() {
        let settings = parse(&[
            "--listen",
            "8080",
            "--listen",
            "[::1]:81",
            "--listen-tls",
            "8443",
            "--certificate",
            "a.pem,a.key",
            "--disk",
            "none",
            "--size",
            "2TB",
            "--memory",
            "256MiB",
            "--memory-cache",
            "16MiB",
            "--origin",
            "https://example.com",
            "--mean-object-size",
            "8KiB",
            "--workers",
            "3",
            "--access-log",
            "-",
            "--admin",
            "3180",
            "--allow-client",
            "10.0.0.0/8",
            "--allow-target",
            "127.0.0.0/8",
            "--intercept",
            "*.debian.org",
            "--io",
            "threads",
            "--policy",
            "log",
            "--tune",
            "reinsertion=off",
            "--drain-timeout",
            "3s",
        ])
        .unwrap();
        let RunSettings { proxy, store, drain, intercept, memory, memory_cache, .. } = settings;
        assert_eq!(intercept.hosts.hosts, ["*.debian.org".parse().unwrap()]);
        let tls = Listener::tls("127.0.0.1:8443".parse().unwrap());
        assert_eq!(proxy.listeners, ["127.0.0.1:8080".parse().unwrap(), "[::1]:81".parse().unwrap(), tls]);
        let identity = TlsIdentity { certificate: "a.pem".into(), key: "a.key".into() };
        assert_eq!(proxy.identities, [identity]);
        assert_eq!((memory, memory_cache), (TotalMemory::Bytes(256 << 20), Some(16 << 20)));
        assert_eq!(proxy.default_origin.unwrap().to_string(), "https://example.com:443");
        assert_eq!(proxy.worker_count, 3);
        assert_eq!(proxy.access_log, Some(AccessLogTarget::Stdout));
        assert_eq!(proxy.admin, Some("127.0.0.1:3180".parse().unwrap()));
        assert_eq!(proxy.clients, ["10.0.0.0/8".parse().unwrap()]);
        assert_eq!(proxy.targets.allow, ["127.0.0.0/8".parse().unwrap()]);
        assert_eq!(store.disks, [DiskSettings::None]);
        assert_eq!((store.row().unwrap().name, store.tuning.reinsertion), ("log", false));
        assert_eq!((store.sizes, store.mean_object_size_bytes), (vec![2_000_000_000_000], Some(8192)));
        assert_eq!(store.io, IoChoice::Threads);
        assert_eq!(drain, Duration::from_secs(3));
    }

    #[test]
    fn a_wrong_flag_is_told_in_our_words() {
        for (arguments, problem) in [
            (vec!["--size", "1XB"], "--size: unknown unit in size: `1XB`"),
            (vec!["--sise", "1GB"], "unknown flag or argument: `--sise`"),
            (vec!["--io", "magic"], "--io: unknown I/O method: `magic`"),
            (vec!["--io"], "a value is required for '--io <HOW>' but none was supplied"),
            (vec!["--workers", "0"], "--workers: not a number of threads: `0`"),
            (vec!["--disk", ""], "--disk: an empty path"),
            (vec!["--policy", "lru"], "--policy: unknown policy: `lru`"),
            (vec!["--tune", "reinsertion=maybe"], "--tune: neither on nor off: `maybe`"),
            (vec!["extra"], "unknown flag or argument: `extra`"),
        ] {
            let found = parse(&arguments).err().map(|failure| failure.to_string());
            assert!(found.as_deref().is_some_and(|found| found.starts_with(problem)), "{arguments:?}: {found:?}");
        }
    }
}

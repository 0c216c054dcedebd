//! The command line.
//!
//! Owns: flags, their help, and laying them over the settings. Does not: start anything. Invariant: every value is
//! parsed by the parser that the configuration file uses too.

mod usage_error;

use crate::{
    ca_command::CaCommand,
    duration,
    env_command::EnvFlags,
    exec_command::{ExecFlags, isolated::IsolatedFlags},
    exec_server::{EXEC_SERVER, ExecServerFlags},
    explain_command::{EXPLAIN_EXAMPLES, RequestFlags, SHOW_EXAMPLES},
    ls_command::LsFlags,
    manual_command::{CompletionsFlags, ManualFlags},
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
  larder run                                     forward proxy on 127.0.0.1:3128
  curl -x http://127.0.0.1:3128 http://example.com/
  larder run --origin http://127.0.0.1:8080      cache in front of one web server
  larder exec -- pip install requests            cache what one command fetches, https:// too
  larder store format /dev/sdb                   make a store on a whole disk
  larder plan --disk 2TB --memory 256MB          which policy, and how fast
  larder config check larder.toml                is this file right?

Exit codes: 0 done or stopped by a signal, 1 something failed, 2 wrong flag or configuration.";

const RUN_EXAMPLES: &str = "\
Examples:
  larder run
  larder run --disk /var/cache/larder --size 100GB --memory 1GB
  larder run --disk /dev/sdb --disk /dev/sdc
  larder run --listen 0.0.0.0:3128 --allow-client 192.168.0.0/16
  larder run --mirror pypi,npm,cargo
  larder run --listen 8080 --origin http://127.0.0.1:9000 --admin 3180
  larder run --listen-tls 8443 --certificate example.pem,example.key --origin http://127.0.0.1:9000
  larder run --config larder.toml --access-log -

Flags override the configuration file. SIGTERM and SIGINT stop taking connections and let running
exchanges finish (--drain); a second signal ends at once. SIGHUP and `larder reload` read the
configuration again and have it be in force; SIGUSR1 opens the access log again and reads the
certificates again; SIGUSR2 and SIGALRM are ignored.";

/// The command by which `larder exec --offline` runs another in a network of its own.
pub(crate) const EXEC_ISOLATED: &str = "exec-isolated";

/// A caching web proxy: forward and reverse, with a store on disk that survives restarts.
#[derive(Debug, Parser)]
#[command(name = "larder", version, after_help = EXAMPLES, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: CliCommand,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Run the proxy.
    Run(Box<RunFlags>),
    /// Run a command whose requests, https:// included, go through a caching Larder.
    Exec(ExecFlags),
    /// Print lines for a shell that lead its programs through the Larder that runs.
    Env(EnvFlags),
    /// Have a running proxy forget what it stored, or take it as stale.
    Purge(PurgeFlags),
    /// Say what a running proxy's cache would do with a request, and why.
    #[command(after_help = EXPLAIN_EXAMPLES)]
    Explain(RequestFlags),
    /// Show what a running proxy does, in a terminal.
    Top(TopFlags),
    /// List what a running proxy has stored.
    Ls(LsFlags),
    /// Say all that a running proxy knows of what it stored of a URL.
    #[command(after_help = SHOW_EXAMPLES)]
    Show(RequestFlags),
    /// Have a running proxy read its configuration again.
    Reload(ReloadFlags),
    /// Have a newer program go on in the place of the running one, without a request lost.
    Upgrade(UpgradeFlags),
    /// Have a running proxy ask no origins, or ask them again, or say whether it does.
    Offline(OfflineFlags),
    /// Say what a running proxy was asked for while offline, and did not have.
    Missing(MissingFlags),
    /// Have a running proxy keep some of what it stores, whatever else comes; or list what it keeps.
    Pin(PinFlags),
    /// Have a running proxy evict again what was pinned.
    Unpin(UnpinFlags),
    /// Have a running proxy write what it stores into a file, to carry it elsewhere.
    Pack(PackFlags),
    /// Have a running proxy store what another packed.
    Unpack(UnpackFlags),
    /// Have a running proxy fetch and store what will be asked for.
    Warm(WarmFlags),
    /// Work with stores that are not in use.
    #[command(subcommand)]
    Store(StoreCommand),
    #[cfg(feature = "lab")]
    #[command(flatten)]
    Lab(crate::lab::LabCommand),
    /// Say which package worlds can be mirrored, and how their clients are told.
    #[command(subcommand)]
    Mirror(MirrorCommand),
    /// Work with the local certificate authority, which interception signs with.
    #[command(subcommand)]
    Ca(CaCommand),
    /// Work with configuration files.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print completions for a shell.
    Completions(CompletionsFlags),
    /// Write manual pages and completions, for packages.
    #[command(hide = true)]
    Manual(ManualFlags),
    /// What `larder exec` starts.
    #[command(name = EXEC_SERVER, hide = true)]
    ExecServer(ExecServerFlags),
    /// Becomes the command of `larder exec --offline`.
    #[command(name = EXEC_ISOLATED, hide = true)]
    ExecIsolated(IsolatedFlags),
}

/// What to do with a configuration file.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Say whether a configuration file is right, and where not; touches nothing else.
    Check {
        /// The file.
        file: PathBuf,
    },
}

/// The flags of `larder run`.
#[derive(Clone, Debug, Default, Args)]
#[command(after_help = RUN_EXAMPLES)]
pub(crate) struct RunFlags {
    /// Listen here (a port alone is on 127.0.0.1; repeatable) [default: 127.0.0.1:3128]
    #[arg(long, value_name = "ADDRESS", value_parser = value::listen_address)]
    listen: Vec<SocketAddr>,

    /// Listen here for TLS, which needs --certificate (repeatable)
    #[arg(long, value_name = "ADDRESS", value_parser = value::listen_address)]
    listen_tls: Vec<SocketAddr>,

    /// Certificate and its private key for --listen-tls, two PEM files or one that holds both (repeatable; clients get
    /// the one for the name they ask for, else the first); read again when they change
    #[arg(long, value_name = "FILE[,KEY]", value_parser = value::identity)]
    certificate: Vec<TlsIdentity>,

    /// Store file, a directory for it, a block device, or `none` for memory only; repeatable, each disk takes a share
    /// by its size [default: larder/store.larder in your cache directory]
    #[arg(long, value_name = "PATH", value_parser = DiskSettings::parse)]
    disk: Vec<DiskSettings>,

    /// Size of the store, such as 100GB; a hard bound; given as often as --disk, one for each [default: that of the
    /// store or block device that is there, 1GB for a new file]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    size: Vec<u64>,

    #[arg(long, value_name = "POLICY", value_parser = tuning::parse_choice,
        help = "Storage policy, or auto; --help lists them [default: that of the store, or log]", long_help = tuning::choice_help())]
    policy: Option<PolicyChoice>,

    #[arg(long, value_name = "NAME=VALUE", value_parser = tuning::parse_tuned,
        help = "Constant of a policy (repeatable); --help lists them", long_help = tuning::tune_help())]
    tune: Vec<TunedConstant>,

    /// Memory for the whole process, such as 256MB: the memory cache gives way when other parts need more [default: not
    /// bounded but for the memory cache]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    memory: Option<u64>,

    /// Memory for the memory cache [default: what --memory leaves for it, or 64MB]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    memory_cache: Option<u64>,

    /// Mirrors of package worlds, each under its path, such as pypi,npm,cargo; `larder mirror list` names all, and says how
    /// clients are told
    #[arg(long, value_name = "NAME,..", value_delimiter = ',', value_parser = |name: &str| mirrors::named(name).map(|world| world.name))]
    mirror: Vec<&'static str>,

    /// Another server for a mirror, such as pypi=https://pypi.company.example (repeatable)
    #[arg(long, value_name = "NAME=URL", value_parser = mirrors::parse_origin_of)]
    origin_of: Vec<OriginOf>,

    /// Reverse mode: serve every host from this origin, such as http://127.0.0.1:8080
    #[arg(long, value_name = "URL", value_parser = settings::parse_origin)]
    origin: Option<OriginUrl>,

    /// Read settings from this file (TOML, see docs/configuration.md)
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Expected mean size of what is stored; smaller takes more memory for the index [default: 8KiB; from 128GiB to 256GiB rising to 16KiB]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    mean_object_size: Option<u64>,

    /// Threads that serve [default: one per processor]
    #[arg(long, value_name = "COUNT", value_parser = value::workers)]
    workers: Option<usize>,

    /// Write an access log to this file, `-` for standard output
    #[arg(long, value_name = "PATH", value_parser = settings::parse_access_log)]
    access_log: Option<AccessLogTarget>,

    /// Form of its lines: squid, common, combined, json, or directives as Apache's LogFormat has them [default: squid]
    #[arg(long, value_name = "FORMAT", value_parser = value::log_format)]
    log_format: Option<LogFormat>,

    /// Serve a dashboard, /metrics and /healthz here
    #[arg(long, value_name = "ADDRESS", value_parser = value::listen_address)]
    admin: Option<SocketAddr>,

    /// Network that may use the proxy, such as 192.168.0.0/16 (repeatable); this machine always may
    #[arg(long, value_name = "NETWORK", value_parser = value::network)]
    allow_client: Vec<IpNet>,

    /// Loopback, link-local or private network that clients may ask for in forward mode (repeatable)
    #[arg(long, value_name = "NETWORK", value_parser = value::network)]
    allow_target: Vec<IpNet>,

    /// Ask origins through another proxy, such as http://user:password@proxy.example:3128
    #[arg(long, value_name = "URL", value_parser = value::parent)]
    parent: Option<Parent>,

    /// Host that is asked without the parent: intranet.example, *.example.com or an address (repeatable)
    #[arg(long, value_name = "HOST", value_parser = value::direct)]
    no_parent: Vec<Direct>,

    /// List of hosts that are not served: a hosts file, or names line by line (repeatable); read again when it changes
    #[arg(long, value_name = "FILE", value_parser = value::path)]
    block_list: Vec<PathBuf>,

    /// List of hosts that are served though another list names them (repeatable)
    #[arg(long, value_name = "FILE", value_parser = value::path)]
    allow_list: Vec<PathBuf>,

    /// Host whose https:// is cached too: pypi.org, *.debian.org, all, or a package world such as npm (repeatable); clients
    /// have to trust the authority of `larder ca`
    #[arg(long, value_name = "HOST", value_parser = InterceptedHosts::parse)]
    intercept: Vec<InterceptedHosts>,

    /// Whether origins are asked: off (they are), auto (unless the line to them is down), on (what is stored has to do), or
    /// on-even-forbidden [default: off]
    #[arg(long, value_name = "WHEN", value_parser = value::offline)]
    offline: Option<Offline>,

    /// Ask forward clients for a user and a password out of this file, as htpasswd -B writes it
    #[arg(long, value_name = "FILE", value_parser = value::path)]
    passwords: Option<PathBuf>,

    /// How the store reads and writes: auto, uring or threads [default: auto]
    #[arg(long, value_name = "HOW", value_parser = settings::parse_io)]
    io: Option<IoChoice>,

    /// How long running exchanges may take after SIGTERM or SIGINT [default: 10s]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    drain: Option<Duration>,

    /// What `larder upgrade` starts it with.
    #[arg(long, hide = true)]
    pub(crate) take_over: bool,
}

impl RunFlags {
    /// Lays the flags over `settings`. A list that is given replaces the list that was there.
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
        set(&mut proxy.memory_bytes, self.memory.map(Some));
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
        set(&mut proxy.parents.parent, self.parent.map(Some));
        set_list(&mut proxy.parents.except, self.no_parent);
        set_list(&mut proxy.lists.block, self.block_list);
        set_list(&mut proxy.lists.allow, self.allow_list);
        if !self.intercept.is_empty() {
            settings.intercept.set_hosts(&self.intercept);
        }
        let store = &mut settings.store;
        if self.disk == [DiskSettings::None] {
            // Those of the file are of the disks that this replaces.
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
        set(&mut settings.drain, self.drain);
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
            "--drain",
            "3s",
        ])
        .unwrap();
        let RunSettings { proxy, store, drain, intercept, memory_cache, .. } = settings;
        assert_eq!(intercept.hosts.hosts, ["*.debian.org".parse().unwrap()]);
        let tls = Listener::tls("127.0.0.1:8443".parse().unwrap());
        assert_eq!(proxy.listeners, ["127.0.0.1:8080".parse().unwrap(), "[::1]:81".parse().unwrap(), tls]);
        let identity = TlsIdentity { certificate: "a.pem".into(), key: "a.key".into() };
        assert_eq!(proxy.identities, [identity]);
        assert_eq!((proxy.memory_bytes, memory_cache), (Some(256 << 20), Some(16 << 20)));
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
            (vec!["--io", "magic"], "--io: not a way to do I/O: `magic`"),
            (vec!["--io"], "a value is required for '--io <HOW>' but none was supplied"),
            (vec!["--workers", "0"], "--workers: not a count of threads: `0`"),
            (vec!["--disk", ""], "--disk: an empty path"),
            (vec!["--policy", "lru"], "--policy: not a policy: `lru`"),
            (vec!["--tune", "reinsertion=maybe"], "--tune: neither on nor off: `maybe`"),
            (vec!["extra"], "unknown flag or argument: `extra`"),
        ] {
            let found = parse(&arguments).err().map(|failure| failure.to_string());
            assert!(found.as_deref().is_some_and(|found| found.starts_with(problem)), "{arguments:?}: {found:?}");
        }
    }
}

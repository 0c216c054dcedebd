//! The command line.
//!
//! Owns: the commands, and the flags that are no keys of the configuration file. `setting_flags` makes the others from
//! the table of settings. Nothing is started here. Invariant: every value is parsed by the same parser as in the file.

mod setting_flags;
mod usage_error;

use crate::{
    commands::{
        ca::CaCommand,
        cluster::ClusterCommand,
        env::EnvFlags,
        exec::{ExecFlags, isolated::IsolatedFlags},
        exec_server::{EXEC_SERVER, ExecServerFlags},
        explain::{EXPLAIN_EXAMPLES, RequestFlags, SHOW_EXAMPLES},
        ls::LsFlags,
        manual::{CompletionsFlags, ManualFlags},
        mirror::MirrorCommand,
        missing::MissingFlags,
        offline::OfflineFlags,
        pack::{PackFlags, UnpackFlags},
        pin::{PinFlags, UnpinFlags},
        purge::PurgeFlags,
        reload::ReloadFlags,
        service::ServiceCommand,
        store::StoreCommand,
        upgrade::UpgradeFlags,
        warm::WarmFlags,
    },
    ground::value,
    settings::{
        RunSettings,
        config::{self, LISTENERS, ORIGINS, STORE},
        mirrors::{self, OriginOf},
        tuning::{self, TunedConstant},
    },
};
use clap::{Args, Parser, Subcommand};
use larder_proxy::{BuildCache, Listener, TlsIdentity};
use setting_flags::SettingFlags;
use std::{net::SocketAddr, path::PathBuf};
pub(crate) use usage_error::failure;

const EXAMPLES: &str = "\
Examples:
  larder run                                  forward proxy on 127.0.0.1:3128
  curl -x http://127.0.0.1:3128 http://example.com/
  larder run --origin http://127.0.0.1:8080   cache in front of one web server
  larder exec -- pip install requests         cache what one command downloads
  larder store format /dev/sdb                create a store on a whole disk
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

/// Name of the hidden command with which `larder exec --offline` runs the user's command in an isolated network.
pub(crate) const EXEC_ISOLATED: &str = "exec-isolated";

/// A caching web proxy: forward and reverse, with a store on disk that survives restarts.
#[derive(Debug, Parser)]
#[command(name = "larder", version, after_help = EXAMPLES, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: CliCommand,
}

/// The commands of the program.
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
    #[cfg(feature = "top")]
    Top(crate::commands::top::TopFlags),
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
    /// Run this program as a systemd service.
    #[command(subcommand)]
    Service(ServiceCommand),
    /// Manage stores that are not in use, or serve one to other programs.
    #[command(subcommand)]
    Store(StoreCommand),
    #[cfg(feature = "lab")]
    #[command(flatten)]
    Lab(crate::commands::lab::LabCommand),
    /// Say how to get the commands of the laboratory.
    #[cfg(not(feature = "lab"))]
    #[command(name = "plan", aliases = ["bench", "sim"], hide = true, disable_help_flag = true)]
    NoLab(crate::commands::no_lab::Arguments),
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
    /// Check a configuration file and show its errors with their places
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
    /// Read settings from this TOML file (`larder config default` prints one)
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Address to listen on; a port alone is on 127.0.0.1 (repeatable) [default: 127.0.0.1:3128]
    #[arg(long, value_name = "ADDRESS", value_parser = value::listen_address, help_heading = LISTENERS)]
    listen: Vec<SocketAddr>,

    /// Address to listen on for TLS; requires --certificate (repeatable)
    #[arg(long, value_name = "ADDRESS", value_parser = value::listen_address, help_heading = LISTENERS)]
    listen_tls: Vec<SocketAddr>,

    /// Certificate chain and private key, two PEM files or one; reloaded when changed (repeatable)
    #[arg(long, value_name = "FILE[,KEY]", value_parser = value::identity, help_heading = LISTENERS)]
    certificate: Vec<TlsIdentity>,

    #[command(flatten)]
    settings: SettingFlags,

    /// Constant of a policy; `larder help tuning` lists them (repeatable)
    #[arg(long, value_name = "NAME=VALUE", value_parser = tuning::parse_tuned, help_heading = STORE)]
    tune: Vec<TunedConstant>,

    /// Package registries to mirror, such as pypi,npm; `larder mirror list` names all
    #[arg(long, value_name = "NAME,..", value_delimiter = ',', help_heading = ORIGINS,
        value_parser = |name: &str| mirrors::named(name).map(|registry| registry.name))]
    mirror: Vec<&'static str>,

    /// Server of a mirror, such as pypi=https://pypi.company.example (repeatable)
    #[arg(long, value_name = "NAME=URL", value_parser = mirrors::parse_origin_of, help_heading = ORIGINS)]
    origin_of: Vec<OriginOf>,

    /// Path of a build cache for ccache, sccache, Bazel, Gradle, Turborepo or Nix; only your programs here may write
    /// [default: /cache] (repeatable)
    #[arg(long, value_name = "PATH", value_parser = config::build_cache::parse, num_args = 0..=1,
        default_missing_value = "/cache", help_heading = ORIGINS)]
    build_cache: Vec<BuildCache>,

    /// Take over from a running proxy. `larder upgrade` sets this flag.
    #[arg(long, hide = true)]
    pub(crate) take_over: bool,
}

impl RunFlags {
    /// Applies the flags to `settings`. A list that is given as flags replaces the list in `settings`.
    pub(crate) fn apply(self, settings: &mut RunSettings) {
        fn set_list<T>(target: &mut Vec<T>, values: Vec<T>) {
            if !values.is_empty() {
                *target = values;
            }
        }
        let proxy = &mut settings.proxy;
        let tls = self.listen_tls.into_iter().map(Listener::tls);
        set_list(&mut proxy.listeners, self.listen.into_iter().map(Listener::plain).chain(tls).collect());
        set_list(&mut proxy.identities, self.certificate);
        set_list(&mut settings.registry_mirrors.names, self.mirror);
        settings.registry_mirrors.origins.extend(self.origin_of);
        config::build_cache::add(&mut proxy.build_caches, self.build_cache);
        if self.settings.values("disk") == ["none"] {
            // The sizes in the file belong to the file's disks, which the flags replace.
            settings.store.sizes.clear();
        }
        self.settings.apply(settings);
        for TunedConstant { name, value } in self.tune {
            settings.store.tune(name, value);
        }
    }
}

#[cfg(test)]
mod tests;

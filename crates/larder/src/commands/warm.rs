//! `larder warm`: fetches URLs into the cache before they are requested, through the running proxy or one that is
//! started for this.
//!
//! Owns: the flags, the list of URLs to fetch, and the summary at the end. `fetching` fetches, `sitemap` reads
//! sitemaps, and the proxy stores. Invariants: a URL that the cache can answer is not fetched, so an interrupted
//! command can be repeated. A response counts as stored only if the proxy confirmed it.

mod fetching;
mod pace;
mod sitemap;

use crate::{
    commands::{
        self,
        admin_client::{self, AdminFlags},
        private_larder::{self, AllowedTargets},
        url_argument, url_list,
    },
    ground::{
        failure::Failure,
        output::{print_line, tell},
        progress::ProgressLine,
        size, value,
    },
    run::control::{Control, ControlAnswer, ControlPath, ControlRequest, ControlSummary},
};
use clap::Args;
use fetching::{FetchOutcome, FetchTarget, OFFLINE, WarmContext};
use larder_proxy::HostPattern;
use pace::WarmPace;
use std::{
    collections::HashSet,
    net::SocketAddr,
    num::NonZeroU64,
    path::{self, PathBuf},
    sync::Arc,
};
use tokio::{runtime, task::JoinSet};

const EXAMPLES: &str = "\
Examples:
  larder warm http://example.com/ https://example.com/style.css
  larder warm urls.txt             one URL a line; - is standard input
  larder warm --sitemap https://example.com/sitemap.xml --rate 500KB
  larder warm --missing            requests that failed offline (larder missing)

If no Larder of yours runs, one is started on the default store, or on the one that --disk names, and \
ends with this command. URLs that are already stored are not fetched again, so you can restart an \
interrupted run. https:// URLs are stored as through interception, whether or not the proxy intercepts. \
Exit codes: 0 everything is stored, 1 something is missing.";

/// The flags of `larder warm`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct WarmFlags {
    /// URLs, and files that list URLs; `-` is standard input
    #[arg(value_name = "URL|FILE", required_unless_present_any = ["missing", "sitemap"])]
    sources: Vec<String>,

    /// URLs that were requested while offline and were not cached; fetched URLs are removed from that list
    #[arg(long)]
    missing: bool,

    /// URLs of a sitemap, or of the sitemaps of an index; may be gzip (repeatable)
    #[arg(long, value_name = "URL")]
    sitemap: Vec<String>,

    /// Number of concurrent fetches, from 1 to 64
    #[arg(long, value_name = "COUNT", default_value_t = 4, value_parser = value::jobs)]
    jobs: u8,

    /// Limit on bytes per second, for all fetches together, such as 500KB [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = value::rate)]
    rate: Option<NonZeroU64>,

    /// Field of the requests, such as "Accept-Encoding: gzip" (repeatable); it selects the variants that are stored
    #[arg(long = "field", value_name = "NAME: VALUE", value_parser = value::field_line)]
    fields: Vec<String>,

    /// Listener of the proxy, without TLS [default: that of your running larder]
    #[arg(long, value_name = "ADDRESS", value_parser = value::listen_address, conflicts_with = "networks")]
    proxy: Option<SocketAddr>,

    /// Store to fill if no larder of yours is running, as in its --disk [default: the one in your cache directory]
    #[arg(long, value_name = "PATH", conflicts_with_all = ["proxy", "admin"])]
    disk: Option<PathBuf>,

    #[command(flatten)]
    targets: AllowedTargets,

    /// Print the summary as JSON on standard output
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    admin: AdminFlags,
}

/// Counts of fetches by outcome.
#[derive(Default)]
struct WarmSummary {
    there: u64,
    fetched: u64,
    bytes: u64,
    not_stored: u64,
    failed: u64,
    /// Fetches for which the origin answered that it does not have the resource. Repeating them would not help.
    gone: u64,
}

/// Runs `larder warm`.
///
/// # Errors
/// There is no proxy, nothing to fetch, or a fetch or store failed.
pub(crate) fn run(flags: &WarmFlags) -> Result<(), Failure> {
    let (proxy, own) = match flags.proxy {
        Some(proxy) => (proxy, None),
        None => find_proxy(flags)?,
    };
    let outcome = warm(flags, proxy);
    // A proxy that was started for this command ends with its session. Closing the session waits until the proxy has
    // closed its store.
    if let Some(own) = own {
        own.close();
    }
    outcome
}

fn warm(flags: &WarmFlags, proxy: SocketAddr) -> Result<(), Failure> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(|error| {
        Failure::runtime(format!("cannot start: {error}"), "the limit on open files may be too low (ulimit -n)")
    })?;
    let warming = Arc::new(WarmContext { proxy, fields: flags.fields.clone(), pacing: WarmPace::new(flags.rate) });
    let targets = runtime.block_on(gather(flags, &warming))?;
    if targets.is_empty() && !flags.json {
        return print_line!("no URL is missing");
    }
    let shown = ProgressLine::new("warming");
    let sum = runtime.block_on(fetch_all(flags, &warming, targets, &shown))?;
    shown.finish();
    sum.tell(flags.json)?;
    match sum.failed + sum.not_stored {
        0 => Ok(()),
        count => Err(Failure::runtime(
            format!("not stored: {} of {}", size::show_count(count), size::show_count(sum.all())),
            match sum.gone {
                0 => "the reasons are above; run it again to try these again; larder explain URL shows what is stored"
                    .into(),
                _ if flags.missing => format!(
                    "the reasons are above; {} no longer in the list of missing URLs, because the origin does not have \
                     it: larder warm URL tries one again, larder warm --missing the others",
                    size::show_things(sum.gone, "is", "are")
                ),
                _ => {
                    "the reasons are above; an origin that has no such URL gives the same status again; larder explain \
                      URL shows what is stored"
                        .into()
                }
            },
        )),
    }
}

/// Returns the address of this user's running proxy. If none runs, starts one, which ends when the returned session is
/// dropped.
fn find_proxy(flags: &WarmFlags) -> Result<(SocketAddr, Option<Control>), Failure> {
    let Some(mut control) = ControlPath::connect_any()? else {
        let disk = flags.disk.as_deref().map(path::absolute).transpose().map_err(|error| {
            Failure::usage(format!("not a path for a store: {error}"), "give a file, or an existing directory")
        })?;
        let ask = ControlRequest::Open {
            hosts: vec![HostPattern::All.to_string()],
            except: Vec::new(),
            offline: false,
            allow_targets: flags.targets.shown(),
        };
        let (session, proxy, _) = private_larder::open(&ask, disk.as_deref())?;
        return Ok((proxy, Some(session)));
    };
    if flags.disk.is_some() {
        let help = "stop it first, or remove --disk to fill its store";
        return Err(Failure::usage("--disk names a store while a larder of yours is running", help));
    }
    if !flags.targets.networks.is_empty() {
        let help = "give it to that larder (larder run --allow-target), and not to this command";
        return Err(Failure::usage("--allow-target has no effect on the larder of yours that is running", help));
    }
    match control.ask_or_fail(&ControlRequest::About)? {
        Ok(ControlAnswer::About(ControlSummary { listener: Some(listener), .. })) => Ok((listener, None)),
        _ => {
            let help = "all its listeners may use TLS; name one without TLS with --proxy ADDRESS";
            Err(Failure::runtime("the running larder has no address to fetch through", help))
        }
    }
}

/// Returns the URLs to fetch, each once, in the order in which the arguments name them.
async fn gather(flags: &WarmFlags, warming: &WarmContext) -> Result<Vec<FetchTarget>, Failure> {
    let mut targets: Vec<FetchTarget> = Vec::new();
    for source in &flags.sources {
        if source.contains("://") {
            targets.push(target(source)?);
        } else {
            targets.extend(url_list::listed(source, target)?);
        }
    }
    for url in &flags.sitemap {
        for found in sitemap::fetch(warming, url).await? {
            targets.push(FetchTarget::plain(found));
        }
    }
    if flags.missing {
        let list = commands::missing::fetch(flags.admin)?;
        targets.extend(list.missed.into_iter().map(|missed| FetchTarget { url: missed.url, fields: missed.fields }));
    }
    let mut seen = HashSet::new();
    targets.retain(|target| seen.insert(target.url.clone()));
    if targets.is_empty() && !flags.missing {
        return Err(Failure::usage("nothing to fetch: no URL given", "see larder warm --help"));
    }
    Ok(targets)
}

fn target(url: &str) -> Result<FetchTarget, Failure> {
    let url = url_argument::whole_url(url)?;
    Ok(FetchTarget::plain(url.split('#').next().unwrap_or_default().to_owned()))
}

/// Fetches all targets, several at the same time, and returns the counts.
async fn fetch_all(
    flags: &WarmFlags,
    warming: &Arc<WarmContext>,
    targets: Vec<FetchTarget>,
    shown: &ProgressLine,
) -> Result<WarmSummary, Failure> {
    let count = targets.len() as u64;
    let mut sum = WarmSummary::default();
    let mut running = JoinSet::new();
    let mut waiting = targets.into_iter();
    loop {
        while running.len() < usize::from(flags.jobs)
            && let Some(target) = waiting.next()
        {
            let warming = Arc::clone(warming);
            running.spawn(async move {
                let outcome = warming.warm(&target).await;
                (target, outcome)
            });
        }
        let Some(ended) = running.join_next().await else { return Ok(sum) };
        let (target, outcome) =
            ended.map_err(|error| Failure::runtime(error.to_string(), "this is a mistake in larder"))?;
        if let FetchOutcome::NoProxy(why) = &outcome {
            shown.finish();
            let help = match why.as_str() {
                OFFLINE => "larder offline off lets it contact origins; then repeat the command",
                _ => "check that a larder listens there without TLS",
            };
            return Err(Failure::runtime(format!("cannot fetch through {}: {why}", warming.proxy), help));
        }
        if flags.missing && outcome.is_settled() {
            // An error means that another command has already removed the URL from the list.
            admin_client::ask(flags.admin, &format!("MISSING {}", target.url), "")?;
        }
        sum.note(&target, &outcome);
        shown.advance(1, count);
    }
}

impl WarmSummary {
    fn note(&mut self, target: &FetchTarget, outcome: &FetchOutcome) {
        let url = &target.url;
        let counted = match outcome {
            FetchOutcome::There => &mut self.there,
            FetchOutcome::Stored { bytes } => {
                self.bytes += bytes;
                &mut self.fetched
            }
            FetchOutcome::NotStored { .. } => &mut self.not_stored,
            FetchOutcome::Gone { .. } | FetchOutcome::Failed(_) | FetchOutcome::NoProxy(_) => &mut self.failed,
        };
        *counted += 1;
        match outcome {
            FetchOutcome::There | FetchOutcome::Stored { .. } => {}
            FetchOutcome::NotStored { why } => tell!("not stored: {url}: {why}"),
            FetchOutcome::Gone { status } => {
                self.gone += 1;
                tell!("failed: {url}: status {status}");
            }
            FetchOutcome::Failed(why) | FetchOutcome::NoProxy(why) => tell!("failed: {url}: {why}"),
        }
    }

    fn all(&self) -> u64 {
        self.there + self.fetched + self.not_stored + self.failed
    }

    fn tell(&self, is_json: bool) -> Result<(), Failure> {
        let Self { there, fetched, bytes, not_stored, failed, .. } = *self;
        if is_json {
            return print_line!(
                "{}",
                serde_json::json!({ "there": there, "fetched": fetched, "bytes": bytes, "not_stored": not_stored, "failed": failed })
            );
        }
        let shown = [fetched, there, not_stored, failed].map(size::show_count);
        let [fetched, there, not_stored, failed] = shown;
        let bytes = size::show(bytes);
        print_line!(
            "{fetched} fetched and stored ({bytes}), {there} already stored, {not_stored} not stored, {failed} failed"
        )
    }
}

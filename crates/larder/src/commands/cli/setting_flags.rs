//! The flags of `larder run` that are keys of the configuration file.
//!
//! Owns: their form on the command line. Their names, help and readers are in the table of settings
//! (`config::Setting`). Invariant: a value is accepted here if and only if the file's reader accepts it.

use crate::settings::{
    RunSettings,
    config::{self, Setting},
};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueHint};

/// The flags that were given on the command line, each with its values.
#[derive(Clone, Debug, Default)]
pub(super) struct SettingFlags(Vec<(&'static str, Vec<String>)>);

impl SettingFlags {
    /// Returns the values that were given for a flag, or none.
    pub(super) fn values(&self, flag: &str) -> &[String] {
        self.0.iter().find(|(name, _)| *name == flag).map_or(&[], |(_, values)| values)
    }

    /// Applies the values of all flags to `settings`.
    pub(super) fn apply(&self, settings: &mut RunSettings) {
        for setting in config::flagged() {
            let values = setting.flag().map_or(&[][..], |(name, _)| self.values(name));
            if !values.is_empty() {
                setting.apply_flag(settings, values).expect("each value was checked when it was parsed");
            }
        }
    }
}

impl Args for SettingFlags {
    fn augment_args(command: Command) -> Command {
        command.args(config::flagged().filter_map(arg))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for SettingFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let names = config::flagged().filter_map(Setting::flag).map(|(name, _)| name);
        let given = names.filter_map(|name| Some((name, matches.get_many(name)?.cloned().collect())));
        Ok(Self(given.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Makes the command-line flag for an entry of the table of settings. Returns `None` if the setting has no flag.
fn arg(setting: &'static Setting) -> Option<Arg> {
    let (name, form) = setting.flag()?;
    let check = |text: &str| {
        let text = text.to_owned();
        setting.apply_flag(&mut RunSettings::default(), std::slice::from_ref(&text)).map(|()| text)
    };
    let hint = if ["FILE", "PATH"].contains(&form.value_name) { ValueHint::AnyPath } else { ValueHint::Unknown };
    let action = if form.is_repeated { ArgAction::Append } else { ArgAction::Set };
    let arg = Arg::new(name).long(name).value_name(form.value_name).help(form.help);
    let arg = arg.action(action).value_hint(hint).value_parser(check);
    Some(if form.heading.is_empty() { arg } else { arg.help_heading(form.heading) })
}

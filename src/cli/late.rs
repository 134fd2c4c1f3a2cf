//! A command whose options are only described when it is the one that was asked for: to describe those of all commands
//! takes longer than to read the arguments of one.

use clap::{ArgMatches, Args, Command, Error, FromArgMatches, Subcommand};
use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::ops::Deref;

thread_local! {
    /// The one that was asked for; none while all are described.
    static ASKED: RefCell<Option<OsString>> = const { RefCell::new(None) };
}

/// Does `work`, for which only the command `name` is described; all of them, when nothing that could be the name of one
/// is given.
pub fn describing<T>(name: Option<&OsStr>, work: impl FnOnce() -> T) -> T {
    let is_name = |name: &&OsStr| *name != "help" && !name.as_encoded_bytes().starts_with(b"-");
    ASKED.set(name.filter(is_name).map(OsStr::to_owned));
    let done = work();
    ASKED.set(None);
    done
}

/// The arguments of a command, or its subcommands.
#[derive(Debug)]
pub struct Late<T>(Box<T>);

impl<T> Deref for Late<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: FromArgMatches> FromArgMatches for Late<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        T::from_arg_matches(matches).map(|args| Self(Box::new(args)))
    }

    fn from_arg_matches_mut(matches: &mut ArgMatches) -> Result<Self, Error> {
        T::from_arg_matches_mut(matches).map(|args| Self(Box::new(args)))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.0.update_from_arg_matches(matches)
    }
}

/// Whether another one than this was asked for.
fn is_other(command: &Command) -> bool {
    ASKED.with_borrow(|asked| asked.as_deref().is_some_and(|asked| asked != command.get_name()))
}

impl<T: Args> Args for Late<T> {
    fn augment_args(command: Command) -> Command {
        if is_other(&command) { command } else { T::augment_args(command) }
    }

    fn augment_args_for_update(command: Command) -> Command {
        T::augment_args_for_update(command)
    }
}

impl<T: Subcommand> Subcommand for Late<T> {
    fn augment_subcommands(command: Command) -> Command {
        if is_other(&command) { command } else { T::augment_subcommands(command) }
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        T::augment_subcommands_for_update(command)
    }

    fn has_subcommand(name: &str) -> bool {
        T::has_subcommand(name)
    }
}

//! How a run is kept to one process: `--lease` and `--lease-ttl` of every command, DELTA_LEASE and DELTA_LEASE_TTL.

use crate::environment;
use crate::failure::CommandFailure;
use clap::{Args, ValueEnum};
use delta_program::number_argument::parse_time_in;
use delta_run::lease::lease_policy::{self, LeaseChoice, LeasePolicy};
use std::ffi::OsString;
use std::sync::OnceLock;
use std::time::Duration;

const LEASE_VARIABLE: &str = "DELTA_LEASE";
const TTL_VARIABLE: &str = "DELTA_LEASE_TTL";

/// The minimum and the maximum time without a heartbeat after which another process takes over, in milliseconds.
const MIN_TTL: u64 = 500;
const MAX_TTL: u64 = 3_600_000;

/// The options of every command, which their own lists leave out.
#[derive(Debug, Args)]
pub struct LeaseOptions {
    /// How a run is kept to one process: a file lock, or leases across hosts
    #[arg(long, value_enum, value_name = "KIND", global = true, hide = true)]
    lease: Option<LeaseKindArgument>,
    /// Let another process take over after this long without a heartbeat
    #[arg(long, value_name = "TIME", global = true, hide = true, value_parser = parse_time_in(MIN_TTL..=MAX_TTL))]
    lease_ttl: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LeaseKindArgument {
    /// Leases where another host may reach the files, else a lock
    Auto,
    /// A file lock
    Flock,
    /// Leases across hosts
    Turns,
}

impl LeaseKindArgument {
    fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Flock => "flock",
            Self::Turns => "turns",
        }
    }

    fn choice(self) -> LeaseChoice {
        match self {
            Self::Auto => LeaseChoice::Auto,
            Self::Flock => LeaseChoice::Flock,
            Self::Turns => LeaseChoice::Turns,
        }
    }
}

/// The options as arguments, for the processes that this one starts for its runs.
static FORWARDED: OnceLock<Vec<String>> = OnceLock::new();

/// The options that this process was given, as arguments.
pub fn forwarded_arguments() -> &'static [String] {
    FORWARDED.get().map_or(&[], Vec::as_slice)
}

impl LeaseOptions {
    /// The variables that say the same as these options.
    pub fn variables(&self) -> impl Iterator<Item = (OsString, OsString)> {
        let kind = self.lease.map(|kind| (LEASE_VARIABLE.into(), kind.name().into()));
        let ttl = self.lease_ttl.map(|ttl| (TTL_VARIABLE.into(), format!("{ttl}ms").into()));
        kind.into_iter().chain(ttl)
    }

    /// Sets how this process owns runs. Call this before a run is claimed.
    ///
    /// # Errors
    /// The value of a variable is none of the possible ones.
    pub fn apply(&self) -> Result<(), CommandFailure> {
        let kind = match self.lease {
            None => operator_variable(LEASE_VARIABLE).map(|text| parse_lease(&text)).transpose()?,
            option => option,
        };
        let ttl = match self.lease_ttl {
            None => operator_variable(TTL_VARIABLE).map(|text| parse_ttl(&text)).transpose()?,
            option => option,
        };
        let mut arguments = Vec::new();
        if let Some(kind) = self.lease {
            arguments.push(format!("--lease={}", kind.name()));
        }
        if let Some(ttl) = self.lease_ttl {
            arguments.push(format!("--lease-ttl={ttl}ms"));
        }
        let _ = FORWARDED.set(arguments);
        if kind.is_some() || ttl.is_some() {
            lease_policy::set_lease_policy(LeasePolicy {
                choice: kind.map_or(LeaseChoice::Auto, LeaseKindArgument::choice),
                ttl: ttl.map_or(LeasePolicy::DEFAULT_TTL, Duration::from_millis),
            });
        }
        Ok(())
    }
}

/// Checks a variable as a process reads it that gets it: other variables are right.
///
/// # Errors
/// Its value is none of the possible ones.
pub fn check_lease_variable(name: &str, value: &str) -> Result<(), CommandFailure> {
    match name {
        LEASE_VARIABLE if !value.is_empty() => parse_lease(value).map(|_| ()),
        TTL_VARIABLE if !value.is_empty() => parse_ttl(value).map(|_| ()),
        _ => Ok(()),
    }
}

fn parse_lease(text: &str) -> Result<LeaseKindArgument, CommandFailure> {
    LeaseKindArgument::from_str(text, false)
        .map_err(|_| unexpected_value(LEASE_VARIABLE, "auto, flock or turns", text))
}

fn parse_ttl(text: &str) -> Result<u64, CommandFailure> {
    parse_time_in(MIN_TTL..=MAX_TTL)(text)
        .map_err(|_| unexpected_value(TTL_VARIABLE, "a time from 500ms to 1h", text))
}

fn unexpected_value(name: &str, expected: &str, text: &str) -> CommandFailure {
    CommandFailure::config(format!("{name}: expected {expected}, found `{text}`"), None)
}

/// The value of a variable; `None` if it is not set, or empty.
fn operator_variable(name: &str) -> Option<String> {
    environment::variable(name).filter(|text| !text.is_empty())
}

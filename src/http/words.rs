//! What kept an exchange from its answer, in words, and whether another try makes sense.

use super::retry::Retry;
use super::{Trouble, Wire};
use crate::time::human_duration;
use std::error::Error as _;
use std::io;
use std::time::Duration;
use ureq::Error;

impl Wire {
    /// What a person reads of `trouble` on this way.
    pub fn words(&self, trouble: &Trouble) -> String {
        let address = self.address();
        match trouble {
            Trouble::Cancelled => "interrupted".to_owned(),
            Trouble::Total => {
                format!("no whole answer from {address} within {}", span(self.total))
            }
            Trouble::Idle => format!("nothing came from {address} for {}", span(self.idle)),
            Trouble::Connect(error) => {
                let way = if self.has_proxy() { " through the proxy" } else { "" };
                format!("could not connect to {address}{way}: {}", chain(error))
            }
            Trouble::Unanswered { error, .. } => {
                format!("{address} closed the connection without an answer: {}", chain(error))
            }
            Trouble::Broken(error) => {
                format!("the answer of {address} broke off: {}", chain(error))
            }
        }
    }
}

impl Trouble {
    /// Whether another try makes sense.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Unanswered { kept: true, .. } => Retry::AtOnce,
            Self::Cancelled => Retry::Never,
            Self::Connect(error) if tls_error(error).is_some_and(is_lasting) => Retry::Never,
            _ => Retry::Backoff,
        }
    }
}

fn span(duration: Duration) -> String {
    human_duration(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

/// The error and everything behind it.
fn chain(error: &Error) -> String {
    let Error::Io(error) = error else { return error.to_string() };
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

/// What of an error the encryption is to blame for.
pub fn tls_error(error: &Error) -> Option<&rustls::Error> {
    match error {
        Error::Rustls(error) => Some(error),
        Error::Io(error) => error.get_ref()?.downcast_ref(),
        _ => None,
    }
}

/// Whether nothing listens at the address.
pub fn is_refused(error: &Error) -> bool {
    matches!(error, Error::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused)
}

/// A certificate that is not trusted now will not be trusted in a second.
fn is_lasting(error: &rustls::Error) -> bool {
    matches!(error, rustls::Error::InvalidCertificate(_) | rustls::Error::General(_))
}

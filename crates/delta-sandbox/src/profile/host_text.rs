//! Hosts as users write them: `name[:port]`, `*.name`, addresses.

use crate::profile::HostRule;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// The port of a host that names none.
pub const DEFAULT_PORT: u16 = 443;

/// Parses `name`, `name:port`, `*.name`, an IPv4 address, or an IPv6 address in brackets.
///
/// # Errors
/// What to write instead.
pub fn parse_host_rule(text: &str) -> Result<HostRule, String> {
    if let Some((_, rest)) = text.split_once("://") {
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let port = if text.starts_with("http://") && !host.contains(':') { ":80" } else { "" };
        return Err(format!("write the host alone: `{host}{port}`"));
    }
    if text.parse::<Ipv6Addr>().is_ok() {
        return Err(format!("write an IPv6 address in brackets: `[{text}]:{DEFAULT_PORT}`"));
    }
    let split = match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (text, None),
    };
    let port = match split.1 {
        None => DEFAULT_PORT,
        Some(port) => match port.parse::<u16>() {
            Ok(port) if port > 0 => port,
            _ => return Err("write a port from 1 to 65535 after the colon".to_owned()),
        },
    };
    let host = split.0.to_ascii_lowercase();
    let is_bracketed = host.starts_with('[') && host.ends_with(']');
    if is_bracketed && host[1..host.len() - 1].parse::<Ipv6Addr>().is_ok() {
        return Ok(HostRule { host: host[1..host.len() - 1].to_owned(), port });
    }
    if !is_host_name(host.strip_prefix("*.").unwrap_or(&host)) {
        let help = "write a name such as `crates.io`, `github.com:22`, `*.example.com` or an address; `net: all` for every host";
        return Err(help.to_owned());
    }
    Ok(HostRule { host, port })
}

fn is_host_name(name: &str) -> bool {
    name.len() <= 253 && name.split('.').all(is_host_label)
}

fn is_host_label(label: &str) -> bool {
    (1..=63).contains(&label.len())
        && !label.starts_with('-')
        && !label.ends_with('-')
        && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
}

impl HostRule {
    /// Whether the rule is for this machine and [`DEFAULT_PORT`], on which local models and most local servers do not listen.
    pub fn is_loopback_without_port(&self) -> bool {
        let is_loopback = self
            .host
            .parse::<IpAddr>()
            .map_or(self.host == "localhost", |address| address.is_loopback());
        is_loopback && self.port == DEFAULT_PORT
    }

    /// Whether everything that `other` allows is allowed by this rule.
    pub fn covers(&self, other: &Self) -> bool {
        if self.port != other.port {
            return false;
        }
        if self.host == other.host {
            return true;
        }
        let Some(domain) = self.host.strip_prefix("*.") else { return false };
        let name = other.host.strip_prefix("*.").unwrap_or(&other.host);
        let is_below = name.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'));
        is_below && name.parse::<IpAddr>().is_err()
    }
}

impl fmt::Display for HostRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            return write!(f, "[{}]:{}", self.host, self.port);
        }
        f.write_str(&self.host)?;
        if self.port == DEFAULT_PORT { Ok(()) } else { write!(f, ":{}", self.port) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_22_4_hosts_are_written_as_usual() {
        let check = |text: &str, host: &str, port: u16, printed: &str| {
            let rule = parse_host_rule(text).unwrap();
            assert_eq!(rule, HostRule { host: host.to_owned(), port });
            assert_eq!(rule.to_string(), printed);
            assert_eq!(parse_host_rule(printed).as_ref(), Ok(&rule));
        };
        check("Crates.io", "crates.io", 443, "crates.io");
        check("github.com:22", "github.com", 22, "github.com:22");
        check("*.example.com", "*.example.com", 443, "*.example.com");
        check("localhost:11434", "localhost", 11434, "localhost:11434");
        check("10.0.0.1", "10.0.0.1", 443, "10.0.0.1");
        check("[::1]:80", "::1", 80, "[::1]:80");
        for text in ["", "*", "a b", "a..b", "-a", "a:0", "a:x", "a/b", "::1", "*.*.a", "[x]"] {
            assert!(parse_host_rule(text).is_err(), "{text}");
        }
        let help = parse_host_rule("http://a.example/x").unwrap_err();
        assert_eq!(help, "write the host alone: `a.example:80`");
    }

    #[test]
    fn c_22_4_a_pattern_covers_the_names_below_it() {
        let covers = |one: &str, other: &str| {
            parse_host_rule(one).unwrap().covers(&parse_host_rule(other).unwrap())
        };
        assert!(covers("*.a.b", "x.a.b") && covers("*.a.b", "*.x.a.b") && covers("a.b", "a.b"));
        assert!(!covers("*.a.b", "a.b") && !covers("*.a.b", "xa.b") && !covers("a.b", "*.a.b"));
        assert!(!covers("a.b", "a.b:80"));
    }
}

//! The hosts of addresses, and which of them are this machine.

/// Whether `host` is a loopback address or `localhost`.
pub fn is_loopback_host(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// The host that `text` names: a host with or without a port, or an http(s) URL. An IPv6 address has its brackets.
pub fn host_of(text: &str) -> Option<&str> {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let authority = match rest {
        Some(rest) => rest.split(['/', '?', '#']).next().unwrap_or_default(),
        None => text,
    };
    let name_end = authority.find(']').map_or(0, |end| end + 1);
    let port = authority[name_end..].find(':').map(|colon| name_end + colon);
    let host = &authority[..port.unwrap_or(authority.len())];
    let is_host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            host.contains(|c: char| c.is_ascii_alphanumeric())
                && host.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
        }
    };
    is_host.then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_hosts_are_recognized() {
        for host in ["localhost", "127.0.0.1", "127.1.2.3", "[::1]"] {
            assert!(is_loopback_host(host), "{host}");
        }
        for host in ["example.org", "10.0.0.1", "[2001:db8::1]", ""] {
            assert!(!is_loopback_host(host), "{host}");
        }
    }
}

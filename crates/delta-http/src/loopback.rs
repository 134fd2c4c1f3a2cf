//! Which hosts are this machine.

/// Whether `host` is a loopback address or `localhost`.
pub fn is_loopback_host(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
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

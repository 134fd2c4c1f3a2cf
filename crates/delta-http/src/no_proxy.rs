//! NO_PROXY: the hosts that are reached without a proxy, as curl reads the list, and with ports.

use std::net::IpAddr;

/// Whether `list` names `host` at `port`. Commas or blanks separate its entries: `*`, a host or a domain with all below
/// it (`.` or `*.` in front changes nothing), an address, a network such as `10.0.0.0/8`; a port after a colon limits the
/// entry to it.
pub fn is_proxy_exempt(list: &str, host: &str, port: u16) -> bool {
    let host = plain_host(host);
    let address = host.parse::<IpAddr>().map(|address| address.to_canonical()).ok();
    list.split(|c: char| c == ',' || c.is_whitespace()).any(|entry| {
        let (name, entry_port) = split_port(entry);
        let has_port = entry_port.is_none_or(|entry_port| entry_port == port);
        has_port
            && match address {
                _ if name == "*" => true,
                Some(address) => is_in_network(address, name),
                None => is_in_domain(&host, name),
            }
    })
}

/// A host in lower case, without the brackets of an address and the dot at the end of a name.
fn plain_host(host: &str) -> String {
    host.trim_matches(['[', ']']).trim_end_matches('.').to_ascii_lowercase()
}

/// An entry without its port. The colons of an IPv6 address without brackets begin none.
fn split_port(entry: &str) -> (&str, Option<u16>) {
    let split =
        entry.rsplit_once(':').filter(|(name, _)| name.ends_with(']') || !name.contains(':'));
    match split.map(|(name, port)| (name, port.parse())) {
        Some((name, Ok(port))) => (name, Some(port)),
        _ => (entry, None),
    }
}

fn is_in_network(address: IpAddr, network: &str) -> bool {
    let (base, length) = match network.split_once('/') {
        Some((base, length)) => (base, Some(length.parse::<u32>())),
        None => (network, None),
    };
    let Ok(base) = plain_host(base).parse::<IpAddr>() else { return false };
    let (width, difference) = match (address, base.to_canonical()) {
        (IpAddr::V4(one), IpAddr::V4(other)) => (32, u128::from(one.to_bits() ^ other.to_bits())),
        (IpAddr::V6(one), IpAddr::V6(other)) => (128, one.to_bits() ^ other.to_bits()),
        _ => return false,
    };
    match length.unwrap_or(Ok(width)) {
        Ok(length) if length <= width => difference.checked_shr(width - length).unwrap_or(0) == 0,
        _ => false,
    }
}

fn is_in_domain(host: &str, domain: &str) -> bool {
    let domain = plain_host(domain.trim_start_matches("*.").trim_start_matches('.'));
    let subdomain = host.strip_suffix(&domain).filter(|_| !domain.is_empty());
    subdomain.is_some_and(|subdomain| subdomain.is_empty() || subdomain.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_37_6_no_proxy_takes_names_addresses_networks_and_ports() {
        let check = |list: &str, host: &str, expected: bool| {
            assert_eq!(is_proxy_exempt(list, host, 8000), expected, "{host} in {list}");
        };
        for list in [
            "*",
            "a.example",
            ".example",
            "x,EXAMPLE.",
            "*.example",
            "x a.example:8000",
            "x\ty,\n.a.example",
        ] {
            check(list, "a.example", true);
            check(list, "A.Example.", true);
        }
        for list in [
            "",
            ",",
            ".",
            "ample",
            "b.a.example",
            "a.example:80",
            "a.example:x",
            "*.a",
            "10.0.0.0/8",
        ] {
            check(list, "a.example", false);
        }
        for list in [
            "10.0.0.0/8",
            "10.9.8.7",
            "10.9.8.7:8000",
            "0.0.0.0/0",
            "x, 10.9.8.6/31",
            "::ffff:10.9.8.7",
        ] {
            check(list, "10.9.8.7", true);
            check(list, "[::ffff:10.9.8.7]", true);
        }
        for list in [
            "10.9.8.6/32",
            "11.0.0.0/8",
            "9.8.7",
            ".8.7",
            "10.9.8.7:80",
            "10.0.0.0/33",
            "10.0.0.0/x",
            "::/0",
            "/8",
        ] {
            check(list, "10.9.8.7", false);
        }
        for list in
            ["2001:db8::/32", "[2001:DB8::5]", "2001:db8:0::5", "[2001:db8::5]:8000", "::/0"]
        {
            check(list, "[2001:db8::5]", true);
        }
        for list in ["2001:db8::/127", "[2001:db8::5]:80", "0.0.0.0/0", "2001:db8::5/129"] {
            check(list, "[2001:db8::5]", false);
        }
    }
}

//! The HTTP proxy of the operator, through which connections to listed hosts are made.

use super::host_policy::HostPort;
use super::machine_names::normalize_host_name;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use delta_base::text::byte_escape::decode_percent;
use delta_http::is_proxy_exempt;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// The proxy variables of the process that starts the service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProxySettings {
    https: Option<HttpProxy>,
    http: Option<HttpProxy>,
    /// NO_PROXY.
    exempt: String,
}

/// An HTTP proxy that makes connections with CONNECT.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HttpProxy {
    pub address: HostPort,
    /// The value of the header Proxy-Authorization.
    pub authorization: Option<String>,
}

impl ProxySettings {
    /// Reads HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY, or their names in lower case, through `variable`. HTTP_PROXY
    /// is for port 80, HTTPS_PROXY for all other ports. An error names what was expected.
    pub fn parse(variable: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let value = |name: &str| {
            [name.to_ascii_lowercase(), name.to_owned()]
                .into_iter()
                .find_map(|name| Some((variable(&name).filter(|value| !value.is_empty())?, name)))
        };
        let proxy = |name: &str| {
            let setting = value(name).or_else(|| value("ALL_PROXY"));
            setting.map(|(url, name)| HttpProxy::parse(&url, &name)).transpose()
        };
        let exempt = value("NO_PROXY").map(|(list, _)| list).unwrap_or_default();
        Ok(Self { https: proxy("HTTPS_PROXY")?, http: proxy("HTTP_PROXY")?, exempt })
    }

    /// The proxy for connections to a host. The loopback is always reached directly.
    pub(super) fn proxy_for(&self, to: &HostPort) -> Option<&HttpProxy> {
        let address = to.host.parse::<IpAddr>().ok();
        let is_loopback = address.map_or(to.host == "localhost", |address| address.is_loopback());
        if is_loopback || is_proxy_exempt(&self.exempt, &to.host, to.port) {
            return None;
        }
        if to.port == 80 { self.http.as_ref() } else { self.https.as_ref() }
    }
}

impl HttpProxy {
    fn parse(url: &str, variable: &str) -> Result<Self, String> {
        let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
        if !scheme.eq_ignore_ascii_case("http") {
            return Err(format!(
                "`{variable}` names a proxy with `{scheme}://`: expected `http://HOST:PORT`, because listed hosts are \
                 reached with CONNECT"
            ));
        }
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let (user, address) = match authority.rsplit_once('@') {
            Some((user, address)) => (Some(user), address),
            None => (None, authority),
        };
        let (host, port) = match address.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse::<u16>().ok()),
            _ => (address, Some(80)),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        match port {
            Some(port) if !host.is_empty() => Ok(Self {
                address: HostPort { host: normalize_host_name(host), port },
                authorization: user
                    .map(|user| format!("Basic {}", BASE64_STANDARD.encode(decode_percent(user)))),
            }),
            _ => Err(format!("`{variable}` is not an address: expected `http://HOST:PORT`")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(variables: &[(&str, &str)]) -> Result<ProxySettings, String> {
        ProxySettings::parse(|name| {
            let setting = variables.iter().find(|(variable, _)| *variable == name);
            setting.map(|(_, value)| (*value).to_owned())
        })
    }

    fn proxy(variables: &[(&str, &str)], host: &str, port: u16) -> Option<String> {
        let settings = settings(variables).unwrap();
        let proxy = settings.proxy_for(&HostPort { host: host.to_owned(), port })?;
        Some(format!("{} {}", proxy.address, proxy.authorization.as_deref().unwrap_or("-")))
    }

    #[test]
    fn each_port_has_its_proxy() {
        let all = [
            ("https_proxy", "http://Secure:3128/"),
            ("HTTP_PROXY", "plain"),
            ("no_proxy", ".corp, *.lan,10.0.0.5 exact.example 10.8.0.0/16 b.example:443"),
        ];
        assert_eq!(proxy(&all, "a.example", 443).as_deref(), Some("secure:3128 -"));
        assert_eq!(proxy(&all, "a.example", 22).as_deref(), Some("secure:3128 -"));
        assert_eq!(proxy(&all, "a.example", 80).as_deref(), Some("plain:80 -"));
        for exempt in [
            "x.corp",
            "corp",
            "a.lan",
            "10.0.0.5",
            "exact.example",
            "localhost",
            "::1",
            "10.8.3.1",
            "b.example",
        ] {
            assert_eq!(proxy(&all, exempt, 443), None, "{exempt}");
        }
        assert!(proxy(&all, "notexact.example", 443).is_some());
        assert!(proxy(&all, "xcorp", 443).is_some());
        assert!(proxy(&all, "10.9.3.1", 443).is_some());
        assert!(proxy(&all, "b.example", 80).is_some());
        assert_eq!(proxy(&[("ALL_PROXY", "http://p:1"), ("NO_PROXY", "*")], "a", 443), None);
        assert_eq!(proxy(&[], "a", 443), None);
        assert_eq!(proxy(&[("HTTPS_PROXY", "")], "a", 443), None);
    }

    #[test]
    fn a_proxy_may_need_a_password_and_has_to_be_http() {
        let url = "http://us%40er:p%:w@[2001:db8::1]:8080";
        let expected = format!("[2001:db8::1]:8080 Basic {}", BASE64_STANDARD.encode("us@er:p%:w"));
        assert_eq!(proxy(&[("ALL_PROXY", url)], "a", 443), Some(expected));
        let error = settings(&[("ALL_PROXY", "socks5h://secret@p:1")]).unwrap_err();
        assert!(
            error.starts_with("`ALL_PROXY` names a proxy with `socks5h://`: expected"),
            "{error}"
        );
        assert!(settings(&[("HTTP_PROXY", "http://p:x")]).is_err());
        assert!(settings(&[("HTTP_PROXY", "http://:80")]).is_err());
    }
}

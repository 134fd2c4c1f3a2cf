//! Which proxy a request goes through, by the variables of the operator.

use crate::{is_loopback_host, is_proxy_exempt};
use http::Uri;

/// The variables that decide, besides those in lower case.
pub const PROXY_VARIABLES: [&str; 5] =
    ["ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "REQUEST_METHOD"];

/// Whether `host` is this machine: a loopback address, or a name that resolvers keep on it.
pub fn is_this_machine(host: &str) -> bool {
    is_loopback_host(host) || host.to_ascii_lowercase().ends_with(".localhost")
}

/// The proxy for a URL, unless `NO_PROXY` exempts its host, or it is this machine: the proxy would ask itself, and get a key
/// that any agent may send to this machine. A proxy sees the requests, and without encryption the key: `operator_value`
/// has the variables of the operator alone.
pub fn choose_proxy(url: &str, operator_value: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    let uri: Uri = url.parse().ok()?;
    let scheme = uri.scheme_str().filter(|scheme| matches!(*scheme, "http" | "https"))?;
    let host = uri.host().filter(|host| !host.is_empty())?;
    if is_this_machine(host.trim_end_matches('.')) {
        return None;
    }
    let value = |name: &str| operator_value(&name.to_lowercase()).or_else(|| operator_value(name));
    let port = uri.port_u16().unwrap_or(if scheme == "https" { 443 } else { 80 });
    if value("NO_PROXY").is_some_and(|list| is_proxy_exempt(&list, host, port)) {
        return None;
    }
    let of_scheme = if scheme == "https" {
        value("HTTPS_PROXY")
    } else if operator_value("REQUEST_METHOD").is_some() {
        // A program of a web server: there HTTP_PROXY is the header `Proxy` of a request.
        operator_value("http_proxy")
    } else {
        value("HTTP_PROXY")
    };
    of_scheme.or_else(|| value("ALL_PROXY"))
}

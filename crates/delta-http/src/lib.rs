//! What a client of HTTP decides and parses, without a connection: the head of a response, whether another attempt makes
//! sense ([`retry`]), a body of server-sent events ([`sse_parser`]), addresses.

pub use host::{host_of, is_loopback_host};
use http::{HeaderMap, StatusCode};
pub use no_proxy::is_proxy_exempt;
pub use proxy_choice::{PROXY_VARIABLES, choose_proxy, is_this_machine};

mod host;
mod no_proxy;
mod proxy_choice;
pub mod retry;
pub mod sse_parser;

/// The status and the headers of a response.
#[derive(Debug)]
pub struct ResponseHead {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
}

/// The content codings that IANA knows. Some servers write another word there, such as a charset or `none`, and encode nothing.
const CONTENT_CODINGS: [&str; 12] = [
    "aes128gcm",
    "br",
    "compress",
    "dcb",
    "dcz",
    "deflate",
    "exi",
    "gzip",
    "pack200-gzip",
    "x-compress",
    "x-gzip",
    "zstd",
];

impl ResponseHead {
    /// The value of a header, if it is text.
    pub fn header_text(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// A head with one header.
    #[cfg(test)]
    fn with_header(status: u16, name: &str, value: &str) -> Self {
        use http::HeaderName;
        let name = HeaderName::try_from(name).unwrap();
        let headers = HeaderMap::from_iter([(name, value.parse().unwrap())]);
        Self { status: StatusCode::from_u16(status).unwrap(), headers }
    }

    /// The encoding of the body, if it has one. This client decodes none.
    pub fn content_encoding(&self) -> Option<&str> {
        let encoding = self.header_text("content-encoding")?.trim();
        let mut names = encoding.split(',').map(|name| name.trim().to_ascii_lowercase());
        names.any(|name| CONTENT_CODINGS.contains(&&*name)).then_some(encoding)
    }
}

/// Appends `path` to the path of the URL `base`, unless it ends with it. A query stays at the end; a fragment is removed.
pub fn append_path(base: &str, path: &str) -> String {
    let base = base.split_once('#').map_or(base, |(before, _)| before);
    let (base, query) = match base.split_once('?') {
        Some((base, query)) => (base, format!("?{query}")),
        None => (base, String::new()),
    };
    let base = base.trim_end_matches('/');
    let path = if base.ends_with(path) { "" } else { path };
    format!("{base}{path}{query}")
}

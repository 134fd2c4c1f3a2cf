//! The way through a proxy: a tunnel by CONNECT for an `https` address, requests in absolute form for an `http` one, as
//! curl and browsers send them, or SOCKS5 (RFC 1928, 1929).
//!
//! ureq makes tunnels too, but shows nothing of a refusal but its status, and its SOCKS waits without a cancellation.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};
use ureq::config::Config;
use ureq::http::uri::Authority;
use ureq::http::{HeaderValue, StatusCode, Uri};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, Either, NextTimeout, Transport, TransportAdapter,
};
use ureq::{Error, Proxy, ProxyProtocol};

/// The most of a refusal that is read, head and body each.
const MAX_REFUSAL_BYTES: usize = 16 * 1024;

/// Why a proxy has not opened a connection.
#[derive(Debug)]
pub struct ProxyRefusal {
    /// The status of a proxy of HTTP.
    pub status: Option<StatusCode>,
    /// Its words: the body of an answer, or what a code of SOCKS means.
    pub words: String,
    /// Another attempt would end in the same way.
    pub is_lasting: bool,
}

impl fmt::Display for ProxyRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status {
            Some(status) => write!(f, "{status}"),
            None => f.write_str(&self.words),
        }
    }
}

impl std::error::Error for ProxyRefusal {}

impl ProxyRefusal {
    pub(super) fn is_cause_of(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|source| source.is::<Self>())
    }

    fn without_status(words: &str, is_lasting: bool) -> io::Error {
        io::Error::other(Self { status: None, words: words.to_owned(), is_lasting })
    }
}

/// A proxy, and how its connections are made.
#[derive(Debug)]
pub(super) struct ProxyRoute {
    proxy: Proxy,
    /// The address of the proxy, with the scheme of what it speaks first: TLS, or not.
    uri: Uri,
    /// The settings of the connection to the proxy itself.
    direct: Config,
    /// The URL for messages, without user and password.
    pub name: String,
}

impl ProxyRoute {
    /// Parses the URL of a proxy; without a scheme it is one of HTTP. The message of an error does not repeat a password.
    pub fn parse(url: &str) -> Result<Proxy, String> {
        let url = url.trim();
        let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
        let scheme = scheme.to_ascii_lowercase();
        let variables = "HTTPS_PROXY, HTTP_PROXY or ALL_PROXY";
        if !["http", "https", "socks5", "socks5h"].contains(&scheme.as_str()) {
            return Err(format!(
                "delta cannot use a proxy with `{scheme}://` (in {variables}): write `http://HOST:PORT`, `https://HOST:PORT`, \
                 `socks5://HOST:PORT`, or `socks5h://HOST:PORT` (the proxy resolves names)"
            ));
        }
        let proxy = Proxy::new(&format!("{scheme}://{rest}"));
        let address = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let address = address.rsplit_once('@').map_or(address, |(_, address)| address);
        let after_host = address.rsplit_once(']').map_or(address, |(_, port)| port);
        // ureq would take the usual port.
        let has_port =
            after_host.split_once(':').is_none_or(|(_, port)| port.parse::<u16>().is_ok());
        let usable_proxy = proxy.ok().filter(|proxy| {
            let lengths = [proxy.username(), proxy.password()].map(|text| text.map_or(1, str::len));
            has_port
                && !proxy.host().is_empty()
                && (scheme.starts_with("http") || lengths.iter().all(|n| (1..=255).contains(n)))
        });
        usable_proxy.ok_or_else(|| {
            format!(
                "expected the URL of a proxy in {variables}, such as `{scheme}://HOST:PORT` or \
                 `{scheme}://USER:PASSWORD@HOST:PORT`, with `%` and two hexadecimal digits for other characters in the \
                 password than letters, digits, `-`, `.`, `_` and `~`"
            )
        })
    }

    pub fn new(proxy: Proxy, direct: Config) -> Result<Self, String> {
        let scheme = if proxy.protocol() == ProxyProtocol::Https { "https" } else { "http" };
        let address = format!("{}:{}", proxy.host(), proxy.port());
        let uri = format!("{scheme}://{address}/").parse();
        let uri = uri.map_err(|error| format!("the address of the proxy, `{address}`: {error}"))?;
        let name = format!("{}://{address}", proxy.uri().scheme_str().unwrap_or(scheme));
        Ok(Self { proxy, uri, direct, name })
    }

    fn is_socks(&self) -> bool {
        !matches!(self.proxy.protocol(), ProxyProtocol::Http | ProxyProtocol::Https)
    }

    /// Whether requests for `uri` go to the proxy itself.
    pub fn is_forwarded(&self, uri: &Uri) -> bool {
        !self.is_socks() && uri.scheme_str() == Some("http")
    }

    /// The value of the header Proxy-Authorization.
    pub fn authorization(&self) -> Option<HeaderValue> {
        let user = self.proxy.username()?;
        let user = format!("{user}:{}", self.proxy.password().unwrap_or_default());
        let mut value =
            HeaderValue::from_str(&format!("Basic {}", BASE64_STANDARD.encode(user))).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    fn open(&self, details: &ConnectionDetails<'_>) -> Result<Box<dyn Transport>, Error> {
        use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
        let addrs = details.resolver.resolve(&self.uri, &self.direct, details.timeout)?;
        let to_proxy = ConnectionDetails {
            uri: &self.uri,
            addrs,
            config: &self.direct,
            request_level: details.request_level,
            resolver: details.resolver,
            now: details.now,
            timeout: details.timeout,
            current_time: details.current_time.clone(),
            run_connector: details.run_connector.clone(),
            register_shutdown: details.register_shutdown.clone(),
        };
        let transport = (details.run_connector)(&to_proxy)?;
        let host = details.uri.host().unwrap_or_default();
        if self.is_forwarded(details.uri) {
            let port = details.uri.authority().and_then(Authority::port);
            let port = port.map(|port| format!(":{port}")).unwrap_or_default();
            let origin = format!("http://{host}{port}");
            return Ok(Box::new(ProxiedTransport {
                transport,
                origin: Some(origin),
                is_head_next: true,
            }));
        }
        let mut stream = TransportAdapter::new(transport, details.current_time.clone());
        stream.set_timeout(details.timeout);
        let is_https = details.uri.scheme_str() == Some("https");
        let port = details.uri.port_u16().unwrap_or(if is_https { 443 } else { 80 });
        let opened = if self.is_socks() {
            // ureq has looked up the name where the proxy does not.
            let resolved = details.addrs.first().map(SocketAddr::ip);
            let address = host.trim_matches(['[', ']']).parse().ok().or(resolved);
            self.open_socks(&mut stream, address, host, port)
        } else {
            self.open_tunnel(&mut stream, &format!("{host}:{port}"))
        };
        opened.map_err(|error| match error.kind() {
            UnexpectedEof | ConnectionReset | ConnectionAborted | BrokenPipe => {
                ProxyRefusal::without_status("it closed the connection", false)
            }
            _ => error,
        })?;
        let transport = stream.into_inner();
        Ok(Box::new(ProxiedTransport { transport, origin: None, is_head_next: false }))
    }

    /// Asks for a connection to `target` (RFC 9110, 9.3.6).
    fn open_tunnel(&self, stream: &mut (impl Read + Write), target: &str) -> io::Result<()> {
        let authorization = self.authorization();
        let authorization = authorization.as_ref().and_then(|value| value.to_str().ok());
        let authorization = authorization
            .map(|value| format!("Proxy-Authorization: {value}\r\n"))
            .unwrap_or_default();
        let agent = concat!("User-Agent: delta/", env!("CARGO_PKG_VERSION"));
        let request = format!(
            "CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{agent}\r\n{authorization}\r\n"
        );
        stream.write_all(request.as_bytes())?;
        // Byte by byte: what follows belongs to the host.
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte)?;
            head.extend(byte);
            if head.len() > MAX_REFUSAL_BYTES {
                return Err(ProxyRefusal::without_status("its answer is not HTTP", true));
            }
        }
        let head = String::from_utf8_lossy(&head);
        let code = head.strip_prefix("HTTP/1.").and_then(|rest| rest.split_whitespace().nth(1));
        let status = code.and_then(|code| StatusCode::from_bytes(code.as_bytes()).ok());
        let Some(status) = status else {
            return Err(ProxyRefusal::without_status("its answer is not HTTP", true));
        };
        if status.is_success() {
            return Ok(());
        }
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length")
                .then(|| value.trim().parse::<usize>().ok())?
        });
        let mut body = Vec::new();
        // Its words are shown as far as they arrive.
        let _ =
            stream.take(length.unwrap_or(0).min(MAX_REFUSAL_BYTES) as u64).read_to_end(&mut body);
        let is_lasting = status.is_client_error() && !matches!(status.as_u16(), 408 | 429);
        let words = String::from_utf8_lossy(&body).into_owned();
        Err(io::Error::other(ProxyRefusal { status: Some(status), words, is_lasting }))
    }

    /// Asks for a connection to `address`, or to `host`, which the proxy then looks up.
    fn open_socks(
        &self,
        stream: &mut (impl Read + Write),
        address: Option<IpAddr>,
        host: &str,
        port: u16,
    ) -> io::Result<()> {
        const VERSION: u8 = 5;
        const PASSWORD: u8 = 2;
        let with_length = |text: &str| {
            let length = u8::try_from(text.len()).map_err(io::Error::other)?;
            Ok::<_, io::Error>([&[length], text.as_bytes()].concat())
        };
        let user = self.proxy.username();
        let methods: &[u8] =
            if user.is_some() { &[VERSION, 2, 0, PASSWORD] } else { &[VERSION, 1, 0] };
        stream.write_all(methods)?;
        let mut answer = [0; 2];
        stream.read_exact(&mut answer)?;
        match (answer, user) {
            ([VERSION, 0], _) => {}
            ([VERSION, PASSWORD], Some(user)) => {
                let password = with_length(self.proxy.password().unwrap_or_default())?;
                stream.write_all(&[vec![1], with_length(user)?, password].concat())?;
                stream.read_exact(&mut answer)?;
                if answer[1] != 0 {
                    return Err(ProxyRefusal::without_status("user and password are wrong", true));
                }
            }
            ([VERSION, _], _) => {
                return Err(ProxyRefusal::without_status("it wants another authentication", true));
            }
            _ => return Err(ProxyRefusal::without_status("its answer is not SOCKS5", true)),
        }
        let target = match address {
            Some(IpAddr::V4(address)) => [&[1], &address.octets()[..]].concat(),
            Some(IpAddr::V6(address)) => [&[4], &address.octets()[..]].concat(),
            None => [vec![3], with_length(host)?].concat(),
        };
        stream.write_all(&[vec![VERSION, 1, 0], target, port.to_be_bytes().to_vec()].concat())?;
        let mut head = [0; 4];
        stream.read_exact(&mut head)?;
        let (words, is_lasting) = match head[1] {
            0 => {
                let mut length = [4];
                match head[3] {
                    3 => stream.read_exact(&mut length)?,
                    4 => length = [16],
                    _ => {}
                }
                return stream.read_exact(&mut vec![0; usize::from(length[0]) + 2]);
            }
            2 => ("its rules do not allow the connection", true),
            3 => ("it does not reach the network", false),
            4 => ("it does not reach the host, or does not know its name", false),
            5 => ("the host refused the connection", false),
            6 => ("the time to live expired", false),
            7 => ("it makes no such connections", true),
            8 => ("it does not take such an address", true),
            _ => ("it failed", false),
        };
        Err(ProxyRefusal::without_status(words, is_lasting))
    }
}

/// Opens connections through a proxy, if there is one.
#[derive(Debug)]
pub(super) struct ProxyConnector(pub(super) Option<std::sync::Arc<ProxyRoute>>);

impl<In: Transport> Connector<In> for ProxyConnector {
    type Out = Either<In, Box<dyn Transport>>;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, Error> {
        if chained.is_some() {
            return Ok(chained.map(Either::A));
        }
        // The connection to the proxy itself comes here too, with settings that have none.
        match self.0.as_ref().filter(|_| details.config.proxy().is_some()) {
            Some(route) => Ok(Some(Either::B(route.open(details)?))),
            None => Ok(None),
        }
    }
}

/// A connection that a proxy has opened, or a connection to the proxy for requests in absolute form.
#[derive(Debug)]
struct ProxiedTransport {
    transport: Box<dyn Transport>,
    /// The scheme and the host that the targets of requests get.
    origin: Option<String>,
    is_head_next: bool,
}

impl Transport for ProxiedTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        self.transport.buffers()
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        let is_head = std::mem::replace(&mut self.is_head_next, false);
        let Some(origin) = self.origin.as_ref().filter(|_| is_head) else {
            return self.transport.transmit_output(amount, timeout);
        };
        let output = self.transport.buffers().output();
        // `POST /path HTTP/1.1` becomes `POST http://host/path HTTP/1.1`.
        let at = output[..amount].iter().position(|byte| *byte == b' ').map_or(0, |at| at + 1);
        let longer = amount + origin.len();
        if longer > output.len() {
            return Err(io::Error::other("the headers of the request are too long").into());
        }
        output.copy_within(at..amount, at + origin.len());
        output[at..at + origin.len()].copy_from_slice(origin.as_bytes());
        self.transport.transmit_output(longer, timeout)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        // The next output after an answer begins another request.
        self.is_head_next = self.origin.is_some();
        self.transport.await_input(timeout)
    }

    fn is_open(&mut self) -> bool {
        self.transport.is_open()
    }

    fn is_tls(&self) -> bool {
        // There may be TLS to the proxy, but there is none to the host yet.
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_37_6_a_proxy_that_cannot_be_used_is_named_with_what_to_write() {
        for url in
            ["p", "p:8", "u:p@p:8", "HTTP://p", "https://p:8/", "socks5://p", " SOCKS5H://[::1]:9 "]
        {
            assert!(ProxyRoute::parse(url).is_ok(), "{url}");
        }
        for url in ["socks4://p:1", "socks4a://p", "socks://s3cret@p:1", "ftp://p", "://p"] {
            let error = ProxyRoute::parse(url).unwrap_err();
            assert!(
                error.contains("write `http://HOST:PORT`") && !error.contains("s3cret"),
                "{error}"
            );
        }
        for url in [
            "",
            "http://",
            "http://u:s3cret@",
            "http://p:x",
            "socks5://:s3cret@p",
            "http://u:%ff@p",
        ] {
            let error = ProxyRoute::parse(url).unwrap_err();
            assert!(
                error.contains("USER:PASSWORD@HOST:PORT") && !error.contains("s3cret"),
                "{error}"
            );
        }
    }
}

//! Who may come in: by the name that a request has for this server (`Host`), and by the page that made it (`Origin`).
//!
//! Where no tokens are required, whoever reaches the port may do everything, and a browser on the same machine reaches
//! it for any page that it shows. A page of a name that is pointed at this address names itself in `Host`; any other
//! page is named in `Origin`, or told of in `Sec-Fetch-Site`. So a request must have a `Host` that is known, and one
//! that changes something or uses numbers up must come from no page, or from one that is allowed.
//!
//! Browsers send `Sec-Fetch-Site` only to localhost, loopback addresses and over HTTPS. They send no `Origin` with what
//! a page shows by an element of its own (`<img src=..>`). There a page is told by its `Referer`, and by an `Accept`
//! that asks for a picture, a sound, a film or a style sheet first, which no program wants of this server. What is left
//! is a page that hides its `Referer` and loads a script or a frame from a server without tokens on an address of the
//! network: nothing tells that request from a program's.

use std::net::IpAddr;

use anyhow::ensure;
use axum::body::Body;
use axum::http::header::{
    ACCEPT, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, HOST, HeaderValue, ORIGIN,
    REFERER, VARY,
};
use axum::http::{HeaderMap, HeaderName, Method, Request, Response, StatusCode, Version};

use crate::config::Config;
use crate::service::problem::{Kind, Problem};
use crate::words::shortened;

/// In place of a list: all.
const ANY: &str = "*";

/// What browsers say of a request, whichever method it has.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// What looks at things and uses no number up, by GET.
const HARMLESS: [&str; 9] = [
    "/v1/tags",
    "/v1/decode/",
    "/v1/layouts",
    "/v1/range",
    "/console",
    "/metrics",
    "/health/",
    "/openapi.json",
    "/decodeSnowflakeId",
];

/// What elements of pages ask for first, and no program of this server.
const OF_ELEMENTS: [&[u8]; 4] = [b"image/", b"audio/", b"video/", b"text/css"];

/// Those who watch over a server know its address and nothing else.
const HEALTH: &str = "/health/";

/// Whether it is the check of a load balancer that was told no path, as HAProxy's `option httpchk` sends it: it asks
/// whether the server is ready, and nothing else is answered so.
pub(crate) fn is_plain_check<B>(request: &Request<B>) -> bool {
    *request.method() == Method::OPTIONS && matches!(request.uri().path(), "/" | "*")
}

/// Whether it asks about the server's health, which needs no name of the server.
fn is_check<B>(request: &Request<B>) -> bool {
    request.uri().path().starts_with(HEALTH) || is_plain_check(request)
}

/// The doors of one server.
#[derive(Debug)]
pub(crate) struct Doors {
    /// Where it listens.
    address: IpAddr,
    /// How it is reached, as far as it knows: `http` or `https`.
    scheme: &'static str,
    /// The names that it goes by, besides its address; none where any will do.
    names: Option<Vec<String>>,
    origins: Vec<String>,
}

/// The page that a request comes from, which is allowed.
#[derive(Clone, Debug)]
pub(crate) struct Page(HeaderValue);

impl Config {
    /// Checks the names and origins that are allowed.
    ///
    /// # Errors
    /// Says which cannot be, and what one looks like.
    pub(crate) fn validate_doors(&self) -> anyhow::Result<()> {
        for host in self.allowed_hosts.iter().flatten() {
            let name = host.strip_prefix("*.").unwrap_or(host);
            ensure!(
                host == ANY || name_of(name.as_bytes()) == Some(name),
                "allowed_hosts has {host:?}: write a name or an address without a port (ids.example), the end of names \
                 (*.ids.example), or * for all"
            );
        }
        for origin in self.allowed_origins.iter().flatten() {
            let rest = origin.split_once("://").map(|(_, rest)| rest);
            ensure!(
                origin == ANY || rest.is_some_and(|rest| name_of(rest.as_bytes()).is_some()),
                "allowed_origins has {origin:?}: write it as browsers do, https://app.example or http://localhost:3000 \
                 without a path, or * for all"
            );
        }
        Ok(())
    }
}

impl Doors {
    /// Those of a server that listens at this address.
    pub(crate) fn new(config: &Config, address: IpAddr) -> Self {
        let listed = config.allowed_hosts.clone();
        // Who has a token is known by that, and no page has one.
        let is_any = listed.as_ref().map_or(config.tokens.is_some(), |names| names.iter().any(|name| name == ANY));
        let names = (!is_any).then(|| {
            let own = config.listen.rsplit_once(':').map(|(host, _)| host.to_owned());
            listed.into_iter().flatten().chain(own).collect()
        });
        let scheme = if config.tls_cert.is_some() { "https" } else { "http" };
        Self {
            address: address.to_canonical(),
            scheme,
            names,
            origins: config.allowed_origins.clone().unwrap_or_default(),
        }
    }

    /// Whether it is a request of no page, to a name that is known: the answer needs nothing more.
    pub(crate) fn is_plain<B>(&self, request: &Request<B>) -> bool {
        let headers = request.headers();
        let is_of_page = [ORIGIN, SEC_FETCH_SITE, REFERER].iter().any(|name| headers.contains_key(name));
        if is_of_page || is_element_s(headers) {
            return false;
        }
        let mut hosts = headers.get_all(HOST).iter();
        let host = match (hosts.next(), hosts.next(), request.uri().authority()) {
            (Some(host), None, None) => host.as_bytes(),
            (None, None, Some(authority)) if request.version() == Version::HTTP_2 => authority.as_str().as_bytes(),
            _ => return false,
        };
        name_of(host).is_some_and(|name| self.knows(name))
    }

    /// Lets a request in; gives the page that it comes from, if it comes from one that is allowed.
    ///
    /// # Errors
    /// [`Kind::HostInvalid`], [`Kind::HostUnknown`], [`Kind::OriginRefused`].
    pub(crate) fn admit<B>(&self, request: &Request<B>) -> Result<Option<Page>, Problem> {
        let host = self.host(request)?;
        let page = self.page(request.headers(), host)?;
        let is_harmless = matches!(*request.method(), Method::GET | Method::HEAD)
            && HARMLESS.iter().any(|path| request.uri().path().starts_with(path));
        match page {
            Origin::None => Ok(None),
            Origin::Allowed(page) => Ok(Some(page)),
            Origin::Other(_) if is_harmless => Ok(None),
            Origin::Other(origin) => {
                let origin = shortened(&origin);
                let detail = format!(
                    "pages of {origin} may use no number up and change nothing here: allow the origin, if that is meant \
                     (--allowed-origins)"
                );
                Err(Problem::new(Kind::OriginRefused, detail).with("origin", origin))
            }
        }
    }

    /// What a request calls this server.
    fn host<'a, B>(&self, request: &'a Request<B>) -> Result<Option<&'a [u8]>, Problem> {
        let invalid = |what: &str| Err(Problem::new(Kind::HostInvalid, format!("{what}: send one Host header")));
        // A target in full overrides the header. In HTTP/2 it is `:authority`, and there need be no header.
        let target = request.uri().authority().map(|authority| authority.as_str().as_bytes());
        let mut hosts = request.headers().get_all(HOST).iter();
        let host = match (hosts.next(), hosts.next()) {
            (Some(_), Some(_)) => return invalid("the request has more than one Host"),
            (Some(host), None)
                if request.version() == Version::HTTP_2
                    && target.is_some_and(|target| !target.eq_ignore_ascii_case(host.as_bytes())) =>
            {
                return invalid("the request has a Host that is not its :authority");
            }
            (None, _) if request.version() == Version::HTTP_2 && target.is_some() => target.unwrap_or_default(),
            (None, _) if request.version() >= Version::HTTP_11 => return invalid("the request has no Host"),
            // Load balancers look at a server's health so. A name that nobody says is none of the server's.
            (None, _) if self.names.is_none() || is_check(request) => return Ok(None),
            (None, _) => return invalid("the request has no Host, without which HTTP/1.0 reaches only /health/"),
            (Some(host), None) => host.as_bytes(),
        };
        for given in [Some(host), target].into_iter().flatten() {
            let Some(name) = name_of(given) else { return invalid("the Host is neither a name nor an address") };
            if !self.knows(name) && !is_check(request) {
                let name = shortened(name);
                let detail = format!(
                    "this server does not go by the name {name:?}: use its address, or allow the name (--allowed-hosts)"
                );
                return Err(Problem::new(Kind::HostUnknown, detail).with("host", name));
            }
        }
        Ok(Some(host))
    }

    /// Whether this is a name of the server.
    fn knows(&self, name: &str) -> bool {
        let Some(names) = &self.names else { return true };
        let name = name.strip_suffix('.').unwrap_or(name);
        if is_below(name, "localhost") || name.eq_ignore_ascii_case("localhost") {
            return true;
        }
        let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
        if let Ok(address) = bare.parse::<IpAddr>() {
            let address = address.to_canonical();
            let is_own = self.address.is_unspecified()
                || address == self.address
                || (address.is_loopback() && self.address.is_loopback());
            if is_own {
                return true;
            }
        }
        names.iter().any(|known| match known.strip_prefix("*.") {
            Some(end) => is_below(name, end),
            None => {
                let known = known.strip_prefix('[').and_then(|known| known.strip_suffix(']')).unwrap_or(known);
                bare.eq_ignore_ascii_case(known)
            }
        })
    }

    /// The page that a request comes from.
    fn page(&self, headers: &HeaderMap, host: Option<&[u8]>) -> Result<Origin, Problem> {
        let mut origins = headers.get_all(ORIGIN).iter();
        let Some(origin) = origins.next() else {
            return Ok(self.page_by_other_headers(headers, host));
        };
        if origins.next().is_some() {
            return Err(Problem::new(Kind::OriginRefused, "the request has more than one Origin"));
        }
        let text = String::from_utf8_lossy(origin.as_bytes());
        Ok(if self.lists(&text) {
            Origin::Allowed(Page(origin.clone()))
        } else if self.is_own(&text, headers, host) {
            Origin::None
        } else {
            Origin::Other(text.into_owned())
        })
    }

    /// The page that a request without `Origin` comes from.
    fn page_by_other_headers(&self, headers: &HeaderMap, host: Option<&[u8]>) -> Origin {
        match headers.get(SEC_FETCH_SITE).map(HeaderValue::as_bytes) {
            Some(b"none" | b"same-origin") => return Origin::None,
            Some(_) => return Origin::Other("another site".to_owned()),
            None => {}
        }
        let referer = headers.get(REFERER).map(|referer| String::from_utf8_lossy(referer.as_bytes()));
        // What is not an address names no page.
        if let Some(origin) = referer.as_deref().and_then(origin_of) {
            let is_known = self.lists(origin) || self.is_own(origin, headers, host);
            return if is_known { Origin::None } else { Origin::Other(origin.to_owned()) };
        }
        if is_element_s(headers) { Origin::Other("an element of a page".to_owned()) } else { Origin::None }
    }

    /// Whether a page has the very address that the request has. By which scheme this server is reached where something
    /// stands before it, browsers alone know.
    fn is_own(&self, origin: &str, headers: &HeaderMap, host: Option<&[u8]>) -> bool {
        let Some(((scheme, place), host)) = origin.split_once("://").zip(host) else { return false };
        let is_by_browser = || headers.get(SEC_FETCH_SITE).is_some_and(|site| site.as_bytes() == b"same-origin");
        place.as_bytes().eq_ignore_ascii_case(host) && (scheme.eq_ignore_ascii_case(self.scheme) || is_by_browser())
    }

    /// Whether pages of this origin are allowed: its scheme counts, too.
    fn lists(&self, origin: &str) -> bool {
        self.origins.iter().any(|known| known == ANY || origin.eq_ignore_ascii_case(known))
    }
}

/// The origin of an address: all in front of its path.
fn origin_of(address: &str) -> Option<&str> {
    let begins = address.find("://")? + "://".len();
    let rest = address.get(begins..)?;
    let ends = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    address.get(..begins + ends)
}

/// Whether it is what an element of a page asks for.
fn is_element_s(headers: &HeaderMap) -> bool {
    let accepted = headers.get(ACCEPT).map(|accept| accept.as_bytes().trim_ascii_start());
    accepted.is_some_and(|accepted| {
        OF_ELEMENTS.iter().any(|kind| accepted.get(..kind.len()).is_some_and(|start| start.eq_ignore_ascii_case(kind)))
    })
}

enum Origin {
    None,
    Allowed(Page),
    Other(String),
}

impl Page {
    /// The answer to a browser that asks what the page may do, if this is such a question.
    pub(crate) fn preflight<B>(request: &Request<B>) -> Option<Response<Body>> {
        if *request.method() != Method::OPTIONS || !request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD) {
            return None;
        }
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        for (name, value) in [
            (ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, PATCH"),
            (ACCESS_CONTROL_ALLOW_HEADERS, "Authorization, Content-Type, X-Request-Id"),
            (ACCESS_CONTROL_MAX_AGE, "600"),
        ] {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        Some(response)
    }

    /// Lets the page read the answer.
    pub(crate) fn show(self, headers: &mut HeaderMap) {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, self.0);
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("Retry-After, X-Request-Id"));
        headers.append(VARY, HeaderValue::from_static("Origin"));
    }
}

/// Whether a name ends with this one and has more before it.
fn is_below(name: &str, end: &str) -> bool {
    let cut = name.len().checked_sub(end.len()).filter(|cut| *cut > 1);
    cut.and_then(|cut| name.split_at_checked(cut))
        .is_some_and(|(before, after)| before.ends_with('.') && after.eq_ignore_ascii_case(end))
}

/// The name or address in `HOST` or `HOST:PORT`.
fn name_of(host: &[u8]) -> Option<&str> {
    let host = std::str::from_utf8(host).ok()?;
    let end = match host.strip_prefix('[') {
        Some(address) => address.find(']')? + 2,
        None => host.find(':').unwrap_or(host.len()),
    };
    let (name, port) = host.split_at_checked(end)?;
    let is_port =
        port.is_empty() || port.strip_prefix(':').is_some_and(|port| port.bytes().all(|c| c.is_ascii_digit()));
    let is_name = match name.strip_prefix('[') {
        Some(address) => address.strip_suffix(']')?.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !name.is_empty() && name.bytes().all(|c| c.is_ascii_alphanumeric() || b"-._~%".contains(&c)),
    };
    (is_port && is_name).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doors(address: &str, listed: Option<&[&str]>, origins: &[&str]) -> Doors {
        let owned = |list: &[&str]| list.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let config = Config {
            listen: "ids.internal:8080".to_owned(),
            allowed_hosts: listed.map(owned),
            allowed_origins: Some(owned(origins)),
            ..Config::default()
        };
        config.validate_doors().unwrap();
        Doors::new(&config, address.parse().unwrap())
    }

    fn admitted(doors: &Doors, method: &str, path: &str, headers: &[(&str, &str)]) -> Result<bool, Kind> {
        let request = headers
            .iter()
            .fold(Request::builder().method(method).uri(path), |request, (name, value)| request.header(*name, *value));
        let request = request.body(()).unwrap();
        let admitted = doors.admit(&request);
        if doors.is_plain(&request) {
            assert!(matches!(admitted, Ok(None)), "{method} {path} {headers:?}");
        }
        admitted.map(|page| page.is_some()).map_err(|problem| problem.kind())
    }

    #[test]
    fn a_server_goes_by_its_address_localhost_and_the_names_that_are_listed() {
        for (address, listed, known, unknown) in [
            (
                "127.0.0.1",
                None,
                &[
                    "127.0.0.1",
                    "127.0.0.1:8080",
                    "[::1]:1",
                    "localhost",
                    "LOCALHOST.:80",
                    "a.localhost",
                    "ids.internal",
                ][..],
                &["evil.example", "10.0.0.1", "localhost.evil.example", "127.0.0.1.evil.example", "[2001:db8::1]"][..],
            ),
            ("0.0.0.0", None, &["10.0.0.1", "[2001:db8::1]:80", "localhost"], &["evil.example", "ids.example"]),
            ("10.0.0.1", None, &["10.0.0.1:80"], &["10.0.0.2", "127.0.0.1"]),
            (
                "0.0.0.0",
                Some(&["ids.example", "*.ids.test"][..]),
                &["ids.example", "IDS.example:8080", "a.ids.test", "a.b.ids.test", "10.0.0.1"],
                &["example", "a.ids.example", "ids.test", "xids.test"],
            ),
            ("127.0.0.1", Some(&["*"]), &["evil.example"], &[]),
        ] {
            let doors = doors(address, listed, &[]);
            for host in known {
                assert_eq!(admitted(&doors, "GET", "/v1/tags", &[("host", host)]), Ok(false), "{address} {host}");
            }
            for host in unknown {
                let denied = admitted(&doors, "GET", "/v1/tags", &[("host", host)]);
                assert_eq!(denied, Err(Kind::HostUnknown), "{address} {host}");
                assert_eq!(admitted(&doors, "GET", "/health/ready", &[("host", host)]), Ok(false));
            }
            for host in ["", ":80", "a b", "user@localhost", "localhost:x", "[::1", "[x]", "localhost/x"] {
                let denied = admitted(&doors, "GET", "/health/ready", &[("host", host)]);
                assert_eq!(denied, Err(Kind::HostInvalid), "{host:?}");
            }
        }
    }

    #[test]
    fn pages_of_others_use_no_number_up() {
        const ORDER: &str = "/v1/sequences/order/ids";
        let doors = doors("127.0.0.1", None, &["https://app.example"]);
        let from =
            |method, path, header: (&str, &str)| admitted(&doors, method, path, &[("host", "localhost:8080"), header]);
        for origin in ["http://evil.example", "null", "http://localhost:3000", "https://app.example.evil.example", ""] {
            for (method, path) in [("GET", ORDER), ("POST", ORDER), ("PATCH", "/v1/tags/order"), ("GET", "/ids")] {
                assert_eq!(
                    from(method, path, ("origin", origin)),
                    Err(Kind::OriginRefused),
                    "{origin} {method} {path}"
                );
            }
            assert_eq!(from("GET", "/v1/layouts", ("origin", origin)), Ok(false), "it cannot read the answer");
        }
        assert_eq!(from("POST", ORDER, ("origin", "https://app.example")), Ok(true));
        assert_eq!(from("POST", ORDER, ("origin", "http://localhost:8080")), Ok(false), "its own");
        for other in ["https://localhost:8080", "http://app.example", "http://localhost"] {
            assert_eq!(from("POST", ORDER, ("origin", other)), Err(Kind::OriginRefused), "{other}");
        }
        let https =
            [("host", "localhost:8080"), ("origin", "https://localhost:8080"), ("sec-fetch-site", "same-origin")];
        assert_eq!(admitted(&doors, "POST", ORDER, &https), Ok(false), "its own, behind something that speaks TLS");
        for (site, is_let_in) in [("cross-site", false), ("same-site", false), ("same-origin", true), ("none", true)] {
            assert_eq!(from("GET", ORDER, ("sec-fetch-site", site)).is_ok(), is_let_in, "{site}");
        }
    }

    #[test]
    fn what_elements_of_pages_ask_for_is_told_without_an_origin() {
        const ORDER: &str = "/v1/sequences/order/ids";
        let doors = doors("10.0.0.1", None, &["https://app.example"]);
        let from = |path, header: (&str, &str)| admitted(&doors, "GET", path, &[("host", "10.0.0.1:8080"), header]);
        for header in [
            ("referer", "http://10.0.0.9/page"),
            ("referer", "http://evil.example"),
            ("referer", "https://10.0.0.1:8080/"),
            ("referer", "http://10.0.0.1/"),
            ("accept", "image/avif,image/webp,*/*;q=0.8"),
            ("accept", "text/css,*/*;q=0.1"),
            ("accept", "Video/webm"),
        ] {
            assert_eq!(from(ORDER, header), Err(Kind::OriginRefused), "{header:?}");
            assert_eq!(from("/v1/layouts", header), Ok(false), "{header:?}");
        }
        for header in [
            ("referer", "http://10.0.0.1:8080/v1/layouts"),
            ("referer", "https://app.example/page"),
            ("referer", "nothing"),
            ("accept", "*/*"),
            ("accept", "text/html,application/xhtml+xml,image/avif,*/*;q=0.8"),
            ("accept", "text/plain"),
        ] {
            assert_eq!(from(ORDER, header), Ok(false), "{header:?}");
        }
    }

    #[test]
    fn names_and_origins_that_cannot_be_are_refused() {
        for (hosts, origins) in [
            (&["http://ids.example"][..], &[][..]),
            (&["ids.example:80"], &[]),
            (&["*.*.example"], &[]),
            (&[""], &[]),
            (&[], &["app.example"]),
            (&[], &["https://app.example/"]),
            (&[], &["https://"]),
        ] {
            let owned = |list: &[&str]| Some(list.iter().map(|&name| name.to_owned()).collect());
            let config = Config { allowed_hosts: owned(hosts), allowed_origins: owned(origins), ..Config::default() };
            let error = config.validate_doors().unwrap_err().to_string();
            assert!(error.contains("allowed_"), "{hosts:?} {origins:?}: {error}");
        }
    }
}

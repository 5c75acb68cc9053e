//! Checks the host that a request by TCP names (RFC 9112, 3.2).
//!
//! # DNS rebinding
//!
//! A web page in a browser on this machine can reach an address of loopback, and its origin keeps it from
//! reading the answer only as long as the name it was loaded under belongs to another site: the page of
//! `evil.example` has that name resolve to 127.0.0.1 a moment later, and is of one origin with the router.
//! But the browser still writes the name into `Host`. So where no token distinguishes the owner from a
//! page, the host must be a loopback address or `localhost`, under which no other site's page is loaded.
//! That holds only as long as there is one host to look at and one way to read it: a second `Host` field, a
//! target in absolute form that names another than the field, and text that merely begins like an address get
//! status 400. The port is parsed but not compared, since a client behind a forwarded port (`ssh -L`) names
//! that one, and a page's name is refused at every port.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use axum::http::{HeaderMap, StatusCode, Uri, header};

use super::answer::Refused;

/// The port where none is named.
const HTTP_PORT: u16 = 80;

/// The host and port of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Authority<'a> {
    host: Host<'a>,
    port: u16,
}

#[derive(Clone, Copy, Debug)]
enum Host<'a> {
    Address(IpAddr),
    Name(&'a str),
}

impl PartialEq for Host<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Host::Address(one), Host::Address(other)) => one == other,
            (Host::Name(one), Host::Name(other)) => one.eq_ignore_ascii_case(other),
            _ => false,
        }
    }
}

impl Eq for Host<'_> {}

impl Host<'_> {
    /// Whether it can only mean the machine that it is named on.
    fn is_loopback(&self) -> bool {
        match self {
            Host::Address(address) => address.to_canonical().is_loopback(),
            Host::Name(name) => name.eq_ignore_ascii_case("localhost"),
        }
    }
}

impl<'a> Authority<'a> {
    /// Reads `HOST` or `HOST:PORT` (RFC 3986, 3.2) without user information, percent encoding and empty
    /// ports, which no client sends.
    fn read(text: &'a str) -> Option<Authority<'a>> {
        let (host, rest) = match text.strip_prefix('[') {
            Some(bracketed) => {
                let (address, rest) = bracketed.split_once(']')?;
                (Host::Address(address.parse::<Ipv6Addr>().ok()?.into()), rest)
            }
            None => {
                let end = text.find(':').unwrap_or(text.len());
                (name_or_ipv4(&text[..end])?, &text[end..])
            }
        };
        let port = match rest.strip_prefix(':') {
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                digits.parse().ok().filter(|port| *port > 0)?
            }
            None if rest.is_empty() => HTTP_PORT,
            _ => return None,
        };
        Some(Authority { host, port })
    }
}

fn name_or_ipv4(text: &str) -> Option<Host<'_>> {
    if let Ok(address) = text.parse::<Ipv4Addr>() {
        return Some(Host::Address(address.into()));
    }
    let is_unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    (!text.is_empty() && text.bytes().all(is_unreserved)).then_some(Host::Name(text))
}

/// Checks that a request names one host, which is this machine's where `is_local`.
///
/// # Errors
/// 400 for no host, several, or what is none; 403 for that of another machine.
pub fn check(uri: &Uri, headers: &HeaderMap, is_local: bool) -> Result<(), Refused> {
    let mut fields = headers.get_all(header::HOST).iter();
    let (Some(field), None) = (fields.next(), fields.next()) else {
        return Err(Refused::bad("give one `Host`, as RFC 9112, 3.2 has it"));
    };
    let shown = field.to_str().unwrap_or_default();
    let malformed = || Refused::bad("`Host` is neither HOST nor HOST:PORT");
    let named = Authority::read(shown).ok_or_else(malformed)?;
    if let Some(target) = uri.authority() {
        let target = Authority::read(target.as_str());
        if target != Some(named) || uri.scheme_str().is_some_and(|scheme| scheme != "http") {
            let why = "the request's target names another host or scheme than `Host`";
            return Err(Refused::bad(why));
        }
    }
    if is_local && !named.host.is_loopback() {
        let why = "without a token the host is an address of loopback or localhost, as in \
                   `Host: 127.0.0.1`";
        return Err(Refused::new(StatusCode::FORBIDDEN, why));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The status for one field with a target.
    fn status(target: &str, fields: &[&str], is_local: bool) -> u16 {
        let mut headers = HeaderMap::new();
        for field in fields {
            headers.append(header::HOST, field.parse().expect("a value"));
        }
        let uri = target.parse().expect("a target");
        check(&uri, &headers, is_local).map_or_else(|no| no.status.as_u16(), |()| 200)
    }

    #[test]
    fn one_host_is_named_and_it_is_this_machine() {
        for (field, local) in [
            ("127.0.0.1:8047", 200),
            ("[::1]:8047", 200),
            ("[::ffff:127.0.0.1]", 200),
            ("LOCALHOST", 200),
            ("evil.com", 403),
            ("127.0.0.1.evil.com", 403),
            ("198.51.100.1", 403),
            ("127.1", 403),
            ("[::1]evil.com", 400),
            ("127.0.0.1@evil.com", 400),
            ("127.0.0.1:", 400),
            ("127.0.0.1:65536", 400),
            ("", 400),
        ] {
            assert_eq!(status("/", &[field], true), local, "{field}");
            assert_eq!(status("/", &[field], false), if local == 400 { 400 } else { 200 });
        }
        assert_eq!(status("/", &[], false), 400);
        assert_eq!(status("/", &["localhost", "localhost"], true), 400);
        assert_eq!(status("http://localhost/", &["localhost:80"], true), 200);
        assert_eq!(status("http://evil.com/", &["localhost"], true), 400);
        assert_eq!(status("http://evil.com/", &["evil.com"], true), 403);
        assert_eq!(status("https://localhost/", &["localhost"], true), 400);
    }
}

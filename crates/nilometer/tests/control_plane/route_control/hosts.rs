//! Which host a request by TCP may name, tried with raw bytes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use nilometer_routerd::config::RouterConfig;
use serde_json::Value;

use super::site::{PATIENCE, ROUTER, Site, Stand, privileged};
use super::strangers::{TOKEN, guarded};
use crate::common::Room;

/// The status of the answer to a request line and headers; a refusal is one line.
fn status(at: SocketAddr, head: &str) -> u16 {
    let mut stream = TcpStream::connect(at).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    let request = format!("{head}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("written");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (top, body) = answer.split_once("\r\n\r\n").expect("a header");
    let status = top.split(' ').nth(1).and_then(|it| it.parse().ok()).expect("a status");
    // Bytes that are not HTTP are refused without a message.
    if status >= 400 && !body.is_empty() {
        let reply: Value = serde_json::from_str(body).expect("an object");
        let line = reply["error"].as_str().unwrap_or_default();
        assert!(!line.is_empty() && !line.contains('\n'), "{reply}");
    }
    status
}

#[test]
fn without_a_token_the_host_is_this_machine_by_address_or_as_localhost() {
    if !privileged("hosts of requests") {
        return;
    }
    let mut config: RouterConfig = toml::from_str(ROUTER).expect("a description");
    config.control.listen = Some("127.0.0.1:0".parse().expect("an address"));
    let room = Room::new("hosts");
    let stand = Stand::build(Site::new().expect("a site"), room, config).expect("a router");
    let at = stand.control.address().expect("an address");
    let own = at.to_string();
    for (host, expected) in [
        (own.as_str(), 200),
        ("127.0.0.1", 200),
        ("127.8.9.10:80", 200),
        ("localhost", 200),
        ("LocalHost:8047", 200),
        ("[::1]", 200),
        ("[::1]:8047", 200),
        ("", 400),
        ("[::1]evil.com", 400),
        ("[::1].evil.com:80", 400),
        ("[::1]:80evil.com", 400),
        ("[evil.com]", 400),
        ("[::1", 400),
        ("::1", 400),
        ("127.0.0.1@evil.com", 400),
        ("evil.com@127.0.0.1", 400),
        ("127.0.0.1:", 400),
        ("127.0.0.1:0", 400),
        ("127.0.0.1:65536", 400),
        ("127.0.0.1:+80", 400),
        ("127.0.0.1:80:80", 400),
        ("127.0.0.1/evil.com", 400),
        ("127.0.0.1, evil.com", 400),
        ("local%68ost", 400),
        ("evil.com", 403),
        ("127.0.0.1.evil.com", 403),
        ("localhost.evil.com:8047", 403),
        ("localhost.", 403),
        ("127.1", 403),
        ("0x7f.0.0.1", 403),
        ("127.0.0.01", 403),
        ("198.51.100.1", 403),
        ("[2001:db8::1]", 403),
    ] {
        let head = format!("GET /v1/engine HTTP/1.1\r\nHost: {host}\r\n");
        assert_eq!(status(at, &head), expected, "Host: {host}");
    }
    let line = "GET /v1/engine HTTP/1.1\r\n";
    assert_eq!(status(at, line), 400, "no host");
    for second in ["127.0.0.1", "evil.com"] {
        for (one, other) in [("127.0.0.1", second), (second, "127.0.0.1")] {
            let head = format!("{line}Host: {one}\r\nHost: {other}\r\n");
            assert_eq!(status(at, &head), 400, "{one} and {other}");
        }
    }
    for (target, host, expected) in [
        ("http://127.0.0.1", "127.0.0.1", 200),
        ("http://LOCALHOST:80", "localhost:80", 200),
        ("http://evil.com", "127.0.0.1", 400),
        ("http://127.0.0.1", "evil.com", 400),
        ("http://127.0.0.1:81", "127.0.0.1:82", 400),
        ("http://evil.com", "evil.com", 403),
        ("http://[::1]evil.com", "[::1]", 400),
        ("http://me@127.0.0.1", "127.0.0.1", 400),
        ("https://127.0.0.1", "127.0.0.1", 400),
    ] {
        let head = format!("GET {target}/v1/engine HTTP/1.1\r\nHost: {host}\r\n");
        assert_eq!(status(at, &head), expected, "{target} with {host}");
    }
    stand.end();
}

#[test]
fn with_the_token_any_one_host_may_be_named() {
    if !privileged("hosts of requests with a token") {
        return;
    }
    let (stand, at) = guarded("hosts-token");
    let end = format!("Authorization: Bearer {TOKEN}\r\n");
    for (target, hosts, expected) in [
        ("", &["router.example:8047"][..], 200),
        ("", &["192.0.2.1"], 200),
        ("http://router.example:8047", &["router.example:8047"], 200),
        ("", &[], 400),
        ("", &["router.example", "router.example"], 400),
        ("", &["router example"], 400),
        ("http://evil.com", &["router.example"], 400),
    ] {
        let mut head = format!("GET {target}/v1/engine HTTP/1.1\r\n");
        hosts.iter().for_each(|host| head += &format!("Host: {host}\r\n"));
        assert_eq!(status(at, &(head + &end)), expected, "{target} {hosts:?}");
    }
    // Without a token the answer is only that one is needed.
    let head = "GET http://evil.com/v1/engine HTTP/1.1\r\nHost: router.example\r\n";
    assert_eq!(status(at, head), 401);
    stand.end();
}

//! Refusals of the control processor: strangers, malformed requests, excess, and paths in use by
//! others.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use hyper::Method;
use nilometer_linux::netlink::Netlink;
use nilometer_routerd::config::RouterConfig;
use nilometer_routerd::control::client::Address;
use nilometer_routerd::control::endpoints::BODY_BYTES_MAX;
use serde_json::json;

use super::site::{PATIENCE, ROUTER, Site, Stand, ask, privileged};
use crate::common::Room;

#[test]
fn nonsense_is_refused_in_one_line() {
    if !privileged("refusals of the control processor") {
        return;
    }
    let stand = Stand::new("control-refuse", "").expect("a router");
    let put = |path: &str, text: &str| ask(&stand.address, &Method::PUT, path, Some(text.into()));
    let cases = [
        (put("/v1/fabric", "{\"queueing\":"), 400, "EOF"),
        (put("/v1/fabric", "{\"queuing\": \"off\"}"), 400, "did you mean `queueing`"),
        (put("/v1/fabric", "{\"speedup\": 0.5}"), 400, "speedup is 0.5"),
        (put("/v1/fabric", "{\"period\": \"5\"}"), 400, "period"),
        (put("/v1/ports/7/rate", "{\"rate\": \"1 Mb/s\"}"), 404, "no port 7"),
        (put("/v1/ports/x/rate", "{\"rate\": \"1 Mb/s\"}"), 404, "no port x"),
        (put("/v1/ports/1/rate", "{\"rate\": \"fast\"}"), 400, "`fast` is not a rate"),
        (put("/v1/ports/1/queue", "{\"discipline\": \"qsdr\"}"), 400, "did you mean `qsdrr`"),
        (
            put(
                "/v1/ports/1/queue",
                "{\"discipline\": \"pie\", \"buffer_packets\": 9, \"interval\": \"1 ns\"}",
            ),
            400,
            "10 us",
        ),
        (put("/v1/ports/1/delay", "{\"delay\": \"1e3 s\"}"), 400, "60 s"),
        (put("/v1/engine", "{\"v4\": \"linear\"}"), 400, "no lookup engine"),
        (put("/v1/engine", "{\"v6\": \"direct\"}"), 400, "IPv6"),
        (put("/v1/engine", "{}"), 400, "give `v4`"),
        (put("/v1/tally", "{}"), 405, "openapi"),
        (put("/v2", "{}"), 404, "openapi"),
        (put("/v1/fabric", &" ".repeat(BODY_BYTES_MAX + 1)), 413, ""),
    ];
    for ((status, reply), expected, words) in cases {
        let line = reply["error"].as_str().unwrap_or_default();
        assert_eq!(status, expected, "{reply}");
        assert!(line.contains(words) && !line.contains('\n') && !line.is_empty(), "{reply}");
    }
    let filter = |body| stand.ask(&Method::POST, "/v1/filters", Some(body));
    for (body, words) in [
        (json!({"action": "reserved", "destination": "198.19.0.0/16"}), "reserves nothing"),
        (json!({"action": "active"}), "names of plugins"),
        (json!({"inputs": ["p9"]}), "no port p9"),
        (json!({"inputs": ["9"]}), "no port 9"),
        (json!({"inputs": []}), "names no port"),
    ] {
        let (status, reply) = filter(body);
        let line = reply["error"].as_str().unwrap_or_default();
        assert_eq!((status, line.contains(words), line.lines().count()), (400, true, 1), "{reply}");
    }
    assert_eq!(stand.get("/v1/filters")["count"], 0);
    let post = |path: &str, body| stand.ask(&Method::POST, path, Some(body)).0;
    assert_eq!(post("/v1/filters", json!({"protocol": "tpc"})), 400);
    stand.put("/v1/fabric", json!({"queueing": "original"}));
    let stress = json!({"packet_bytes": 64, "t1_periods": 100_000, "sources": 2, "stages": 2});
    let (status, reply) = stand.ask(&Method::POST, "/v1/stress", Some(stress));
    assert_eq!((status, reply["error"].to_string().contains("packets")), (400, true), "{reply}");
    assert_eq!(post("/v1/routes", json!({"prefix": "198.18.0.1/16", "via": ["198.18.0.2"]})), 400);
    assert_eq!(post("/v1/routes", json!({"prefix": "198.18.0.0/16", "via": ["192.0.2.1"]})), 400);
    let status_of = |method: Method, path: &str| stand.ask(&method, path, None).0;
    assert_eq!(status_of(Method::DELETE, "/v1/filters/3"), 404);
    assert_eq!(status_of(Method::DELETE, "/v1/routes?prefix=198.18.0.0/16"), 404);
    assert_eq!(status_of(Method::GET, "/v1/routes?prefix=192.0.2.1"), 404);
    assert_eq!(status_of(Method::GET, "/v1/routes?prefix=here"), 400);
    stand.end();
}

#[test]
fn filters_beyond_the_room_are_a_conflict_and_numbers_are_used_again() {
    if !privileged("room for filters") {
        return;
    }
    let stand = Stand::new("control-room", "[tables]\nfilters = 3\n").expect("a router");
    let add = || {
        let filter = json!({"action": "deny", "protocol": "tcp"});
        stand.ask(&Method::POST, "/v1/filters", Some(filter))
    };
    for number in 0..3 {
        assert_eq!(add(), (201, json!({"id": number})));
    }
    assert_eq!(add().0, 409);
    assert_eq!(stand.ask(&Method::DELETE, "/v1/filters/1", None).0, 200);
    assert_eq!(add(), (201, json!({"id": 1})));
    stand.end();
}

#[test]
fn an_address_of_the_kernel_on_a_port_is_warned_of() {
    if !privileged("addresses of the kernel") {
        return;
    }
    for (kind, what) in
        [("auto", "gets no packet that comes by it"), ("packet", "answers beside the router")]
    {
        let site = Site::new().expect("a site");
        let give = |address: &str, length| {
            let address = address.parse().expect("an address");
            site.router
                .enter(|| Netlink::open()?.add_address("p0", address, length))
                .expect("room");
        };
        give("198.18.0.9", 24);
        give("fd00:18::9", 64);
        let one = "interface = \"p0\"";
        let text = ROUTER.replacen(one, &format!("{one}\nkind = \"{kind}\""), 1);
        let config = toml::from_str(&text).expect("a router");
        let stand = Stand::build(site, Room::new("kernel-address"), config).expect("a router");
        // The link-local address that every interface has is nothing to warn of, and p1 has no other.
        let [warning] = &stand.running.notes.warnings[..] else {
            panic!("{:?}", stand.running.notes)
        };
        let begins = "the kernel has 198.18.0.9/24, fd00:18::9/64 on p0, and ";
        assert!(warning.starts_with(begins) && warning.contains(what), "{warning}");
        let does = "ip addr del 198.18.0.9/24 dev p0; ip addr del fd00:18::9/64 dev p0";
        assert!(warning.contains(does) && warning.lines().count() == 1, "{warning}");
        stand.end();
    }
}

#[test]
fn stalled_clients_do_not_block_others() {
    if !privileged("stalled clients") {
        return;
    }
    let stand = Stand::new("control-stall", "").expect("a router");
    let socket = stand.room.path("control.sock");
    let mut stalled: Vec<UnixStream> = (0..40)
        .map(|_| {
            let mut stream = UnixStream::connect(&socket).expect("a connection");
            stream.write_all(b"PUT /v1/fabric HTTP/1.1\r\nHost: localhost\r\n").expect("written");
            stream
        })
        .collect();
    assert_eq!(stand.get("/v1/tally")["balances"], true);
    let one = stalled.pop().expect("forty");
    one.set_read_timeout(Some(PATIENCE)).expect("a limit");
    let mut rest = Vec::new();
    // It is answered, or hung up on; it is not kept for ever.
    (&one).read_to_end(&mut rest).expect("it ends in time");
    stand.end();
}

#[test]
fn over_tcp_the_token_is_required() {
    if !privileged("tokens") {
        return;
    }
    let (site, room) = (Site::new().expect("a site"), Room::new("control-token"));
    room.write("token", "0123456789abcdef0123456789abcdef\n");
    let mode = |mode| {
        fs::set_permissions(room.path("token"), fs::Permissions::from_mode(mode)).expect("a mode");
    };
    let mut config: RouterConfig = toml::from_str(ROUTER).expect("a description");
    config.control.listen = Some("127.0.0.1:0".parse().expect("an address"));
    config.control.token_file = Some(room.path("token"));
    mode(0o600);
    let stand = Stand::build(site, room, config).expect("a router");
    let at = stand.control.address().expect("an address").to_string();
    let with = |token: Option<&str>| {
        let address = Address::Http(at.clone(), token.map(str::to_owned));
        ask(&address, &Method::GET, "/v1/tally", None)
    };
    assert_eq!(with(Some("0123456789abcdef0123456789abcdef")).0, 200);
    assert_eq!(with(Some("0123456789abcdef0123456789abcdeg")).0, 401);
    let (status, reply) = with(None);
    assert!(status == 401 && reply["error"].as_str().is_some_and(|it| it.contains("token")));
    // A file is named by the socket alone.
    let token = Some("0123456789abcdef0123456789abcdef".to_owned());
    let body = json!({"destination": "file", "file": "never.log"}).to_string();
    let set = ask(&Address::Http(at, token), &Method::PUT, "/v1/messages", Some(body));
    assert_eq!(set.0, 403);
    stand.end();
}

/// Starts the binary on a site's router, with its socket in the room; returns when it forwards.
fn start(site: &Site, room: &Room) -> Child {
    let words = ["route", "run", "router.toml", "--host-interfaces"];
    let child = site.router.run(|| {
        let mut command = room.command(&words);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts")
    });
    let address = Address::Socket(room.path("r.sock"));
    let began = Instant::now();
    while address.ask(&Method::GET, "/v1/engine", None).is_err() {
        assert!(began.elapsed() < PATIENCE, "no router answers");
        thread::sleep(Duration::from_millis(10));
    }
    child
}

fn end(mut child: Child, signal: libc::c_int) {
    // SAFETY: the child is ours and has not been waited for.
    unsafe { libc::kill(child.id() as libc::pid_t, signal) };
    child.wait().expect("it ends");
}

#[test]
fn only_the_socket_of_a_killed_router_is_taken_over() {
    if !privileged("sockets left behind") {
        return;
    }
    let (site, room) = (Site::new().expect("a site"), Room::new("control-socket"));
    room.write("router.toml", format!("[control]\nsocket = \"r.sock\"\n{ROUTER}"));
    let refusal = || {
        let words = ["route", "run", "router.toml", "--host-interfaces"];
        let output = site.router.run(|| room.command(&words).output().expect("it runs"));
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{error}");
        error
    };
    end(start(&site, &room), libc::SIGKILL);
    assert!(room.path("r.sock").exists(), "killed, it leaves its socket");
    let live = start(&site, &room);
    // The live one's interfaces are taken as well, so the second has others.
    let other = Site::new().expect("a site");
    let words = ["route", "run", "router.toml", "--host-interfaces"];
    let second = other.router.run(|| room.command(&words).output().expect("it runs"));
    let error = String::from_utf8_lossy(&second.stderr);
    assert_eq!(second.status.code(), Some(2), "{error}");
    assert!(error.contains("another process listens"), "{error}");
    assert!(Address::Socket(room.path("r.sock")).ask(&Method::GET, "/v1/tally", None).is_ok());
    end(live, libc::SIGTERM);
    assert!(!room.path("r.sock").exists(), "told to stop, it takes its socket away");
    room.write("r.sock", "somebody's file");
    assert!(refusal().contains("no socket"));
    assert_eq!(room.read("r.sock"), "somebody's file");
}

/// Has another process hold a lock of `path` in the room until the child is ended.
fn held(room: &Room, path: &str, user: Option<u32>) -> Child {
    let mut command = std::process::Command::new("flock");
    command.args(["-o", "-x", path, "-c", "echo locked; exec sleep 60"]);
    if let Some(user) = user {
        command.uid(user);
    }
    let mut child = command
        .current_dir(room.path(""))
        .stdout(Stdio::piped())
        .spawn()
        .expect("flock of util-linux runs");
    let mut reply = [0; 7];
    child.stdout.as_mut().expect("piped").read_exact(&mut reply).expect("it is locked");
    child
}

/// A lock of the socket's directory, which any user can take, keeps no router from starting. The lock
/// beside the socket does; only its owner can take it, and the process that holds it is named.
#[test]
fn the_process_that_holds_the_lock_of_a_socket_is_named() {
    if !privileged("locks of sockets") {
        return;
    }
    let (site, room) = (Site::new().expect("a site"), Room::new("control-lock"));
    room.write("router.toml", format!("[control]\nsocket = \"r.sock\"\n{ROUTER}"));
    let mode = |name: &str, mode| {
        fs::set_permissions(room.path(name), fs::Permissions::from_mode(mode)).expect("a mode");
    };
    mode("", 0o755);
    let stranger = held(&room, ".", Some(65_534));
    end(start(&site, &room), libc::SIGTERM);
    end(stranger, libc::SIGKILL);
    assert!(!room.path(".r.sock.lock").exists(), "it is taken away again");
    let refusal = || {
        let words = ["route", "run", "router.toml", "--host-interfaces"];
        let began = Instant::now();
        let output = site.router.run(|| room.command(&words).output().expect("it runs"));
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
        let mut lines = error.lines().filter(|line| line.contains("control.socket"));
        let line = lines.next().unwrap_or_else(|| panic!("{error}")).to_owned();
        assert_eq!(lines.next(), None, "{error}");
        line
    };
    let other = held(&room, ".r.sock.lock", None);
    mode(".r.sock.lock", 0o600);
    let line = refusal();
    let who = format!("process {} (", other.id());
    assert!(line.contains(&who) && line.contains(".r.sock.lock"), "{line}");
    end(other, libc::SIGKILL);
    // Other users could hold it: it is refused whether one does or not.
    mode(".r.sock.lock", 0o644);
    assert!(refusal().contains("mode 0644"));
    fs::remove_file(room.path(".r.sock.lock")).expect("removed");
    std::os::unix::fs::symlink("elsewhere", room.path(".r.sock.lock")).expect("a link");
    assert!(refusal().contains("symbolic link"));
    assert!(!room.path("elsewhere").exists(), "the link was followed");
    fs::remove_file(room.path(".r.sock.lock")).expect("removed");
    end(start(&site, &room), libc::SIGTERM);
}

/// A route by one of the router's own addresses would make it resolve its own address.
#[test]
fn a_route_by_the_routers_own_address_is_refused() {
    if !privileged("routes by the router's own addresses") {
        return;
    }
    let stand = Stand::new("own-gateway", "").expect("a router");
    assert_eq!(stand.get("/v1/ports/p1")["mac"], "02:00:00:00:01:02");
    for (prefix, via, interface) in [
        ("198.18.64.0/18", &["198.19.0.1"][..], None),
        ("198.18.64.0/18", &["198.18.0.1"], None),
        ("198.18.64.0/18", &["198.19.0.2", "198.19.0.1"], None),
        ("198.18.64.0/18", &["198.19.0.1"], Some("p0")),
        ("fd00:64::/32", &["fd00:19::1"], None),
        ("fd00:64::/32", &["fe80::ff:fe00:102"], Some("p1")),
        ("198.18.64.0/18", &["198.19.0.255"], None),
        ("198.18.64.0/18", &["198.19.0.0"], None),
        ("198.18.64.0/18", &["224.0.0.1"], Some("p1")),
        ("198.18.64.0/18", &["0.0.0.0"], Some("p1")),
        ("198.18.64.0/18", &["255.255.255.255"], Some("p1")),
        ("198.18.64.0/18", &["127.0.0.1"], Some("p1")),
        ("fd00:64::/32", &["ff02::1"], Some("p1")),
        ("fd00:64::/32", &["::1"], Some("p1")),
    ] {
        let route = json!({"prefix": prefix, "via": via, "interface": interface});
        let (status, reply) = stand.ask(&Method::POST, "/v1/routes", Some(route));
        let line = reply["error"].as_str().unwrap_or_default();
        assert_eq!(status, 400, "{via:?}: {reply}");
        assert!(line.starts_with(&format!("route {prefix}: ")) && !line.contains('\n'), "{line}");
    }
    // A neighbour's link-local address is none of ours, whatever else is.
    for (prefix, via) in [("198.18.64.0/18", "198.19.0.3"), ("fd00:64::/32", "fe80::1")] {
        let route = json!({"prefix": prefix, "via": [via], "interface": "p1"});
        assert_eq!(stand.ask(&Method::POST, "/v1/routes", Some(route)).0, 201, "{via}");
    }
    for (prefix, via) in [("198.18.64.0/18", "198.19.0.1"), ("fd00:64::/32", "fd00:19::1")] {
        let route = format!("[[route]]\nprefix = \"{prefix}\"\nvia = [\"{via}\"]\n");
        let other = Site::new().expect("a site");
        stand.room.write("own.toml", format!("{ROUTER}{route}"));
        let words = ["route", "run", "own.toml", "--host-interfaces"];
        let output = other.router.run(|| stand.room.command(&words).output().expect("it runs"));
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        let words = format!("{via} is an address of this router (port p1)");
        assert!(error.contains(&words) && error.lines().count() == 1, "{error}");
    }
    stand.end();
}

//! The router on real interfaces: hosts that do not know about it communicate through it.

mod common;
#[path = "common/links.rs"]
mod links;
#[path = "common/module.rs"]
mod module;
#[path = "live_router/recording.rs"]
mod recording;
#[path = "live_router/shares.rs"]
mod shares;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use common::Room;
use nilometer_linux::namespace::Namespace;
use nilometer_linux::netlink::Netlink;
use nilometer_linux::privilege::{self, Privilege};
use nilometer_linux::veth::VethEnd;
use nilometer_router::{Action, Hop, Member, Ports, Rule, RuleId};
use nilometer_routerd::config::{AddressSection, PortSection, Queueing, RouterConfig, TEMPLATE};
use nilometer_routerd::driver::Driver;
use nilometer_routerd::multicast::{GroupSection, MulticastSection};
use nilometer_routerd::rib_thread::StaticRoute;
use nilometer_routerd::routes::read_prefix;
use nilometer_routerd::running::Running;
use nilometer_wire::Span;
use serde_json::Value;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(20);
const LEFT: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
const RIGHT: Ipv4Addr = Ipv4Addr::new(198, 19, 0, 2);

const ROUTER: &str = r#"
[[port]]
interface = "p0"
addresses = ["198.18.0.1/24"]
[[port]]
interface = "p1"
addresses = ["198.19.0.1/24"]
"#;

fn privileged(test: &str) -> bool {
    match privilege::privilege() {
        Privilege::Root => true,
        other => {
            println!("skipped {test}: it needs root (found: {other})");
            false
        }
    }
}

/// Host `left` on l0 - p0, host `right` on r0 - p1; p0 and p1 are the router's. All offloads are as the
/// kernel has them.
struct Site {
    left: Namespace,
    right: Namespace,
    router: Namespace,
}

/// A host's interface, the router's, a number; the host's address, the network beyond, and its next
/// hop.
type End = (&'static str, &'static str, u8, [u8; 4], &'static str, [u8; 4]);

const ENDS: [End; 2] = [
    ("l0", "p0", 1, LEFT.octets(), "198.19.0.0/24", [198, 18, 0, 1]),
    ("r0", "p1", 2, RIGHT.octets(), "198.18.0.0/24", [198, 19, 0, 1]),
];

/// Links a host with the router, whose end has this address.
fn connect(
    router: &Namespace,
    host: &Namespace,
    end: &End,
    mac: [u8; 6],
    mtu_bytes: u32,
) -> Result<()> {
    let &(name, peer, number, address, far, gateway) = end;
    let one = VethEnd { namespace: host, name, mac: [2, 0, 0, 0, 0, number] };
    let other = VethEnd { namespace: router, name: peer, mac };
    router.enter(|| Netlink::open()?.create_veth(one, other, mtu_bytes))?;
    router.enter(|| Netlink::open()?.set_up(peer))?;
    host.enter(|| {
        let mut netlink = Netlink::open()?;
        netlink.add_address(name, address.into(), 24)?;
        netlink.set_up(name)?;
        netlink.add_route(&far.parse()?, Some(gateway.into()), name)
    })
}

impl Site {
    fn new() -> Result<Site> {
        let (left, right, router) = (Namespace::new()?, Namespace::new()?, Namespace::new()?);
        for (host, end) in [&left, &right].into_iter().zip(&ENDS) {
            connect(&router, host, end, [2, 0, 0, 0, 1, end.2], 1_500)?;
        }
        Ok(Site { left, right, router })
    }

    fn start(&self) -> Result<Running> {
        let config: RouterConfig = toml::from_str(ROUTER)?;
        let running = Running::start(Some(&self.router), config, false)?;
        running.wait_until_up()?;
        Ok(running)
    }

    /// Starts the router with a fabric whose links have no limit, so that flows may take shortcuts.
    fn start_unregulated(&self) -> Result<Running> {
        let mut config: RouterConfig = toml::from_str(ROUTER)?;
        config.fabric.queueing = Queueing::Off;
        let running = Running::start(Some(&self.router), config, false)?;
        running.wait_until_up()?;
        Ok(running)
    }

    /// Sends datagrams to the right until one comes back; how many were sent.
    fn echo(&self) -> Result<u32> {
        let far = self.right.enter(|| Ok(UdpSocket::bind((RIGHT, 0))?))?;
        let near = self.left.enter(|| Ok(UdpSocket::bind((LEFT, 0))?))?;
        for socket in [&far, &near] {
            socket.set_read_timeout(Some(Duration::from_millis(100)))?;
        }
        let (began, mut bytes) = (Instant::now(), [0; 64]);
        for sent in 1.. {
            anyhow::ensure!(began.elapsed() < PATIENCE, "{sent} datagrams were sent for nothing");
            // A link that is down gives an error here.
            let _ = near.send_to(b"there", far.local_addr()?);
            if let Ok((length, from)) = far.recv_from(&mut bytes) {
                let _ = far.send_to(&bytes[..length], from);
            }
            if near.recv_from(&mut bytes).is_ok() {
                return Ok(sent);
            }
        }
        unreachable!("it counts until then")
    }
}

/// Sends `bytes` by TCP from one host to the other, and compares the received bytes.
fn transfer(from: &Namespace, to: &Namespace, address: Ipv4Addr, bytes: usize) -> Result<()> {
    let listener = to.enter(|| Ok(TcpListener::bind((address, 0))?))?;
    let at: SocketAddr = listener.local_addr()?;
    let pattern = |place: usize| (place.wrapping_mul(2_654_435_761) >> 13) as u8;
    thread::scope(|scope| {
        let receiving = scope.spawn(move || -> Result<usize> {
            let (mut stream, _) = listener.accept()?;
            stream.set_read_timeout(Some(PATIENCE))?;
            let mut got = Vec::with_capacity(bytes);
            stream.read_to_end(&mut got).context("the transfer stalled")?;
            let right = got.iter().enumerate().all(|(place, byte)| *byte == pattern(place));
            anyhow::ensure!(right, "the bytes that came are not those that were sent");
            Ok(got.len())
        });
        from.enter(|| {
            let mut stream = TcpStream::connect_timeout(&at, PATIENCE)?;
            stream.set_write_timeout(Some(PATIENCE))?;
            let all: Vec<u8> = (0..bytes).map(pattern).collect();
            Ok(stream.write_all(&all)?)
        })?;
        let got = receiving.join().expect("no panic")?;
        anyhow::ensure!(got == bytes, "{got} of {bytes} bytes came");
        Ok(())
    })
}

/// With the default offloads of a veth, by which segments arrive without a checksum.
#[test]
fn tcp_passes_both_ways_whole() {
    if !privileged("TCP through the router") {
        return;
    }
    let site = Site::new().expect("a site");
    let router = site.start().expect("a router");
    transfer(&site.left, &site.right, RIGHT, 30_000_000).expect("a transfer");
    transfer(&site.right, &site.left, LEFT, 30_000_000).expect("a transfer");
    let tally = router.stop().expect("its counters");
    assert!(tally.balances, "{tally:?}");
    let kind = |port: usize| &tally.ports[port].discipline;
    assert_eq!((kind(0).as_str(), kind(1).as_str()), ("qsdrr", "qsdrr"));
    // 30 MB in segments of 1,448 bytes, each way, besides acknowledgements.
    assert!(tally.received > 2 * 30_000_000 / 1_448, "{tally:?}");
    assert!(tally.discarded < 10, "{tally:?}");
}

/// Sends `count` datagrams, one each millisecond, and waits for them; returns how many arrived.
fn stream(near: &UdpSocket, far: &UdpSocket, count: usize) -> Result<usize> {
    streams(std::slice::from_ref(near), far, count)
}

/// As [`stream`], from several sockets in turns.
fn streams(near: &[UdpSocket], far: &UdpSocket, count: usize) -> Result<usize> {
    far.set_read_timeout(Some(Duration::from_millis(50)))?;
    let (mut came, mut bytes) = (0, [0; 64]);
    for near in near.iter().cycle().take(count) {
        near.send_to(b"datagram", far.local_addr()?)?;
        thread::sleep(Duration::from_millis(1));
    }
    while far.recv_from(&mut bytes).is_ok() {
        came += 1;
    }
    Ok(came)
}

/// Packets of port 1 that left, and those of them that took a shortcut.
fn left(router: &Running) -> Result<(u64, u64)> {
    let tally = router.tally()?;
    anyhow::ensure!(tally.balances, "{tally:?}");
    Ok((tally.ports[1].out_packets, tally.ports[1].shortcut_packets))
}

#[test]
fn a_shortcut_is_counted_and_ends_when_its_filter_or_route_changes() {
    if !privileged("the end of shortcuts") {
        return;
    }
    let site = Site::new().expect("root makes namespaces");
    let router = site.start_unregulated().expect("the router starts");
    site.echo().expect("the way is found");
    let far = site.right.enter(|| Ok(UdpSocket::bind((RIGHT, 7_000))?)).expect("a socket");
    let near = site.left.enter(|| Ok(UdpSocket::bind((LEFT, 7_001))?)).expect("a socket");
    let before = left(&router).expect("a tally");
    assert_eq!(stream(&near, &far, 100).expect("sockets work"), 100);
    let after = left(&router).expect("a tally");
    assert!(after.0 - before.0 >= 100, "{before:?} {after:?}");
    assert!(after.1 - before.1 >= 90, "{before:?} {after:?}");

    // A filter holds from the moment at which it is reported as entered.
    let denying = |is_in: bool| {
        router.remote.call(move |driver| {
            let filters = &mut driver.router_mut().tables_mut().filters4;
            let mut rule = Rule::any(0, Action::Deny);
            rule.destination_ports = Ports::exact(7_000);
            match is_in {
                true => filters.insert(RuleId(0), rule).expect("there is room"),
                false => _ = filters.remove(RuleId(0)).expect("it is there"),
            }
        })
    };
    denying(true).expect("the router runs");
    assert_eq!(stream(&near, &far, 50).expect("sockets work"), 0);
    denying(false).expect("the router runs");
    assert_eq!(stream(&near, &far, 50).expect("sockets work"), 50);

    // A route that is withdrawn is noticed within 100 ms.
    let prefix = read_prefix("198.19.0.2/32").expect("a prefix");
    let hole = StaticRoute { prefix, members: vec![Member { hop: Hop::Blackhole, weight: 1 }] };
    assert_eq!(router.routes.rib_thread().set_static(&[hole]), 0);
    thread::sleep(Duration::from_millis(200));
    assert_eq!(stream(&near, &far, 50).expect("sockets work"), 0);
    router.stop().expect("it balances");
}

/// Packets of many flows in turns, in a table of few buckets: a flow that takes turns with others is noticed as well.
#[test]
fn flows_that_take_turns_all_get_a_shortcut() {
    const FLOWS: u16 = 32;
    if !privileged("shortcuts of many flows") {
        return;
    }
    let site = Site::new().expect("root makes namespaces");
    let mut config: RouterConfig = toml::from_str(ROUTER).expect("a description");
    config.fabric.queueing = Queueing::Off;
    config.tables.shortcuts = 64;
    let router = Running::start(Some(&site.router), config, false).expect("a router");
    router.wait_until_up().expect("its ports are up");
    site.echo().expect("the way is found");
    let far = site.right.enter(|| Ok(UdpSocket::bind((RIGHT, 7_000))?)).expect("a socket");
    let bind = |flow: u16| site.left.enter(|| Ok(UdpSocket::bind((LEFT, 7_100 + flow))?));
    let flows: Vec<UdpSocket> = (0..FLOWS).map(|flow| bind(flow).expect("a socket")).collect();
    let sent = 4 * usize::from(FLOWS);
    streams(&flows, &far, sent).expect("sockets work");
    let before = left(&router).expect("a tally");
    assert_eq!(streams(&flows, &far, sent).expect("sockets work"), sent);
    let after = left(&router).expect("a tally");
    let (all, by_shortcut) = (after.0 - before.0, after.1 - before.1);
    assert!(all >= sent as u64, "{before:?} {after:?}");
    assert!(4 * by_shortcut > 3 * all, "{by_shortcut} of {all} packets took a shortcut");
    router.stop().expect("it balances");
}

#[test]
fn a_link_that_flaps_comes_back_and_one_that_is_removed_leaves_the_others_alone() {
    if !privileged("a link that flaps") {
        return;
    }
    let site = Site::new().expect("a site");
    let router = site.start().expect("a router");
    site.echo().expect("an answer");
    for _ in 0..3 {
        let flap = |up: bool| {
            site.left.enter(|| {
                let mut netlink = Netlink::open()?;
                match up {
                    true => {
                        netlink.set_up("l0")?;
                        netlink.add_route(
                            &"198.19.0.0/24".parse()?,
                            Some([198, 18, 0, 1].into()),
                            "l0",
                        )
                    }
                    false => netlink.set_down("l0"),
                }
            })
        };
        flap(false).expect("down");
        wait_for_state(&router, 0, "down");
        flap(true).expect("up");
        wait_for_state(&router, 0, "up");
        site.echo().expect("an answer after the link came back");
    }
    drop(site.left);
    wait_for_state(&router, 0, "gone");
    let gone = router.tally().expect("it still answers");
    assert_eq!((gone.ports[1].state.as_str(), gone.balances), ("up", true));
    router.stop().expect("it still stops");
}

/// A host joins a group and leaves it; another group is forwarded statically.
#[test]
fn groups_reach_joined_and_static_receivers() {
    if !privileged("multicast") {
        return;
    }
    let site = Site::new().expect("a site");
    let mut config: RouterConfig = toml::from_str(ROUTER).expect("a description");
    let group = |last| Ipv4Addr::new(239, 1, 1, last);
    let fixed = vec![GroupSection { group: group(2).into(), source: Some(LEFT.into()) }];
    config.ports[0].multicast = Some(MulticastSection::default());
    config.ports[1].multicast = Some(MulticastSection {
        last_member_interval: Span::from_secs(1) / 10,
        groups: fixed,
        ..MulticastSection::default()
    });
    let router = Running::start(Some(&site.router), config, false).expect("a router");
    router.wait_until_up().expect("its ports are up");
    let far = site.right.enter(|| Ok(UdpSocket::bind(("0.0.0.0", 7_000))?)).expect("a socket");
    far.set_read_timeout(Some(Duration::from_millis(50))).expect("a timeout");
    // The kernel would throw away what none of its sockets has requested.
    far.join_multicast_v4(&group(2), &RIGHT).expect("it may join");
    let near = site.left.enter(|| Ok(UdpSocket::bind((LEFT, 0))?)).expect("a socket");
    near.set_multicast_ttl_v4(8).expect("a time to live");
    let until = |to: Ipv4Addr, what: &str, condition: &mut dyn FnMut() -> bool| {
        let began = Instant::now();
        while !condition() {
            assert!(began.elapsed() < PATIENCE, "{what}");
            near.send_to(&to.octets(), (to, 7_000)).expect("it is sent");
        }
    };
    let came = |to: Ipv4Addr| {
        let mut bytes = [0; 8];
        far.recv(&mut bytes).is_ok_and(|length| bytes[..length] == to.octets())
    };
    // Packets for a group that is no longer wanted are discarded by the router, not by the host.
    let unwanted = || {
        let tally = router.tally().expect("it answers");
        tally.ports[0].discards.get("no_group").copied().unwrap_or(0)
    };
    until(group(2), "the static group does not come", &mut || came(group(2)));
    let before = unwanted();
    until(group(1), "nobody has asked, and it goes on", &mut || unwanted() > before);
    far.join_multicast_v4(&group(1), &RIGHT).expect("it joins");
    until(group(1), "the group that was asked for does not come", &mut || came(group(1)));
    far.leave_multicast_v4(&group(1), &RIGHT).expect("it leaves");
    let before = unwanted();
    until(group(1), "the group goes on though nobody wants it", &mut || unwanted() > before);
    let tally = router.stop().expect("its counters");
    assert!(tally.balances, "{tally:?}");
}

/// An interface is removed and made again, with another link-layer address; another comes late.
#[test]
fn an_interface_that_comes_again_is_taken_again() {
    if !privileged("an interface that comes again") {
        return;
    }
    let mut site = Site::new().expect("a site");
    let mut config: RouterConfig = toml::from_str(ROUTER).expect("a description");
    // It has an address, which is not announced on a missing link.
    let addresses = vec![AddressSection::try_from("fd00:9::1/64".to_owned()).expect("an address")];
    config.ports.push(PortSection { hotplug: true, addresses, ..PortSection::new("late") });
    let router = Running::start(Some(&site.router), config, false).expect("a router");
    router.wait_until_up().expect("its ports are up");
    site.echo().expect("an answer");
    site.left = Namespace::new().expect("a namespace");
    wait_for_state(&router, 0, "gone");
    wait_for_state(&router, 2, "gone");
    connect(&site.router, &site.left, &ENDS[0], [2, 0, 0, 0, 9, 9], 1_500).expect("a link");
    let late = Namespace::new().expect("a namespace");
    let end = ("r1", "late", 3, [198, 18, 1, 2], "198.19.0.0/24", [198, 18, 1, 1]);
    connect(&site.router, &late, &end, [2, 0, 0, 0, 9, 8], 1_400).expect("a link");
    wait_for_state(&router, 0, "up");
    wait_for_state(&router, 2, "up");
    site.echo().expect("an answer by the new link");
    let mtu_bytes = |driver: &mut Driver| driver.router().ports()[2].plan().mtu_bytes;
    assert_eq!(router.remote.call(mtu_bytes).expect("it answers"), 1_400, "the device's");
    let tally = router.stop().expect("its counters");
    assert!(tally.balances, "{tally:?}");
}

fn wait_for_state(router: &Running, port: usize, state: &str) {
    let began = Instant::now();
    loop {
        let tally = router.tally().expect("it answers");
        if tally.ports[port].state == state {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "port {port} never was {state}: {tally:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn the_command_runs_until_sigterm() {
    if !privileged("route run") {
        return;
    }
    let site = Site::new().expect("a site");
    let room = Room::new("route-run");
    room.write("router.toml", ROUTER);
    let refused = site
        .router
        .run(|| room.command(&["route", "run", "router.toml"]).output().expect("it runs"));
    let error = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{error}");
    assert!(error.contains("p0 is an interface of the host"), "{error}");
    let words = ["route", "run", "router.toml", "--host-interfaces", "--json"];
    let child = site.router.run(|| {
        let mut command = room.command(&words);
        command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts")
    });
    site.echo().expect("an answer");
    // SAFETY: the child is ours and has not been waited for.
    unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGTERM) };
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{:?}", output.status);
    let tally: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(tally["balances"], true, "{tally}");
    assert!(tally["transmitted"].as_u64() >= Some(2), "{tally}");
}

/// SIGKILL leaves nothing that keeps the next from starting: XDP programs and sockets go with the process.
#[test]
fn a_router_that_was_killed_is_started_again() {
    if !privileged("a killed router") {
        return;
    }
    let site = Site::new().expect("a site");
    let room = Room::new("route-killed");
    room.write("router.toml", ROUTER.replacen("[[port]]", "[[port]]\npunt = \"cpu0\"", 1));
    let start = || {
        let words = ["route", "run", "router.toml", "--host-interfaces"];
        site.router.run(|| {
            let mut command = room.command(&words);
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts")
        })
    };
    for _ in 0..2 {
        let mut child = start();
        site.echo().expect("an answer");
        child.kill().expect("it is ours");
        child.wait().expect("it has ended");
    }
}

#[test]
fn an_invalid_description_is_refused_in_one_line() {
    let template: RouterConfig = toml::from_str(TEMPLATE).expect("the template parses");
    template.check().expect("and is sound");
    let room = Room::new("route-refused");
    let port = "[[port]]\ninterface = \"p0\"\n";
    let cases = [
        ("", "[[port]]"),
        ("[[prot]]\n", "did you mean `port`"),
        ("[[port]]\ninterface = \"p0\"\naddresses = [\"198.18.0.1\"]\n", "198.18.0.1"),
        ("[[port]]\ninterface = \"p0\"\nrate = \"10\"\n", "10 Mb/s"),
    ];
    for (text, words) in cases {
        refused(&room, text, words);
    }
    refused(&room, &format!("{port}{port}"), "given twice");
    refused(&room, &format!("{port}[fabric]\nspeedup = 0.5\n"), "fabric.speedup");
    let none = Room::new("route-none");
    let output = none.command(&["route", "run", "none.toml"]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(2));
}

fn refused(room: &Room, text: &str, words: &str) {
    room.write("router.toml", text);
    let output = room.command(&["route", "run", "router.toml"]).output().expect("it runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains(words) && error.trim_end().lines().count() == 1, "{error}");
}

//! The router on real interfaces: hosts that know nothing of it talk through it.

mod common;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use common::Room;
use nilometer_lab::device::namespace::Namespace;
use nilometer_lab::device::netlink::{Netlink, VethEnd};
use nilometer_lab::device::privilege::{self, Privilege};
use nilometer_lab::route::config::{RouterConfig, TEMPLATE};
use nilometer_lab::route::running::Running;
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

impl Site {
    fn new() -> Result<Site> {
        let (left, right, router) = (Namespace::new()?, Namespace::new()?, Namespace::new()?);
        let ends = [
            (&left, "l0", "p0", 1, LEFT, "198.19.0.0/24", [198, 18, 0, 1]),
            (&right, "r0", "p1", 2, RIGHT, "198.18.0.0/24", [198, 19, 0, 1]),
        ];
        for (host, name, peer, number, address, far, gateway) in ends {
            let one = VethEnd { namespace: host, name, mac: [2, 0, 0, 0, 0, number] };
            let other = VethEnd { namespace: &router, name: peer, mac: [2, 0, 0, 0, 1, number] };
            router.enter(|| Netlink::open()?.create_veth(one, other, 1_500))?;
            router.enter(|| Netlink::open()?.set_up(peer))?;
            host.enter(|| {
                let mut netlink = Netlink::open()?;
                netlink.add_address(name, address.into(), 24)?;
                netlink.set_up(name)?;
                let gateway = Ipv4Addr::from(gateway);
                netlink.add_route(&far.parse()?, Some(gateway.into()), name)
            })?;
        }
        Ok(Site { left, right, router })
    }

    fn start(&self) -> Result<Running> {
        let config: RouterConfig = toml::from_str(ROUTER)?;
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
            // A link that is down says so here.
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

/// Sends `bytes` by TCP from one host to the other, and compares what comes.
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

/// With the default offloads of a veth, by which segments have no checksum when they come to us.
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
fn the_command_runs_until_it_is_told_to_stop() {
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

#[test]
fn a_description_that_cannot_be_is_refused_in_one_line() {
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

//! Nodes between interfaces of the kernel: our TCP host against the kernel's, our router between two kernel
//! hosts, a source and a recorder at the ends of a link.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use anyhow::ensure;
use nilometer_conversation::{Act, Opening, Side, Step};
use nilometer_linux::memory::MemoryConfig;
use nilometer_linux::packet_port::{PacketPort, PacketPortConfig};
use nilometer_linux::port::AnyPort as Device;
use nilometer_linux::privilege::{Privilege, privilege};
use nilometer_linux::testbed::{
    CLIENT_INTERFACE, DeviceKind, Layout, PROGRAM_INTERFACES, Testbed, TestbedConfig,
};
use nilometer_linux::xdp::{XdpConfig, XdpPort};
use nilometer_router::node::RouterNode;
use nilometer_routerd::machine::Machine;
use nilometer_routerd::testbed::testbed_router;
use nilometer_sim::host::{Host, LinkAddresses, PlannedEnd};
use nilometer_sim::scripted::Part;
use nilometer_sim::stream::{Recorder, Spacing, Stream};
use nilometer_tcp::Config;
use nilometer_tcp::bytes::Ends;
use nilometer_traffic::script::Script;
use nilometer_wire::build;
use socket2::{Domain, Socket, Type};

use super::*;

/// Bytes of the client's request, and of the answer.
const ASKED: usize = 400;
const ANSWERED: usize = 300_000;

fn privileged(test: &str) -> bool {
    let found = privilege();
    let is_root = found == Privilege::Root;
    if !is_root {
        println!("skipped {test}: it needs root (found: {found})");
    }
    is_root
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Xdp,
    Packet,
}

fn memory() -> Memory {
    let config = MemoryConfig { chunk_bytes: 2_048, chunks: 16_384, reserve: 1_024 };
    Memory::new(config).expect("memory")
}

fn open(kind: Kind, memory: &mut Memory, name: &str) -> Result<Device> {
    Ok(match kind {
        Kind::Xdp => Device::Xdp(XdpPort::open(memory, name, &XdpConfig::default())?),
        Kind::Packet => {
            Device::Packet(PacketPort::open(memory, name, &PacketPortConfig::default())?)
        }
    })
}

/// Drives a node between these interfaces of the device until `stop`.
fn drive<N: Node<Packet, Memory>>(
    node: N,
    (kind, interfaces): (Kind, &[&str]),
    stop: &AtomicBool,
) -> Result<N> {
    let mut memory = memory();
    let ports = interfaces.iter().map(|name| open(kind, &mut memory, name));
    let ports = ports.collect::<Result<Vec<_>>>()?;
    let began = Instant::now();
    let clock = || Time::from_nanos(began.elapsed().as_nanos() as u64);
    let mut driver = Driver::new(node, ports, memory, &clock);
    driver.run(stop, |_| ())?;
    Ok(driver.close())
}

/// A kernel client sends a request from this address, and reads the answer to the end; returns its length in
/// bytes.
fn ask(client: &str, server: SocketAddr) -> Result<usize> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&client.parse::<SocketAddr>()?.into())?;
    socket.connect_timeout(&server.into(), Duration::from_secs(10))?;
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(&[7; ASKED])?;
    stream.shutdown(Shutdown::Write)?;
    bytes_received(&stream)
}

/// How many bytes come until the other end has closed.
fn bytes_received(stream: &TcpStream) -> Result<usize> {
    let most = 2 * ANSWERED as u64;
    Ok(io::copy(&mut stream.take(most), &mut io::sink())? as usize)
}

/// Our host is the server: its TCP talks to the kernel's over a veth.
fn speak_with_the_kernel(kind: Kind) -> Result<()> {
    let config = TestbedConfig { device: DeviceKind::Transparent, ..TestbedConfig::default() };
    let [_, [server_mac, client_mac]] = Layout::new(&config)?.hosts();
    let testbed = Testbed::build(&config)?;
    let step = |by, awaits: usize, act| Step { by, awaits: awaits as u64, pause_ns: 0, act };
    let send = |bytes: usize| Act::Send { bytes: bytes as u64, segments: 1, took_ns: 0 };
    let script = Arc::new(Script {
        opening: Opening::Seen,
        steps: vec![
            step(Side::Client, 0, send(ASKED)),
            step(Side::Client, 0, Act::Fin),
            step(Side::Server, ASKED + 1, send(ANSWERED)),
            step(Side::Server, ASKED + 1, Act::Fin),
        ],
        tried_ns: 0,
        has_time_stamps: true,
        segment_bytes: 0,
        acks_each: [false; 2],
    });
    // (The kernel's socket uses its link's address; its port is chosen here.)
    let (client, server) = ("198.19.255.1:40000", "198.19.0.9:8808".parse::<SocketAddr>()?);
    let (start, end) = (Time::ZERO, Time::from_nanos(20_000_000_000));
    let host = Host::new(
        LinkAddresses { own: server_mac, peer: client_mac },
        vec![PlannedEnd {
            ends: Ends { source: server, destination: client.parse()? },
            part: Part { script, side: Side::Server, start, end },
            stack: Config::linux(),
            initial_sequence: 1,
        }],
    );
    let stop = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&stop);
    let device = testbed.device().context("a device")?;
    let driven =
        device.spawn("host", move || drive(host, (kind, &PROGRAM_INTERFACES[..1]), &seen))?;
    testbed.raise()?;
    let answered = testbed.client().enter(|| ask(client, server));
    thread::sleep(Duration::from_millis(100));
    stop.store(true, Ordering::Release);
    let host = driven.join().expect("the host's thread")?;
    ensure!(answered? == ANSWERED, "not all of the answer came");
    let report = host.reports().next().context("a report")?;
    ensure!(report.was_established && report.received_bytes == ASKED as u64, "{report:?}");
    ensure!(report.finished.is_some(), "{report:?}");
    Ok(())
}

/// Our router, driven as any node is, between the kernel's hosts.
fn route_between_kernels(kind: Kind) -> Result<()> {
    let config = TestbedConfig { device: DeviceKind::Program, ..TestbedConfig::default() };
    let layout = Layout::new(&config)?;
    let router = testbed_router(&layout.device_ports(), 1, None);
    let ports: Vec<_> = layout.device_macs().into_iter().map(|mac| (mac, 1_500)).collect();
    let testbed = Testbed::build(&config)?;
    let stop = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&stop);
    let device = testbed.device().context("a device")?;
    let driven = device.spawn("router", move || -> Result<u64> {
        let Machine { router, routes: _routes } = Machine::without_devices(&router, &ports)?;
        let node = drive(RouterNode::new(router), (kind, &PROGRAM_INTERFACES), &seen)?;
        ensure!(node.router().balances(), "the router lost count");
        Ok(node.router().account().transmitted)
    })?;
    testbed.raise()?;
    let server: SocketAddr = "198.19.0.9:8808".parse()?;
    let serving = testbed.server().spawn("server", move || -> Result<usize> {
        let (mut stream, _) = TcpListener::bind(server)?.accept()?;
        let received = bytes_received(&stream)?;
        stream.write_all(&vec![3; ANSWERED])?;
        Ok(received)
    })?;
    thread::sleep(Duration::from_millis(200));
    let answered = testbed.client().enter(|| ask("198.18.0.3:0", server));
    stop.store(true, Ordering::Release);
    let forwarded = driven.join().expect("the router's thread")?;
    ensure!(answered? == ANSWERED, "not all of the answer came");
    ensure!(serving.join().expect("the server's thread")? == ASKED, "not all was asked");
    ensure!(forwarded > 200, "{forwarded} packets");
    Ok(())
}

/// A source at the device's end of a link, and a recorder at the client's.
fn stream_over_a_link(kind: Kind) -> Result<()> {
    const FRAMES: u64 = 500;
    let config = TestbedConfig { device: DeviceKind::Transparent, ..TestbedConfig::default() };
    let testbed = Testbed::build(&config)?;
    let ends = ["198.19.0.9:1", "198.18.0.9:2"].map(|end| end.parse().expect("an end"));
    let frame = build::ethernet(&build::udp(ends[0], ends[1], &[5; 200]));
    let gap = Span::from_nanos(200_000);
    // (Links come up first, which take a moment after AF_XDP has been attached.)
    let start = Time::from_nanos(500_000_000);
    let source = Stream::new(frame.clone(), Spacing::Poisson(gap), start, FRAMES, 3);
    let stop = Arc::new(AtomicBool::new(false));
    let at_client = {
        let seen = Arc::clone(&stop);
        testbed.client().spawn("recorder", move || {
            drive(Recorder::new(10_000), (Kind::Packet, &[CLIENT_INTERFACE]), &seen)
        })?
    };
    let at_device = {
        let seen = Arc::clone(&stop);
        let device = testbed.device().context("a device")?;
        device.spawn("source", move || drive(source, (kind, &PROGRAM_INTERFACES[..1]), &seen))?
    };
    testbed.raise()?;
    thread::sleep(Duration::from_millis(1_500));
    stop.store(true, Ordering::Release);
    let source = at_device.join().expect("the source's thread")?;
    let recorder = at_client.join().expect("the recorder's thread")?;
    ensure!(source.no_room() == 0, "the memory had no room");
    let arrivals = recorder.arrivals().iter().filter(|arrival| arrival.frame == frame).count();
    ensure!(arrivals as u64 == FRAMES, "{arrivals} of {FRAMES} frames arrived");
    Ok(())
}

#[test]
fn a_tcp_host_connects_to_the_kernels() {
    if privileged("a host on a wire") {
        for kind in [Kind::Xdp, Kind::Packet] {
            speak_with_the_kernel(kind).unwrap_or_else(|why| panic!("{kind:?}: {why:#}"));
        }
    }
}

#[test]
fn a_router_forwards_between_the_kernels_hosts() {
    if privileged("a router as a node") {
        for kind in [Kind::Xdp, Kind::Packet] {
            route_between_kernels(kind).unwrap_or_else(|why| panic!("{kind:?}: {why:#}"));
        }
    }
}

#[test]
fn a_recorder_keeps_all_frames_of_a_source() {
    if privileged("a source on a wire") {
        for kind in [Kind::Xdp, Kind::Packet] {
            stream_over_a_link(kind).unwrap_or_else(|why| panic!("{kind:?}: {why:#}"));
        }
    }
}

//! Namespaces, links, offloads and rings on the real kernel; skipped where privilege is missing.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, ensure};
use nilometer_linux::namespace::Namespace;
use nilometer_linux::netlink::{LinkStatistics, Netlink};
use nilometer_linux::offload;
use nilometer_linux::privilege::{self, Privilege};
use nilometer_linux::ring::{Ring, RingConfig, RingStatistics};
use nilometer_linux::testbed::{
    CLIENT_INTERFACE, DeviceKind, SERVER_INTERFACE, Testbed, TestbedConfig,
};
use nilometer_linux::veth::VethEnd;
use socket2::{Domain, Socket, Type};

const TRANSFER_BYTES: usize = 200_000;
/// 8 MiB that hold 2.5 s of even the slowest traffic.
const SMALL: RingConfig =
    RingConfig { block_bytes: 1 << 16, blocks: 128, retire_ms: 20, snap_bytes: None };

/// Whether this process has enough privilege; prints what is skipped otherwise.
fn privileged(test: &str) -> bool {
    match privilege::privilege() {
        Privilege::Root => true,
        other => {
            println!("skipped {test}: it needs root (found: {other})");
            false
        }
    }
}

/// A wire between the hosts of [`TestbedConfig::default`].
fn wire() -> TestbedConfig {
    TestbedConfig { device: DeviceKind::Wire, ..Default::default() }
}

/// Sends datagrams of 100 bytes of payload from client to server, numbered from 0.
fn send_datagrams(testbed: &Testbed, count: u32, pause: Duration) -> Result<()> {
    testbed.client().enter(|| {
        let socket = UdpSocket::bind("198.18.0.1:7000")?;
        let mut payload = [0; 100];
        for number in 0..count {
            payload[..4].copy_from_slice(&number.to_be_bytes());
            // Nothing listens; the refusals that come back do not reach an unconnected socket.
            socket.send_to(&payload, "198.19.0.1:7001")?;
            thread::sleep(pause);
        }
        Ok(())
    })
}

/// The number in a datagram of [`send_datagrams`]; none for any other frame.
fn datagram_number(frame: &[u8]) -> Option<usize> {
    const PAYLOAD: usize = 14 + 20 + 8;
    let ours = frame[12..14] == [8, 0] && frame[23] == 17 && frame.len() == PAYLOAD + 100;
    let number = frame.get(PAYLOAD..PAYLOAD + 4)?;
    ours.then(|| u32::from_be_bytes(number.try_into().expect("four bytes")) as usize)
}

/// What one ring saw, summed up.
#[derive(Debug, Default)]
struct Tally {
    incoming: u64,
    incoming_bytes: u64,
    outgoing: u64,
    outgoing_bytes: u64,
    longest_bytes: u32,
    partial_checksums: u64,
    stamped_late: u64,
    other_than_ip: u64,
    first_ns: u64,
    last_ns: u64,
}

impl Tally {
    /// Drains until nothing has come for as long as three blocks stay open.
    fn drain(&mut self, ring: &mut Ring) -> Result<()> {
        while ring.poll(3 * SMALL.retire_ms)? {
            ring.drain(|seen| {
                let bytes = u64::from(seen.original_bytes);
                if seen.outgoing {
                    self.outgoing += 1;
                    self.outgoing_bytes += bytes;
                } else {
                    self.incoming += 1;
                    self.incoming_bytes += bytes;
                }
                assert_eq!(seen.frame.len(), bytes as usize, "nothing was to be cut off");
                self.longest_bytes = self.longest_bytes.max(seen.original_bytes);
                self.partial_checksums += u64::from(seen.partial_checksum);
                self.stamped_late += u64::from(!seen.stamped_on_arrival);
                let kind = [seen.frame[12], seen.frame[13]];
                self.other_than_ip += u64::from(kind != [8, 0] && kind != [0x86, 0xdd]);
                if self.first_ns == 0 {
                    self.first_ns = seen.stamp_ns;
                }
                self.last_ns = seen.stamp_ns;
            });
        }
        Ok(())
    }

    /// Compares what the ring saw with the counters of the interface and of the ring itself.
    fn agrees(&self, interface: LinkStatistics, ring: RingStatistics, mtu_bytes: u32) {
        assert_eq!(ring.dropped, 0, "{self:?}");
        assert_eq!(ring.packets, self.incoming + self.outgoing, "{self:?}");
        assert_eq!(interface.rx_packets, self.incoming, "{self:?}");
        assert_eq!(interface.rx_bytes, self.incoming_bytes, "{self:?}");
        assert_eq!(interface.tx_packets + interface.tx_dropped, self.outgoing, "{self:?}");
        assert_eq!(interface.tx_bytes, self.outgoing_bytes, "{self:?}");
        assert!(self.longest_bytes <= mtu_bytes + 14, "{self:?}");
        assert_eq!(self.partial_checksums, 0, "{self:?}");
    }
}

fn stream_socket(address: IpAddr, port: u16) -> Result<Socket> {
    let address = SocketAddr::new(address, port);
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into()).with_context(|| format!("binding {address}"))?;
    Ok(socket)
}

/// Sends bytes from one address to the other through the testbed, and half as many back.
fn transfer(testbed: &Testbed, from: &str, to: &str) -> Result<()> {
    let (from, to): (IpAddr, IpAddr) = (from.parse()?, to.parse()?);
    let listener = testbed.server().enter(|| {
        let socket = stream_socket(to, 5001)?;
        socket.listen(16)?;
        Ok(socket)
    })?;
    let client = testbed.client().enter(|| stream_socket(from, 0))?;
    let body: Vec<u8> = (0..TRANSFER_BYTES).map(|place| (place * 7 / 3) as u8).collect();
    thread::scope(|scope| {
        let server = scope.spawn(|| -> Result<()> {
            let (socket, peer) = listener.accept()?;
            ensure!(peer.as_socket().map(|peer| peer.ip()) == Some(from), "from {peer:?}");
            let (mut stream, mut received) = (TcpStream::from(socket), Vec::new());
            stream.read_to_end(&mut received)?;
            ensure!(received == body, "{} bytes arrived, or others", received.len());
            stream.write_all(&received[..TRANSFER_BYTES / 2])?;
            Ok(())
        });
        client.connect_timeout(&SocketAddr::new(to, 5001).into(), Duration::from_secs(5))?;
        let (mut stream, mut answer) = (TcpStream::from(client), Vec::new());
        stream.write_all(&body)?;
        stream.shutdown(Shutdown::Write)?;
        stream.read_to_end(&mut answer)?;
        ensure!(answer == body[..TRANSFER_BYTES / 2], "{} bytes came back", answer.len());
        server.join().expect("the server thread")
    })
}

fn carry(config: &TestbedConfig) -> Result<()> {
    let testbed = Testbed::build(config)?;
    let mut client_ring = testbed.client().enter(|| Ring::open(CLIENT_INTERFACE, SMALL))?;
    let mut server_ring = testbed.server().enter(|| Ring::open(SERVER_INTERFACE, SMALL))?;
    assert!(!client_ring.poll(0)?, "nothing passes a link that is down");
    let before = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_nanos() as u64;
    testbed.raise()?;
    transfer(&testbed, "198.18.7.9", "198.19.100.200")?;
    transfer(&testbed, "fd00:c::7:9", "fd00:5::1234")?;
    transfer(&testbed, "198.19.255.1", "198.19.0.1")?;

    let (mut client, mut server) = (Tally::default(), Tally::default());
    client.drain(&mut client_ring)?;
    server.drain(&mut server_ring)?;
    let after = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_nanos() as u64;
    let counters = testbed.interface_counters()?;
    client.agrees(counters.client, client_ring.statistics()?, config.mtu_bytes);
    server.agrees(counters.server, server_ring.statistics()?, config.mtu_bytes);
    let least = 2 * (TRANSFER_BYTES as u64 / u64::from(config.mtu_bytes));
    assert!(client.outgoing > least && server.incoming > least, "{client:?} {server:?}");
    assert_eq!(client.other_than_ip + server.other_than_ip, 0, "ARP: {client:?} {server:?}");
    assert_eq!((client.outgoing, client.incoming), (server.incoming, server.outgoing));
    for tally in [client, server] {
        assert!(before <= tally.first_ns && tally.last_ns <= after, "{tally:?}");
    }
    Ok(())
}

#[test]
fn linux_carries_both_families_and_every_frame_is_seen() -> Result<()> {
    if !privileged("the Linux testbed") {
        return Ok(());
    }
    carry(&TestbedConfig::default())
}

#[test]
fn the_wire_carries_both_families_and_every_frame_is_seen() -> Result<()> {
    if !privileged("the wire testbed") {
        return Ok(());
    }
    carry(&TestbedConfig { mtu_bytes: 9000, ..wire() })
}

#[test]
fn arrivals_are_stamped_by_the_driver_not_by_the_backlog() -> Result<()> {
    if !privileged("the ring's stamps") {
        return Ok(());
    }
    const COUNT: usize = 2_000;
    let testbed = Testbed::build(&wire())?;
    let mut client_ring = testbed.client().enter(|| Ring::open(CLIENT_INTERFACE, SMALL))?;
    let mut server_ring = testbed.server().enter(|| Ring::open(SERVER_INTERFACE, SMALL))?;
    testbed.raise()?;
    thread::sleep(Duration::from_millis(50));
    send_datagrams(&testbed, COUNT as u32, Duration::from_micros(10))?;

    let (mut departures, mut arrivals) = (vec![0; COUNT], vec![0; COUNT]);
    let mut late = 0;
    for (ring, stamps) in [(&mut client_ring, &mut departures), (&mut server_ring, &mut arrivals)] {
        while ring.poll(3 * SMALL.retire_ms)? {
            ring.drain(|seen| {
                if let Some(number) = datagram_number(seen.frame) {
                    stamps[number] = seen.stamp_ns;
                    late += usize::from(!seen.stamped_on_arrival);
                }
            });
        }
    }
    assert!(departures.iter().chain(&arrivals).all(|&stamp| stamp > 0), "a datagram is missing");
    let mut delays: Vec<i64> =
        arrivals.iter().zip(&departures).map(|(to, from)| *to as i64 - *from as i64).collect();
    delays.sort_unstable();
    let (least, median, p99) = (delays[0], delays[COUNT / 2], delays[COUNT * 99 / 100]);
    println!("veth, ring to ring: least {least} ns, median {median} ns, p99 {p99} ns, late {late}");
    assert_eq!(late, 0, "the kernel did not stamp on arrival");
    assert!(least >= 0 && median < 50_000, "least {least} ns, median {median} ns");
    Ok(())
}

#[test]
fn a_ring_counts_lost_and_truncated_packets() -> Result<()> {
    if !privileged("the ring's losses") {
        return Ok(());
    }
    const COUNT: u32 = 3_000;
    let testbed = Testbed::build(&wire())?;
    let tiny = RingConfig { blocks: 2, ..SMALL };
    let mut tiny = testbed.client().enter(|| Ring::open(CLIENT_INTERFACE, tiny))?;
    let cutting = RingConfig { snap_bytes: Some(64), ..SMALL };
    let mut cutting = testbed.client().enter(|| Ring::open(CLIENT_INTERFACE, cutting))?;
    testbed.raise()?;
    send_datagrams(&testbed, COUNT, Duration::ZERO)?;

    let mut kept = 0;
    while tiny.poll(3 * SMALL.retire_ms)? {
        kept += tiny.drain(|_| {}) as u64;
    }
    let statistics = tiny.statistics()?;
    assert!(statistics.dropped > 0 && statistics.freezes > 0, "{statistics:?}");
    assert_eq!(kept + statistics.dropped, statistics.packets, "{statistics:?}");
    assert_eq!(tiny.statistics()?, statistics, "reading must not forget");

    let (mut cut, mut whole) = (0, 0);
    while cutting.poll(3 * SMALL.retire_ms)? {
        cutting.drain(|seen| {
            assert_eq!(seen.frame.len(), 64.min(seen.original_bytes as usize));
            cut += u32::from(seen.original_bytes == 142);
            whole += u32::from(seen.frame.len() == seen.original_bytes as usize);
        });
    }
    assert_eq!((cut, whole, cutting.statistics()?.dropped), (COUNT, 0, 0));
    Ok(())
}

#[test]
fn a_ring_outlives_its_link_going_down() -> Result<()> {
    if !privileged("the ring on a link that goes down") {
        return Ok(());
    }
    let testbed = Testbed::build(&wire())?;
    let mut ring = testbed.client().enter(|| Ring::open(CLIENT_INTERFACE, SMALL))?;
    testbed.raise()?;
    testbed.client().enter(|| Netlink::open()?.set_down(CLIENT_INTERFACE))?;
    assert!(!ring.poll(1)?);
    testbed.client().enter(|| {
        Netlink::open()?.set_up(CLIENT_INTERFACE)?;
        Ok(UdpSocket::bind("198.19.255.1:0")?.send_to(b"back again", "198.19.255.2:9")?)
    })?;
    let mut tally = Tally::default();
    tally.drain(&mut ring)?;
    assert!(tally.outgoing >= 1, "{tally:?}");
    let missing = testbed.client().enter(|| Ring::open("nowhere0", SMALL)).err();
    let missing = format!("{:#}", missing.expect("there is no such interface"));
    assert!(missing.contains("nowhere0") && missing.contains("No such device"), "{missing}");
    Ok(())
}

#[test]
fn offloads_are_on_at_first_and_off_afterwards() -> Result<()> {
    if !privileged("the offloads") {
        return Ok(());
    }
    let namespace = Namespace::new()?;
    namespace.enter(|| {
        let end = |name, last| VethEnd { namespace: &namespace, name, mac: [2, 0, 0, 0, 0, last] };
        Netlink::open()?.create_veth(end("one", 1), end("two", 2), 1500)?;
        let on = || -> Result<Vec<String>> {
            let found = offload::offloads("one")?.into_iter().filter(|offload| offload.on);
            Ok(found.map(|offload| offload.name).collect())
        };
        let before = on()?;
        for name in ["tx-tcp-segmentation", "tx-udp-segmentation", "tx-generic-segmentation"] {
            assert!(before.iter().any(|found| found == name), "{name} in {before:?}");
        }
        offload::switch_off("one")?;
        assert_eq!(on()?, Vec::<String>::new());
        let error = format!("{:#}", offload::switch_off("three").expect_err("no such link"));
        assert!(error.contains("three") && error.contains("No such device"), "{error}");
        Ok(())
    })
}

#[test]
fn netlink_errors_name_the_failed_step_and_the_cause() -> Result<()> {
    if !privileged("netlink's errors") {
        return Ok(());
    }
    let namespace = Namespace::new()?;
    let (one, two) = (VethEnd { namespace: &namespace, name: "one", mac: [2; 6] }, "two");
    let mut netlink = namespace.enter(Netlink::open)?;
    let pair = |netlink: &mut Netlink| {
        netlink.create_veth(one, VethEnd { name: two, mac: [4; 6], ..one }, 1400)
    };
    pair(&mut netlink)?;
    let message = |result: Result<()>| format!("{:#}", result.expect_err("it must be refused"));
    let again = message(pair(&mut netlink));
    assert_eq!(again, "cannot create the veth pair one - two: File exists (os error 17)");
    let absent = message(netlink.set_up("three"));
    assert!(absent.starts_with("cannot set three up: cannot read the state of"), "{absent}");
    netlink.set_up("one")?;
    netlink.set_up("two")?;
    let unreachable = netlink.add_route(&"198.18.0.0/16".parse()?, "fd00::1".parse().ok(), "one");
    assert!(
        message(unreachable).starts_with("cannot add the route 198.18.0.0/16 via fd00::1 dev one")
    );
    let unreachable =
        netlink.add_route(&"198.18.0.0/16".parse()?, "198.19.0.1".parse().ok(), "one");
    assert!(message(unreachable).contains("invalid gateway"), "the kernel's own words are missing");

    let link = netlink.link("one")?;
    assert_eq!((link.mac.as_slice(), link.mtu_bytes), (&[2u8; 6][..], 1400));
    assert!(link.administratively_up && netlink.link("lo")?.administratively_up);
    Ok(())
}

#[test]
fn threads_and_sockets_stay_in_their_namespace() -> Result<()> {
    if !privileged("the namespaces") {
        return Ok(());
    }
    let place = || fs::read_link("/proc/thread-self/ns/net").expect("procfs is mounted");
    let (one, other, outside) = (Namespace::new()?, Namespace::new()?, place());
    let places = BTreeSet::from([one.run(place), other.run(place), outside.clone()]);
    assert_eq!(places.len(), 3, "{places:?}");
    let lasting = one.spawn("lasting", place)?;
    assert_eq!(lasting.join().expect("no panic"), one.run(place));
    assert_eq!(place(), outside);

    // A socket made inside still hears the loopback inside.
    let inside = one.enter(|| Ok(UdpSocket::bind("127.0.0.1:4242")?))?;
    let elsewhere = other.enter(|| Ok(UdpSocket::bind("127.0.0.1:4242")?))?;
    elsewhere.set_read_timeout(Some(Duration::from_millis(20)))?;
    one.enter(|| Ok(UdpSocket::bind("127.0.0.1:0")?.send_to(b"here", "127.0.0.1:4242")?))?;
    let mut taken = [0; 8];
    assert_eq!(inside.recv(&mut taken)?, 4);
    assert!(elsewhere.recv(&mut taken).is_err());

    one.write_sysctl("net/ipv4/ip_forward", "1")?;
    let forwards = |namespace: &Namespace| namespace.read_sysctl("net/ipv4/ip_forward");
    assert_eq!((forwards(&one)?, forwards(&other)?), ("1".into(), "0".into()));
    let unknown = one.write_sysctl("net/ipv4/no_such", "1").expect_err("unknown").to_string();
    assert!(unknown.starts_with("cannot set /proc/sys/net/ipv4/no_such to 1: "), "{unknown}");
    Ok(())
}

/// Set for a child that plays its part of a test.
const CHILD: &str = "NILOMETER_TEST_CHILD";

/// This test program again, to run one test with [`CHILD`] set.
fn child(test: &str) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--exact", test, "--nocapture"]).env(CHILD, "1").stdout(Stdio::piped());
    Ok(command)
}

/// The processes that hold a namespace such as `net:[4026532008]` by a thread or a descriptor.
fn holders(namespace: &str) -> BTreeSet<u32> {
    let list = |path: String| fs::read_dir(path).into_iter().flatten().flatten();
    let refers = |path: &std::path::Path| {
        fs::read_link(path).is_ok_and(|target| target.to_string_lossy() == namespace)
    };
    list("/proc".into())
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|process| {
            list(format!("/proc/{process}/fd")).any(|descriptor| refers(&descriptor.path()))
                || list(format!("/proc/{process}/task"))
                    .any(|thread| refers(&thread.path().join("ns/net")))
        })
        .collect()
}

#[test]
fn nothing_is_left_after_sigkill() -> Result<()> {
    if !privileged("the end by SIGKILL") {
        return Ok(());
    }
    if std::env::var_os(CHILD).is_some() {
        let testbed = Testbed::build(&TestbedConfig::default())?;
        let _ring = testbed.client().enter(|| Ring::open(CLIENT_INTERFACE, SMALL))?;
        testbed.raise()?;
        let device = testbed.device().expect("Linux is a device");
        for namespace in [testbed.client(), testbed.server(), device] {
            println!("{}", namespace.run(|| fs::read_link("/proc/thread-self/ns/net"))?.display());
        }
        thread::sleep(Duration::from_secs(60));
        return Ok(());
    }
    let mut child = child("nothing_is_left_after_sigkill")?.spawn()?;
    let output = BufReader::new(child.stdout.take().expect("it is piped"));
    let lines = output.lines().map_while(Result::ok).filter(|line| line.starts_with("net:["));
    let namespaces: Vec<String> = lines.take(3).collect();
    assert_eq!(namespaces.len(), 3, "the child did not build its testbed");
    for namespace in &namespaces {
        assert_eq!(holders(namespace), BTreeSet::from([child.id()]), "{namespace}");
    }
    let links = fs::read_to_string("/proc/net/dev")?;
    for name in [CLIENT_INTERFACE, SERVER_INTERFACE, "p0", "p1"] {
        assert!(!links.contains(&format!("{name}:")), "{name} is seen outside of the testbed");
    }
    child.kill()?;
    child.wait()?;
    let began = Instant::now();
    while namespaces.iter().any(|namespace| !holders(namespace).is_empty()) {
        assert!(began.elapsed() < Duration::from_secs(5), "a namespace is still held");
        thread::sleep(Duration::from_millis(5));
    }
    // A name would be a file with the namespace's number.
    for name in fs::read_dir("/run/netns").into_iter().flatten() {
        let number = format!("net:[{}]", name?.metadata().map_or(0, |file| file.ino()));
        assert!(!namespaces.contains(&number), "{number} has a name");
    }
    Ok(())
}

#[test]
fn an_ordinary_user_has_a_testbed_in_a_user_namespace() -> Result<()> {
    const NOBODY: u32 = 65_534;
    if std::env::var_os(CHILD).is_some() {
        assert_eq!(privilege::privilege(), Privilege::Root, "within its own user namespace");
        return carry(&TestbedConfig::default());
    }
    if !privileged("the user namespace of an ordinary user") {
        return Ok(());
    }
    let mut command = child("an_ordinary_user_has_a_testbed_in_a_user_namespace")?;
    // SAFETY: between fork and exec the child is alone; it gives up root and acquires a user's
    // privileges, by system calls and by allocations, which the C library allows there.
    unsafe {
        command.pre_exec(|| {
            // SAFETY: three calls that take integers.
            let failed = libc::setgroups(0, std::ptr::null()) != 0
                || libc::setgid(NOBODY) != 0
                || libc::setuid(NOBODY) != 0
                || libc::prctl(libc::PR_SET_DUMPABLE, 1) != 0;
            if failed {
                return Err(std::io::Error::last_os_error());
            }
            match privilege::acquire() {
                Ok(Privilege::UserNamespace) => Ok(()),
                Ok(_) => Err(std::io::Error::from_raw_os_error(libc::EISCONN)),
                Err(_) => Err(std::io::Error::from_raw_os_error(libc::EPERM)),
            }
        });
    }
    match command.output() {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && text.contains("1 passed"), "{text}");
        }
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
            println!("skipped the user namespace of an ordinary user: this kernel allows none");
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

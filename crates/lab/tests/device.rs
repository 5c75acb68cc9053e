//! Namespaces, links, offloads and rings on the real kernel; skipped where privilege is missing.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, ensure};
use nilometer_lab::device::namespace::Namespace;
use nilometer_lab::device::netlink::{LinkStatistics, Netlink, VethEnd};
use nilometer_lab::device::offload;
use nilometer_lab::device::privilege::{self, Privilege};
use nilometer_lab::device::ring::{Ring, RingConfig, RingStatistics};
use nilometer_lab::device::testbed::{
    CLIENT_INTERFACE, DeviceKind, SERVER_INTERFACE, Testbed, TestbedConfig,
};
use socket2::{Domain, Socket, Type};

const TRANSFER_BYTES: usize = 200_000;
const SMALL: RingConfig =
    RingConfig { block_bytes: 1 << 18, blocks: 16, retire_ms: 5, snap_bytes: None };

/// Whether this process is root enough; says in one line what is skipped otherwise.
fn privileged(test: &str) -> bool {
    match privilege::privilege() {
        Privilege::Root => true,
        other => {
            println!("skipped {test}: it runs as root only, here there is {other}");
            false
        }
    }
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

    /// Holds what the ring saw against what the interface and the ring itself counted.
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
    carry(&TestbedConfig { device: DeviceKind::Wire, mtu_bytes: 9000, ..Default::default() })
}

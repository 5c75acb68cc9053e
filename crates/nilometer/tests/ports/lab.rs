//! Two hosts, a router's namespace between them, and a patch that joins two of the router's ports.

use std::collections::VecDeque;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nilometer_linux::memory::{MemoryConfig, Packet, PacketMemory};
use nilometer_linux::namespace::Namespace;
use nilometer_linux::netlink::Netlink;
use nilometer_linux::offload;
use nilometer_linux::packet_port::{PacketPort, PacketPortConfig};
use nilometer_linux::port::{AnyPort, ChecksumOffload, PortError, PortIo};
use nilometer_linux::privilege::{self, Privilege};
use nilometer_linux::veth::VethEnd;
use nilometer_linux::xdp::{XdpConfig, XdpMode, XdpPort};
use nilometer_stat::Rng;

/// Whether this process has enough privilege; prints what is skipped otherwise.
pub fn privileged(test: &str) -> bool {
    match privilege::privilege() {
        Privilege::Root => true,
        other => {
            println!("skipped {test}: it needs root (found: {other})");
            false
        }
    }
}

/// Host `left` has the link l0 - p0, host `right` the link r0 - p1; the p ends are the router's.
pub struct Lab {
    pub left: Namespace,
    pub right: Namespace,
    pub router: Namespace,
}

impl Lab {
    /// The links are up; offloads of all ends are as the kernel has them, or off.
    pub fn new(mtu_bytes: u32, offloads: bool) -> Result<Lab> {
        let lab =
            Lab { left: Namespace::new()?, right: Namespace::new()?, router: Namespace::new()? };
        for namespace in [&lab.left, &lab.right, &lab.router] {
            // Hosts must send nothing of their own accord.
            namespace.write_sysctls(&[
                ("net/ipv6/conf/all/disable_ipv6", "1"),
                ("net/ipv6/conf/default/disable_ipv6", "1"),
            ])?;
        }
        let links = [("l0", &lab.left, 1, "p0", 3), ("r0", &lab.right, 2, "p1", 4)];
        for (name, namespace, last, peer, peer_last) in links {
            let mac = |last| [2, 0, 0, 0, 0, last];
            let one = VethEnd { namespace, name, mac: mac(last) };
            let other = VethEnd { namespace: &lab.router, name: peer, mac: mac(peer_last) };
            lab.router.enter(|| Netlink::open()?.create_veth(one, other, mtu_bytes))?;
        }
        for (name, namespace) in [("l0", &lab.left), ("r0", &lab.right)] {
            lab.up(namespace, name, offloads)?;
        }
        for name in ["p0", "p1"] {
            lab.up(&lab.router, name, offloads)?;
        }
        for (namespace, name) in [(&lab.left, "l0"), (&lab.right, "r0")] {
            await_link(namespace, name, true)?;
        }
        for name in ["p0", "p1"] {
            await_link(&lab.router, name, true)?;
        }
        Ok(lab)
    }

    fn up(&self, namespace: &Namespace, name: &str, offloads: bool) -> Result<()> {
        namespace.enter(|| {
            if !offloads {
                offload::switch_off(name)?;
            }
            Netlink::open()?.set_up(name)
        })
    }

    /// A port of the kind on an interface of the router.
    pub fn open(&self, memory: &mut PacketMemory, kind: &Kind, name: &str) -> Result<AnyPort> {
        self.router.enter(|| kind.open(memory, name))
    }
}

/// Waits until a link carries traffic, or no longer does; the kernel finds out in its own time.
pub fn await_link(namespace: &Namespace, name: &str, up: bool) -> Result<()> {
    let mut netlink = namespace.enter(Netlink::open)?;
    for _ in 0..5_000 {
        if netlink.link(name)?.operational == up {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    anyhow::bail!("the link {name} did not change")
}

/// A kind of port on an interface that exists.
#[derive(Clone, Debug)]
pub enum Kind {
    Xdp(XdpConfig),
    Packet(PacketPortConfig),
}

impl Kind {
    pub fn xdp(mode: XdpMode, checksum: ChecksumOffload) -> Kind {
        Kind::Xdp(XdpConfig {
            mode,
            checksum,
            ring_entries: 512,
            reserve: 512,
            ..Default::default()
        })
    }

    pub fn packet(checksum: ChecksumOffload) -> Kind {
        Kind::Packet(PacketPortConfig { checksum, reserve: 256, ..Default::default() })
    }

    pub fn open(&self, memory: &mut PacketMemory, name: &str) -> Result<AnyPort> {
        Ok(match self {
            Kind::Xdp(config) => AnyPort::Xdp(XdpPort::open(memory, name, config)?),
            Kind::Packet(config) => AnyPort::Packet(PacketPort::open(memory, name, config)?),
        })
    }
}

/// 8192 chunks of 4096 bytes.
pub fn memory() -> Result<PacketMemory> {
    PacketMemory::new(MemoryConfig { chunks: 8192, ..Default::default() })
}

/// Two ports joined: frames that arrive at one leave at the other.
pub struct Patch {
    pub memory: PacketMemory,
    pub ports: [AnyPort; 2],
    pub queues: [VecDeque<Packet>; 2],
}

impl Patch {
    pub fn new(memory: PacketMemory, ports: [AnyPort; 2]) -> Patch {
        Patch { memory, ports, queues: Default::default() }
    }

    /// Moves the waiting frames; returns how many arrived.
    pub fn step(&mut self) -> Result<usize, PortError> {
        let mut count = 0;
        let mut batch = Vec::new();
        for from in 0..2 {
            let to = 1 - from;
            count += self.ports[from].receive(&mut self.memory, &mut batch, 64)?;
            self.queues[to].extend(batch.drain(..));
            self.ports[to].transmit(&mut self.memory, &mut self.queues[to])?;
            self.ports[to].flush(&mut self.memory)?;
        }
        Ok(count)
    }

    /// Sleeps until something can be done, or for `timeout`.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<bool> {
        let blocked = [!self.queues[0].is_empty(), !self.queues[1].is_empty()];
        nilometer_linux::port::wait(&mut self.ports, |number| blocked[number], timeout)
    }

    /// Closes the ports and counts the chunks: all must be there again.
    pub fn close(mut self) -> Result<()> {
        for queue in &mut self.queues {
            for packet in queue.drain(..) {
                self.memory.give(packet);
            }
        }
        let ports = self.ports;
        for port in ports {
            port.close(&mut self.memory);
        }
        let census = self.memory.census();
        ensure!((census.held, census.lent) == (0, 0), "chunks are missing: {census:?}");
        Ok(())
    }
}

/// A packet socket in a host, the test's own eyes and hands.
pub struct Host(OwnedFd);

impl Host {
    pub fn open(namespace: &Namespace, interface: &str) -> Result<Host> {
        const EVERYTHING: u16 = libc::ETH_P_ALL as u16;
        namespace.enter(|| {
            let name = CString::new(interface)?;
            let on = 1i32;
            let buffer_bytes = 16i32 << 20;
            // SAFETY: the name ends in a zero byte, the address and options are live and of the
            // stated sizes, the descriptor is new.
            unsafe {
                let index = libc::if_nametoindex(name.as_ptr());
                let raw = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
                ensure!(index > 0 && raw >= 0, "{}", io::Error::last_os_error());
                let socket = OwnedFd::from_raw_fd(raw);
                for (level, option, value) in [
                    (libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &on),
                    (libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &buffer_bytes),
                ] {
                    // An ordinary user in a private namespace has the buffer that the kernel grants.
                    libc::setsockopt(raw, level, option, (&raw const *value).cast(), 4);
                }
                let mut address: libc::sockaddr_ll = std::mem::zeroed();
                address.sll_family = libc::AF_PACKET as u16;
                address.sll_protocol = EVERYTHING.to_be();
                address.sll_ifindex = index as i32;
                let length = size_of_val(&address) as u32;
                let bound = libc::bind(raw, (&raw const address).cast(), length);
                ensure!(bound == 0, "{}", io::Error::last_os_error());
                Ok(Host(socket))
            }
        })
    }

    pub fn send(&self, frame: &[u8]) -> Result<()> {
        // SAFETY: the pointer and the length are those of a live slice.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        let error = io::Error::last_os_error();
        ensure!(sent == frame.len() as isize, "sending {} bytes: {error}", frame.len());
        Ok(())
    }

    /// The next frame of the tests' own kind, if one comes within a second.
    pub fn receive(&self) -> Result<Option<Vec<u8>>> {
        self.receive_of(OURS)
    }

    /// The next frame of an EtherType, if one comes within a second.
    pub fn receive_of(&self, kind: [u8; 2]) -> Result<Option<Vec<u8>>> {
        let mut frame = vec![0; 65_536];
        loop {
            let mut poll =
                libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one live pollfd is passed, and a live buffer with its length.
            let received = unsafe {
                if libc::poll(&mut poll, 1, 1000) == 0 {
                    return Ok(None);
                }
                libc::recv(poll.fd, frame.as_mut_ptr().cast(), frame.len(), 0)
            };
            ensure!(received >= 0, "receiving: {}", io::Error::last_os_error());
            if frame[12..14] == kind {
                frame.truncate(received as usize);
                return Ok(Some(frame));
            }
        }
    }
}

/// The EtherType for experiments (IEEE 802 local experimental 1).
const OURS: [u8; 2] = [0x88, 0xb5];

/// A frame that no other has the bytes of.
pub fn frame(number: u64, bytes: usize) -> Vec<u8> {
    let mut rng = Rng::new(7, 3, number);
    let mut frame = vec![2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8];
    frame.extend(OURS);
    frame.extend(number.to_be_bytes());
    frame.resize_with(bytes, || rng.next_u64() as u8);
    frame
}

/// Sends frames of all lengths through the patch, 32 at a time, and compares the output.
pub fn exchange(patch: &mut Patch, from: &Host, to: &Host, lengths: &[usize]) -> Result<()> {
    for (round, lengths) in lengths.chunks(32).enumerate() {
        let frames: Vec<Vec<u8>> = (lengths.iter().enumerate())
            .map(|(number, &bytes)| frame((round * 32 + number) as u64, bytes))
            .collect();
        for frame in &frames {
            from.send(frame)?;
        }
        let mut arrived = 0;
        while arrived < frames.len() {
            let count = patch.step()?;
            arrived += count;
            let something = count > 0 || patch.wait(Duration::from_secs(1))?;
            ensure!(something, "{arrived} of {} frames came: {:?}", frames.len(), counters(patch)?);
        }
        for frame in frames {
            let found = to.receive()?.with_context(|| format!("{:?}", counters(patch)))?;
            ensure!(found == frame, "sent {frame:02x?}, received {found:02x?}");
        }
    }
    Ok(())
}

fn counters(patch: &mut Patch) -> Result<String> {
    let [one, other] = &mut patch.ports;
    Ok(format!("{:?} {:?}", one.statistics()?, other.statistics()?))
}

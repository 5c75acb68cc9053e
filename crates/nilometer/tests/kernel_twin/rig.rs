//! Two hosts that only listen, and a device between them: the kernel, or our router.
//!
//! ```text
//!   left l0 ── p0 device p1 ── r0 right        198.18.0.0/30 and fd00:18::/126, 198.19.0.0/30
//!                                              and fd00:19::/126; all else is behind the right host
//! ```
//!
//! After each packet a mark is sent each way, and when both have arrived a second one. Frames that leave
//! before the second belong to the packet: a device may let plain packets overtake those on its slow path.
//! At all ends a single processor takes what arrives: if each processor took what it has sent itself, marks
//! would overtake a packet when a thread moves from a delayed processor to another. Requests for link-layer
//! addresses and reports of groups are left out. Each link's network holds only the two at its ends:
//! messages to other addresses on it would wait for hosts that do not exist, and the kernel makes no more of
//! them while a few wait.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use nilometer_linux::memory::{MemoryConfig, Packet, PacketMemory};
use nilometer_linux::namespace::Namespace;
use nilometer_linux::netlink::Netlink;
use nilometer_linux::nftables;
use nilometer_linux::offload;
use nilometer_linux::packet_port::{PacketPort, PacketPortConfig};
use nilometer_linux::port::{AnyPort, PortIo};
use nilometer_linux::prefix::Prefix;
use nilometer_linux::steer;
use nilometer_linux::veth::VethEnd;
use nilometer_routerd::config::RouterConfig;
use nilometer_routerd::running::Running;
use nilometer_wire::build;

pub const DEVICE_MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 1, 1], [2, 0, 0, 0, 1, 2]];
const HOST_MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
/// IP packets of the right link are no larger.
const MTUS: [u32; 2] = [1_500, 1_300];
const NAMES: [(&str, &str); 2] = [("l0", "p0"), ("r0", "p1")];
const ADDRESSES: [[&str; 2]; 2] = [["198.18.0.1", "fd00:18::1"], ["198.19.0.1", "fd00:19::1"]];
const HOSTS: [[&str; 2]; 2] = [["198.18.0.2", "fd00:18::2"], ["198.19.0.2", "fd00:19::2"]];
const MARK: &[u8] = b"a mark of the twins";
/// ff02::16, to which the kernel reports its groups.
const ROUTERS_OF_GROUPS: [u8; 16] = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x16];
const PATIENCE: Duration = Duration::from_secs(10);

/// The forwarder: our router or the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    Kernel,
    Ours,
}

/// A service of a device besides forwarding, in both devices' languages.
#[derive(Clone, Copy, Debug)]
pub struct Service {
    /// For the kernel: rules, as `nft -f` reads them.
    pub rules: &'static str,
    /// For our router: an addition to its ROUTER.toml.
    pub router: &'static str,
    /// A network that is behind the left host.
    pub inside: &'static str,
}

/// A frame that came out, from the IP header on, and the side that it came out on.
pub type Out = (usize, Vec<u8>);

pub struct Rig {
    memory: PacketMemory,
    ports: [AnyPort; 2],
    marks: u64,
    _router: Option<Running>,
    _spaces: [Namespace; 3],
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address as written here")
}

fn prefix(text: &str) -> Prefix {
    text.parse().expect("a prefix as written here")
}

impl Rig {
    pub fn new(device: Device) -> Result<Rig> {
        Rig::with(device, None)
    }

    /// A rig whose device applies a service to the packets that it forwards.
    pub fn with(device: Device, service: Option<&Service>) -> Result<Rig> {
        let spaces = [Namespace::new()?, Namespace::new()?, Namespace::new()?];
        for space in &spaces {
            space.write_sysctls(&QUIET)?;
        }
        let mut memory =
            PacketMemory::new(MemoryConfig { chunks: 4_096, ..MemoryConfig::default() })?;
        let middle = &spaces[2];
        for side in 0..2 {
            let (outer, inner) = NAMES[side];
            let one = VethEnd { namespace: &spaces[side], name: outer, mac: HOST_MACS[side] };
            let other = VethEnd { namespace: middle, name: inner, mac: DEVICE_MACS[side] };
            middle.enter(|| Netlink::open()?.create_veth(one, other, MTUS[side]))?;
            for (space, name) in [(&spaces[side], outer), (middle, inner)] {
                space.enter(|| {
                    offload::switch_off(name)?;
                    steer::to_one_processor(name, 0)?;
                    let mut netlink = Netlink::open()?;
                    // Hosts send nothing by themselves; the device has to resolve its neighbours.
                    if name == outer {
                        netlink.silence(name)?;
                    }
                    netlink.set_up(name)
                })?;
            }
        }
        let router = match device {
            Device::Kernel => {
                teach(middle)?;
                if let Some(service) = service {
                    let (inside, via) = (prefix(service.inside), address(HOSTS[0][0]));
                    middle.enter(|| Netlink::open()?.add_route(&inside, Some(via), NAMES[0].1))?;
                    nftables::load(middle, service.rules, "the test")?;
                }
                None
            }
            Device::Ours => {
                let router = Running::start(Some(middle), config(service)?, false)?;
                router.wait_until_up()?;
                Some(router)
            }
        };
        let listen = PacketPortConfig { reserve: 512, ..PacketPortConfig::default() };
        let mut open = |side: usize| -> Result<AnyPort> {
            let memory = &mut memory;
            let port = spaces[side].enter(|| PacketPort::open(memory, NAMES[side].0, &listen))?;
            Ok(AnyPort::Packet(port))
        };
        let ports = [open(0)?, open(1)?];
        let mut rig = Rig { memory, ports, marks: 0, _router: router, _spaces: spaces };
        // A router that has just come up announces its addresses first (RFC 4861, 7.2.6).
        rig.settle(&mut Vec::new())?;
        Ok(rig)
    }

    /// The output for an IP packet that enters on the left.
    pub fn ask(&mut self, kind: u16, ip_packet: &[u8]) -> Result<Vec<Out>> {
        self.ask_from(0, kind, ip_packet)
    }

    /// The output for an IP packet that enters on a side.
    pub fn ask_from(&mut self, side: usize, kind: u16, ip_packet: &[u8]) -> Result<Vec<Out>> {
        self.send(side, kind, ip_packet)?;
        let mut out = Vec::new();
        self.settle(&mut out)?;
        Ok(out)
    }

    /// Sends marks each way, twice; collects the frames before the second.
    fn settle(&mut self, out: &mut Vec<Out>) -> Result<()> {
        for _ in 0..2 {
            self.marks += 1;
            for side in 0..2 {
                let host = |side: usize| SocketAddr::new(address(HOSTS[side][0]), 9);
                let payload = [MARK, &self.marks.to_be_bytes()[..]].concat();
                let mark = build::udp(host(side), host(1 - side), &payload);
                self.send(side, 0x0800, &mark)?;
            }
            for side in 0..2 {
                self.collect(side, out)?;
            }
        }
        Ok(())
    }

    fn send(&mut self, side: usize, kind: u16, ip_packet: &[u8]) -> Result<()> {
        let bytes = 14 + ip_packet.len() as u16;
        let packet = self.memory.take().expect("few are out").packet(bytes);
        let frame = self.memory.frame_mut(&packet);
        frame[..6].copy_from_slice(&DEVICE_MACS[side]);
        frame[6..12].copy_from_slice(&HOST_MACS[side]);
        frame[12..14].copy_from_slice(&kind.to_be_bytes());
        frame[14..].copy_from_slice(ip_packet);
        let mut queue = VecDeque::from([packet]);
        let port = &mut self.ports[side];
        while !queue.is_empty() {
            port.transmit(&mut self.memory, &mut queue)?;
            port.flush(&mut self.memory)?;
        }
        Ok(())
    }

    /// All frames that arrived at a side until its mark.
    fn collect(&mut self, side: usize, out: &mut Vec<Out>) -> Result<()> {
        let (began, mut batch): (Instant, Vec<Packet>) = (Instant::now(), Vec::new());
        let mark = self.marks.to_be_bytes();
        loop {
            ensure!(began.elapsed() < PATIENCE, "the mark {} did not come", self.marks);
            self.ports[side].receive(&mut self.memory, &mut batch, 64)?;
            let mut is_over = false;
            for packet in batch.drain(..) {
                let frame = self.memory.frame(&packet);
                let is_mark = frame.windows(MARK.len()).any(|at| at == MARK);
                let is_request = frame.len() > 54 && frame[20] == 58 && frame[54] == 135;
                let is_report = frame.len() > 54 && frame[38..54] == ROUTERS_OF_GROUPS;
                if is_mark {
                    is_over |= frame.ends_with(&mark);
                } else if (is_request || is_report) && frame[12..14] == [0x86, 0xdd] {
                } else if let [.., 0x08, 0x00] | [.., 0x86, 0xdd] = &frame[..14] {
                    out.push((side, frame[14..].to_vec()));
                }
                self.memory.give(packet);
            }
            if is_over {
                return Ok(());
            }
            std::thread::yield_now();
        }
    }
}

/// Settings by which the kernel sends nothing of its own accord and does not limit errors.
const QUIET: [(&str, &str); 10] = [
    ("net/ipv6/conf/default/addr_gen_mode", "1"),
    ("net/ipv6/conf/default/accept_ra", "0"),
    ("net/ipv6/conf/default/router_solicitations", "0"),
    ("net/ipv6/conf/default/accept_dad", "0"),
    ("net/ipv6/conf/default/dad_transmits", "0"),
    ("net/ipv4/conf/all/rp_filter", "0"),
    ("net/ipv4/conf/default/rp_filter", "0"),
    ("net/ipv4/icmp_ratelimit", "0"),
    ("net/ipv6/icmp/ratelimit", "0"),
    ("net/ipv6/auto_flowlabels", "0"),
];

/// Makes the kernel the device.
fn teach(middle: &Namespace) -> Result<()> {
    middle.enter(|| {
        let mut netlink = Netlink::open()?;
        for side in 0..2 {
            let name = NAMES[side].1;
            for (own, host) in ADDRESSES[side].iter().zip(HOSTS[side]) {
                let length = if own.contains(':') { 126 } else { 30 };
                netlink.add_address(name, address(own), length)?;
                netlink.add_neighbour(name, address(host), HOST_MACS[side])?;
            }
        }
        for (all, host) in ["0.0.0.0/0", "::/0"].iter().zip(HOSTS[1]) {
            netlink.add_route(&prefix(all), Some(address(host)), NAMES[1].1)?;
        }
        Ok(())
    })?;
    middle.write_sysctls(&[
        ("net/ipv4/ip_forward", "1"),
        ("net/ipv6/conf/all/forwarding", "1"),
        // The kernel is configured to follow RFC 1812 as our router does.
        ("net/ipv4/conf/all/send_redirects", "0"),
        ("net/ipv4/conf/p0/send_redirects", "0"),
        ("net/ipv4/conf/p1/send_redirects", "0"),
    ])
}

/// The same setup as a ROUTER.toml.
fn config(service: Option<&Service>) -> Result<RouterConfig> {
    // A mark that took a shortcut would overtake the packets that it is to come after.
    let mut text = String::from(
        "[rfc1812]\nlimits_icmp = false\n[fabric]\nqueueing = \"off\"\n[tables]\nshortcuts = 0\n",
    );
    for side in 0..2 {
        let name = NAMES[side].1;
        let [four, six] = ADDRESSES[side];
        text += &format!(
            "[[port]]\ninterface = \"{name}\"\naddresses = [\"{four}/30\", \"{six}/126\"]\n\
             address_probes = 0\nredirects = false\npartial_checksums = false\nqueue = {{ discipline = \"tail_drop\", buffer_packets = 1000 }}\n"
        );
        let mac = HOST_MACS[side].map(|octet| format!("{octet:02x}")).join(":");
        for host in HOSTS[side] {
            text += &format!(
                "[[neighbour]]\ninterface = \"{name}\"\naddress = \"{host}\"\nmac = \"{mac}\"\n"
            );
        }
    }
    for (all, host) in ["0.0.0.0/0", "::/0"].iter().zip(HOSTS[1]) {
        text += &format!("[[route]]\nprefix = \"{all}\"\nvia = [\"{host}\"]\n");
    }
    if let Some(Service { router, inside, .. }) = service {
        text += &format!("[[route]]\nprefix = \"{inside}\"\nvia = [\"{}\"]\n{router}", HOSTS[0][0]);
    }
    Ok(toml::from_str(&text)?)
}

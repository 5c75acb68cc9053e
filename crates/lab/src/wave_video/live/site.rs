//! Namespaces and veth pairs for a run by the real clock: one for each router, one for all hosts.
//!
//! The kernel has no addresses there and forwards nothing: hosts and routers are programs on packet sockets.

use anyhow::Result;
use nilometer_linux::memory::{MemoryConfig, PacketMemory};
use nilometer_linux::namespace::Namespace;
use nilometer_linux::netlink::{MacAddress, Netlink};
use nilometer_linux::packet_port::{PacketPort, PacketPortConfig};
use nilometer_linux::veth::VethEnd;
use nilometer_wire::Port;

use super::super::RECEIVERS;
use super::super::description::{End, MTU_BYTES, links, router_mac};

/// Buffers of a host, and those of them that are kept for what arrives.
const BUFFERS: u32 = 4_096;
const RESERVE: u32 = 1_024;
/// Room for packets that wait while a receiver decodes a frame.
const RECEIVE_BUFFER_BYTES: i32 = 32 << 20;

/// The port of a host, and the memory of its frames.
pub(super) type HostPort = (PacketMemory, PacketPort);

/// The namespaces; everything in them goes when they do.
#[derive(Debug)]
pub(super) struct Site {
    hosts: Namespace,
    routers: Vec<Namespace>,
}

/// A link-layer address by which no host of the experiment goes, so that frames for it are foreign to the kernel.
fn mac(end: End) -> MacAddress {
    match end {
        End::Source => [2, 0, 0, 0, 0xff, 0],
        End::Router(number, Port(port)) => router_mac(number, Port(port)),
        End::Receiver(number) => [2, 0, 0, 0, 0xfe, number as u8],
        End::Cross(number) => [2, 0, 0, 0, 0xfd, number as u8],
    }
}

impl Site {
    /// Builds the site with all links up.
    ///
    /// # Errors
    /// Where the kernel refuses, with what to do.
    pub(super) fn build() -> Result<Site> {
        let routers = (0..RECEIVERS).map(|_| Namespace::new()).collect::<Result<_>>()?;
        let site = Site { hosts: Namespace::new()?, routers };
        for namespace in site.routers.iter().chain([&site.hosts]) {
            // Before there are links: no address and no question of the kernel's own.
            namespace.write_sysctl("net/ipv6/conf/default/disable_ipv6", "1")?;
        }
        for ends in links() {
            let names = ends.map(End::interface);
            let [one, other] = [0, 1].map(|at| VethEnd {
                namespace: site.namespace(ends[at]),
                name: &names[at],
                mac: mac(ends[at]),
            });
            site.hosts.enter(|| Netlink::open()?.create_veth(one, other, MTU_BYTES.into()))?;
            for end in [one, other] {
                end.namespace.enter(|| {
                    let mut netlink = Netlink::open()?;
                    netlink.silence(end.name)?;
                    netlink.set_up(end.name)
                })?;
            }
        }
        Ok(site)
    }

    fn namespace(&self, end: End) -> &Namespace {
        match end {
            End::Router(number, _) => &self.routers[number],
            _ => &self.hosts,
        }
    }

    /// The namespace of a router.
    pub(super) fn router(&self, number: usize) -> &Namespace {
        &self.routers[number]
    }

    /// The port of a host, and a memory for its frames.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub(super) fn open(&self, host: End) -> Result<HostPort> {
        let name = host.interface();
        self.namespace(host).enter(|| {
            let config = MemoryConfig { chunk_bytes: 2_048, chunks: BUFFERS, reserve: RESERVE };
            let mut memory = PacketMemory::new(config)?;
            let config = PacketPortConfig {
                reserve: RESERVE,
                receive_buffer_bytes: RECEIVE_BUFFER_BYTES,
                ..PacketPortConfig::default()
            };
            let port = PacketPort::open(&mut memory, &name, &config)?;
            Ok((memory, port))
        })
    }
}

//! Two links with a device between them, or one link without: where the traffic goes.
//!
//! ```text
//!   left              middle              right
//!   l0 ─────────── p0        p1 ─────────── r0        a device
//!   l0 ──────────────────────────────────── r0        the generator and the sink alone
//! ```
//!
//! Nothing but the generator's frames is on the links: neighbours are entered by hand, IPv6 is off,
//! and so is every offload that would change a frame.

use std::net::{IpAddr, Ipv4Addr};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use nilometer_linux::namespace::Namespace;
use nilometer_linux::netlink::{MacAddress, Netlink};
use nilometer_linux::offload;
use nilometer_linux::veth::VethEnd;

/// How long links may take until they carry traffic.
const READY_WITHIN: Duration = Duration::from_secs(10);

/// The generator's interface.
pub const SOURCE: (&str, MacAddress) = ("l0", [2, 0, 0, 0, 0, 1]);
/// The sink's interface.
pub const SINK: (&str, MacAddress) = ("r0", [2, 0, 0, 0, 0, 2]);
/// The device's interfaces, towards the generator and towards the sink.
pub const PORTS: [(&str, MacAddress); 2] = [("p0", [2, 0, 0, 0, 1, 1]), ("p1", [2, 0, 0, 0, 1, 2])];
/// The device's addresses, with the length of their networks.
pub const ADDRESSES: [(Ipv4Addr, u8); 2] =
    [(Ipv4Addr::new(198, 18, 0, 1), 16), (Ipv4Addr::new(198, 19, 255, 1), 30)];
/// The next hop to all destinations of the generator.
pub const GATEWAY: Ipv4Addr = Ipv4Addr::new(198, 19, 255, 2);
/// What it sends to.
pub const BEHIND: &str = "198.19.0.0/17";

/// The namespaces and their links; all goes with the value.
pub struct Site {
    /// Where the generator sends.
    pub left: Namespace,
    /// Where the device is, if there is one.
    pub middle: Option<Namespace>,
    /// Where the sink listens.
    pub right: Namespace,
    /// The greatest IP packet that the links carry.
    pub mtu_bytes: u32,
}

impl Site {
    /// Links for a device, or without one, that carry IP packets of `mtu_bytes`; the hosts' ends are up.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn build(has_device: bool, mtu_bytes: u32) -> Result<Site> {
        let (left, right) = (quiet()?, quiet()?);
        let middle = has_device.then(quiet).transpose()?;
        let site = Site { left, middle, right, mtu_bytes };
        let end = |namespace, (name, mac)| VethEnd { namespace, name, mac };
        let (source, sink) = (end(&site.left, SOURCE), end(&site.right, SINK));
        let pairs = match &site.middle {
            None => vec![[source, sink]],
            Some(middle) => {
                vec![[source, end(middle, PORTS[0])], [end(middle, PORTS[1]), sink]]
            }
        };
        for &[one, other] in &pairs {
            one.namespace.enter(|| Netlink::open()?.create_veth(one, other, mtu_bytes))?;
        }
        for end in pairs.iter().flatten() {
            end.namespace.enter(|| {
                offload::switch_off(end.name)?;
                Netlink::open()?.set_up(end.name)
            })?;
        }
        for end in pairs.iter().flatten() {
            await_link(end)?;
        }
        Ok(site)
    }

    /// The namespace of the device. Panics where there is none.
    pub fn middle(&self) -> &Namespace {
        self.middle.as_ref().expect("a site with a device")
    }

    /// Lets the kernel forward, with all neighbours known.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn forward_by_kernel(&self) -> Result<()> {
        self.middle().write_sysctl("net/ipv4/ip_forward", "1")?;
        self.middle().enter(|| {
            let mut netlink = Netlink::open()?;
            for ((name, _), (address, length)) in PORTS.iter().zip(ADDRESSES) {
                netlink.add_address(name, address.into(), length)?;
            }
            let gateway = IpAddr::from(GATEWAY);
            netlink.add_neighbour(PORTS[1].0, gateway, SINK.1)?;
            netlink.add_route(&BEHIND.parse()?, Some(gateway), PORTS[1].0)
        })
    }
}

fn quiet() -> Result<Namespace> {
    let namespace = Namespace::new()?;
    let none = |which: &str| format!("net/ipv6/conf/{which}/disable_ipv6");
    let lax = |which: &str| format!("net/ipv4/conf/{which}/rp_filter");
    for which in ["all", "default"] {
        namespace.write_sysctls(&[(&none(which), "1"), (&lax(which), "0")])?;
    }
    Ok(namespace)
}

fn await_link(end: &VethEnd) -> Result<()> {
    let mut netlink = end.namespace.enter(Netlink::open)?;
    let began = Instant::now();
    while !netlink.link(end.name)?.operational {
        let waited = began.elapsed();
        ensure!(waited < READY_WITHIN, "the link {} was not up within {waited:?}", end.name);
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// The Ethernet address that the generator's frames go to.
pub fn first_hop(has_device: bool) -> MacAddress {
    if has_device { PORTS[0].1 } else { SINK.1 }
}

/// Whether this process may build a site; the error says in one line what it lacks.
///
/// # Errors
/// Without root.
pub fn privileged() -> Result<()> {
    Namespace::new().map(drop).context("forwarding is measured on links of network namespaces")
}

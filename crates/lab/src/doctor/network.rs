//! The network: privilege, namespaces, links without offloads, packet rings, AF_XDP, congestion controls.

use anyhow::{Context, Result};

use super::machine::read;
use super::{Finding, Purpose};
use nilometer_linux::frr;
use nilometer_linux::memory::{MemoryConfig, PacketMemory};
use nilometer_linux::namespace::Namespace;
use nilometer_linux::nftables;
use nilometer_linux::port::PortIo;
use nilometer_linux::privilege::{self, Privilege};
use nilometer_linux::ring::{Ring, RingConfig};
use nilometer_linux::testbed::{
    CLIENT_INTERFACE, DeviceKind, SERVER_INTERFACE, Testbed, TestbedConfig,
};
use nilometer_linux::xdp::{XdpConfig, XdpPort};

/// The default congestion control of generated connections.
const CONGESTION_DEFAULT: &str = "cubic";
/// Both of them belong to every table of results that compares.
const CONGESTION_COMPARED: [&str; 2] = ["reno", "bbr"];

/// The remedy where the kernel refuses root.
const OUTSIDE: &str = "run it outside of a container, or in one with --privileged";

/// Tries all of them, each only where those before it allow it. Without root this process enters a
/// user namespace, which the kernel allows while it has one thread.
pub fn examine() -> Vec<Finding> {
    let mut findings = vec![congestion()];
    let finding = |found: &str| Finding::ok("privileges", Purpose::Run, found);
    match privilege::acquire() {
        Ok(Privilege::None { why }) => findings.push(no_privilege(&why)),
        Err(error) => findings.push(no_privilege(&format!("{error:#}"))),
        Ok(Privilege::Root) => {
            findings.push(finding("root's capabilities"));
            findings.extend(with_privilege(true));
        }
        Ok(Privilege::UserNamespace) => {
            findings.push(finding("by a user namespace, without root"));
            findings.extend(with_privilege(false));
        }
    }
    findings
}

fn no_privilege(why: &str) -> Finding {
    Finding::ok("privileges", Purpose::Run, "neither root nor a user namespace")
        .missing("no lab can be built; links and packet rings were not tried", why)
}

fn with_privilege(is_root: bool) -> Vec<Finding> {
    let finding = |name, found| Finding::ok(name, Purpose::Run, found);
    let no_lab = "no lab can be built";
    let namespace = match Namespace::new() {
        Ok(namespace) => namespace,
        Err(error) => {
            return vec![finding("namespaces", format!("{error:#}")).missing(no_lab, OUTSIDE)];
        }
    };
    let mut findings = vec![finding("namespaces", "network namespaces can be made".to_owned())];
    match testbed() {
        Err(error) => {
            findings.push(finding("links", format!("{error:#}")).missing(no_lab, OUTSIDE));
        }
        Ok(testbed) => {
            let links = "veth pairs that forward, offloads switched off";
            findings.push(finding("links", links.to_owned()));
            findings.push(match rings(&testbed) {
                Ok(()) => finding("packet rings", "TPACKET_V3 at both ends".to_owned()),
                Err(error) => finding("packet rings", format!("{error:#}"))
                    .missing("nothing could be stamped or counted", OUTSIDE),
            });
        }
    }
    findings.push(match frr::is_installed() {
        true => routing_suite(frr::try_out(&namespace), is_root),
        false => no_routing_suite(),
    });
    findings.push(packet_filter(nftables::is_installed()));
    findings.push(xdp(xdp_port()));
    findings
}

fn packet_filter(is_installed: bool) -> Finding {
    let finding = |found: &str| Finding::ok("nftables", Purpose::Tests, found);
    match is_installed {
        true => finding("nft loads rules"),
        false => finding("not installed").missing(
            "`lab run --dut nftables` is refused, and its tests are skipped",
            "install it (Debian: `apt-get install nftables`)",
        ),
    }
}

fn no_routing_suite() -> Finding {
    Finding::ok("FRR", Purpose::Tests, "not installed").missing(
        "`lab run --dut frr` is refused, and its tests are skipped",
        "install it (Debian: `apt-get install frr`)",
    )
}

/// FRR: whether its daemons start as `lab run --dut frr` starts them.
fn routing_suite(tried: Result<()>, is_root: bool) -> Finding {
    let finding = |found: String| Finding::ok("FRR", Purpose::Tests, found);
    match tried {
        Ok(()) => finding("zebra starts, in memory and mounts of its own".to_owned()),
        Err(error) => finding(format!("{error:#}")).missing(
            "`lab run --dut frr` is refused, and its tests fail",
            if is_root { OUTSIDE } else { "run it with sudo" },
        ),
    }
}

/// The testbed of a run with its links up: namespaces, veth pairs, no offloads, forwarding on.
fn testbed() -> Result<Testbed> {
    let testbed = Testbed::build(&TestbedConfig::default())?;
    testbed.raise()?;
    Ok(testbed)
}

fn rings(testbed: &Testbed) -> Result<()> {
    let small = RingConfig::of_bytes(0);
    testbed.client().enter(|| Ring::open(CLIENT_INTERFACE, small).map(drop))?;
    testbed.server().enter(|| Ring::open(SERVER_INTERFACE, small).map(drop))
}

/// AF_XDP: whether a port of our router opens by it, and how.
fn xdp(tried: Result<String>) -> Finding {
    let finding = |found: String| Finding::ok("AF_XDP", Purpose::Figures, found);
    match tried {
        Ok(how) => finding(format!("a port opens on a veth: {how}")),
        Err(error) => finding(format!("{error:#}")).missing(
            "ports of our router use packet sockets (AF_PACKET), which are slower",
            "a kernel with CONFIG_XDP_SOCKETS, outside of a container or in one with --privileged",
        ),
    }
}

/// Registers memory, attaches the program to a veth in a namespace of ours, and binds a socket to its queue.
fn xdp_port() -> Result<String> {
    let device = DeviceKind::Program;
    let testbed = Testbed::build(&TestbedConfig { device, ..TestbedConfig::default() })?;
    testbed.raise()?;
    let ports = testbed.device_ports();
    let name = &ports.first().context("the device has no port")?.interface;
    testbed.device().context("the testbed has no device")?.enter(|| {
        let mut memory = PacketMemory::new(MemoryConfig::default())?;
        let port = XdpPort::open(&mut memory, name, &XdpConfig::default())?;
        let how = port.description().to_owned();
        port.close(&mut memory);
        Ok(how)
    })
}

fn congestion() -> Finding {
    let available = read("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap_or_default();
    let default = read("/proc/sys/net/ipv4/tcp_congestion_control").unwrap_or_default();
    let found = format!("{available} (the system's own choice: {default})");
    let finding = Finding::ok("congestion", Purpose::Figures, found);
    let has = |name: &str| available.split(' ').any(|there| there == name);
    let lacking: Vec<&str> = CONGESTION_COMPARED.into_iter().filter(|name| !has(name)).collect();
    if !has(CONGESTION_DEFAULT) {
        let remedy = format!("load it: `sudo modprobe tcp_{CONGESTION_DEFAULT}`");
        return finding
            .missing(format!("{CONGESTION_DEFAULT}, the default, cannot be used"), remedy);
    }
    if lacking.is_empty() {
        return finding;
    }
    let modules: Vec<String> = lacking.iter().map(|name| format!("tcp_{name}")).collect();
    finding.doubtful(
        format!("traffic under {} cannot be made", lacking.join(" and ")),
        format!("load it where you want it: `sudo modprobe -a {}`", modules.join(" ")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_not_advised_to_use_sudo() {
        let remedy = |is_root| {
            let finding = routing_suite(Err(anyhow::anyhow!("zebra does not start")), is_root);
            assert_eq!(finding.found, "zebra does not start");
            assert!(finding.consequence.is_some_and(|text| !text.contains("skipped")));
            finding.remedy.expect("something can be done")
        };
        assert!(remedy(false).contains("sudo"));
        assert!(!remedy(true).contains("sudo"));
        assert!(no_routing_suite().consequence.is_some_and(|text| text.contains("skipped")));
    }

    /// A kernel that opens such sockets may still refuse the memory, the program or the queue.
    #[test]
    fn af_xdp_is_judged_by_opening_a_port() {
        use super::super::State;
        let refused = xdp(Err(anyhow::anyhow!("cannot bind to queue 0")));
        assert_eq!((refused.state, refused.purpose), (State::Missing, Purpose::Figures));
        assert_eq!(refused.found, "cannot bind to queue 0");
        match privilege::privilege() {
            Privilege::Root => {}
            other => return println!("skipped a port by AF_XDP: it needs root (found: {other})"),
        }
        match xdp_port() {
            Ok(how) => assert!(how.contains("native XDP") && how.contains("copy"), "{how}"),
            Err(why) => println!("skipped a port by AF_XDP: {why:#}"),
        }
    }
}

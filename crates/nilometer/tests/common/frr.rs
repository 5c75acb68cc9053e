//! FRR's daemons in the namespaces of a test, and their configuration.

#![allow(dead_code, reason = "each test file uses its own part of this one")]

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;

use nilometer_linux::frr::{Suite, is_installed};
use nilometer_linux::namespace::Namespace;
use nilometer_linux::netlink::Netlink;
use nilometer_linux::prefix::Prefix;
use serde_json::Value;

pub use nilometer_linux::daemon::Daemon;

/// Whether FRR is installed; prints what is skipped if not.
pub fn installed(what: &str) -> bool {
    let found = is_installed();
    if !found {
        println!("skipped: {what}: FRR is not installed (Debian: apt-get install frr)");
    }
    found
}

/// Processor time of a daemon so far, user and system, seconds.
pub fn cpu_s(daemon: &Daemon) -> f64 {
    let text = fs::read_to_string(format!("/proc/{}/schedstat", daemon.id()));
    let nanos = text.ok().and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
    nanos.unwrap_or(0.0) / 1e9
}

pub fn resident_kib(daemon: &Daemon) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/status", daemon.id())).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap_or(0)
}

/// One router's daemons.
pub struct Router<'a> {
    pub namespace: &'a Namespace,
    suite: Suite<'a>,
}

impl<'a> Router<'a> {
    pub fn new(namespace: &'a Namespace) -> Router<'a> {
        let suite = Suite::new(namespace).expect("a scratch folder for them");
        Router { namespace, suite }
    }

    /// Starts a daemon with its configuration; `words` are further options.
    pub fn start(&self, name: &str, configuration: &str, words: &[&str]) -> Daemon {
        self.suite.start(name, configuration, words).expect("an FRR daemon")
    }

    /// Waits until a daemon answers on its socket.
    pub fn wait_for(&self, name: &str) {
        self.suite.wait_for(name).expect("it answers");
    }

    /// What `vtysh` prints for a command.
    pub fn show(&self, command: &str) -> Value {
        let output = Command::new("/usr/bin/vtysh")
            .arg("--vty_socket")
            .arg(self.suite.folder())
            .args(["-c", command])
            .output()
            .expect("vtysh");
        serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
    }
}

/// An OSPF router on one interface; it redistributes its kernel's routes where there are any.
pub fn ospf(interface: &str, id: Ipv4Addr, redistributed: u32) -> String {
    let tell = if redistributed > 0 { " redistribute kernel\n" } else { "" };
    format!(
        "interface {interface}\n ip ospf network point-to-point\n ip ospf hello-interval 1\n \
         ip ospf dead-interval 5\n\
         router ospf\n ospf router-id {id}\n network 198.18.0.0/24 area 0\n{tell}"
    )
}

/// A RIP router on 198.18.1.0/24; all but the first redistribute their kernels' routes.
pub fn rip(number: u32) -> String {
    let tell = if number > 1 { " redistribute kernel\n" } else { "" };
    format!("router rip\n network 198.18.1.0/24\n timers basic 5 180 120\n{tell}")
}

/// Adds `count` routes to a neighbour's kernel, for its daemons to redistribute.
pub fn kernel_routes(namespace: &Namespace, network: u32, count: u32) {
    let mut netlink = namespace.enter(Netlink::open).expect("netlink");
    for number in 0..count {
        let to = IpAddr::V4(Ipv4Addr::from(network + (number << 8)));
        let to = Prefix::new(to, 24).expect("a prefix");
        netlink.add_route(&to, None, "lo").expect("a route");
    }
}

//! Two hosts with a controllable router between them, and traffic whose every packet is counted.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hyper::Method;
use nilometer_linux::namespace::Namespace;
use nilometer_linux::netlink::Netlink;
use nilometer_linux::privilege::{self, Privilege};
use nilometer_linux::veth::VethEnd;
use nilometer_routerd::config::RouterConfig;
use nilometer_routerd::control::Control;
use nilometer_routerd::control::client::Address;
use nilometer_routerd::running::Running;
use serde_json::Value;

use crate::common::Room;

/// How long anything may take.
pub const PATIENCE: Duration = Duration::from_secs(30);
pub const LEFT: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
pub const RIGHT: Ipv4Addr = Ipv4Addr::new(198, 19, 0, 2);
/// Between two packets of a flow.
const BETWEEN: Duration = Duration::from_micros(500);

/// Both ports and their hosts; the hosts are neighbours by hand, so that no packet waits to be resolved.
pub const ROUTER: &str = r#"
[[port]]
interface = "p0"
addresses = ["198.18.0.1/24"]
[[port]]
interface = "p1"
addresses = ["198.19.0.1/24", "fd00:19::1/64"]
address_probes = 0
[[neighbour]]
interface = "p0"
address = "198.18.0.2"
mac = "02:00:00:00:00:01"
[[neighbour]]
interface = "p1"
address = "198.19.0.2"
mac = "02:00:00:00:00:02"
"#;

pub fn privileged(test: &str) -> bool {
    match privilege::privilege() {
        Privilege::Root => true,
        other => {
            println!("skipped {test}: it needs root (found: {other})");
            false
        }
    }
}

/// Host `left` on l0 - p0, host `right` on r0 - p1; p0 and p1 are the router's.
pub struct Site {
    pub left: Namespace,
    pub right: Namespace,
    pub router: Namespace,
}

impl Site {
    pub fn new() -> Result<Site> {
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

    /// Begins to send datagrams to the right, one after the other.
    pub fn flow(&self) -> Result<Flow> {
        let far = self.right.enter(|| Ok(UdpSocket::bind((RIGHT, 0))?))?;
        let near = self.left.enter(|| Ok(UdpSocket::bind((LEFT, 0))?))?;
        far.set_read_timeout(Some(Duration::from_millis(100)))?;
        socket2::SockRef::from(&far).set_recv_buffer_size(4 << 20)?;
        near.connect(far.local_addr()?)?;
        // The first may find the host's own address table empty.
        let (began, mut bytes) = (Instant::now(), [0; 64]);
        while far.recv(&mut bytes).is_err() {
            ensure!(began.elapsed() < PATIENCE, "nothing passes");
            near.send(b"first")?;
        }
        while far.recv(&mut bytes).is_ok() {}
        let stop = Arc::new(AtomicBool::new(false));
        let came = Arc::new(AtomicU64::new(0));
        let (stopped, counted, over) = (Arc::clone(&stop), Arc::clone(&came), Arc::clone(&stop));
        let receiver = thread::spawn(move || {
            let mut bytes = [0; 2_048];
            loop {
                match far.recv(&mut bytes) {
                    Ok(_) => drop(counted.fetch_add(1, Ordering::Relaxed)),
                    Err(_) if over.load(Ordering::Relaxed) => return,
                    Err(_) => {}
                }
            }
        });
        let sender = thread::spawn(move || {
            let mut sent = 0;
            while !stopped.load(Ordering::Relaxed) {
                sent += u64::from(near.send(&[0x5a; 400]).is_ok());
                thread::sleep(BETWEEN);
            }
            sent
        });
        Ok(Flow { stop, came, sender, receiver })
    }
}

/// A continuous flow.
pub struct Flow {
    stop: Arc<AtomicBool>,
    came: Arc<AtomicU64>,
    sender: JoinHandle<u64>,
    receiver: JoinHandle<()>,
}

impl Flow {
    /// Returns when `more` packets have come since it was called.
    pub fn wait_for(&self, more: u64) {
        let (began, goal) = (Instant::now(), self.came.load(Ordering::Relaxed) + more);
        while self.came.load(Ordering::Relaxed) < goal {
            assert!(began.elapsed() < PATIENCE, "nothing passes any more");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Ends it; how many were sent, and how many came.
    pub fn end(self) -> (u64, u64) {
        self.stop.store(true, Ordering::Relaxed);
        let sent = self.sender.join().expect("no panic");
        self.receiver.join().expect("no panic");
        (sent, self.came.load(Ordering::Relaxed))
    }
}

/// A router between the hosts, with its control processor.
pub struct Stand {
    pub site: Site,
    pub running: Running,
    pub control: Control,
    pub room: Room,
    pub address: Address,
}

impl Stand {
    pub fn new(name: &str, more: &str) -> Result<Stand> {
        Stand::with(name, toml::from_str(&format!("{more}{ROUTER}"))?)
    }

    pub fn with(name: &str, config: RouterConfig) -> Result<Stand> {
        Stand::build(Site::new()?, Room::new(name), config)
    }

    pub fn build(site: Site, room: Room, mut config: RouterConfig) -> Result<Stand> {
        config.control.socket = Some(room.path("control.sock"));
        let running = Running::start(Some(&site.router), config.clone(), false)?;
        running.wait_until_up()?;
        let control = Control::start(&running, &config)?;
        let address = Address::Socket(room.path("control.sock"));
        Ok(Stand { site, running, control, room, address })
    }

    /// The status and the object that come back.
    pub fn ask(&self, method: &Method, path: &str, body: Option<Value>) -> (u16, Value) {
        ask(&self.address, method, path, body.map(|body| body.to_string()))
    }

    pub fn get(&self, path: &str) -> Value {
        let (status, value) = self.ask(&Method::GET, path, None);
        assert_eq!(status, 200, "GET {path}: {value}");
        value
    }

    pub fn put(&self, path: &str, body: Value) {
        let (status, value) = self.ask(&Method::PUT, path, Some(body.clone()));
        assert_eq!(status, 200, "PUT {path} {body}: {value}");
    }

    /// Ends the router; its counters balance.
    pub fn end(self) {
        drop(self.control);
        let tally = self.running.stop().expect("its counters");
        assert!(tally.balances, "{tally:?}");
    }
}

/// As [`Stand::ask`], at any address and with any text.
pub fn ask(address: &Address, method: &Method, path: &str, body: Option<String>) -> (u16, Value) {
    let reply = address.ask(method, path, body).context("an answer").expect("an answer");
    let value = serde_json::from_slice(&reply.body);
    (reply.status, value.unwrap_or_else(|_| panic!("{path}: {:?}", reply.body)))
}

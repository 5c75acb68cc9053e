//! FRR's daemons on the router's own ports: packets are forwarded by the routes that they learn.
//!
//! ```text
//!   host ── p2 ┐          ┌ p0 ── r2  BGP (our speaker) and OSPF: 198.19.0.0/24, more trusted
//!              └─ router ─┤
//!      FRR on TAPs: cpu0, cpu1 └ p1 ── r3  RIP: 198.19.0.0/24, less trusted
//! ```

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Result;
use nilometer_linux::namespace::Namespace;
use nilometer_linux::netlink::Netlink;
use nilometer_router::{Prefix, Source};
use nilometer_routerd::config::RouterConfig;
use nilometer_routerd::running::Running;

use crate::bgp::{Speaker, some_routes};
use crate::forwarder::wait;
use crate::frr::{Daemon, Router, kernel_routes, ospf, rip};
use crate::links::{link, settle};

/// The number of BGP routes unless `NILOMETER_FRR_ROUTES` is set.
const BGP_ROUTES: usize = 1_000;
const OSPF_ROUTES: u32 = 1_000;
const RIP_ROUTES: u32 = 1_000;
const HERE: [Ipv4Addr; 2] = [Ipv4Addr::new(198, 18, 0, 1), Ipv4Addr::new(198, 18, 1, 1)];
const THERE: [Ipv4Addr; 2] = [Ipv4Addr::new(198, 18, 0, 2), Ipv4Addr::new(198, 18, 1, 2)];
const TARGET: Ipv4Addr = Ipv4Addr::new(198, 19, 0, 1);
const TARGET_NETWORK: u32 = 0xc613_0000;
const SERVICE: u16 = 7_000;

const ROUTER: &str = r#"
[control]
fpm = "127.0.0.1:2620"
[[port]]
interface = "p0"
addresses = ["198.18.0.1/24"]
punt = "cpu0"
[[port]]
interface = "p1"
addresses = ["198.18.1.1/24"]
punt = "cpu1"
[[port]]
interface = "p2"
addresses = ["198.18.2.1/24"]
"#;

struct Site {
    router: Namespace,
    others: [Namespace; 3],
}

impl Site {
    fn new() -> Result<Site> {
        let router = Namespace::new()?;
        let others = [Namespace::new()?, Namespace::new()?, Namespace::new()?];
        for (number, other) in (0u8..).zip(&others) {
            let theirs = format!("peer-{number}");
            link(&router, &format!("p{number}"), other, &theirs, number)?;
            let address = Ipv4Addr::new(198, 18, number, 2);
            let gateway = Ipv4Addr::new(198, 18, number, 1).into();
            let way = Some(("198.19.0.0/16", gateway)).filter(|_| number == 2);
            settle(other, &theirs, address, way)?;
        }
        for other in &others[..2] {
            other.enter(|| Netlink::open()?.add_address("lo", TARGET.into(), 32))?;
        }
        Ok(Site { router, others })
    }
}

/// The router's daemons, zebra first.
fn daemons(router: &Router) -> Vec<Daemon> {
    let fpm = "fpm address 127.0.0.1 port 2620\nfpm use-next-hop-groups\n";
    let zebra = router.start("zebra", fpm, &["-M", "dplane_fpm_nl", "-s", "90000000"]);
    router.wait_for("zebra");
    let bgp = format!(
        "router bgp 65001\n bgp router-id {0}\n no bgp ebgp-requires-policy\n \
         neighbor {1} remote-as 65002\n neighbor {1} passive\n",
        HERE[0], THERE[0]
    );
    vec![
        zebra,
        router.start("bgpd", &bgp, &[]),
        router.start("ospfd", &ospf("cpu0", HERE[0], 0), &[]),
        router.start("ripd", &rip(1), &[]),
    ]
}

/// R2 with OSPF, R3 with RIP, which has a route to the target as well.
fn neighbours(r2: &Router, r3: &Router) -> Vec<Daemon> {
    kernel_routes(r2.namespace, 0x0a00_0000, OSPF_ROUTES);
    kernel_routes(r3.namespace, 0xac10_0000, RIP_ROUTES - 1);
    kernel_routes(r3.namespace, TARGET_NETWORK, 1);
    let mut daemons = vec![r2.start("zebra", "", &[]), r3.start("zebra", "", &[])];
    r2.wait_for("zebra");
    r3.wait_for("zebra");
    daemons.push(r2.start("ospfd", &ospf("peer-0", THERE[0], OSPF_ROUTES), &[]));
    daemons.push(r3.start("ripd", &rip(3), &[]));
    daemons
}

/// A datagram from the host to the target every millisecond, counted where they come.
struct Traffic {
    stop: Arc<AtomicBool>,
    sender: JoinHandle<()>,
    sent: Arc<AtomicU64>,
    came: [Arc<AtomicU64>; 2],
}

impl Traffic {
    fn start(site: &Site) -> Result<Traffic> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut came = Vec::new();
        for other in &site.others[..2] {
            let socket = other.enter(|| Ok(UdpSocket::bind((TARGET, SERVICE))?))?;
            socket.set_read_timeout(Some(Duration::from_millis(50)))?;
            let (count, until) = (Arc::new(AtomicU64::new(0)), Arc::clone(&stop));
            came.push(Arc::clone(&count));
            thread::spawn(move || {
                while !until.load(Ordering::Relaxed) {
                    let came = socket.recv(&mut [0; 64]).is_ok();
                    count.fetch_add(came.into(), Ordering::Relaxed);
                }
            });
        }
        let socket = site.others[2].enter(|| Ok(UdpSocket::bind(("0.0.0.0", 0))?))?;
        let (sent, until) = (Arc::new(AtomicU64::new(0)), Arc::clone(&stop));
        let count = Arc::clone(&sent);
        let sender = thread::spawn(move || {
            while !until.load(Ordering::Relaxed) {
                // While there is no route, the router sends an error, which the socket reports.
                let is_sent = socket.send_to(b"there", (TARGET, SERVICE)).is_ok();
                count.fetch_add(is_sent.into(), Ordering::Relaxed);
                thread::sleep(Duration::from_millis(1));
            }
        });
        let came = came.try_into().expect("two");
        Ok(Traffic { stop, sender, sent, came })
    }

    fn at(&self, place: usize) -> u64 {
        self.came[place].load(Ordering::Relaxed)
    }

    /// Waits until packets arrive by this path; returns how long that took.
    fn takes(&self, place: usize) -> Duration {
        let before = self.at(place);
        wait("traffic by the other way", || self.at(place) > before + 5)
    }

    /// How many packets were sent, and arrived by this path, within a second.
    fn for_a_second(&self, place: usize) -> [u64; 2] {
        let now = || [self.sent.load(Ordering::Relaxed), self.at(place)];
        let before = now();
        thread::sleep(Duration::from_secs(1));
        let after = now();
        [after[0] - before[0], after[1] - before[1]]
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.sender.join().expect("it sends until then");
    }
}

fn routes_learnt(router: &Running) -> usize {
    router.routes.rib_thread().counts()[Source::Fpm as usize].v4
}

#[test]
fn packets_follow_routes_learnt_by_daemons_on_the_ports() {
    let what = "FRR on the router's ports";
    if !crate::common::privileged(what) || !crate::frr::installed(what) {
        return;
    }
    let requested = std::env::var("NILOMETER_FRR_ROUTES").ok();
    let count = requested.map_or(BGP_ROUTES, |text| text.parse().expect("a number of routes"));
    let site = Site::new().expect("a site");
    let config: RouterConfig = toml::from_str(ROUTER).expect("a description");
    let live = Running::start(Some(&site.router), config, false).expect("a router");
    live.wait_until_up().expect("its ports are up");
    let r1 = Router::new(&site.router);
    let r2 = Router::new(&site.others[0]);
    let r3 = Router::new(&site.others[1]);
    let own = daemons(&r1);
    let _others = neighbours(&r2, &r3);
    let mut speaker = Speaker::connect(r2.namespace, THERE[0], HERE[0], 65_002);
    let routes = some_routes(count, THERE[0]);
    speaker.announce(&routes);
    let all = count + (OSPF_ROUTES + RIP_ROUTES) as usize;
    let took = wait("routes of all protocols", || routes_learnt(&live) >= all);
    println!(
        "{count} routes by BGP, {OSPF_ROUTES} by OSPF, {RIP_ROUTES} by RIP in {:.1} s; the rib's \
         thread {:.3} s",
        took.as_secs_f64(),
        live.routes.rib_thread().status().cpu.as_secs_f64()
    );

    let traffic = Traffic::start(&site).expect("traffic");
    traffic.takes(1);
    let target = Prefix::new(TARGET_NETWORK, 24).expect("short enough");
    speaker.announce(&[(target, THERE[0])]);
    let better = traffic.takes(0);
    speaker.withdraw(&[target]);
    let withdrawn = traffic.takes(1);
    speaker.announce(&[(target, THERE[0])]);
    traffic.takes(0);
    site.others[0].enter(|| Netlink::open()?.set_down("peer-0")).expect("it goes down");
    let down = traffic.takes(1);
    println!(
        "traffic follows a better route after {:.3} s, a withdrawn one after {:.3} s, a link that \
         went down after {:.3} s",
        better.as_secs_f64(),
        withdrawn.as_secs_f64(),
        down.as_secs_f64()
    );
    drop(own);
    wait("the end of FRR", || !live.routes.fpm().expect("a listener").is_connected);
    let [sent, came] = traffic.for_a_second(1);
    println!("without FRR, {came} of {sent} datagrams came within a second");
    // Some are on their way at either end.
    assert!(came > 0 && sent.abs_diff(came) <= 20, "{came} of {sent}");
    traffic.end();
    let tally = live.stop().expect("its counters");
    assert!(tally.balances, "{tally:?}");
}

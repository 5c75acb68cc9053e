//! Real FRR daemons feed their routes to our forwarding table, and may be killed meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use nilometer_linux::namespace::Namespace;
use nilometer_linux::netlink::Netlink;
use nilometer_linux::veth::VethEnd;
use nilometer_router::{Hop, Prefix, RouteLimits, Source};
use nilometer_routerd::fpm::{FpmConfig, FpmListener};
use nilometer_routerd::kernel::KernelMirror;
use nilometer_routerd::rib_thread::{Engines, RibThread};

use crate::bgp::{Speaker, some_routes};
use crate::forwarder::{Forwarder, Watch, Ways, wait, ways};
use crate::frr::{Daemon, Router, cpu_s, kernel_routes, ospf, resident_kib, rip};

/// The number of BGP routes unless `NILOMETER_FRR_ROUTES` is set.
const BGP_ROUTES: usize = 1_000;
const OSPF_ROUTES: u32 = 1_000;
const RIP_ROUTES: u32 = 1_000;
const OURS: [Ipv4Addr; 2] = [Ipv4Addr::new(198, 18, 0, 1), Ipv4Addr::new(198, 18, 1, 1)];
const THEIRS: [Ipv4Addr; 2] = [Ipv4Addr::new(198, 18, 0, 2), Ipv4Addr::new(198, 18, 1, 2)];

/// R1, which is ours, with a link to each of R2 and R3.
struct Lab {
    r1: Namespace,
    r2: Namespace,
    r3: Namespace,
    ports: Vec<(u32, u16)>,
}

impl Lab {
    fn new() -> anyhow::Result<Lab> {
        let [r1, r2, r3] = [Namespace::new()?, Namespace::new()?, Namespace::new()?];
        let mut ports = Vec::new();
        for (number, other) in [&r2, &r3].into_iter().enumerate() {
            let (ours, theirs) = (format!("r1-{number}"), format!("peer-{number}"));
            let end = |namespace, name, last| VethEnd {
                namespace,
                name,
                mac: [2, 0, 0, 0, number as u8, last],
            };
            let mut netlink = r1.enter(Netlink::open)?;
            netlink.create_veth(end(&r1, &ours, 1), end(other, &theirs, 2), 1_500)?;
            netlink.add_address(&ours, OURS[number].into(), 24)?;
            netlink.set_up(&ours)?;
            let mut beyond = other.enter(Netlink::open)?;
            beyond.add_address(&theirs, THEIRS[number].into(), 24)?;
            beyond.set_up(&theirs)?;
            ports.push((netlink.link(&ours)?.index, number as u16));
        }
        Ok(Lab { r1, r2, r3, ports })
    }
}

const ZEBRA: &str = "fpm address 127.0.0.1 port 2620\nfpm use-next-hop-groups\n";

fn zebra(router: &Router) -> Daemon {
    let words = ["-M", "dplane_fpm_nl", "-s", "90000000", "-K", "30"];
    router.start("zebra", ZEBRA, &words)
}

/// R1's daemons, but for zebra.
fn protocols(router: &Router) -> Vec<Daemon> {
    let bgp = format!(
        "router bgp 65001\n bgp router-id {0}\n no bgp ebgp-requires-policy\n \
         neighbor {1} remote-as 65002\n neighbor {1} passive\n",
        OURS[0], THEIRS[0]
    );
    vec![
        router.start("bgpd", &bgp, &[]),
        router.start("ospfd", &ospf("r1-0", OURS[0], 0), &[]),
        router.start("ripd", &rip(1), &[]),
    ]
}

/// R2 with OSPF, R3 with RIP.
fn neighbours(r2: &Router, r3: &Router) -> Vec<Daemon> {
    kernel_routes(r2.namespace, 0x0a00_0000, OSPF_ROUTES);
    kernel_routes(r3.namespace, 0xac10_0000, RIP_ROUTES);
    let mut daemons = vec![r2.start("zebra", "", &[]), r3.start("zebra", "", &[])];
    r2.wait_for("zebra");
    r3.wait_for("zebra");
    daemons.push(r2.start("ospfd", &ospf("peer-0", THEIRS[0], OSPF_ROUTES), &[]));
    daemons.push(r3.start("ripd", &rip(3), &[]));
    daemons
}

/// The selected routes of a protocol, as FRR shows them.
fn shown_routes(router: &Router, protocol: &str) -> Ways {
    let shown_routes = router.show(&format!("show ip route {protocol} json"));
    let mut ways = Ways::new();
    for (prefix, routes) in shown_routes.as_object().into_iter().flatten() {
        let routes = routes.as_array().into_iter().flatten();
        for route in routes.filter(|route| route["selected"] == true) {
            let hop = &route["nexthops"][0];
            let port = if hop["interfaceName"] == "r1-0" { 0 } else { 1 };
            let gateway = hop["ip"].as_str().expect("an address").parse().expect("an address");
            ways.insert(prefix.parse().expect("a prefix"), (port, gateway));
        }
    }
    ways
}

fn spent(name: &str, daemon: &Daemon) -> String {
    format!("{name} {:.1} s, {} MB", cpu_s(daemon), resident_kib(daemon) / 1024)
}

fn rib(lab: &Lab) -> RibThread {
    let rib = RibThread::start(RouteLimits::default(), Engines::default()).expect("a thread");
    for &(link, port) in &lab.ports {
        rib.set_port(link, port);
    }
    rib
}

/// Our router with its daemons, and the routes announced to it.
struct Scene<'a> {
    lab: &'a Lab,
    r1: Router<'a>,
    forwarding: RibThread,
    mirrored: RibThread,
    zebra: Daemon,
    daemons: Vec<Daemon>,
    speaker: Speaker,
    announced: Vec<(Prefix<u32>, Ipv4Addr)>,
    expected: Ways,
}

const PATIENT: FpmConfig = FpmConfig {
    address: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 2620),
    hold: Duration::from_secs(40),
    quiet: Duration::from_secs(3),
    longest: Duration::from_secs(250),
};

impl Scene<'_> {
    fn listen(&self, hold: Duration) -> FpmListener {
        let config = FpmConfig { hold, ..PATIENT };
        let news = self.forwarding.news();
        FpmListener::start(Some(&self.lab.r1), config, news).expect("it listens")
    }

    fn ways(&self) -> Ways {
        ways(&self.forwarding, Source::Fpm)
    }

    fn is_mirrored(&self) -> bool {
        ways(&self.mirrored, Source::Kernel) == self.expected
    }

    fn is_settled(&self) -> bool {
        let counts = self.forwarding.counts();
        counts.iter().all(|count| !count.is_replaying)
    }

    /// All routes of all protocols arrive, by both ways.
    fn arrive(&mut self) {
        let count = self.announced.len();
        let begun = Instant::now();
        self.speaker.announce(&self.announced);
        let all = count + (OSPF_ROUTES + RIP_ROUTES) as usize;
        let all_came = || self.forwarding.counts()[Source::Fpm as usize].v4 >= all;
        wait("routes of all protocols", || all_came() && self.ways().len() == all);
        let names = ["bgpd", "ospfd", "ripd"].iter().zip(&self.daemons);
        let daemons: Vec<_> = names.map(|(name, daemon)| spent(name, daemon)).collect();
        println!(
            "{count} routes by BGP, {OSPF_ROUTES} by OSPF, {RIP_ROUTES} by RIP in {:.1} s; CPU: {}; \
             {}; the rib's thread {:.3} s",
            begun.elapsed().as_secs_f64(),
            spent("zebra", &self.zebra),
            daemons.join("; "),
            self.forwarding.status().cpu.as_secs_f64()
        );
        self.expected = self.announced.iter().map(|(prefix, next)| (*prefix, (0, *next))).collect();
        for (protocol, routes) in [("ospf", OSPF_ROUTES), ("rip", RIP_ROUTES)] {
            let ways = shown_routes(&self.r1, protocol);
            assert_eq!(ways.len(), routes as usize, "{protocol}");
            self.expected.extend(ways);
        }
        assert!(self.ways() == self.expected, "each route has the next hop that it was told with");
        let by_bgp = shown_routes(&self.r1, "bgp");
        assert_eq!(by_bgp.len(), count);
        assert!(by_bgp.iter().all(|(prefix, way)| self.expected[prefix] == *way));
        wait("the kernel's table in the mirror", || self.is_mirrored());
    }

    /// Some are withdrawn; the first of them alone, to see how long one takes.
    fn withdraw(&mut self, count: usize) {
        let mut one = Forwarder::new(&self.forwarding);
        let (first, _) = self.announced[0];
        let address = Ipv4Addr::from(first.address()).to_string();
        let before = one.one(&address);
        self.speaker.withdraw(&[first]);
        let took = wait("the withdrawal", || one.one(&address) != before);
        println!("a withdrawn route left the forwarding table after {:.3} s", took.as_secs_f64());
        let gone: Vec<_> = self.announced.drain(..count).map(|(prefix, _)| prefix).collect();
        self.speaker.withdraw(&gone[1..]);
        for prefix in &gone {
            self.expected.remove(prefix);
        }
        let took = wait("withdrawals", || self.ways() == self.expected);
        println!("{} withdrawn routes left after {:.3} s", count - 1, took.as_secs_f64());
        wait("withdrawals in the mirror", || self.is_mirrored());
    }

    /// The listener is lost and comes again: nothing changes, and nothing was changed.
    fn lose_the_listener(&mut self, listener: FpmListener) {
        drop(listener);
        let before = self.forwarding.status().routes_v4;
        let listener = self.listen(PATIENT.quiet);
        wait("the replay's end", || listener.status().replays == 1 && self.is_settled());
        assert!(self.ways() == self.expected, "as before");
        let after = self.forwarding.status().routes_v4;
        let repeated = after.repeated - before.repeated;
        assert!(repeated >= self.expected.len() as u64, "{before:?} {after:?}");
        assert_eq!((after.swept, after.fib_updates), (before.swept, before.fib_updates));
    }

    /// All daemons are killed and started again, as FRR's watchfrr does when zebra dies; routes
    /// that the neighbour no longer announces are removed, but not before all others have been
    /// repeated.
    fn lose_the_daemons(&mut self, late: usize) {
        let listener = self.listen(PATIENT.hold);
        wait("the connection", || listener.status().is_connected);
        self.zebra.kill();
        self.daemons.clear();
        wait("the connection's end", || !listener.status().is_connected);
        let late: Vec<_> = self.announced.drain(..late).map(|(prefix, _)| prefix).collect();
        assert!(self.ways() == self.expected, "forwarding goes on without them");
        self.zebra = zebra(&self.r1);
        self.r1.wait_for("zebra");
        self.daemons = protocols(&self.r1);
        self.speaker = Speaker::connect(&self.lab.r2, THEIRS[0], OURS[0], 65_002);
        self.speaker.announce(&self.announced);
        wait("the replay's end", || listener.status().replays == 1 && self.is_settled());
        for prefix in &late {
            self.expected.remove(prefix);
        }
        wait("the routes after the replay", || self.ways() == self.expected);
        assert_eq!(listener.status().fault, None);
    }
}

#[test]
fn daemons_bring_their_routes_and_may_be_killed() {
    let what = "routes from FRR";
    if !crate::common::privileged(what) || !crate::frr::installed(what) {
        return;
    }
    let requested = std::env::var("NILOMETER_FRR_ROUTES").ok();
    let count = requested.map_or(BGP_ROUTES, |text| text.parse().expect("a number of routes"));
    let lab = Lab::new().expect("a lab");
    let [r1, r2, r3] = [&lab.r1, &lab.r2, &lab.r3].map(Router::new);
    let (forwarding, mirrored) = (rib(&lab), rib(&lab));
    let listener = FpmListener::start(Some(&lab.r1), PATIENT, forwarding.news()).expect("listens");
    let _mirror = KernelMirror::start(Some(&lab.r1), mirrored.news()).expect("mirrors");
    let zebra = zebra(&r1);
    r1.wait_for("zebra");
    let daemons = protocols(&r1);
    let _others = neighbours(&r2, &r3);
    let speaker = Speaker::connect(&lab.r2, THEIRS[0], OURS[0], 65_002);
    let (announced, expected, lab) = (some_routes(count, THEIRS[0]), Ways::new(), &lab);
    let mut scene =
        Scene { lab, r1, forwarding, mirrored, zebra, daemons, speaker, announced, expected };
    scene.arrive();
    assert!(listener.status().is_connected && listener.status().fault.is_none());
    scene.withdraw(count / 5);

    // Nested prefixes would hide a gap: those that no other route contains are watched.
    let late: BTreeSet<_> =
        scene.announced[..count / 10].iter().map(|(prefix, _)| *prefix).collect();
    let mut watched = alone(&scene.expected);
    watched.retain(|prefix, _| !late.contains(prefix));
    assert!(watched.len() > scene.expected.len() / 2);
    let by_address: BTreeMap<u32, (u16, Ipv4Addr)> =
        watched.iter().map(|(prefix, way)| (prefix.address(), *way)).collect();
    let all = by_address.keys().copied().collect();
    let watch = Watch::start(Forwarder::new(&scene.forwarding), all, move |to, hop| {
        let (port, gateway) = by_address[&to];
        hop == Some(Hop::Via { port, gateway: Some(gateway.into()) })
    });
    scene.lose_the_listener(listener);
    scene.lose_the_daemons(late.len());
    let status = scene.forwarding.status();
    println!(
        "{} routes were looked up {} times meanwhile; late readers {}; the RIB thread {:.3} s",
        watched.len(),
        watch.end(),
        status.late_readers,
        status.cpu.as_secs_f64()
    );
}

/// Routes that lie within no other and have none within.
fn alone(ways: &Ways) -> Ways {
    let is_within = |prefix: &Prefix<u32>| {
        (0..prefix.length()).any(|length| {
            Prefix::new(prefix.address(), length).is_some_and(|shorter| ways.contains_key(&shorter))
        })
    };
    let mut alone = Ways::new();
    let mut before: Option<Prefix<u32>> = None;
    for (prefix, way) in ways {
        if is_within(prefix) {
            if let Some(outer) = before.filter(|outer| outer.contains(prefix.address())) {
                alone.remove(&outer);
            }
            continue;
        }
        before = Some(*prefix);
        alone.insert(*prefix, *way);
    }
    alone
}

//! Reservations through two live routers in a row: by RSVP between two hosts, refused in the middle, kept under overload.
//!
//! ```text
//!   left l0 ── p0 router p1 ── q0 router q1 ── r0 right     198.18.0.0/24, 198.20.0.0/24, 198.19.0.0/24
//! ```

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::Result;
use hyper::Method;
use nilometer_linux::namespace::Namespace;
use nilometer_linux::netlink::Netlink;
use nilometer_linux::veth::VethEnd;
use nilometer_reservation::Upcall;
use nilometer_reservation::message::{FlowDescriptor, FlowSpec, Sender, Session, Style, Tspec};
use nilometer_routerd::config::RouterConfig;
use nilometer_routerd::control::Control;
use nilometer_routerd::control::client::Address;
use nilometer_routerd::rsvp_host::RsvpHost;
use nilometer_routerd::running::Running;
use serde_json::{Value, json};

use super::reservations::{REFRESH, host, under_overload};
use super::site::{LEFT, PATIENCE, RIGHT, ask, privileged};
use crate::common::Room;

/// The first router's link to the second is the narrower one.
const ROUTERS: [&str; 2] = [
    r#"
[reservations]
rsvp = true
refresh = "30 s"
[[port]]
interface = "p0"
addresses = ["198.18.0.1/24"]
[[port]]
interface = "p1"
addresses = ["198.20.0.1/24"]
rate = "5 Mb/s"
[[route]]
prefix = "198.19.0.0/24"
via = ["198.20.0.2"]
"#,
    r#"
[reservations]
rsvp = true
refresh = "30 s"
[[port]]
interface = "q0"
addresses = ["198.20.0.2/24"]
[[port]]
interface = "q1"
addresses = ["198.19.0.1/24"]
rate = "10 Mb/s"
[[route]]
prefix = "198.18.0.0/24"
via = ["198.20.0.1"]
"#,
];

/// Two hosts, and two routers with their control processors.
struct Row {
    left: Namespace,
    right: Namespace,
    _middle: [Namespace; 2],
    running: Vec<Running>,
    controls: Vec<Control>,
    addresses: Vec<Address>,
    _room: Room,
}

impl Row {
    fn new(name: &str) -> Result<Row> {
        let (left, right) = (Namespace::new()?, Namespace::new()?);
        let middle = [Namespace::new()?, Namespace::new()?];
        let cables = [
            (&left, "l0", &middle[0], "p0"),
            (&middle[0], "p1", &middle[1], "q0"),
            (&right, "r0", &middle[1], "q1"),
        ];
        for (number, (one, name, other, peer)) in cables.into_iter().enumerate() {
            let mac = |end: u8| [2, 0, 0, 0, end, number as u8];
            let ends = [
                VethEnd { namespace: one, name, mac: mac(1) },
                VethEnd { namespace: other, name: peer, mac: mac(2) },
            ];
            let [first, second] = ends;
            other.enter(|| Netlink::open()?.create_veth(first, second, 1_500))?;
            one.enter(|| Netlink::open()?.set_up(name))?;
            other.enter(|| Netlink::open()?.set_up(peer))?;
        }
        for (host, name, own, gateway) in
            [(&left, "l0", LEFT, [198, 18, 0, 1]), (&right, "r0", RIGHT, [198, 19, 0, 1])]
        {
            host.enter(|| {
                let mut netlink = Netlink::open()?;
                netlink.add_address(name, own.into(), 24)?;
                let gateway = Ipv4Addr::from(gateway);
                netlink.add_route(&"0.0.0.0/0".parse()?, Some(gateway.into()), name)
            })?;
        }
        let room = Room::new(name);
        let (mut running, mut controls, mut addresses) = (Vec::new(), Vec::new(), Vec::new());
        for (number, (namespace, text)) in middle.iter().zip(ROUTERS).enumerate() {
            let mut config: RouterConfig = toml::from_str(text)?;
            let socket = room.path(&format!("{number}.sock"));
            config.control.socket = Some(socket.clone());
            let router = Running::start(Some(namespace), config.clone(), false)?;
            router.wait_until_up()?;
            controls.push(Control::start(&router, &config)?);
            running.push(router);
            addresses.push(Address::Socket(socket));
        }
        Ok(Row { left, right, _middle: middle, running, controls, addresses, _room: room })
    }

    fn listed(&self, router: usize) -> Vec<Value> {
        let (status, view) = ask(&self.addresses[router], &Method::GET, "/v1/reservations", None);
        assert_eq!(status, 200, "{view}");
        view["reservations"].as_array().expect("a list").clone()
    }

    /// What both routers have reserved, bits a second.
    fn rates(&self) -> [Vec<u64>; 2] {
        [0, 1].map(|router| {
            let rates = self.listed(router);
            rates.iter().filter_map(|one| one["rate_bps"].as_u64()).collect()
        })
    }

    fn end(self) {
        drop(self.controls);
        for router in self.running {
            let tally = router.stop().expect("its counters");
            assert!(tally.balances, "{tally:?}");
        }
    }
}

/// Both hosts.
struct Hosts {
    left: RsvpHost,
    right: RsvpHost,
}

impl Hosts {
    fn new(row: &Row) -> Hosts {
        let [left, right] = [(&row.left, LEFT), (&row.right, RIGHT)];
        Hosts { left: host(left.0, left.1, REFRESH), right: host(right.0, right.1, REFRESH) }
    }

    /// Turns until an upcall of the left or the right host is the expected one.
    fn until(&mut self, what: &str, is_it: impl Fn(&Upcall) -> bool) {
        let began = Instant::now();
        loop {
            let mut upcalls = self.left.turn().expect("it is up");
            upcalls.extend(self.right.turn().expect("it is up"));
            if upcalls.iter().any(&is_it) {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{what} did not come");
        }
    }

    /// Turns for a while, or until something holds.
    fn until_true(&mut self, what: &str, holds: impl Fn() -> bool) {
        let began = Instant::now();
        while !holds() {
            assert!(began.elapsed() < PATIENCE, "{what}");
            self.left.turn().expect("it is up");
            self.right.turn().expect("it is up");
        }
    }
}

#[test]
fn two_hosts_reserve_by_rsvp_through_two_live_routers() {
    if !privileged("RSVP through two live routers") {
        return;
    }
    let row = Row::new("rsvp-row").expect("two routers");
    let mut hosts = Hosts::new(&row);
    let session = Session { destination: RIGHT.into(), protocol: 17, port: 5_004 };
    let sender = Sender { source: LEFT.into(), port: 4_000 };
    let tspec = |bytes: f32| Tspec::new(bytes, 3_000.0);
    hosts.left.announce(session, (sender, tspec(750_000.0)), None).expect("a way");
    hosts.until("the path", |upcall| matches!(upcall, Upcall::Path { .. }));
    let reserve = |hosts: &mut Hosts, bytes: f32| {
        let flowspec = FlowSpec::controlled_load(tspec(bytes));
        let flows = vec![FlowDescriptor { flowspec, senders: vec![sender] }];
        hosts.right.reserve(session, Style::FixedFilter, flows).expect("a path is there");
    };
    // 1 Mb/s, with what links add, fits both.
    reserve(&mut hosts, 125_000.0);
    hosts.until(
        "the reservation",
        |upcall| matches!(upcall, Upcall::Resv { flows, .. } if !flows.is_empty()),
    );
    let rates = row.rates();
    assert!(rates.iter().all(|some| some.len() == 1 && some[0] >= 1_000_000), "{rates:?}");
    // 6 Mb/s fit the second router's link alone: the first refuses, and the receiver is notified.
    reserve(&mut hosts, 750_000.0);
    hosts.until("the refusal", |upcall| matches!(upcall, Upcall::ResvError { .. }));
    let [first, second] = row.rates();
    assert_eq!(first, rates[0], "what there was is kept where the larger one was refused");
    assert!(second[0] >= 6_000_000, "{second:?}");
    // The sender withdraws, and both routers forget: minutes before their state would end.
    let began = Instant::now();
    hosts.left.withdraw(session, sender).expect("sent");
    hosts.until_true("a reservation lives on", || row.rates().iter().all(Vec::is_empty));
    assert!(began.elapsed() < Duration::from_secs(20));
    row.end();
}

#[test]
fn a_reserved_flow_keeps_its_rate_through_two_routers_under_overload() {
    if !privileged("a reserved flow through two routers") {
        return;
    }
    let row = Row::new("reserved-row").expect("two routers");
    let reserve = |router: usize| {
        let body = json!({"holder": "test", "destination": RIGHT.to_string(), "protocol": "udp",
            "destination_port": 5_004, "source": LEFT.to_string(), "rate": "1.05 Mb/s"});
        let address = &row.addresses[router];
        ask(address, &Method::POST, "/v1/reservations", Some(body.to_string()))
    };
    for router in [0, 1] {
        let (status, made) = reserve(router);
        assert_eq!(status, 201, "{made}");
    }
    let (sent, came) = under_overload(&row.left, &row.right);
    assert!(came * 100 >= sent * 98, "{came} of {sent} datagrams came");
    for router in [0, 1] {
        let one = &row.listed(router)[0];
        assert!(one["sent_bytes"].as_u64() >= Some(came * 1_000), "by its queue: {one}");
    }
    // At the first router, whose link is overloaded, the reservation protects the flow.
    let id = row.listed(0)[0]["id"].clone();
    ask(&row.addresses[0], &Method::DELETE, &format!("/v1/reservations/{id}"), None);
    let (sent, came) = under_overload(&row.left, &row.right);
    assert!(came * 100 < sent * 98, "without it some are lost: {came} of {sent}");
    row.end();
}

//! Reservations of a live router: by API and command, by RSVP between two hosts, and what they keep under overload.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hyper::Method;
use nilometer_linux::namespace::Namespace;
use nilometer_reservation::Upcall;
use nilometer_reservation::message::{FlowDescriptor, FlowSpec, Sender, Session, Style, Tspec};
use nilometer_routerd::rsvp_host::RsvpHost;
use nilometer_wire::Span;
use serde_json::{Value, json};

use super::ctl::{done, refused};
use super::site::{LEFT, PATIENCE, RIGHT, Stand, privileged};

/// The refresh period of RFC 2205.
pub(super) const REFRESH: Span = Span::from_secs(30);

/// A rate for the output, so that there is something to share.
fn stand(name: &str, more: &str) -> Stand {
    let stand = Stand::new(name, more).expect("a router");
    stand.put("/v1/ports/1/rate", json!({"rate": "10 Mb/s"}));
    stand
}

fn listed(stand: &Stand) -> Vec<Value> {
    let view = stand.get("/v1/reservations");
    view["reservations"].as_array().expect("a list").clone()
}

#[test]
fn reservations_are_made_listed_refused_and_end() {
    if !privileged("reservations by API") {
        return;
    }
    let stand = stand("reservations", "");
    let to = format!("destination={RIGHT}");
    let reserve = |more: &[&str]| {
        let all = [&["reserve", "holder=me", &to, "protocol=udp", "input=p0"], more].concat();
        done(&stand, &all)
    };
    let made = reserve(&["destination_port=5004", "rate=5 Gb/s", "lifetime=30 s"]);
    assert!(made.starts_with("reservation ") && made.ends_with(" is made\n"), "{made}");
    let id = made.split(' ').nth(1).expect("a number").to_owned();
    let shown = done(&stand, &["reservations"]);
    assert!(shown.contains("api: me") && shown.contains("5 Gb/s"), "{shown}");
    let view: Value =
        serde_json::from_str(&done(&stand, &["reservations", "--json"])).expect("JSON");
    let one = &view["reservations"][0];
    assert_eq!((&one["output"], &one["inputs"]), (&json!(1), &json!([0])));
    assert_eq!((&one["next_hop"], &one["kind"]), (&json!(RIGHT.to_string()), &json!("api")));
    assert_eq!(view["ports"][1]["output_bps"], json!(5_000_000_000u64));
    // Of 10 Gb/s, which the links into the fabric have, 80 % may be reserved.
    let beyond = ["reserve", "holder=you", &to, "protocol=17", "rate=4 Gb/s"];
    refused(&stand, &beyond, "available");
    refused(&stand, &["reserve", "holder=you", &to, "protocol=17", "rate=fast"], "rate");
    refused(&stand, &["release", "4711"], "no reservation 4711");
    done(&stand, &["refresh", &id]);
    done(&stand, &["release", &id]);
    assert!(listed(&stand).is_empty());
    assert_eq!(stand.get("/v1/reservations")["ports"][1]["output_bps"], 0);
    // A refreshed reservation outlives its lifetime, and ends by itself when it is no longer refreshed.
    let made = reserve(&["rate=1 Mb/s", "lifetime=1 s"]);
    let id = made.split(' ').nth(1).expect("a number").to_owned();
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(2_500) {
        thread::sleep(Duration::from_millis(200));
        done(&stand, &["refresh", &id]);
    }
    assert_eq!(listed(&stand).len(), 1);
    let began = Instant::now();
    while !listed(&stand).is_empty() {
        assert!(began.elapsed() < PATIENCE, "it lives on");
        thread::sleep(Duration::from_millis(50));
    }
    assert!(began.elapsed() > Duration::from_millis(500));
    let booked = &stand.get("/v1/reservations")["ports"][1];
    assert_eq!(booked["output_bps"], 0);
    stand.end();
}

/// Datagrams of the reserved flow that were sent at 1 Mb/s and those that came, while others offer the link ten times
/// what it carries.
pub(super) fn under_overload(left: &Namespace, right: &Namespace) -> (u64, u64) {
    const SECONDS: u64 = 4;
    const PAYLOAD: usize = 1_000;
    let bind = |address: Ipv4Addr, port: u16| UdpSocket::bind((address, port));
    let far = right.enter(|| Ok(bind(RIGHT, 5_004)?)).expect("a socket");
    far.set_read_timeout(Some(Duration::from_millis(300))).expect("a timeout");
    let sink = right.enter(|| Ok(bind(RIGHT, 6_000)?)).expect("a socket");
    let near = left.enter(|| Ok(bind(LEFT, 4_000)?)).expect("a socket");
    let others: Vec<UdpSocket> =
        (0..50).map(|_| left.enter(|| Ok(bind(LEFT, 0)?)).expect("a socket")).collect();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            // 100 Mb/s: twelve of a thousand bytes each millisecond.
            let (began, mut sent) = (Instant::now(), 0u128);
            while !stop.load(Ordering::Relaxed) {
                if sent < began.elapsed().as_millis() * 12 {
                    let socket = &others[sent as usize % others.len()];
                    let _ = socket.send_to(&[1; PAYLOAD], (RIGHT, 6_000));
                    sent += 1;
                } else {
                    thread::sleep(Duration::from_micros(200));
                }
            }
        });
        let receiver = scope.spawn(|| {
            let (mut bytes, mut came) = ([0; 2_048], 0);
            while far.recv(&mut bytes).is_ok() {
                came += 1;
            }
            came
        });
        let _ = sink.set_nonblocking(true);
        let between = Duration::from_nanos((PAYLOAD as u64 + 42) * 8 * 1_000);
        let (began, mut sent) = (Instant::now(), 0u32);
        while began.elapsed() < Duration::from_secs(SECONDS) {
            let due = between * sent;
            thread::sleep(due.saturating_sub(began.elapsed()));
            near.send_to(&[2; PAYLOAD], (RIGHT, 5_004)).expect("sent");
            sent += 1;
        }
        let came = receiver.join().expect("no panic");
        stop.store(true, Ordering::Relaxed);
        (sent.into(), came)
    })
}

#[test]
fn a_reserved_flow_keeps_its_rate_live_under_ten_times_overload() {
    if !privileged("a reserved flow under overload") {
        return;
    }
    let stand = stand("reserved-flow", "");
    let body = json!({"holder": "test", "destination": RIGHT.to_string(), "protocol": "udp",
        "destination_port": 5_004, "source": LEFT.to_string(), "rate": "1.05 Mb/s"});
    let (status, made) = stand.ask(&Method::POST, "/v1/reservations", Some(body));
    assert_eq!(status, 201, "{made}");
    let (sent, came) = under_overload(&stand.site.left, &stand.site.right);
    assert!(came * 100 >= sent * 98, "{came} of {sent} datagrams came");
    let one = &listed(&stand)[0];
    assert!(one["sent_bytes"].as_u64() >= Some(came * 1_000), "by its queue: {one}");
    stand.ask(&Method::DELETE, &format!("/v1/reservations/{}", made["id"]), None);
    let (sent, came) = under_overload(&stand.site.left, &stand.site.right);
    assert!(came * 100 < sent * 98, "without a reservation it loses some: {came} of {sent}");
    stand.end();
}

/// A host with RSVP in a namespace, which refreshes in this period.
pub(super) fn host(namespace: &Namespace, own: Ipv4Addr, refresh: Span) -> RsvpHost {
    namespace.enter(|| RsvpHost::open(own, refresh)).expect("raw sockets")
}

#[test]
fn two_hosts_reserve_by_rsvp_through_a_live_router() {
    if !privileged("RSVP through a live router") {
        return;
    }
    // State without refreshes would live for minutes: reservations that end here end by a message.
    let stand = stand("rsvp", "[reservations]\nrsvp = true\nrefresh = \"30 s\"\n");
    let mut left = host(&stand.site.left, LEFT, REFRESH);
    let mut right = host(&stand.site.right, RIGHT, REFRESH);
    let session = Session { destination: RIGHT.into(), protocol: 17, port: 5_004 };
    let sender = Sender { source: LEFT.into(), port: 4_000 };
    let tspec = Tspec::new(125_000.0, 3_000.0);
    left.announce(session, (sender, tspec), None).expect("a way");
    let began = Instant::now();
    let (mut has_path, mut is_reserved) = (false, false);
    while !is_reserved {
        assert!(began.elapsed() < PATIENCE, "path {has_path}: {}", stand.get("/v1/reservations"));
        is_reserved |=
            left.turn().expect("it is up").iter().any(|up| matches!(up, Upcall::Resv { .. }));
        let came = right.turn().expect("it is up");
        if !has_path && came.iter().any(|up| matches!(up, Upcall::Path { .. })) {
            has_path = true;
            let flowspec = FlowSpec::controlled_load(tspec);
            let flows = vec![FlowDescriptor { flowspec, senders: vec![sender] }];
            right.reserve(session, Style::FixedFilter, flows).expect("a path is there");
        }
    }
    let one = &listed(&stand)[0];
    assert_eq!((&one["kind"], &one["output"]), (&json!("rsvp"), &json!(1)));
    assert_eq!(one["flows"][0]["source_port"], 4_000);
    assert!(one["rate_bps"].as_u64() >= Some(1_000_000), "with what the link adds: {one}");
    // The sender withdraws, and path and reservation go with its PathTear.
    left.withdraw(session, sender).expect("sent");
    while !listed(&stand).is_empty() {
        assert!(began.elapsed() < PATIENCE, "{}", stand.get("/v1/reservations"));
        left.turn().expect("it is up");
    }
    stand.end();
}

//! Ports named by name, and the lists of `nilometer route ctl`: routes of every source, filters, ports.

use std::time::Instant;

use hyper::Method;
use nilometer_router::{AnyPrefix, Hop, RouteBatch, RouteTarget, RouteUpdate, Source};
use nilometer_routerd::driver::Driver;
use serde_json::{Value, json};

use super::ctl::{done, refused};
use super::site::{PATIENCE, Stand, privileged};

/// Routes that a daemon has announced; more than are listed at once.
const LEARNED: usize = 20_003;

/// The words of each line.
fn words(text: &str) -> Vec<Vec<&str>> {
    text.lines().map(|line| line.split_whitespace().collect()).collect()
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).expect("one JSON object")
}

/// Feeds routes to the RIB thread as zebra announces them.
fn learn(stand: &Stand) {
    let rib = stand.running.routes.rib_thread();
    let route = |number: usize| {
        let address = [10, (number >> 8) as u8, number as u8, 0];
        RouteUpdate::Announce {
            prefix: AnyPrefix::new(address.into(), 24).expect("short enough"),
            protocol: 186,
            metric: 20,
            way: RouteTarget::Fate(Hop::Via { port: 1, gateway: Some([198, 19, 0, 2].into()) }),
        }
    };
    let updates: Vec<_> = (0..LEARNED).map(route).collect();
    let batch = RouteBatch { source: Source::Fpm, updates };
    rib.news().send(batch).expect("it listens");
    let began = Instant::now();
    while rib.counts()[Source::Fpm as usize].v4 < LEARNED {
        assert!(began.elapsed() < PATIENCE, "the routes are not taken");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[test]
fn a_port_is_named_by_its_name_or_its_number() {
    if !privileged("names of ports") {
        return;
    }
    let stand = Stand::new("ctl-names", "[fabric]\nspare_ports = 1\n").expect("a router");
    done(&stand, &["set-rate", "p1", "300 Mb/s"]);
    done(&stand, &["set-rate", "0", "2500 kb/s"]);
    done(&stand, &["set-delay", "p1", "2 ms"]);
    done(&stand, &["set-queue", "p1", "discipline=pie", "buffer_packets=500"]);
    let all = stand.get("/v1/ports");
    assert_eq!(
        (&all["ports"][1]["rate_bps"], &all["ports"][1]["delay_us"]),
        (&json!(300_000_000), &json!(2_000.0))
    );
    assert_eq!(stand.get("/v1/ports/p1")["number"], 1);
    assert_eq!(stand.get("/v1/ports/spare0")["number"], 2);
    let text = done(&stand, &["ports"]);
    let lines = words(&text);
    assert_eq!(lines[1][..4], ["0", "p0", "up", "2.5"], "{text}");
    assert_eq!(lines[2][..4], ["1", "p1", "up", "300"], "{text}");
    assert!(lines[2].last() == Some(&"pie") && lines[3][1] == "spare0", "{text}");
    let fabric = stand.get("/v1/fabric");
    let named = |list: &str, port: usize| {
        (fabric[list][port]["port"].clone(), fabric[list][port]["name"].clone())
    };
    assert_eq!(named("inputs", 1), (json!(1), json!("p1")), "{fabric}");
    assert_eq!(named("outputs", 2), (json!(2), json!("spare0")), "{fabric}");
    let reply = done(&stand, &["messages"]);
    for text in
        ["port p0: the rate is 2500 kb/s", "port p1: the delay is 2 ms", "port p1: the discipline"]
    {
        assert!(reply.contains(text), "{reply}");
    }
    // A discipline of one queue shows its backlog.
    let queues = done(&stand, &["queues", "p1"]);
    assert_eq!(queues, done(&stand, &["queues", "1"]));
    assert!(queues.starts_with("pie: ") && words(&queues)[2][0] == "all", "{queues}");
    done(&stand, &["routes", "add", "198.18.64.0/18", "--interface", "1"]);
    done(&stand, &["routes", "add", "198.18.128.0/18", "--interface", "p1"]);
    let ways = stand.get("/v1/routes?source=static");
    for route in [&ways["routes"][0], &ways["routes"][1]] {
        assert_eq!(route["ways"][0]["interface"], "p1", "{ways}");
    }
    let names = "there is no port p9; there are 0 (p0), 1 (p1)";
    for words in [
        &["set-rate", "p9", "1 Mb/s"][..],
        &["set-delay", "p9", "1 ms"],
        &["set-queue", "p9", "discipline=red"],
        &["queues", "p9"],
        &["routes", "add", "198.18.64.0/18", "--interface", "p9"],
    ] {
        refused(&stand, words, names);
    }
    refused(&stand, &["queues", "a/ b%"], "there is no port a/ b%; ");
    refused(&stand, &["queues", "9"], "there is no port 9; there are 0 (p0), 1 (p1)");
    refused(&stand, &["set-rate", "spare0", "1 Mb/s"], "there is no port 2; ");
    stand.end();
}

#[test]
fn a_burst_is_set_with_a_rate_and_kept() {
    if !privileged("bursts of links") {
        return;
    }
    let stand = Stand::new("ctl-burst", "").expect("a router");
    let burst = |stand: &Stand| {
        let fabric = |driver: &mut Driver| driver.router().fabric().burst_bytes(1);
        let there = stand.running.remote.call(fabric).expect("it answers");
        assert_eq!(json!(there), stand.get("/v1/ports/p1")["burst_bytes"]);
        there
    };
    done(&stand, &["set-rate", "p1", "300 Mb/s"]);
    assert_eq!(burst(&stand), None);
    done(&stand, &["set-rate", "p1", "300 Mb/s", "--burst-bytes", "20000"]);
    done(&stand, &["set-rate", "p1", "200 Mb/s"]);
    done(&stand, &["set-delay", "p1", "1 ms"]);
    assert_eq!(burst(&stand), Some(20_000));
    assert!(
        done(&stand, &["messages"])
            .contains("port p1: the rate is 200 Mb/s, the burst 20000 bytes")
    );
    done(&stand, &["save", "saved.toml"]);
    assert!(stand.room.read("saved.toml").contains("burst_bytes = 20000"));
    let words = ["set-rate", "p1", "200 Mb/s", "--burst-bytes", "1073741825"];
    refused(&stand, &words, "burst_bytes is 1073741825; give 0 to 1073741824");
    assert_eq!(burst(&stand), Some(20_000));
    stand.end();
}

#[test]
fn routes_of_all_sources_are_listed_up_to_the_requested_limit() {
    if !privileged("lists of routes") {
        return;
    }
    let stand = Stand::new("ctl-routes", "").expect("a router");
    learn(&stand);
    done(&stand, &["routes", "add", "9.0.0.0/8", "--fate", "blackhole"]);
    // Two networks with an address and a broadcast each are the router's own; one of IPv6.
    let (v4, all) = (LEARNED + 1 + 6, LEARNED + 1 + 8);
    let text = done(&stand, &["routes", "list"]);
    let lines = words(&text);
    let head = format!("{v4} IPv4 prefixes, 2 IPv6 prefixes\n");
    assert!(text.starts_with(&head), "{text}");
    let at = lines.iter().position(|line| line[0] == "PREFIX").expect("headings");
    assert_eq!(lines[at + 1], ["9.0.0.0/8", "blackhole", "-", "static", "-"]);
    assert_eq!(lines[at + 2], ["10.0.0.0/24", "198.19.0.2", "p1", "fpm", "(bgp)", "20"]);
    assert_eq!(lines.len(), at + 1 + 100 + 1, "{text}");
    assert!(text.ends_with(&format!(
        "{} more: --all, or --within PREFIX and --source SOURCE\n",
        all - 100
    )));
    let connected = done(&stand, &["routes", "list", "--source", "connected"]);
    let lines = words(&connected);
    let found = |line: &[&str]| lines.iter().any(|it| it == line);
    assert!(found(&["198.18.0.0/24", "on", "link", "p0", "connected", "-"]), "{connected}");
    assert!(found(&["fd00:19::1/128", "local", "-", "connected", "-"]), "{connected}");
    assert!(!connected.contains("more"), "{connected}");
    // All of them, page by page, are each there once, in order.
    let text = done(&stand, &["routes", "list", "--all"]);
    assert_eq!(text.matches(" fpm (bgp) ").count(), LEARNED);
    assert!(!text.contains(" more") && text.matches("PREFIX").count() == 1);
    let object = parsed(&done(&stand, &["routes", "list", "--all", "--json"]));
    let prefixes: Vec<AnyPrefix> =
        object["routes"].as_array().expect("a list").iter().map(prefix).collect();
    assert!(prefixes.is_sorted_by(|one, next| one < next), "out of order, or twice");
    assert_eq!((prefixes.len(), &object["more"], &object["next"]), (all, &json!(0), &Value::Null));
    // What scripts read of the object before routes were listed.
    assert_eq!(
        (&object["prefixes_v4"], &object["entered"][0]["prefix"]),
        (&json!(v4), &json!("9.0.0.0/8"))
    );
    let few = parsed(&done(
        &stand,
        &["routes", "list", "--most", "3", "--within", "10.1.0.0/16", "--json"],
    ));
    assert_eq!(
        (few["routes"].as_array().map(Vec::len), &few["more"]),
        (Some(3), &json!(253)),
        "{few}"
    );
    assert_eq!(few["next"], "10.1.2.0/24");
    assert_eq!(stand.get("/v1/routes")["routes"], json!([]), "nothing is listed unasked");
    stand.end();
}

fn prefix(route: &Value) -> AnyPrefix {
    let (address, length) =
        route["prefix"].as_str().and_then(|it| it.split_once('/')).expect("a prefix");
    let length = length.parse().expect("a length");
    AnyPrefix::new(address.parse().expect("an address"), length).expect("short enough")
}

#[test]
fn filters_are_listed_up_to_the_requested_limit() {
    if !privileged("lists of filters") {
        return;
    }
    let filter = "[[filter]]\naction = \"deny\"\nprotocol = \"tcp\"\ndestination_ports = \"23\"\n";
    let many = filter.repeat(1_002);
    let stand = Stand::new("ctl-filters", &many).expect("a router");
    let text = done(&stand, &["filters", "list"]);
    let lines = words(&text);
    assert_eq!(
        lines[1],
        ["0", "0", "tcp", "from", "any", "to", "any", "port", "23", "deny", "0", "0"]
    );
    assert!(lines.len() == 102 && text.ends_with("\n902 more: --all\n"), "{text}");
    assert_eq!(done(&stand, &["filters", "list", "--all"]).lines().count(), 1_003);
    let object = parsed(&done(&stand, &["filters", "list", "--all", "--json"]));
    let numbers = object["filters"].as_array().expect("a list").iter().map(|it| it["id"].as_u64());
    assert!(numbers.eq((0..1_002).map(Some)) && object["count"] == 1_002);
    let few = parsed(&done(&stand, &["filters", "list", "--most", "2", "--json"]));
    assert_eq!(
        (few["filters"].as_array().map(Vec::len), &few["next"], &few["more"]),
        (Some(2), &json!(2), &json!(1_000))
    );
    stand.end();
}

#[test]
fn an_invalid_list_request_is_refused_in_one_line() {
    if !privileged("refusals of lists") {
        return;
    }
    let stand = Stand::new("ctl-lists", "").expect("a router");
    let cases = [
        ("most=0", "give 1 to 10000"),
        ("most=10001", "give 1 to 10000"),
        ("source=bgp", "local, connected, static, fpm, kernel"),
        ("within=198.18.0.1/16", "is not a prefix, or has host bits set"),
        ("after=here", "is not a prefix, or has host bits set"),
        ("prefix=198.18.0.0/24&most=3", "goes with no other key"),
    ];
    for (requested, part) in cases {
        let (status, reply) = stand.ask(&Method::GET, &format!("/v1/routes?{requested}"), None);
        let line = reply["error"].as_str().unwrap_or_default();
        assert!(
            status == 400 && line.contains(part) && !line.contains('\n'),
            "{requested}: {reply}"
        );
    }
    refused(&stand, &["routes", "list", "--source", "bgp & co"], "no source is `bgp & co`");
    stand.end();
}

/// Filters of one port apply to packets that arrive there, including flows past the pipeline, with every
/// classifier.
#[test]
fn filters_of_a_port_apply_to_packets_received_there() {
    if !privileged("filters of a port") {
        return;
    }
    let stand = Stand::new("control-inputs", "[fabric]\nqueueing = \"off\"\n").expect("a router");
    let flow = stand.site.flow().expect("a flow");
    flow.wait_for(50);
    done(&stand, &["filters", "add", "action=deny", "protocol=udp", "inputs=p1"]);
    flow.wait_for(200);
    done(&stand, &["classifier", "tuples"]);
    flow.wait_for(50);
    // Ports may be named by number as well.
    done(&stand, &["filters", "add", "action=deny", "protocol=udp", "inputs=0,p1"]);
    let met = |at: usize| {
        let listed = parsed(&done(&stand, &["filters", "list", "--json"]));
        listed["filters"][at]["packets"].as_u64().expect("a number")
    };
    let began = std::time::Instant::now();
    while met(1) < 50 {
        assert!(began.elapsed() < PATIENCE, "{} packets met the filter of p0", met(1));
    }
    assert_eq!(met(0), 0, "nothing of UDP comes by p1");
    let text = done(&stand, &["filters", "list"]);
    assert!(text.contains("udp on p0,p1 from any to any"), "{text}");
    done(&stand, &["save", "saved.toml"]);
    assert!(stand.room.read("saved.toml").contains("inputs = [\"p0\", \"p1\"]"));
    done(&stand, &["filters", "del", "1"]);
    flow.wait_for(50);
    flow.end();
    stand.end();
}

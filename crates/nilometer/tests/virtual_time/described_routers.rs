//! Routers of a ROUTER.toml in scenarios: the pipeline among records.

use serde_json::Value;

use crate::common::Room;

/// Ten flows through a router and a link of 10 Mb/s, whose queue is the router's.
fn scenario(router: &str) -> String {
    format!(
        r#"
version = 1
name = "described"
duration_s = 10
seed = 3

[[router]]
name = "edge"

[[router]]
name = "middle"
{router}

[[host]]
name = "senders"
count = 10

[[host]]
name = "receivers"

[[link]]
name = "access"
from = "senders"
to = "edge"
rate = "100 Mb/s"
delay = "2 ms"

[[link]]
name = "inward"
from = "edge"
to = "middle"
rate = "100 Mb/s"
delay = "3 ms"

[[link]]
name = "outward"
from = "middle"
to = "receivers"
rate = "10 Mb/s"
delay = "15 ms"

[[flow]]
from = "senders"
to = "receivers"
tcp = "sack"
start_jitter_ms = 100

[measure]
bottleneck = "outward"
"#
    )
}

const FILE: &str = "file = \"router.toml\"";
const TAIL_DROP: &str = "[[port]]\ninterface = \"outward\"\nqueue = { discipline = \"tail_drop\", buffer_packets = 30 }\n";

fn simulate(room: &Room, router: &str, file: &str, more: &[&str]) -> Value {
    room.write("scenario.toml", scenario(router));
    room.write("router.toml", file);
    let result = room.counted(&[&["simulate", "scenario.toml", "--json"], more].concat());
    result["points"][0].clone()
}

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("{key} of {value}"))
}

fn dropped(point: &Value, reason: &str) -> u64 {
    point["routers"][0]["dropped"][reason].as_u64().unwrap_or(0)
}

#[test]
fn a_described_router_queues_as_its_file_specifies() {
    let room = Room::new("described");
    let point = simulate(&room, FILE, TAIL_DROP, &[]);
    let router = &point["routers"][0];
    assert_eq!(router["name"], "middle");
    let lost: u64 =
        router["dropped"].as_object().expect("reasons").values().filter_map(Value::as_u64).sum();
    assert!(lost > 20, "{router}");
    // Packets that arrived, left or were dropped; one may be under way at the end, and thirty in the queue.
    let rest = number(router, "received") - number(router, "sent") - lost as f64;
    assert!((0.0..=32.0).contains(&rest), "{router}");
    // Nothing waits behind it: the link's own queue drops nothing. Frames are 14 bytes longer than packets.
    assert_eq!(number(&point, "loss_ratio"), 0.0);
    assert!((0.95..0.995).contains(&number(&point, "utilisation")), "{point}");
    // The twin: a plain router, with the same queue before the link.
    let plain = scenario("").replace(
        "delay = \"15 ms\"",
        "delay = \"15 ms\"\nqueue = { discipline = \"tail_drop\", buffer_packets = 30 }",
    );
    room.write("plain.toml", plain);
    let plain = room.counted(&["simulate", "plain.toml", "--json"])["points"][0].clone();
    assert_eq!(plain["routers"], Value::Null);
    let packets = number(router, "received");
    let ratio = lost as f64 / packets / number(&plain, "loss_ratio");
    // (Acknowledgements pass the router as well: half as many as there are segments, or as many.)
    assert!((0.3..1.5).contains(&ratio), "{ratio}: {router} {plain}");
    let [one, other] = [&point, &plain].map(|point| number(point, "utilisation"));
    assert!((one / other - 1.0).abs() < 0.05, "{one} {other}");
}

#[test]
fn red_of_a_described_router_marks_and_distributed_queueing_carries() {
    let room = Room::new("described-red");
    let red = "[fabric]\nqueueing = \"dq_plus\"\nlink_rate = \"200 Mb/s\"\n[[port]]\ninterface = \"outward\"\n\
               queue = { discipline = \"red\", buffer_packets = 100 }\n";
    let first = simulate(&room, FILE, red, &[]);
    assert!(number(&first, "utilisation") > 0.9, "{first}");
    let early: u64 = ["early", "forced", "full"].iter().map(|reason| dropped(&first, reason)).sum();
    assert!(early > 0, "{}", first["routers"]);
    assert_eq!(first["routers"][0]["marked"], 0, "no host takes marks");
    // A run is a function of scenario and seed, whatever the threads.
    let again = simulate(&room, FILE, red, &["--threads", "2"]);
    assert_eq!(again, first);
    let other = simulate(&room, FILE, red, &["--seed", "4"]);
    assert_ne!(other["routers"], first["routers"]);
    // A host that takes marks (RFC 3168) learns of a queue by them, and slows down.
    let ecn = scenario(FILE).replace("tcp = \"sack\"", "tcp = \"sack\"\necn = true");
    room.write("scenario.toml", ecn);
    room.write("router.toml", red.replace("100 }", "100, ecn = true }"));
    let marked = &room.counted(&["simulate", "scenario.toml", "--json"])["points"][0];
    assert!(number(&marked["routers"][0], "marked") > 20.0, "{}", marked["routers"]);
    assert!(number(marked, "utilisation") > 0.9, "{marked}");
    assert!(dropped(marked, "early") < dropped(&first, "early"), "{}", marked["routers"]);
}

#[test]
fn each_port_has_the_mtu_of_its_link_and_results_repeat_the_run() {
    let room = Room::new("described-mtu");
    // A link without traffic carries less.
    let spare = "[[host]]\nname = \"spare\"\n[[link]]\nname = \"narrow\"\nfrom = \"middle\"\nto = \"spare\"\n\
                 rate = \"1 Mb/s\"\nmtu = 576\n";
    room.write("scenario.toml", scenario(FILE).replace("[measure]", &format!("{spare}[measure]")));
    room.write("router.toml", TAIL_DROP);
    let first = room.counted(&["simulate", "scenario.toml", "--json", "-o", "out"]);
    assert_eq!(dropped(&first["points"][0], "too_big"), 0, "{first}");
    assert!(number(&first["points"][0], "utilisation") > 0.9, "{first}");
    let again = room.counted(&["simulate", "out/scenario.toml", "--json"]);
    assert_eq!(again["digest"], first["digest"]);
}

#[test]
fn filters_see_the_addresses_of_hosts() {
    let room = Room::new("described-filter");
    let none = simulate(&room, FILE, TAIL_DROP, &[]);
    assert_eq!(dropped(&none, "denied"), 0, "{}", none["routers"]);
    // The third sender is 10.1.0.3.
    let port = "[[port]]\ninterface = \"inward\"\n";
    let filters = "[[filter]]\naction = \"deny\"\nsource = \"10.1.0.3/32\"\n[[filter]]\naction = \"permit\"\n";
    let point = simulate(&room, FILE, &format!("{port}{filters}"), &[]);
    assert!(dropped(&point, "denied") > 0, "{}", point["routers"]);
    assert!(
        number(&point, "stddev_over_fair_share") > 0.25,
        "one of ten delivers nothing: {point}"
    );
}

#[test]
fn invalid_router_descriptions_are_refused_in_one_line() {
    let room = Room::new("described-refused");
    let refused = |file: &str| {
        room.write("scenario.toml", scenario(FILE));
        room.write("router.toml", file);
        room.refused(&["simulate", "scenario.toml"])
    };
    let line = refused("[[port]]\ninterface = \"eth0\"\n");
    assert!(line.contains("no such link; its links are inward, outward"), "{line}");
    let line = refused("[control]\nsocket = \"x\"\n[[port]]\ninterface = \"inward\"\n");
    assert!(line.contains("leave [control] out"), "{line}");
    assert!(refused("").contains("at least one [[port]]"));
    let line = refused("[[port]]\ninterface = \"inward\"\naddresses = [\"10.0.0.1/24\"]\n");
    assert!(line.contains("leave it out"), "{line}");
    let line = refused(
        "[[port]]\ninterface = \"inward\"\n[[route]]\nprefix = \"10.2.0.0/17\"\nvia = [\"172.16.0.2\"]\n\
         interface = \"inward\"\n",
    );
    assert!(line.contains("leave [[route]] out"), "{line}");
    room.write("scenario.toml", scenario("file = \"nothing.toml\""));
    assert!(room.refused(&["simulate", "scenario.toml"]).contains("nothing.toml"));
    let grouped =
        scenario("").replace("name = \"edge\"", "name = \"edge\"\nfile = \"router.toml\"");
    room.write("scenario.toml", grouped);
    let line = room.refused(&["simulate", "scenario.toml"]);
    assert!(line.contains("put a router without a file between"), "{line}");
}

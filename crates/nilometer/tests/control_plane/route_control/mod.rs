//! The control processor of a live router: every path requested, everything changed while packets
//! pass.

mod by_hand;
mod code_server;
mod ctl;
mod hosts;
mod lists;
mod offload;
mod plugins;
mod refusals;
mod reservations;
mod reservations_in_a_row;
mod rsvp_command;
mod signalled_plugins;
mod site;
mod strangers;

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use self::site::{Stand, privileged};
use hyper::Method;
use nilometer_routerd::config::RouterConfig;
use nilometer_routerd::control::command_channel::BETWEEN_QUESTIONS;
use nilometer_routerd::control::endpoints::openapi;
use nilometer_routerd::control::fabric_view::snapshot;
use serde_json::{Value, json};

#[test]
fn the_document_beside_the_sources_is_the_one_that_is_served() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    let document = openapi().expect("a document");
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &document).expect("written");
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == document, "docs/openapi.json is not what is served; run with UPDATE=1");
    let document: Value = serde_json::from_str(&document).expect("JSON");
    let paths = document["paths"].as_object().expect("paths");
    assert!(paths.len() > 15 && paths.contains_key("/v1/fabric"), "{paths:?}");
}

#[test]
fn everything_can_be_looked_at() {
    if !privileged("the control processor's answers") {
        return;
    }
    let stand = Stand::new("control-look", "").expect("a router");
    let flow = stand.site.flow().expect("a flow");
    flow.wait_for(50);
    let tally = stand.get("/v1/tally");
    assert!(tally["transmitted"].as_u64() >= Some(50) && tally["balances"] == true, "{tally}");
    let ports = stand.get("/v1/ports");
    assert_eq!(ports["ports"][1]["name"], "p1");
    let port = stand.get("/v1/ports/1");
    assert_eq!(port["mac"], "02:00:00:00:01:02");
    assert_eq!(port["addresses"], json!(["198.19.0.1/24", "fd00:19::1/64"]));
    let queues = stand.get("/v1/queues/1");
    assert_eq!(queues["discipline"], "qsdrr");
    assert!(queues["queues"][0]["sent_bytes"].as_u64() > Some(50 * 400), "{queues}");
    let fabric = stand.get("/v1/fabric");
    assert_eq!((&fabric["queueing"], &fabric["period_us"]), (&json!("dq_plus"), &json!(500.0)));
    assert_eq!(fabric["inputs"].as_array().map(Vec::len), Some(2), "{fabric}");
    let neighbours = stand.get("/v1/neighbours");
    let of_right = json!({"port": 1, "interface": "p1", "address": "198.19.0.2",
        "mac": "02:00:00:00:00:02", "state": "permanent"});
    assert!(neighbours["neighbours"].as_array().is_some_and(|all| all.contains(&of_right)));
    let route = stand.get("/v1/routes?prefix=198.19.0.77");
    assert_eq!(route["routes"][0]["prefix"], "198.19.0.0/24");
    assert_eq!(route["routes"][0]["ways"][0]["interface"], "p1");
    assert_eq!(stand.get("/v1/engine"), json!({"v4": "tree_bitmap", "v6": "tree_bitmap"}));
    assert_eq!(stand.get("/v1/classifier"), json!({"classifier": "vectors"}));
    let metrics = stand.address.ask(&Method::GET, "/metrics", None).expect("an answer");
    let metrics = String::from_utf8(metrics.body).expect("text");
    for line in [
        "nilometer_port_up{port=\"p1\"} 1",
        "# TYPE nilometer_packets_total counter",
        "nilometer_queue_sent_bytes_total{port=\"p1\",queue=",
        "nilometer_port_shortcut_packets_total{port=\"p1\"} 0",
        "nilometer_path_packets_total{path=\"shortcut\"} 0",
        "nilometer_balances 1",
        "# TYPE nilometer_routes gauge",
        "nilometer_routes{source=\"connected\",family=\"ipv4\"} 6",
        "nilometer_route_prefixes{family=\"ipv6\"} 2",
        "nilometer_route_updates_total{family=\"ipv4\",change=\"added\"} 6",
        "nilometer_route_updates_refused_total{reason=\"routes_max\"} 0",
        "nilometer_route_last_change_timestamp_seconds 1",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    let value = |line: &str| {
        let mut lines = metrics.lines();
        let found = lines.find_map(|it| it.strip_prefix(line)?.trim().parse::<f64>().ok());
        found.unwrap_or_else(|| panic!("{line}: {metrics}"))
    };
    let paths = &tally["paths"];
    assert!(paths["pipeline"].as_u64() >= Some(50) && paths["shortcut"] == 0, "{paths}");
    assert!(value("nilometer_path_packets_total{path=\"pipeline\"}") >= 50.0);
    assert!(value("nilometer_path_packets_total{path=\"slow_path\"}") > 0.0, "ARP at least");
    for table in ["routing_table_bytes", "forwarding_table_bytes"] {
        assert!(value(&format!("nilometer_{table}{{family=\"ipv4\"}}")) > 100.0, "{table}");
    }
    let ago = SystemTime::UNIX_EPOCH.elapsed().expect("after 1970").as_secs_f64()
        - value("nilometer_route_last_change_timestamp_seconds");
    assert!((0.0..site::PATIENCE.as_secs_f64()).contains(&ago), "{ago} s ago");
    flow.end();
    stand.end();
}

#[test]
fn rates_recomputed_from_broadcasts_are_those_in_force() {
    if !privileged("rates from broadcasts") {
        return;
    }
    let stand = Stand::new("control-rates", "").expect("a router");
    let flow = stand.site.flow().expect("a flow");
    stand.put("/v1/ports/1/rate", json!({"rate": "1 Mb/s"}));
    for _ in 0..50 {
        let answer = stand.running.remote.call(|driver| {
            let fabric = driver.router().fabric();
            let rates = (0..fabric.ports()).map(|input| {
                fabric.allocator(input).map(|all| all.rates().to_vec()).unwrap_or_default()
            });
            let rates: Vec<Vec<f64>> = rates.collect();
            (snapshot(driver), rates)
        });
        let (answer, rates) = answer.expect("it answers");
        let view = answer.view().expect("it can be read");
        for (input, rates) in view.inputs.iter().zip(rates) {
            assert_eq!(input.rates_bps, rates);
        }
        thread::sleep(Duration::from_millis(2));
    }
    // Events report ever later broadcasts, at most 20 a second.
    let (began, mut text) = (Instant::now(), String::new());
    let events = |text: &str| text.matches("event: fabric\ndata: ").count();
    let followed = stand.address.follow("/v1/events", |piece| {
        text += std::str::from_utf8(piece)?;
        anyhow::ensure!(began.elapsed() < site::PATIENCE, "no events");
        Ok(events(&text) < 10)
    });
    followed.expect("a stream");
    assert!(events(&text) as u128 <= began.elapsed().as_millis() / 50 + 1, "too fast");
    let reported = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let reported: Vec<Value> =
        reported.filter_map(|line| serde_json::from_str(line).ok()).collect();
    let numbers: Vec<_> =
        reported.iter().filter_map(|reported| reported["broadcasts"].as_u64()).collect();
    assert!(numbers.len() >= 9 && numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
    stand.put("/v1/ports/1/rate", json!({"rate": null}));
    flow.end();
    stand.end();
}

#[test]
fn everything_is_changed_under_traffic_and_nothing_is_lost() {
    if !privileged("changes under traffic") {
        return;
    }
    let stand = Stand::new("control-change", "").expect("a router");
    let flow = stand.site.flow().expect("a flow");
    let deny = json!({"action": "permit", "protocol": "udp", "destination": "198.19.0.0/24"});
    let (status, made) = stand.ask(&Method::POST, "/v1/filters", Some(deny));
    assert_eq!((status, &made["id"]), (201, &json!(0)), "{made}");
    let disciplines =
        ["tail_drop", "red", "blue", "drr", "tdrr", "codel", "fq_codel", "pie", "qsdrr"];
    for discipline in disciplines {
        let queue = json!({"discipline": discipline, "buffer_packets": 2048});
        stand.put("/v1/ports/1/queue", queue);
        flow.wait_for(20);
        assert_eq!(stand.get("/v1/ports/1")["discipline"], discipline);
    }
    for engine in ["lines", "wide_lines", "tree_bitmap", "lines"] {
        stand.put("/v1/engine", json!({"v4": engine}));
        flow.wait_for(20);
        assert_eq!(stand.get("/v1/engine")["v4"], engine);
    }
    for engine in ["lines", "wide_lines", "tree_bitmap", "lines"] {
        stand.put("/v1/engine", json!({"v6": engine}));
        flow.wait_for(20);
        assert_eq!(stand.get("/v1/engine"), json!({"v4": "lines", "v6": engine}));
    }
    let refused = stand.ask(&Method::PUT, "/v1/engine", Some(json!({"v6": "poptrie"})));
    assert_eq!(refused.0, 400, "{}", refused.1);
    for queueing in ["original", "off", "reserved", "dq_plus"] {
        stand.put("/v1/fabric", json!({"queueing": queueing}));
        flow.wait_for(20);
        assert_eq!(stand.get("/v1/fabric")["queueing"], queueing);
    }
    stand.put("/v1/fabric", json!({"period": "250 us", "speedup": 4.0}));
    for classifier in ["linear", "tuples", "linear"] {
        stand.put("/v1/classifier", json!({"classifier": classifier}));
        flow.wait_for(20);
    }
    for (rate, delay) in [("20 Mb/s", "5 ms"), ("900 Mb/s", "0 s")] {
        stand.put("/v1/ports/1/rate", json!({"rate": rate}));
        stand.put("/v1/ports/1/delay", json!({"delay": delay}));
        flow.wait_for(20);
    }
    let route = json!({"prefix": "198.19.0.0/25", "via": ["198.19.0.2"]});
    assert_eq!(stand.ask(&Method::POST, "/v1/routes", Some(route)).0, 201);
    flow.wait_for(20);
    let found = stand.get("/v1/routes?prefix=198.19.0.2");
    assert_eq!(found["routes"][0]["source"], "static", "{found}");
    let gone = stand.ask(&Method::DELETE, "/v1/routes?prefix=198.19.0.0/25", None);
    assert_eq!(gone.0, 200);
    flow.wait_for(20);
    let met = stand.get("/v1/filters");
    assert!(met["filters"][0]["packets"].as_u64() > Some(200), "{met}");
    assert_eq!(stand.ask(&Method::DELETE, "/v1/filters/0", None).0, 200);
    let (sent, came) = flow.end();
    assert_eq!(sent, came, "{}", stand.get("/v1/tally"));
    let messages = stand.get("/v1/messages");
    assert!(
        messages["messages"].as_array().is_some_and(|messages| messages.len() > 20),
        "{messages}"
    );
    stand.end();
}

#[test]
fn a_saved_file_makes_the_same_router() {
    if !privileged("saving") {
        return;
    }
    let stand = Stand::new("control-save", "[fabric]\nspare_ports = 1\n").expect("a router");
    stand.put("/v1/fabric", json!({"queueing": "reserved", "period": "300 us"}));
    stand.put(
        "/v1/ports/0/queue",
        json!({"discipline": "codel", "buffer_packets": 99,
        "target": "7 ms"}),
    );
    stand.put("/v1/ports/1/rate", json!({"rate": "123456789 b/s"}));
    stand.put("/v1/ports/1/delay", json!({"delay": "1.5 ms"}));
    stand.put("/v1/engine", json!({"v4": "lines"}));
    let post = |path: &str, body| assert_eq!(stand.ask(&Method::POST, path, Some(body)).0, 201);
    for port in ["23", "25", "80"] {
        let filter = json!({"action": "deny", "protocol": "tcp", "destination_ports": port});
        post("/v1/filters", filter);
    }
    assert_eq!(stand.ask(&Method::DELETE, "/v1/filters/1", None).0, 200);
    post("/v1/routes", json!({"prefix": "198.18.64.0/18", "via": ["198.18.0.2"]}));
    post("/v1/routes", json!({"prefix": "198.18.128.0/18", "fate": "blackhole"}));
    let saved = stand.address.ask(&Method::GET, "/v1/config", None).expect("an answer");
    let saved = String::from_utf8(saved.body).expect("text");
    let config: RouterConfig = toml::from_str(&saved).expect("a ROUTER.toml");
    config.check().expect("a sound one");
    assert_eq!((config.filters.len(), config.routes.len()), (2, 2), "{saved}");
    assert_eq!(config.ports[1].rate.map(|rate| rate.bits_per_second()), Some(123_456_789));
    assert_eq!(config.fabric.spare_ports, 1);
    let views = |stand: &Stand| {
        let mut ports = stand.get("/v1/ports");
        for port in ports["ports"].as_array_mut().expect("ports") {
            for key in ["in_packets", "in_bytes", "out_packets", "out_bytes", "discards"] {
                port[key] = Value::Null;
            }
        }
        // Neighbours learnt meanwhile are not saved.
        let mut neighbours = stand.get("/v1/neighbours")["neighbours"].clone();
        let all = neighbours.as_array_mut().expect("neighbours");
        all.retain(|neighbour| neighbour["state"] == "permanent");
        let paths = ["/v1/engine", "/v1/classifier", "/v1/routes"];
        let period = stand.get("/v1/fabric")["period_us"].clone();
        (ports, neighbours, period, paths.map(|path| stand.get(path)))
    };
    let before = views(&stand);
    let found = stand.get("/v1/routes?prefix=198.18.64.1");
    stand.end();
    let socket = config.control.socket.clone().expect("it had one");
    assert!(!socket.exists(), "it takes its socket away");
    let restored = Stand::with("control-save-2", config).expect("the same router");
    assert_eq!(views(&restored), before);
    assert_eq!(restored.get("/v1/routes?prefix=198.18.64.1"), found);
    restored.end();
}

#[test]
fn a_flood_of_requests_waits_and_packets_do_not() {
    if !privileged("a flood of requests") {
        return;
    }
    let stand = Stand::new("control-flood", "").expect("a router");
    let flow = stand.site.flow().expect("a flow");
    let (stop, answers) = (AtomicBool::new(false), AtomicU64::new(0));
    let began = Instant::now();
    thread::scope(|scope| {
        for number in 0..24 {
            let (stop, answers, address) = (&stop, &answers, &stand.address);
            scope.spawn(move || {
                let path = ["/v1/tally", "/v1/ports", "/v1/fabric", "/none"][number % 4];
                while !stop.load(Ordering::Relaxed) {
                    let reply = address.ask(&Method::GET, path, None).expect("an answer");
                    answers.fetch_add(u64::from(reply.status == 200), Ordering::Relaxed);
                }
            });
        }
        flow.wait_for(2_000);
        stop.store(true, Ordering::Relaxed);
    });
    let most = began.elapsed().as_micros() / BETWEEN_QUESTIONS.as_micros() + 1;
    let answers = answers.into_inner();
    assert!(answers > 10 && u128::from(answers) <= most, "{answers} of at most {most}");
    let (sent, came) = flow.end();
    assert_eq!(sent, came);
    stand.end();
}

//! Models that come from elsewhere: Harpoon's XML in and out, and laws stated by hand.

use crate::common;
use std::fs;
use std::path::PathBuf;

use common::Room;
use nilometer_stat::{Empirical, ks_models};
use serde_json::Value;

fn law(model: &Value, name: &str) -> Empirical {
    serde_json::from_value(model[name].clone()).expect("a law")
}

fn flows(model: &Value) -> u64 {
    let intervals = model["intervals"].as_array().expect("intervals").iter();
    intervals.map(|interval| interval["flows"].as_u64().expect("a count")).sum()
}

const CLIENT: &str = r#"<?xml version="1.0"?>
<harpoon_plugins>
  <!-- two clients, one of them of another kind -->
  <plugin name="C" objfile="tcp_plugin.so" maxthreads="8" personality="client">
    <interconnection_times> 0.5 1.5
      1.0 </interconnection_times>
    <active_sessions> 4 20 </active_sessions>
    <ip_tos> 8 </ip_tos>
    <address_pool name="client_source_pool">
      <address ipv4="10.0.0.0/29" port="0"/><address ipv4="10.0.0.1" port="0"/>
    </address_pool>
    <address_pool name="client_dest_pool"> <address ipv4="0.0.0.0" port="10000"/> </address_pool>
  </plugin>
  <plugin name="U" objfile="udpcbr_plugin.so" personality="client"><bitrate>1</bitrate></plugin>
</harpoon_plugins>"#;

const SERVER: &str = "\n<harpoon_plugins><plugin name='S' objfile='/usr/lib/tcp_plugin.so' \
    personality='server'><file_sizes>1000 3000</file_sizes><active_sessions>4</active_sessions>\
    </plugin></harpoon_plugins>";

#[test]
fn a_configuration_becomes_a_model() {
    let room = Room::new("harpoon");
    room.write("client.xml", CLIENT);
    room.write("server.xml", SERVER);
    let words = ["model", "client.xml", "server.xml", "-o", "m.json", "--interval", "30", "--json"];
    let output = room.run(&words);
    assert!(output.status.success());
    let stderr = common::text(&output.stderr);
    assert!(stderr.contains("udpcbr_plugin") && stderr.contains("<ip_tos>"), "{stderr}");
    let model: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(law(&model, "file_size").mean(), 2_000.0);
    assert!((law(&model, "inter_connection").mean() - 1.0).abs() < 1e-9);
    let sessions: Vec<f64> = model["intervals"]
        .as_array()
        .expect("two")
        .iter()
        .map(|interval| interval["sessions"].as_f64().expect("a number"))
        .collect();
    assert_eq!(sessions, [4.0, 8.0], "no more than maxthreads");
    // Six hosts of the prefix, one of them named once more.
    assert_eq!(model["sources"]["counts"], serde_json::json!([2, 1, 1, 1, 1, 1]));
    assert_eq!(model["destinations"]["counts"], serde_json::json!([1]));
    assert_eq!(model["intervals"][1]["duration_s"], 30.0);
    assert_eq!(model["origin"]["inputs"].as_array().map(Vec::len), Some(2));
    assert!(!model.to_string().contains("10.0.0."), "addresses are not kept");
    let shown = room.done(&["model", "show", "m.json"]);
    assert!(shown.contains("not measured"), "{shown}");
    room.done(&["generate", "plan", "m.json"]);
}

#[test]
fn invalid_configurations_are_refused_in_one_line() {
    let room = Room::new("no-harpoon");
    room.write("client.xml", CLIENT);
    room.write("server.xml", SERVER);
    let refused = |name: &str, text: &str, word: &str| {
        room.write(name, text);
        let line = room.refused(&["model", "client.xml", "server.xml", name, "-o", "m.json"]);
        assert!(line.contains(name) && line.contains(word), "{line}");
    };
    refused("cut.xml", "<harpoon_plugins><plugin>", "not XML");
    refused("other.xml", "<html></html>", "<html>");
    refused("entity.xml", "<!DOCTYPE a [<!ENTITY b 'c'>]><harpoon_plugins/>", "not XML");
    refused("word.xml", &SERVER.replace("3000", "three"), "'three'");
    refused("negative.xml", &SERVER.replace("3000", "\n-3"), "line 2");
    refused("threads.xml", &CLIENT.replace("\"8\"", "\"many\""), "maxthreads");
    refused("address.xml", &CLIENT.replace("10.0.0.1\"", "10.0.0.1.1\""), "10.0.0.1.1");
    refused("wide.xml", &CLIENT.replace("10.0.0.0/29", "10.0.0.0/8"), "more than");
    refused("binary.pcap", "not xml", "not XML");
    // Addresses that are listed again and again cost as much as others.
    let many = "<address ipv4=\"10.0.0.0/12\" port=\"1\"/>\n".repeat(500);
    let (before, after) = CLIENT.split_at(CLIENT.find("<address ").expect("a pool"));
    refused("repeated.xml", &format!("{before}{many}{after}"), "pools list more than");
    let line = room.refused(&["model", "client.xml", "-o", "m.json"]);
    assert!(line.contains("<file_sizes>") && line.contains("server"), "{line}");
    let line = room.refused(&["model", "server.xml", "-o", "m.json"]);
    assert!(line.contains("<interconnection_times>"), "{line}");
    assert!(!room.path("m.json").exists());
}

/// The tail index by Hill's estimator, from the largest `count` of values in any order.
fn hill(values: &mut [f64], count: usize) -> f64 {
    values.sort_unstable_by(|a, b| b.total_cmp(a));
    let logs: f64 = values[..count].iter().map(|value| (value / values[count]).ln()).sum();
    count as f64 / logs
}

fn listed(text: &str, element: &str) -> Vec<f64> {
    let after = text.split(&format!("<{element}>")).nth(1).expect("the element");
    let list = after.split("</").next().expect("its end");
    list.split_whitespace().map(|word| word.parse().expect("a number")).collect()
}

/// The values that INDEX.md gives for `ex2`: gaps of mean 0.498, sizes from 1,000, median 20,414, mean
/// 111,884, Hill's index 1.06 to 1.18; and the list itself, read by other means.
#[test]
fn harpoons_own_examples_are_loaded_and_run() {
    let Some(data) = std::env::var_os("NILOMETER_DATA").map(PathBuf::from) else {
        println!("skipped: Harpoon's examples (set NILOMETER_DATA)");
        return;
    };
    let folder = data.join("peers/harpoon");
    let path = |name: &str| folder.join(name).to_str().expect("UTF-8").to_owned();
    let room = Room::new("examples");
    for (client, server, connections) in [
        ("examples/tcp_client.xml.in", "examples/tcp_server.xml.in", 200..=400),
        ("src/plugins/tcp_client.xml", "src/plugins/tcp_server.xml", 200..=400),
        ("examples/tcp_client_ex2.xml.in", "examples/tcp_server_ex2.xml.in", 1_190..=1_220),
    ] {
        let words = ["model", &path(client), &path(server), "-o", "m.json", "--force", "--json"];
        let model = room.counted(&words);
        assert!(connections.contains(&flows(&model)), "{client}: {}", flows(&model));
        room.done(&["generate", "plan", "m.json"]);
    }
    let model = room.json("m.json");
    let (sizes, gaps) = (law(&model, "file_size"), law(&model, "inter_connection"));
    assert!((gaps.mean() - 0.498).abs() < 0.000_5, "{}", gaps.mean());
    assert!((sizes.mean() - 111_884.0).abs() < 0.5, "{}", sizes.mean());
    assert!((1_000.0..1_010.0).contains(&sizes.min()), "the mean of the least: {}", sizes.min());
    assert!((sizes.quantile(0.5) - 20_414.0).abs() < 150.0, "{}", sizes.quantile(0.5));
    let text = fs::read_to_string(path("examples/tcp_server_ex2.xml.in")).expect("text");
    let mut values = listed(&text, "file_sizes");
    assert_eq!((values.len(), sizes.samples()), (250_000, 250_000));
    let mut drawn: Vec<f64> =
        (0..250_000).map(|n| sizes.quantile((f64::from(n) + 0.5) / 250_000.0)).collect();
    for count in [2_500, 12_500, 25_000] {
        let (found, truth) = (hill(&mut drawn, count), hill(&mut values, count));
        println!("Hill's index of the largest {count}: {found:.4}, of the list {truth:.4}");
        assert!((found / truth - 1.0).abs() < 0.01, "{count}: {found} against {truth}");
        assert!((1.05..1.19).contains(&found), "{count}: {found}");
    }
    for name in ["udp_client", "udp_server", "inftcp_client", "inftcp_server", "dummy_plugin"] {
        let name = path(&format!("examples/{name}.xml.in"));
        let line = room.refused(&["model", &name, "-o", "n.json"]);
        assert!(line.contains("only TCP"), "{line}");
    }
}

#[test]
fn a_model_goes_to_harpoon_and_back() {
    let room = Room::new("round-trip");
    room.done(&["model", "embedded", "-o", "a.json"]);
    let stderr = room.done(&["model", "export", "a.json", "--harpoon", "out"]);
    assert!(stderr.contains("out_tcpclient.xml") && stderr.contains("-w 20"), "{stderr}");
    let line = room.refused(&["model", "export", "a.json", "--harpoon", "out"]);
    assert!(line.contains("exists already"), "{line}");
    room.done(&["model", "export", "a.json", "--harpoon", "out", "--force"]);
    let files = ["out_tcpclient.xml", "out_tcpserver.xml"];
    room.done(&["model", files[0], files[1], "-o", "b.json", "--interval", "20"]);
    let (a, b) = (room.json("a.json"), room.json("b.json"));
    for name in ["file_size", "inter_connection"] {
        let (one, other) = (law(&a, name), law(&b, name));
        let ks = ks_models(&one, &other);
        assert!(ks < 0.005, "{name}: KS {ks}");
        assert!((other.mean() / one.mean() - 1.0).abs() < 1e-3, "{name}");
    }
    let top = |model: &Value| {
        let counts = model["sources"]["counts"].as_array().expect("ranks").clone();
        let counts: Vec<f64> = counts.iter().map(|count| count.as_f64().expect("one")).collect();
        counts[0] / counts.iter().sum::<f64>()
    };
    // The name of a tool cannot end a comment.
    let renamed =
        room.read("a.json").replacen("\"tool\": \"", "\"tool\": \"x---> <evil/> <!-- ", 1);
    room.write("c.json", &renamed);
    room.done(&["model", "export", "c.json", "--harpoon", "evil"]);
    assert!(!room.read("evil_tcpclient.xml").contains("--> <evil"));
    room.done(&["model", "evil_tcpclient.xml", "evil_tcpserver.xml", "-o", "d.json"]);
    assert!((top(&b) / top(&a) - 1.0).abs() < 0.15, "{} {}", top(&b), top(&a));
    let sessions = |model: &Value, at: usize| model["intervals"][at]["sessions"].as_f64();
    for at in 0..3 {
        let (one, other) = (sessions(&a, at).expect("one"), sessions(&b, at).expect("one"));
        assert!((one - other).abs() <= 0.5, "{one} {other}");
    }
}

#[test]
fn laws_are_stated_by_name_or_as_a_table() {
    let room = Room::new("stated");
    room.write("sizes.csv", "bytes,share\n0,0\n4000,0.5\n20000,1\n");
    let stated = |size: &str, gap: &str| {
        room.counted(&[
            "model",
            "new",
            "-o",
            "m.json",
            "--force",
            "--json",
            "--sessions",
            "10,20",
            "--file-size",
            size,
            "--inter-connection",
            gap,
            "--interval",
            "30",
        ])
    };
    for (size, gap, size_mean, gap_mean) in [
        ("pareto:index=1.5,min=1000", "exponential:mean=0.5", 3_000.0, 0.5),
        ("lognormal:mu=8,sigma=1.5", "weibull:shape=0.5,scale=0.25", 9_181.92, 0.5),
        ("table:sizes.csv", "lognormal:mu=-1,sigma=0.5", 7_000.0, 0.416_86),
        ("exponential:mean=5000,max=100000", "pareto:index=2.5,min=0.3", 5_000.0, 0.5),
    ] {
        let model = stated(size, gap);
        assert_eq!(model, room.json("m.json"));
        assert!((law(&model, "file_size").mean() / size_mean - 1.0).abs() < 0.003, "{size}");
        let gaps = law(&model, "inter_connection").mean();
        assert!((gaps / gap_mean - 1.0).abs() < 0.003, "{gap}: {gaps}");
        let expected = 30.0 * 30.0 / gap_mean;
        assert!((flows(&model) as f64 / expected - 1.0).abs() < 0.05, "{gap}: {}", flows(&model));
        assert_eq!(model["sources"]["counts"].as_array().map(Vec::len), Some(254));
        room.done(&["generate", "plan", "m.json"]);
    }
    // A stated law is as certain as a large sample.
    let compared = room.counted(&["model", "compare", "m.json", "m.json", "--json"]);
    for distance in compared["distances"].as_array().expect("distances") {
        assert!(distance["floor"].as_f64().expect("a floor") < 0.05, "{distance}");
    }
    for (size, gap, word) in [
        (
            "pareto:index=1.5",
            "exponential:mean=1",
            "--file-size 'pareto:index=1.5': pareto needs min",
        ),
        ("pareto:index=0.9,min=3", "exponential:mean=1", "give a maximum"),
        ("lognormal:mu=0,sigma=200", "exponential:mean=1", "give a maximum"),
        ("weibull:shape=0.001,scale=1", "exponential:mean=1", "give a maximum"),
        ("exponential:mean=1e308", "exponential:mean=1", "--file-size"),
        (
            "pareto:index=0.5,min=1e300,max=1e307",
            "exponential:mean=1",
            "file_size mean is more than",
        ),
        ("exponential:mean=1", "exponential:mean=-1", "--inter-connection"),
        ("table:none.csv", "exponential:mean=1", "none.csv"),
    ] {
        let words = ["model", "new", "-o", "n.json", "--sessions", "1"];
        let words = [&words[..], &["--file-size", size, "--inter-connection", gap]].concat();
        let line = room.refused(&words);
        assert!(line.contains(word), "{line}");
    }
    assert!(!room.path("n.json").exists());
}

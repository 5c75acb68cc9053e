//! What a router's control processor answers, as text for people.

use std::fmt::Write;

use nilometer_routerd::tally::{PORT_LEVELS, PORT_LOSSES, PORT_TOTALS};
use serde_json::Value;

use crate::cli::table::{Side, continued};

/// The longest line of what is put in lines here.
const WIDTH: usize = 96;

/// A cell: texts without quotes, nothing as a dash.
pub fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Rows under headings.
pub fn table(headings: &[&str], rows: Vec<Vec<String>>) -> String {
    lines(Some(headings), rows, &mut Vec::new())
}

/// Rows, the first under headings: a piece of a table.
pub fn lines(headings: Option<&[&str]>, rows: Vec<Vec<String>>, widths: &mut Vec<usize>) -> String {
    let headings = headings.map(|all| all.iter().map(|&heading| heading.to_owned()).collect());
    let all: Vec<Vec<String>> = headings.into_iter().chain(rows).collect();
    continued(&[Side::Left], &all, widths)
}

fn rows(value: &Value, list: &str, keys: &[&str]) -> Vec<Vec<String>> {
    let all = value[list].as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter().map(|item| keys.iter().map(|key| cell(&item[key])).collect()).collect()
}

/// What was done.
pub fn done(value: &Value) -> String {
    format!("{}\n", cell(&value["done"]))
}

/// That a filter was entered.
pub fn made(value: &Value) -> String {
    format!("filter {} is entered\n", cell(&value["id"]))
}

/// An object of plain values.
pub fn plain(value: &Value) -> String {
    let pairs = value.as_object().into_iter().flatten();
    pairs.map(|(key, value)| format!("{key}: {}\n", cell(value))).collect()
}

/// The counters in short.
pub fn status(value: &Value) -> String {
    let count = |key: &str| cell(&value[key]);
    let mut text = format!(
        "{} s: {} packets in, {} originated; {} out, {} for the router, {} discarded, {} dropped by queues, \
         {} inside\n",
        count("seconds"),
        count("received"),
        count("made"),
        count("transmitted"),
        value["punted"].as_u64().unwrap_or(0) + value["absorbed"].as_u64().unwrap_or(0),
        count("discarded"),
        count("dropped"),
        count("inside")
    );
    if let Some(paths) = value["paths"].as_object() {
        let count = |key: &str| cell(&paths[key]);
        text += &format!(
            "{} through the pipeline, {} by the slow path, {} past both by shortcuts\n",
            count("pipeline"),
            count("slow_path"),
            count("shortcut")
        );
    }
    if value["balances"] != true {
        text += "the packet counters do not balance: please report this\n";
    }
    text + &ports(value)
}

/// Ports, a line each. The tally does not say what rate links are held to.
pub fn ports(value: &Value) -> String {
    let all = value["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
    let has_rates = all.iter().any(|port| port.get("rate_bps").is_some());
    let mut headings = vec!["NUMBER", "PORT", "STATE"];
    headings.extend(has_rates.then_some("RATE Mb/s"));
    headings.extend(PORT_TOTALS.map(|(_, heading, ..)| heading));
    headings.extend(["DROPPED packets", PORT_LEVELS[0].1, "DISCIPLINE"]);
    let row = |(number, port): (usize, &Value)| {
        let mut row = vec![number.to_string(), cell(&port["name"]), cell(&port["state"])];
        if has_rates {
            row.push(
                port["rate_bps"].as_f64().map_or("-".to_owned(), |rate| (rate / 1e6).to_string()),
            );
        }
        row.extend(PORT_TOTALS.map(|(key, ..)| cell(&port[key])));
        let dropped: u64 = reasons(port).map(|(_, _, count)| count).sum();
        let waiting = cell(&port[PORT_LEVELS[0].0]);
        row.extend([dropped.to_string(), waiting, cell(&port["discipline"])]);
        row
    };
    table(&headings, all.iter().enumerate().map(row).collect())
}

/// Ports, a line each, and below them what each is set to.
pub fn ports_and_settings(value: &Value) -> String {
    let mut text = ports(value);
    for port in value["ports"].as_array().into_iter().flatten() {
        let Value::Object(settings) = &port["settings"] else { continue };
        let addresses = port["addresses"].as_array().into_iter().flatten();
        let addresses: Vec<String> = addresses.map(cell).collect();
        let _ = writeln!(
            text,
            "\n{}: {}, MTU {} bytes, MAC {}",
            cell(&port["name"]),
            if addresses.is_empty() { "no address".to_owned() } else { addresses.join(", ") },
            cell(&port["mtu_bytes"]),
            cell(&port["mac"])
        );
        let is_plain = |(_, value): &(&String, &Value)| !value.is_object();
        let is_above = |key: &str| key == "interface" || key == "addresses";
        let plain = settings.iter().filter(is_plain).filter(|(key, _)| !is_above(key));
        text += &wrapped("  ", plain.map(|(key, value)| format!("{key} {}", cell(value))));
        for (key, table) in settings.iter().filter(|it| !is_plain(it)) {
            let entry = table.as_object().into_iter().flatten().filter(|(_, it)| !it.is_null());
            let words = entry.map(|(key, value)| format!("{key} {}", cell(value)));
            text += &wrapped(&format!("  {key}: "), words);
        }
    }
    let engine = |family: &str| cell(&value["engine"][family]);
    text + &format!("\nroutes are looked up in {} (IPv4), {} (IPv6)\n", engine("v4"), engine("v6"))
}

/// Words behind each other, with commas, in lines of some width; those that follow are set in.
fn wrapped(begin: &str, words: impl Iterator<Item = String>) -> String {
    let (mut text, mut line) = (String::new(), begin.to_owned());
    let mut words = words.peekable();
    while let Some(word) = words.next() {
        let comma = if words.peek().is_some() { "," } else { "" };
        if line.chars().count() + 1 + word.chars().count() > WIDTH && line.trim() != begin.trim() {
            let _ = writeln!(text, "{}", line.trim_end());
            line = "    ".to_owned();
        }
        let space = if line.ends_with(' ') { "" } else { " " };
        line += &format!("{space}{word}{comma}");
    }
    let _ = writeln!(text, "{line}");
    text
}

/// Ports, a line each, and a line for each reason for which packets went no further.
pub fn ports_and_reasons(value: &Value) -> String {
    let mut rows = Vec::new();
    for port in value["ports"].as_array().into_iter().flatten() {
        rows.extend(reasons(port).map(|(place, reason, count)| {
            vec![cell(&port["name"]), place.to_owned(), reason.to_owned(), count.to_string()]
        }));
    }
    let text = ports(value);
    match rows.is_empty() {
        true => text + "nothing was dropped\n",
        false => text + "\n" + &table(&["PORT", "DROPPED BY", "REASON", "PACKETS"], rows),
    }
}

/// What went no further at a port: where, why, and how many packets.
fn reasons(port: &Value) -> impl Iterator<Item = (&'static str, &str, u64)> {
    PORT_LOSSES.into_iter().flat_map(|(key, place, ..)| {
        let all = port[key].as_object().into_iter().flatten();
        all.map(move |(reason, count)| (place, reason.as_str(), count.as_u64().unwrap_or(0)))
    })
}

/// Queues, a line each; the backlog of all where there are none to tell apart.
pub fn queues(value: &Value) -> String {
    let head = format!(
        "{}: {} packets, {} bytes wait\n",
        cell(&value["discipline"]),
        cell(&value["waiting_packets"]),
        cell(&value["waiting_bytes"])
    );
    let keys = ["queue", "packets", "bytes", "weight", "active", "sent_bytes"];
    let headings = ["QUEUE", "WAITING packets", "WAITING bytes", "WEIGHT", "ACTIVE", "SENT bytes"];
    let mut rows = rows(value, "queues", &keys);
    if rows.is_empty() {
        let of_all = ["waiting_packets", "waiting_bytes", "weight", "active", "sent_bytes"];
        let all = of_all.iter().map(|key| cell(&value[*key]));
        rows.push(["all".to_owned()].into_iter().chain(all).collect());
    }
    let more = match value["next"].as_u64() {
        Some(next) => format!("queues from number {next} on are not shown\n"),
        None => String::new(),
    };
    head + &table(&headings, rows) + &more
}

/// Neighbours, a line each.
pub fn neighbours(value: &Value) -> String {
    let keys = ["interface", "address", "mac", "state"];
    table(&["PORT", "ADDRESS", "MAC", "STATE"], rows(value, "neighbours", &keys))
}

/// How many routes there are, and who told them.
pub fn routes_in_all(value: &Value) -> String {
    let mut text = format!(
        "{} IPv4 prefixes, {} IPv6 prefixes\n",
        cell(&value["prefixes_v4"]),
        cell(&value["prefixes_v6"])
    );
    for source in value["sources"].as_array().into_iter().flatten() {
        let (v4, v6) = (cell(&source["v4"]), cell(&source["v6"]));
        if (v4.as_str(), v6.as_str()) != ("0", "0") {
            let _ = writeln!(text, "{}: {v4} IPv4, {v6} IPv6", cell(&source["source"]));
        }
    }
    text
}

/// What was told about a prefix, a line for each way.
pub fn routes(value: &Value) -> String {
    let mut text = routes_in_all(value);
    for route in value["routes"].as_array().into_iter().flatten() {
        for way in route["ways"].as_array().into_iter().flatten() {
            let _ = writeln!(
                text,
                "{}{} by {} ({}), metric {}: {} {} {}",
                if route["best"] == true { "* " } else { "  " },
                cell(&route["prefix"]),
                cell(&route["source"]),
                cell(&route["protocol"]),
                cell(&route["metric"]),
                cell(&way["interface"]),
                cell(&way["gateway"]),
                cell(&way["fate"])
            );
        }
    }
    text
}

/// A stress test, a line for each figure, beside the simulator's.
pub fn stress(value: &Value) -> String {
    let (live, simulated) = (value, &value["simulated"]);
    let lines = [
        ("stages end at", "stages"),
        ("backlog of output 1 at T1, bytes", "output_backlog_bytes_at_t1"),
        ("backlog of input 1 for it, bytes", "input_backlog_bytes_at_t1"),
        ("rate to an idle output at T1, Mb/s", "idle_voq_mbps"),
        ("rate in the last stage, Mb/s", "last_stage_mbps"),
    ];
    let row = |&(what, key): &(&str, &str)| {
        vec![what.to_owned(), cell(&live[key]), cell(&simulated[key])]
    };
    let head = format!(
        "{}, {} after {} periods, {} packets, {} late broadcasts, {} packets without a buffer, {} skipped{}\n",
        cell(&value["queueing"]),
        if value["is_over"] == true { "over" } else { "goes on" },
        cell(&value["periods"]),
        cell(&value["sent_packets"]),
        cell(&value["late_broadcasts"]),
        cell(&value["starved_packets"]),
        cell(&value["missed_packets"]),
        if value["is_valid"] == true { "" } else { ": not valid" }
    );
    head + &table(&["", "ROUTER", "SIMULATOR"], lines.iter().map(row).collect())
}

/// Messages, a line each.
pub fn messages(value: &Value) -> String {
    let mut text = String::new();
    for entry in value["messages"].as_array().into_iter().flatten() {
        let time = entry["time"].as_f64().unwrap_or_default();
        let _ = writeln!(text, "{time:.3} {}: {}", cell(&entry["level"]), cell(&entry["text"]));
    }
    text
}

/// The fabric at one broadcast: backlog and rate of each queue that has any, ports by their names.
pub fn fabric(value: &Value) -> String {
    let mut text = format!(
        "broadcast {} at {} s: {}, period {} us, S·L {} b/s\n",
        cell(&value["broadcasts"]),
        cell(&value["seconds"]),
        cell(&value["queueing"]),
        cell(&value["period_us"]),
        cell(&value["capacity_bps"])
    );
    let mut rows = Vec::new();
    for input in value["inputs"].as_array().into_iter().flatten() {
        let at = |key: &str, output: usize| input[key][output].as_f64().unwrap_or_default();
        let outputs = input["backlog_bytes"].as_array().map_or(0, Vec::len);
        for output in (0..outputs).filter(|output| at("backlog_bytes", *output) > 0.0) {
            rows.push(vec![
                cell(&input["name"]),
                cell(&value["outputs"][output]["name"]),
                format!("{}", at("backlog_bytes", output)),
                format!("{:.4}", at("hi", output)),
                format!("{:.4}", at("lo", output)),
                format!("{:.3}", at("rates_bps", output) / 1e6),
            ]);
        }
    }
    if !rows.is_empty() {
        text += &table(&["INPUT", "OUTPUT", "BYTES", "hi", "lo", "Mb/s"], rows);
    }
    for output in value["outputs"].as_array().into_iter().flatten() {
        if output["backlog_bytes"].as_u64() > Some(0) {
            let bytes = cell(&output["backlog_bytes"]);
            let _ = writeln!(text, "output {}: {bytes} bytes waiting", cell(&output["name"]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn columns_stand_under_their_headings() {
        let port = json!({"name": "p0", "state": "up", "in_packets": 12_345, "in_bytes": 1,
            "out_packets": 1, "out_bytes": 1, "waiting_packets": 0, "discipline": "qsdrr"});
        let text = ports(&json!({"ports": [port]}));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0].find("IN "), lines[1].find("12345"), "{text}");
        assert_eq!(lines[0].find("DISCIPLINE"), lines[1].find("qsdrr"), "{text}");
    }

    #[test]
    fn drops_are_summed_and_listed_by_reason() {
        let port = json!({"name": "p0", "rate_bps": 2_500_000, "shortcut_packets": 5,
            "lost": {"ring_full": 1}, "discards": {"no_route": 20, "ttl": 3}, "input_drops": {},
            "output_drops": {"over_limit": 400}});
        let device = json!({"name": "p1", "rate_bps": null});
        let text = ports_and_reasons(&json!({"ports": [port, device]}));
        let words = |line: usize| text.lines().nth(line).map(|it| it.split_whitespace().collect());
        let dashes = ["-"; 4];
        let p0 = [&["0", "p0", "-", "2.5"], &dashes[..], &["5", "424", "-", "-"]].concat();
        let p1 = [&["1", "p1", "-", "-"], &dashes[..], &["-", "0", "-", "-"]].concat();
        assert_eq!((words(1), words(2)), (Some(p0), Some(p1)), "{text}");
        for line in ["the device      ring_full", "the discipline  over_limit  400"] {
            assert!(text.contains(line), "{text}");
        }
        let none = json!({"ports": [{"name": "p0"}]});
        assert!(ports_and_reasons(&none).ends_with("\nnothing was dropped\n"));
    }

    #[test]
    fn a_discipline_of_one_queue_shows_it() {
        let pie = json!({"discipline": "pie", "waiting_packets": 3, "waiting_bytes": 4_500,
            "sent_bytes": 90_000, "queues": [], "next": null});
        let text = queues(&pie);
        let last: Vec<_> =
            text.lines().last().into_iter().flat_map(str::split_whitespace).collect();
        assert_eq!(last, ["all", "3", "4500", "-", "-", "90000"], "{text}");
        let queue = json!({"queue": 7, "packets": 1, "bytes": 60, "weight": 1, "active": true,
            "sent_bytes": 0});
        let text = queues(&json!({"discipline": "drr", "queues": [queue], "next": 4_096}));
        assert!(!text.contains("all") && text.lines().any(|line| line.starts_with("7 ")), "{text}");
        assert!(text.ends_with("queues from number 4096 on are not shown\n"), "{text}");
    }

    #[test]
    fn pieces_of_a_table_keep_its_columns() {
        let mut widths = Vec::new();
        let row = |one: &str, two: &str| vec![vec![one.to_owned(), two.to_owned()]];
        let mut text = lines(Some(&["A", "B"]), row("long one", "x"), &mut widths);
        text += &lines(None, row("s", "y"), &mut widths);
        assert_eq!(text, "A         B\nlong one  x\ns         y\n");
    }

    #[test]
    fn only_queues_with_a_backlog_are_listed() {
        let input = json!({"port": 1, "name": "p1", "backlog_bytes": [0, 700], "hi": [0, 0.5],
            "lo": [0, 0.25], "rates_bps": [0, 1.5e6]});
        let output = |port: u8, waiting: u64| json!({"port": port, "name": format!("out{port}"), "backlog_bytes": waiting});
        let text = fabric(&json!({"inputs": [input], "outputs": [output(0, 0), output(1, 60)]}));
        assert!(text.contains("p1     out1    700    0.5000  0.2500  1.500"), "{text}");
        assert!(text.ends_with("\noutput out1: 60 bytes waiting\n"), "{text}");
        assert_eq!(text.lines().count(), 4, "{text}");
    }
}

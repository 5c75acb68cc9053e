//! What a router's control processor answers, as text for people.

use std::fmt::Write;

use serde_json::Value;

/// A cell: texts without quotes, nothing as a dash.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Rows under headings, in columns as wide as they need to be.
fn table(headings: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut all = vec![headings.iter().map(|&heading| heading.to_owned()).collect::<Vec<_>>()];
    all.extend(rows);
    let widest = |column: usize| all.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..headings.len()).filter_map(widest).collect();
    let mut text = String::new();
    for row in &all {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(line, "{cell:<width$}  ");
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

fn rows(value: &Value, list: &str, keys: &[&str]) -> Vec<Vec<String>> {
    let all = value[list].as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter().map(|item| keys.iter().map(|key| cell(&item[key])).collect()).collect()
}

/// What has nothing to tell.
pub fn done(_: &Value) -> String {
    String::new()
}

/// The number of what was made.
pub fn made(value: &Value) -> String {
    format!("{}\n", cell(&value["id"]))
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
        "{} s: {} packets in, {} made here; {} out, {} for the router, {} discarded, {} dropped by queues, \
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
    if value["balances"] != true {
        text += "the account does not balance: please report this\n";
    }
    text + &ports(value)
}

/// Ports, a line each.
pub fn ports(value: &Value) -> String {
    let keys = [
        "name",
        "state",
        "in_packets",
        "in_bytes",
        "out_packets",
        "out_bytes",
        "waiting_packets",
        "discipline",
    ];
    table(
        &["PORT", "STATE", "IN", "BYTES", "OUT", "BYTES", "WAITING", "DISCIPLINE"],
        rows(value, "ports", &keys),
    )
}

/// Queues, a line each.
pub fn queues(value: &Value) -> String {
    let head = format!(
        "{}: {} packets, {} bytes wait\n",
        cell(&value["discipline"]),
        cell(&value["waiting_packets"]),
        cell(&value["waiting_bytes"])
    );
    let keys = ["queue", "packets", "bytes", "weight", "active", "sent_bytes"];
    let headings = ["QUEUE", "PACKETS", "BYTES", "WEIGHT", "ACTIVE", "SENT"];
    head + &table(&headings, rows(value, "queues", &keys))
}

/// Filters, a line each.
pub fn filters(value: &Value) -> String {
    let all = value["filters"].as_array().map(Vec::as_slice).unwrap_or_default();
    let row = |item: &Value| {
        let says = item["filter"].as_object().into_iter().flatten();
        let says: Vec<_> = says.map(|(key, value)| format!("{key}={}", cell(value))).collect();
        vec![cell(&item["id"]), cell(&item["packets"]), cell(&item["bytes"]), says.join(" ")]
    };
    table(&["FILTER", "PACKETS", "BYTES", ""], all.iter().map(row).collect())
}

/// Neighbours, a line each.
pub fn neighbours(value: &Value) -> String {
    let keys = ["interface", "address", "mac", "state"];
    table(&["PORT", "ADDRESS", "MAC", "STATE"], rows(value, "neighbours", &keys))
}

/// Routes, a line for each way.
pub fn routes(value: &Value) -> String {
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
    for route in value["entered"].as_array().into_iter().flatten() {
        let _ = writeln!(text, "{route}");
    }
    text
}

/// A stress test, a line for each figure, beside the simulator's.
pub fn stress(value: &Value) -> String {
    let (live, simulated) = (value, &value["simulated"]);
    let lines = [
        ("stages end at", "stages"),
        ("output 1 holds at T1, bytes", "output_backlog_bytes_at_t1"),
        ("input 1 holds for it, bytes", "input_backlog_bytes_at_t1"),
        ("rate to an idle output at T1, Mb/s", "idle_voq_mbps"),
        ("rate in the last stage, Mb/s", "last_stage_mbps"),
    ];
    let row = |&(what, key): &(&str, &str)| {
        vec![what.to_owned(), cell(&live[key]), cell(&simulated[key])]
    };
    let head = format!(
        "{}, {} after {} periods, {} packets, {} late broadcasts, {} packets without a buffer{}\n",
        cell(&value["queueing"]),
        if value["is_over"] == true { "over" } else { "goes on" },
        cell(&value["periods"]),
        cell(&value["sent_packets"]),
        cell(&value["late_broadcasts"]),
        cell(&value["starved_packets"]),
        if value["is_valid"] == true { "" } else { ": not valid" }
    );
    head + &table(&["", "ROUTER", "SIMULATOR"], lines.iter().map(row).collect())
}

/// Messages, a line each.
pub fn messages(value: &Value) -> String {
    let mut text = String::new();
    for said in value["messages"].as_array().into_iter().flatten() {
        let time = said["time"].as_f64().unwrap_or_default();
        let _ = writeln!(text, "{time:.3} {}: {}", cell(&said["level"]), cell(&said["text"]));
    }
    text
}

/// The fabric at one broadcast: backlog and rate of each queue that has any.
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
                cell(&input["port"]),
                output.to_string(),
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
            let _ = writeln!(text, "output {}: {bytes} bytes wait", cell(&output["port"]));
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
    fn only_queues_with_something_in_them_are_told_of() {
        let input = json!({"port": 1, "backlog_bytes": [0, 700], "hi": [0, 0.5], "lo": [0, 0.25],
            "rates_bps": [0, 1.5e6]});
        let text = fabric(&json!({"inputs": [input], "outputs": []}));
        assert!(text.contains("1      1       700    0.5000  0.2500  1.500"), "{text}");
        assert_eq!(text.lines().count(), 3, "{text}");
    }
}

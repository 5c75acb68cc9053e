//! Routes and filters as lines of a table for people.

use serde_json::Value;

use super::shown::cell;

/// Above the columns of routes.
pub const ROUTE_HEADINGS: [&str; 5] = ["PREFIX", "NEXT HOP", "PORT", "SOURCE", "METRIC"];
/// Above the columns of filters.
pub const FILTER_HEADINGS: [&str; 6] =
    ["FILTER", "PRIORITY", "MATCHES", "ACTION", "MET packets", "MET bytes"];

/// A route: a line for each of its ways.
pub fn route_rows(route: &Value) -> Vec<Vec<String>> {
    let (source, protocol) = (cell(&route["source"]), cell(&route["protocol"]));
    let has_metric = matches!(source.as_str(), "fpm" | "kernel");
    let metric = if has_metric { cell(&route["metric"]) } else { "-".to_owned() };
    let source = if has_metric { format!("{source} ({protocol})") } else { source };
    let ways = route["ways"].as_array().map(Vec::as_slice).unwrap_or_default();
    let row = |way: &Value| {
        let to = [cell(&route["prefix"]), next_hop(way), cell(&way["interface"])];
        to.into_iter().chain([source.clone(), metric.clone()]).collect()
    };
    ways.iter().map(row).collect()
}

/// The gateway; `on link` where there is none; or what becomes of the packets in place of leaving.
fn next_hop(way: &Value) -> String {
    let place = match (&way["fate"], &way["gateway"]) {
        (Value::String(fate), _) => fate.clone(),
        (_, Value::String(gateway)) => gateway.clone(),
        _ => "on link".to_owned(),
    };
    match way["weight"].as_u64() {
        None | Some(1) => place,
        Some(weight) => format!("{place} weight {weight}"),
    }
}

/// A filter's line.
pub fn filter_rows(item: &Value) -> Vec<Vec<String>> {
    let filter = &item["filter"];
    let mut action = cell(&filter["action"]);
    let plugins: Vec<&str> =
        filter["plugins"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if !plugins.is_empty() {
        action += &format!(": {}", plugins.join(", "));
    }
    if filter["copy"] == true {
        action += ", copy";
    }
    let (packets, bytes) = (cell(&item["packets"]), cell(&item["bytes"]));
    vec![vec![
        cell(&item["id"]),
        cell(&filter["priority"]),
        matches(filter),
        action,
        packets,
        bytes,
    ]]
}

/// What a filter matches, as packet filters write it: `tcp on p0 from 198.18.0.0/16 to any port 80`. Of
/// TCP's flags those that are to be set are named, and those that are not after a `!`.
fn matches(filter: &Value) -> String {
    let side = |address: &str, ports: &str| {
        let mut text = filter[address].as_str().unwrap_or("any").to_owned();
        if let Some(ports) = filter[ports].as_str() {
            text += &format!(" port {ports}");
        }
        text
    };
    let protocol = match filter["protocol"].as_str() {
        None => "any".to_owned(),
        Some(number) if number.bytes().all(|byte| byte.is_ascii_digit()) => {
            format!("protocol {number}")
        }
        Some(name) => name.to_owned(),
    };
    let ports = |key: &str, word: &str| {
        let names = filter[key].as_array().into_iter().flatten().filter_map(Value::as_str);
        let names: Vec<&str> = names.collect();
        if names.is_empty() { String::new() } else { format!(" {word} {}", names.join(",")) }
    };
    let on = ports("inputs", "on") + &ports("outputs", "out of");
    let mut text = format!(
        "{protocol}{on} from {} to {}",
        side("source", "source_ports"),
        side("destination", "destination_ports")
    );
    if let Some(flags) = filter["flags"].as_str().filter(|flags| !flags.is_empty()) {
        let flag = |letter: char| match letter.is_ascii_uppercase() {
            true => letter.to_string(),
            false => format!("!{}", letter.to_ascii_uppercase()),
        };
        let flags: Vec<String> = flags.chars().map(flag).collect();
        text += &format!(" flags {}", flags.join(","));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_route_has_a_line_for_each_way() {
        let way = |gateway: &str, port: &str, weight: u16| json!({"interface": port, "gateway": gateway, "fate": null, "weight": weight});
        let route = json!({"prefix": "10.0.0.0/8", "source": "fpm", "protocol": "bgp", "metric": 20,
            "ways": [way("198.18.0.2", "p0", 1), way("198.19.0.2", "p1", 3)]});
        let rows: Vec<String> = route_rows(&route).iter().map(|row| row.join(" | ")).collect();
        assert_eq!(
            rows,
            [
                "10.0.0.0/8 | 198.18.0.2 | p0 | fpm (bgp) | 20",
                "10.0.0.0/8 | 198.19.0.2 weight 3 | p1 | fpm (bgp) | 20",
            ]
        );
        let fated = |gateway: Value, interface: Value, fate: Value| {
            let way =
                json!({"interface": interface, "gateway": gateway, "fate": fate, "weight": 1});
            let route = json!({"prefix": "::/0", "source": "static", "metric": 0, "ways": [way]});
            route_rows(&route)[0].join(" | ")
        };
        let none = Value::Null;
        assert_eq!(
            fated(none.clone(), none.clone(), json!("blackhole")),
            "::/0 | blackhole | - | static | -"
        );
        assert_eq!(fated(none.clone(), json!("p0"), none), "::/0 | on link | p0 | static | -");
    }

    #[test]
    fn a_filter_reads_as_filters_are_written() {
        let line = |filter: Value| {
            let item = json!({"id": 3, "packets": 7, "bytes": 700, "filter": filter});
            filter_rows(&item)[0].join(" | ")
        };
        let all = json!({"action": "permit", "priority": 0, "copy": true});
        assert_eq!(line(all), "3 | 0 | any from any to any | permit, copy | 7 | 700");
        let one = json!({"action": "deny", "inputs": ["p0", "p1"], "priority": 5, "copy": false,
            "protocol": "tcp", "source": "198.18.0.0/16", "destination_ports": "80-90",
            "flags": "Sa"});
        assert_eq!(
            line(one),
            "3 | 5 | tcp on p0,p1 from 198.18.0.0/16 to any port 80-90 flags S,!A | deny | 7 | 700"
        );
        let active = json!({"action": "active", "outputs": ["p1"], "priority": 0,
            "plugins": ["nat", "limit"]});
        let expected = "3 | 0 | any out of p1 from any to any | active: nat, limit | 7 | 700";
        assert_eq!(line(active), expected);
        let number = json!({"action": "deny", "priority": 0, "protocol": "47"});
        assert_eq!(line(number), "3 | 0 | protocol 47 from any to any | deny | 7 | 700");
    }
}

//! `nilometer route ctl reservations`, `reserve`, `refresh` and `release`: bandwidth of a running router.

use anyhow::{Result, bail};
use hyper::Method;
use serde_json::{Value, json};

use super::question::{Question, object};
use super::shown;

const PATH: &str = "/v1/reservations";

/// All reservations.
pub fn list() -> Question {
    Question::get(PATH, text)
}

/// A new one, whose packets meet these plugins, each written as its class and its configuration.
///
/// # Errors
/// When a word is no `KEY=VALUE`, or a plugin has no class.
pub fn reserve(keys: &[String], plugins: &[String]) -> Result<Question> {
    let texts = ["holder", "destination", "source", "protocol", "input", "via", "rate", "lifetime"];
    let mut body = object(keys, &texts)?;
    if !plugins.is_empty() {
        let plugins = plugins.iter().map(|text| plugin(text));
        body["plugins"] = plugins.collect::<Result<Vec<Value>>>()?.into();
    }
    let requested = Question::change(Method::POST, PATH, Some(body));
    Ok(Question { show: made, ..requested })
}

fn plugin(text: &str) -> Result<Value> {
    let (class, configuration) = split_plugin(text)?;
    Ok(json!({ "class": class, "configuration": configuration }))
}

/// The class and the configuration of a plugin.
///
/// # Errors
/// When there is no class.
pub fn split_plugin(text: &str) -> Result<(&str, &str)> {
    let text = text.trim();
    let (class, configuration) = text.split_once(' ').unwrap_or((text, ""));
    if class.is_empty() {
        bail!("--plugin: give a class, a space and its configuration");
    }
    Ok((class, configuration.trim()))
}

/// A change of one.
pub fn of(method: Method, id: u32) -> Question {
    let body = (method == Method::PUT).then(|| json!({}));
    Question::change(method, format!("{PATH}/{id}"), body)
}

fn made(value: &Value) -> String {
    format!("reservation {} is made\n", shown::cell(&value["id"]))
}

/// The reservations as a table, and below them what is booked at each port.
fn text(value: &Value) -> String {
    const HEADINGS: [&str; 11] =
        ["ID", "KIND", "FLOW", "IN", "OUT", "VIA", "RATE", "ENDS IN", "SENT", "DROPPED", "PLUGINS"];
    const PORTS: [&str; 4] = ["PORT", "RESERVABLE", "IN", "OUT"];
    let list = |key: &str| value[key].as_array().cloned().unwrap_or_default();
    let rows = list("reservations").into_iter().map(|one| {
        let cell = |key: &str| shown::cell(&one[key]);
        let kind = match one["holder"].as_str() {
            Some(holder) => format!("api: {holder}"),
            None => cell("kind"),
        };
        let flows = one["flows"].as_array().cloned().unwrap_or_default();
        let flow = flows.iter().map(flow).collect::<Vec<_>>().join(", ");
        let inputs = one["inputs"].as_array().cloned().unwrap_or_default();
        let inputs = inputs.iter().map(shown::cell).collect::<Vec<_>>().join(",");
        let pin = if one["is_pinned"] == true { " (pinned)" } else { "" };
        let ends = one["expires_in_s"].as_f64().map_or("-".into(), |s| format!("{s:.0} s"));
        let via = format!("{}{pin}", cell("next_hop"));
        let counts = [rate(&one["rate_bps"]), ends, cell("sent_bytes"), cell("dropped_packets")];
        let mut row = vec![cell("id"), kind, flow, inputs, cell("output"), via];
        row.extend(counts);
        row.push(named(&one["plugins"]));
        row
    });
    let ports = list("ports").into_iter().map(|one| {
        let booked = ["reservable_bps", "input_bps", "output_bps"].map(|key| rate(&one[key]));
        let mut row = vec![shown::cell(&one["port"])];
        row.extend(booked);
        row
    });
    let reservations = shown::table(&HEADINGS, rows.collect());
    format!("{reservations}\n{}", shown::table(&PORTS, ports.collect()))
}

/// The classes of plugins, and which of them are not bound yet.
fn named(plugins: &Value) -> String {
    let plugin = |plugin: &Value| {
        let awaited = if plugin["instance"].is_null() { " (awaited)" } else { "" };
        format!("{}{awaited}", shown::cell(&plugin["class"]))
    };
    let all: Vec<String> = plugins.as_array().into_iter().flatten().map(plugin).collect();
    if all.is_empty() { "-".to_owned() } else { all.join(", ") }
}

fn rate(value: &Value) -> String {
    let rate = value.as_u64().and_then(nilometer_wire::Rate::new);
    rate.map_or("0".to_owned(), |rate| rate.to_string())
}

fn flow(flow: &Value) -> String {
    let port = |key: &str| flow[key].as_u64().map_or(String::new(), |port| format!(" port {port}"));
    let source = flow["source"].as_str().unwrap_or("any");
    let protocol = shown::cell(&flow["protocol"]);
    let destination = shown::cell(&flow["destination"]);
    let (from, to) = (port("source_port"), port("destination_port"));
    format!("{protocol} {source}{from} > {destination}{to}")
}

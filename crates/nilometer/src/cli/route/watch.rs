//! `nilometer route ctl watch`: backlogs and rates as they are broadcast, each line when it changes.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::Value;

use super::shown::{cell, lines};
use crate::cli::Exit;
use nilometer_routerd::control::client::Address;

/// Above the columns. `PORT -> PORT` is a virtual output queue, `-> PORT` what waits at an output.
const HEADINGS: [&str; 7] = ["SECONDS", "FROM", "TO", "WAITING bytes", "hi", "lo", "RATE Mb/s"];
/// Widths at the beginning, so that columns stay where they are.
const WIDTHS: [usize; 7] = [9, 8, 8, 13, 7, 7, 10];

/// The input, if it is not at an output that packets wait, and the output.
type Queue = (Option<usize>, usize);

/// Prints broadcasts until interrupted or `count` have come.
///
/// # Errors
/// When nobody answers, or the router refuses.
pub fn watch(address: &Address, count: Option<u64>, is_json: bool) -> Result<Exit> {
    let stop = nilometer_lab::trial::signals::stop_flag()?;
    let (mut rest, mut seen, mut screen) = (Vec::new(), 0, Screen::default());
    address.follow("/v1/events", |piece| {
        rest.extend_from_slice(piece);
        while let Some(at) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=at).collect();
            let Some(event) = line.strip_prefix(b"data: ") else { continue };
            let event: Value =
                serde_json::from_slice(event).context("an event is not valid JSON")?;
            match is_json {
                true => println!("{event}"),
                false => print!("{}", screen.changes(&event)),
            }
            seen += 1;
            if count == Some(seen) {
                return Ok(false);
            }
        }
        Ok(!stop.load(std::sync::atomic::Ordering::Acquire))
    })?;
    Ok(Exit::Done)
}

/// What was printed last of each queue.
#[derive(Default)]
struct Screen {
    fabric: String,
    has_headings: bool,
    queues: BTreeMap<Queue, Vec<String>>,
    widths: Vec<usize>,
}

impl Screen {
    /// The lines of a broadcast that are other than they were. A queue of which nothing was printed is
    /// empty and has no rate.
    fn changes(&mut self, event: &Value) -> String {
        let fabric = format!(
            "fabric: {}, period {} us, S·L {} b/s\n",
            cell(&event["queueing"]),
            cell(&event["period_us"]),
            cell(&event["capacity_bps"])
        );
        let mut text = String::new();
        if self.fabric != fabric {
            text += &fabric;
            self.fabric = fabric;
        }
        let seconds = format!("{:.3}", event["seconds"].as_f64().unwrap_or_default());
        let mut rows = Vec::new();
        for (key, row) in queues(event) {
            let empty = || is_empty(&row);
            let is_same = self.queues.get(&key).map_or_else(empty, |before| *before == row);
            if !is_same {
                rows.push([&[seconds.clone()][..], &row].concat());
                self.queues.insert(key, row);
            }
        }
        if self.widths.is_empty() {
            self.widths = WIDTHS.to_vec();
        }
        let headings = (!self.has_headings).then_some(&HEADINGS[..]);
        self.has_headings = true;
        text + &lines(headings, rows, &mut self.widths)
    }
}

fn is_empty(row: &[String]) -> bool {
    row[2] == "0"
}

/// The rows of a broadcast, by input and output; those at outputs have no input.
fn queues(event: &Value) -> Vec<(Queue, Vec<String>)> {
    let list = |key: &str| event[key].as_array().map(Vec::as_slice).unwrap_or_default();
    let name = |output: usize| cell(&event["outputs"][output]["name"]);
    let mut rows = Vec::new();
    for (number, input) in list("inputs").iter().enumerate() {
        let at = |key: &str, output: usize| input[key][output].as_f64().unwrap_or_default();
        let outputs = input["backlog_bytes"].as_array().map_or(0, Vec::len);
        for output in 0..outputs {
            let waiting = at("backlog_bytes", output);
            let mut row = vec![cell(&input["name"]), name(output), waiting.to_string()];
            // Rates of a queue in which nothing waits are those of a promise to others.
            row.extend(match waiting > 0.0 {
                true => [
                    format!("{:.4}", at("hi", output)),
                    format!("{:.4}", at("lo", output)),
                    format!("{:.3}", at("rates_bps", output) / 1e6),
                ],
                false => ["-", "-", "-"].map(str::to_owned),
            });
            rows.push(((Some(number), output), row));
        }
    }
    for (number, output) in list("outputs").iter().enumerate() {
        let waiting = cell(&output["backlog_bytes"]);
        let dashes = ["-", "-", "-"].map(str::to_owned);
        let row = [&["-".to_owned(), name(number), waiting][..], &dashes].concat();
        rows.push(((None, number), row));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn event(seconds: f64, waiting: u64, at_output: u64) -> Value {
        let input = |name: &str, waiting: u64| {
            json!({"name": name, "backlog_bytes": [0, waiting], "hi": [0, 1], "lo": [0, 0],
                "rates_bps": [0, 2_500_000]})
        };
        let output = |name: &str, waiting: u64| json!({"name": name, "backlog_bytes": waiting});
        json!({"seconds": seconds, "queueing": "dq_plus", "period_us": 500.0, "capacity_bps": 1e9,
            "inputs": [input("p0", waiting), input("p1", 0)],
            "outputs": [output("p0", 0), output("p1", at_output)]})
    }

    #[test]
    fn a_line_is_printed_when_it_changes() {
        let mut screen = Screen::default();
        let mut words = |event: Value| {
            let text = screen.changes(&event);
            let words = |line: &str| line.split_whitespace().map(str::to_owned).collect();
            text.lines().map(words).collect::<Vec<Vec<String>>>()
        };
        let first = words(event(1.0, 0, 0));
        assert_eq!((first[0][0].as_str(), first[1][0].as_str()), ("fabric:", "SECONDS"));
        assert_eq!(first.len(), 2, "{first:?}");
        assert_eq!(words(event(1.1, 0, 0)).len(), 0);
        let p0 = ["1.200", "p0", "p1", "700", "1.0000", "0.0000", "2.500"];
        assert_eq!(words(event(1.2, 700, 0)), [p0.map(str::to_owned)]);
        assert_eq!(words(event(1.3, 700, 0)).len(), 0);
        let out = words(event(1.4, 700, 90));
        assert_eq!(out, [["1.400", "-", "p1", "90", "-", "-", "-"].map(str::to_owned)]);
        let both = words(event(1.5, 0, 0));
        assert_eq!(both[0], ["1.500", "p0", "p1", "0", "-", "-", "-"].map(str::to_owned));
        assert_eq!((both.len(), both[1][3].as_str()), (2, "0"));
        let other = Value::from("off");
        let mut changed = event(1.6, 0, 0);
        changed["queueing"] = other;
        assert_eq!(
            words(changed),
            [vec!["fabric:", "off,", "period", "500.0", "us,", "S·L", "1000000000.0", "b/s"]]
        );
    }
}

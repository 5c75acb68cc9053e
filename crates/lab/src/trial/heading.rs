//! The heading: a page's summary of the run, its machine and its files.

use std::path::Path;

use chrono::DateTime;
use nilometer_linux::scheduling::{Class, Granted, Role};
use nilometer_sim::fault::{Faults, Timetable};
use nilometer_traffic::model::LoadDriver;
use sha2::{Digest, Sha256};

use super::account::RunRecord;
use super::config::Clock;
use super::outcome::Outcome;
use super::planning::hex;
use super::round_trips::RoundTripsOutcome;
use super::router::{QUEUES_FILE, ROUTER_FILE};
use crate::device::fault::{FAULT_FILE, FaultSeen, PATH_FILE, REAR_PATH_FILE};
use crate::device::spec::described;
use crate::doctor;
use nilometer_files::document;
use nilometer_files::tool;
use nilometer_report::Story;
use nilometer_report::story::{Fact, FileNote, Header};

/// Completes a story with its heading.
pub fn head(story: Story, account: &RunRecord<'_>, outcome: &Outcome) -> Story {
    let machine = machine(account, outcome);
    Story {
        header: Header {
            input: match outcome.synthetic {
                _ if account.config.model.file.is_some() => {
                    format!("the model {}", outcome.input.join(", "))
                }
                true => "embedded sample".to_owned(),
                false => outcome.input.join(", "),
            },
            synthetic: outcome.synthetic,
            dut: outcome.dut.clone(),
            seed: outcome.seed,
            version: tool::version().to_owned(),
            commit: tool::commit().to_owned(),
            date: match account.config.clock {
                Clock::Real => date(account.made.origin_ns),
                Clock::Virtual => "virtual time".to_owned(),
            },
            machine: in_one_line(&machine),
            interrupted: outcome.interrupted,
            duration_s: account.made.played_ns(account.plan.end) as f64 / 1e9,
            time_divisor: outcome.time_divisor,
            command: account.command.to_owned(),
            model_digest: model_digest(account),
            plan_digest: outcome.digest.clone(),
            stamps: outcome.stamps.clone(),
        },
        not_measured: not_measured(account),
        configuration: configuration(account),
        machine,
        files: files(account),
        ..story
    }
}

fn date(origin_ns: u64) -> String {
    DateTime::from_timestamp((origin_ns / 1_000_000_000) as i64, 0)
        .map_or_else(String::new, |date| date.format("%Y-%m-%d %H:%M UTC").to_string())
}

/// SHA-256 of model.json as it was written.
fn model_digest(account: &RunRecord<'_>) -> String {
    let text = document::json_text(&account.estimate.model).expect("a checked model is JSON");
    hex(&Sha256::digest(text.as_bytes()))
}

fn machine(account: &RunRecord<'_>, outcome: &Outcome) -> Vec<Fact> {
    let mut facts: Vec<Fact> = doctor::machine::examine()
        .into_iter()
        .map(|finding| Fact { name: finding.name.to_owned(), value: finding.found })
        .collect();
    let (clients, servers) = &account.made.congestion;
    let (scheduling, used) = classes(account);
    let of_the_kernel = [
        ("scheduling of router and engines", scheduling.as_str()),
        ("processors while the device was tested", used.as_str()),
        ("idle processors", &account.made.scheduling.idle_processors),
        ("offloads on the hosts' interfaces", "checksum, TSO, GSO, GRO off"),
    ];
    let of_the_simulation = [("cables", "100 Gb/s, 0.5 µs")];
    let of_the_clock = match account.config.clock {
        Clock::Real => &of_the_kernel[..],
        Clock::Virtual => &of_the_simulation[..],
    };
    facts.extend(hosts(account, outcome));
    let of_both = [
        ("congestion control of clients", clients.as_str()),
        ("congestion control of servers", servers.as_str()),
        ("MTU", "1500 bytes"),
    ];
    for &(name, value) in of_the_clock.iter().chain(&of_both) {
        facts.push(Fact { name: name.to_owned(), value: value.to_owned() });
    }
    facts.extend(account.round_trips.iter().flat_map(round_trips));
    let paths = account.made.path.iter().filter(|_| account.round_trips.is_none());
    facts.extend(paths.flat_map(|seen| faults("path", seen)));
    facts.extend(account.made.fault.iter().flat_map(|seen| faults("fault box", seen)));
    facts
}

/// Whose TCP the hosts had, how many connections were open, and how late simulated hosts were.
fn hosts(account: &RunRecord<'_>, outcome: &Outcome) -> Vec<Fact> {
    let fact = |name: &str, value: String| Fact { name: name.to_owned(), value };
    let whose = match &account.made.simulated {
        Some(_) => "simulated, with our own TCP",
        None => "the kernel's",
    };
    let mut facts = vec![
        fact("hosts", whose.to_owned()),
        fact("connections open at once, at most", outcome.open_max.to_string()),
    ];
    let Some(hosts) = &outcome.simulated else { return facts };
    let (late, lateness) =
        (outcome.late_events.unwrap_or(0), outcome.lateness_ns.unwrap_or_default());
    if account.config.clock == Clock::Real {
        let [p50, p99, p99_9, max] =
            [lateness.p50, lateness.p99, lateness.p99_9, lateness.max].map(|ns| ns as f64 / 1e3);
        let sentence = format!(
            "p50 {p50:.0} µs, p99 {p99:.0} µs, p99.9 {p99_9:.0} µs, at most {max:.0} µs; {late} of {} more than {} ms",
            lateness.count,
            hosts.late_bound_ns / 1_000_000
        );
        facts.push(fact("lateness of the hosts' events", sentence));
    }
    let received = hosts.client.received + hosts.server.received;
    facts.push(fact("frames that hosts received", received.to_string()));
    if let Some(replay) = &hosts.replay {
        let sentence = format!(
            "{} frames after {} inputs, {} differences ({} inputs not kept)",
            replay.frames, replay.inputs, replay.differences, replay.left_out
        );
        facts.push(fact("hosts repeated in virtual time", sentence));
    }
    facts
}

/// The paths that result from the original's round trips.
fn round_trips(of: &RoundTripsOutcome) -> [Fact; 2] {
    let sides = [
        ("to the clients", of.client_paths, of.client_p50_ns),
        ("to the servers", of.server_paths, of.server_p50_ns),
    ];
    sides.map(|(name, paths, p50_ns)| Fact {
        name: format!("round trips {name}"),
        value: match paths {
            0 => "below 0.1 ms, or no handshake was seen".to_owned(),
            _ => format!("{paths} of {} pairs, median {:.1} ms", of.pairs, p50_ns as f64 / 1e6),
        },
    })
}

/// A box's faults for packets of no particular pair, by direction, and how many pairs have paths of their own.
fn faults(who: &str, seen: &FaultSeen) -> Vec<Fact> {
    let ways = ["to the servers", "to the clients"];
    let usual = seen.paths.usual();
    let of = |(name, (faults, timetable)): (&str, &(Faults, Timetable))| Fact {
        name: format!("{who}, {name}"),
        value: described(faults, timetable),
    };
    let mut facts: Vec<Fact> = ways.into_iter().zip(&usual).map(of).collect();
    if !seen.paths.pair.is_empty() {
        let value = seen.paths.pair.len().to_string();
        facts.push(Fact { name: format!("{who}, pairs with faults of their own"), value });
    }
    facts
}

/// In which scheduling classes the timed threads were, and what took the processors from them.
fn classes(account: &RunRecord<'_>) -> (String, String) {
    let scheduling = &account.made.scheduling;
    let of_role = |of: &Granted| {
        let class = match (of.class, of.granted) {
            (Class::RealTime, true) => "real-time",
            (Class::RealTime, false) => "real-time refused",
            (Class::Ordinary, _) => "ordinary",
        };
        let role = match of.role {
            Role::Router => "router",
            Role::FaultBox => "fault box",
            Role::Path => "path",
            Role::Client => "clients",
            Role::Server => "servers",
            Role::Sender => "senders",
            Role::Receiver => "receiver",
        };
        format!("{role} {class}, waited {:.3} s for a processor", of.run_queue_s)
    };
    let classes: Vec<String> = scheduling.threads.iter().map(of_role).collect();
    let used = format!(
        "{:.1} % stolen by a hypervisor, {:.0} % used by others",
        scheduling.stolen_percent(),
        scheduling.others_percent()
    );
    (classes.join("; "), used)
}

fn in_one_line(facts: &[Fact]) -> String {
    let wanted = ["kernel", "cores", "memory"];
    let values = facts.iter().filter(|fact| wanted.contains(&fact.name.as_str()));
    values.map(|fact| fact.value.clone()).collect::<Vec<_>>().join(" · ")
}

fn not_measured(account: &RunRecord<'_>) -> Vec<String> {
    let makes = match account.estimate.model.generation.driver {
        LoadDriver::Connections => "as make its connections",
        LoadDriver::Sessions => "the model counts, whatever connections these make",
    };
    let mut list = vec![
        match account.config.path {
            _ if account.round_trips.is_some() => {
                "Queues and losses of the original's network: its round trips are played as they were at their least."
            }
            None => "Round-trip times of the original: the hosts are microseconds apart.",
            Some(_) => {
                "Round-trip times of the original: the path adds its own to pauses that have the original's in them."
            }
        }
        .to_owned(),
        "UDP and other protocols of the original: the model is of TCP.".to_owned(),
        format!(
            "Active sessions against a sampling floor: the model counts as many as carry its bytes, the plan has as \
             many {makes}, and with few or heavy-tailed files bytes and connections are far apart."
        ),
        match account.config.clock {
            Clock::Real => {
                "Delay inside the network driver: stamps are the kernel's, not the driver's."
            }
            Clock::Virtual => "What processors and kernels take: in virtual time both take none.",
        }
        .to_owned(),
    ];
    if account.wire.is_none() {
        list.push("Delay over the bare wire: the calibration was left out.".to_owned());
    }
    list
}

/// The lab's configuration, and the router's as it was given.
fn configuration(account: &RunRecord<'_>) -> String {
    let mut text = toml::to_string(account.config).expect("a configuration is TOML");
    if let Some(router) = account.router {
        text.push_str(&format!("\n# {}\n\n{}", router.path.display(), router.text));
    }
    text
}

fn files(account: &RunRecord<'_>) -> Vec<FileNote> {
    let note = |name: &str, meaning: &str| FileNote {
        name: Path::new(name).display().to_string(),
        meaning: meaning.to_owned(),
    };
    let mut notes = vec![
        note("result.json", "every number of this page, under names fixed for scripts"),
        note("model.json", "the traffic model as it was performed"),
        note("lab.toml", "the exact configuration"),
        note("flows.parquet", "flow records of the generated traffic, from the client's side"),
        note("packets.parquet", "each packet's stamps on both sides of the device, and its fate"),
        note("execution.ndjson", "what was asked of each connection and what was done"),
        note("live.ndjson", "where the run was at each second"),
        note("report.json", "what this page is drawn from"),
    ];
    if account.made.fault.is_some() {
        notes.push(note(FAULT_FILE, "what the fault box decided about each packet, and when"));
    }
    if account.made.path.is_some() {
        notes.push(note(PATH_FILE, "what the path decided about each packet, and when"));
    }
    if account.made.rear_path.is_some() {
        let what = "what the path behind the device decided about each packet, and when";
        notes.push(note(REAR_PATH_FILE, what));
    }
    if account.router.is_some() {
        notes.push(note(ROUTER_FILE, "the router's configuration, as it was given"));
    }
    if account.made.router.is_some() {
        notes.push(note(QUEUES_FILE, "what waited at each port of the router, over time"));
    }
    if account.config.meter.pcap {
        notes.push(note("client.pcapng", "all packets at the client's interface"));
        notes.push(note("server.pcapng", "all packets at the server's interface"));
    }
    notes
}

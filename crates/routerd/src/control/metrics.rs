//! The counters as Prometheus reads them: its text format, version 0.0.4.
//!
//! The counters are kept where packets pass, and a metrics library would want to keep them again; what
//! is left of one is this page of text, so it is written here. Series are bounded: ports, sources of routes
//! and reasons by their number, queues and filters by `QUEUES_TOLD` a port and `FILTERS_TOLD`; no prefix has
//! one.

use std::collections::BTreeMap;
use std::fmt::Write;

use nilometer_router::rib::RibCounters;

use super::answer::Refused;
use super::command_channel::CommandChannel;
use super::crowd::{Crowds, Ended};
use super::view::{FilterView, QueueView, SourceView};
use crate::driver::Driver;
use crate::rib_thread::RibStatus;
use crate::tally::{PortTally, Tally, tally};

/// Queues of each port that have series, the first in use.
const QUEUES_TOLD: usize = 64;
/// Queues that are looked at for them.
const QUEUES_LOOKED_AT: u32 = 1_024;
/// Filters that have series, by number.
const FILTERS_TOLD: usize = 1_000;
/// The label of each family of routes.
const FAMILIES: [&str; 2] = ["ipv4", "ipv6"];

/// A page of text for Prometheus.
struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP nilometer_{name} {help}\n# TYPE nilometer_{name} {kind}");
    }

    fn line(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        let _ = write!(self.0, "nilometer_{name}");
        for (at, (label, value)) in labels.iter().enumerate() {
            let sign = if at == 0 { '{' } else { ',' };
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.0, "{sign}{label}=\"{value}\"");
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{end} {value}");
    }
}

/// Everything that has been counted.
///
/// # Errors
/// When the router has stopped.
pub fn metrics(commands: &CommandChannel) -> Result<String, Refused> {
    let (tally, queues) = commands.ask(|driver| {
        let ports = 0..driver.router().ports().len();
        let queues = ports.map(|port| queues(driver, port)).collect::<Vec<_>>();
        (tally(driver), queues)
    })?;
    let mut filters = commands.filters(0)?.filters;
    filters.truncate(FILTERS_TOLD);
    let (status, sources) = (commands.routes.rib_thread().status(), commands.sources());
    let mut page = Page(String::new());
    whole(&mut page, &tally);
    ports(&mut page, &tally.ports);
    waiting(&mut page, &tally.ports, &queues);
    met(&mut page, &filters);
    routes(&mut page, &status, &sources);
    changes(&mut page, &status);
    connections(&mut page, &commands.crowds);
    Ok(page.0)
}

fn queues(driver: &Driver, port: usize) -> Vec<QueueView> {
    let discipline = driver.router().fabric().discipline(port);
    let states =
        (0..QUEUES_LOOKED_AT).map_while(|queue| Some((queue, discipline.queue_state(queue)?)));
    let used = states.filter(|(_, state)| state.packets > 0 || state.sent_bytes > 0);
    let view = |(queue, state): (u32, nilometer_queue::QueueState)| QueueView {
        queue,
        packets: state.packets,
        bytes: state.bytes,
        weight: state.weight,
        active: state.is_active,
        sent_bytes: state.sent_bytes,
        throughput_bps: state.throughput_bps,
    };
    used.take(QUEUES_TOLD).map(view).collect()
}

fn whole(page: &mut Page, tally: &Tally) {
    page.family("packets_total", "counter", "Packets of the router by how they came and went.");
    let ways = [
        ("received", tally.received),
        ("injected", tally.injected),
        ("made", tally.made),
        ("transmitted", tally.transmitted),
        ("punted", tally.punted),
        ("absorbed", tally.absorbed),
        ("discarded", tally.discarded),
        ("dropped", tally.dropped),
    ];
    for (way, count) in ways {
        page.line("packets_total", &[("way", way)], count);
    }
    page.family("path_packets_total", "counter", "Packets by the way that they took.");
    let paths = tally.paths;
    let ways = [
        ("shortcut", paths.shortcut),
        ("pipeline", paths.pipeline),
        ("slow_path", paths.slow_path),
    ];
    for (path, count) in ways {
        page.line("path_packets_total", &[("path", path)], count);
    }
    page.family("inside_packets", "gauge", "Packets that are in the router.");
    page.line("inside_packets", &[], tally.inside);
    page.family("balances", "gauge", "Whether no packet vanished.");
    page.line("balances", &[], u8::from(tally.balances));
    page.family("broadcasts_total", "counter", "Broadcasts of distributed queueing.");
    page.line("broadcasts_total", &[], tally.broadcasts);
    page.family("uptime_seconds", "gauge", "Seconds since the router began.");
    page.line("uptime_seconds", &[], tally.seconds);
}

fn ports(page: &mut Page, ports: &[PortTally]) {
    type Count = fn(&PortTally) -> u64;
    let counts: [(&str, &str, &str, Count); 8] = [
        ("port_in_packets_total", "counter", "Frames that came.", |port| port.in_packets),
        ("port_in_bytes_total", "counter", "Their bytes.", |port| port.in_bytes),
        ("port_out_packets_total", "counter", "Frames that left.", |port| port.out_packets),
        ("port_out_bytes_total", "counter", "Their bytes.", |port| port.out_bytes),
        ("port_shortcut_packets_total", "counter", "Those of them past the pipeline.", |port| {
            port.shortcut_packets
        }),
        ("port_waiting_packets", "gauge", "Packets at the output.", |port| port.waiting_packets),
        ("port_waiting_bytes", "gauge", "Their bytes.", |port| port.waiting_bytes),
        ("port_up", "gauge", "Whether it carries traffic.", |port| u64::from(port.state == "up")),
    ];
    for (name, kind, help, count) in counts {
        page.family(name, kind, help);
        for port in ports {
            page.line(name, &[("port", &port.name)], count(port));
        }
    }
    type Reasons = fn(&PortTally) -> &BTreeMap<String, u64>;
    let reasons: [(&str, &str, Reasons); 4] = [
        ("port_lost_total", "Frames that the device lost.", |port| &port.lost),
        ("port_discards_total", "Packets that came and were discarded.", |port| &port.discards),
        ("port_input_drops_total", "Packets dropped by input queues.", |port| &port.input_drops),
        ("port_output_drops_total", "Packets dropped by disciplines.", |port| &port.output_drops),
    ];
    for (name, help, reasons) in reasons {
        page.family(name, "counter", help);
        for port in ports {
            for (reason, count) in reasons(port) {
                page.line(name, &[("port", &port.name), ("reason", reason)], count);
            }
        }
    }
}

fn waiting(page: &mut Page, ports: &[PortTally], queues: &[Vec<QueueView>]) {
    type Count = fn(&QueueView) -> u64;
    let counts: [(&str, &str, &str, Count); 3] = [
        ("queue_packets", "gauge", "Packets in a queue of a discipline.", |queue| queue.packets),
        ("queue_bytes", "gauge", "Their bytes.", |queue| queue.bytes),
        ("queue_sent_bytes_total", "counter", "Bytes that left it.", |queue| queue.sent_bytes),
    ];
    for (name, kind, help, count) in counts {
        page.family(name, kind, help);
        for (port, queues) in ports.iter().zip(queues) {
            for queue in queues {
                let number = queue.queue.to_string();
                page.line(name, &[("port", &port.name), ("queue", &number)], count(queue));
            }
        }
    }
}

fn met(page: &mut Page, filters: &[FilterView]) {
    page.family("filter_packets_total", "counter", "Packets that a filter decided.");
    for filter in filters {
        let id = filter.id.to_string();
        page.line("filter_packets_total", &[("filter", &id)], filter.packets);
    }
    page.family("filter_bytes_total", "counter", "Their bytes, from the IP header on.");
    for filter in filters {
        let id = filter.id.to_string();
        page.line("filter_bytes_total", &[("filter", &id)], filter.bytes);
    }
}

/// How many routes there are, and what they take.
fn routes(page: &mut Page, status: &RibStatus, sources: &[SourceView]) {
    page.family(
        "routes",
        "gauge",
        "Routes that a source has told, whether packets go by them or not.",
    );
    for source in sources {
        for (family, count) in FAMILIES.into_iter().zip([source.v4, source.v6]) {
            page.line("routes", &[("source", &source.source), ("family", family)], count);
        }
    }
    page.family("route_source_connected", "gauge", "Whether a source that connects is there.");
    for source in sources {
        if let Some(connected) = source.connected {
            let labels = [("source", source.source.as_str())];
            page.line("route_source_connected", &labels, u8::from(connected));
        }
    }
    let sizes = [
        ("route_prefixes", "Prefixes that have a route.", [status.prefixes_v4, status.prefixes_v6]),
        (
            "routing_table_bytes",
            "Bytes of the table of all that sources have told.",
            [status.rib_v4_bytes, status.rib_v6_bytes],
        ),
        (
            "forwarding_table_bytes",
            "Bytes of the table by which packets are forwarded.",
            [status.fib_v4_bytes, status.fib_v6_bytes],
        ),
    ];
    for (name, help, values) in sizes {
        page.family(name, "gauge", help);
        for (family, value) in FAMILIES.into_iter().zip(values) {
            page.line(name, &[("family", family)], value);
        }
    }
    page.family("next_hops", "gauge", "Next hops that routes lead to.");
    page.line("next_hops", &[], status.next_hops);
}

/// What became of the updates that sources told.
fn changes(page: &mut Page, status: &RibStatus) {
    let families = || FAMILIES.into_iter().zip([&status.routes_v4, &status.routes_v6]);
    page.family("route_updates_total", "counter", "Updates of routes by what they did.");
    for (family, counted) in families() {
        let kinds = [
            ("added", counted.added),
            ("changed", counted.changed),
            ("repeated", counted.repeated),
            ("withdrawn", counted.withdrawn),
            ("swept", counted.swept),
            ("unknown", counted.unknown),
        ];
        for (change, count) in kinds {
            page.line("route_updates_total", &[("family", family), ("change", change)], count);
        }
    }
    let name = "forwarding_table_updates_total";
    page.family(name, "counter", "Changes of the table by which packets are forwarded.");
    for (family, counted) in families() {
        page.line(name, &[("family", family)], counted.fib_updates);
    }
    let of_both = |count: fn(&RibCounters) -> u64| families().map(|(_, it)| count(it)).sum::<u64>();
    let refused = [
        ("routes_max", of_both(|it| it.refused_by_limit)),
        ("forwarding_table_full", of_both(|it| it.refused - it.refused_by_limit)),
        ("next_hops_full", status.table.next_hops_refused),
    ];
    let name = "route_updates_refused_total";
    page.family(
        name,
        "counter",
        "Updates of routes for which there was no room, by what was full.",
    );
    for (reason, count) in refused {
        page.line(name, &[("reason", reason)], count);
    }
    let name = "route_last_change_timestamp_seconds";
    let help =
        "When a route was added, changed or taken out last, since 1970; 0 where none ever was.";
    page.family(name, "gauge", help);
    page.line(name, &[], status.changed_at.as_secs_f64());
}

/// Connections to the control processor, and how they ended: of each door all that came are open or
/// ended.
fn connections(page: &mut Page, crowds: &Crowds) {
    let doors = [("unix", crowds.unix.counts()), ("tcp", crowds.tcp.counts())];
    page.family("control_connections_total", "counter", "Connections to the control processor.");
    for (door, counts) in &doors {
        page.line("control_connections_total", &[("door", door)], counts.came);
    }
    page.family("control_connections_open", "gauge", "Those of them that are open.");
    for (door, counts) in &doors {
        page.line("control_connections_open", &[("door", door)], counts.open);
    }
    let name = "control_connections_ended_total";
    page.family(name, "counter", "The others, by how they ended.");
    for (door, counts) in &doors {
        for (how, count) in Ended::ALL.iter().zip(counts.ended) {
            page.line(name, &[("door", door), ("reason", how.name())], count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_told_by_source_and_family_and_refusals_by_reason() {
        let mut page = Page(String::new());
        let mut status = RibStatus { rib_v6_bytes: 77, ..RibStatus::default() };
        (status.routes_v4.refused, status.routes_v4.refused_by_limit) = (7, 4);
        (status.routes_v6.refused, status.routes_v6.refused_by_limit) = (2, 1);
        (status.routes_v6.swept, status.table.next_hops_refused) = (9, 6);
        status.changed_at = std::time::Duration::from_millis(1_700_000_000_250);
        let source = |name: &str, connected| SourceView {
            source: name.to_owned(),
            v4: 5,
            v6: 3,
            replaying: false,
            connected,
        };
        routes(&mut page, &status, &[source("static", None), source("fpm", Some(false))]);
        changes(&mut page, &status);
        for line in [
            "nilometer_routes{source=\"fpm\",family=\"ipv4\"} 5",
            "nilometer_routes{source=\"static\",family=\"ipv6\"} 3",
            "nilometer_route_source_connected{source=\"fpm\"} 0",
            "nilometer_routing_table_bytes{family=\"ipv6\"} 77",
            "nilometer_route_updates_total{family=\"ipv6\",change=\"swept\"} 9",
            "nilometer_route_updates_refused_total{reason=\"routes_max\"} 5",
            "nilometer_route_updates_refused_total{reason=\"forwarding_table_full\"} 4",
            "nilometer_route_updates_refused_total{reason=\"next_hops_full\"} 6",
            "nilometer_route_last_change_timestamp_seconds 1700000000.25",
        ] {
            assert!(page.0.lines().any(|it| it == line), "{line}: {}", page.0);
        }
        assert!(!page.0.contains("connected{source=\"static\"}"), "{}", page.0);
    }

    #[test]
    fn labels_are_quoted_and_families_told_once() {
        let mut page = Page(String::new());
        let reason = BTreeMap::from([("ttl".to_owned(), 3)]);
        let port = PortTally { name: "p\"0".into(), discards: reason, ..PortTally::default() };
        ports(&mut page, &[port.clone(), PortTally { name: "p1".into(), ..port }]);
        let lines: Vec<&str> = page.0.lines().collect();
        let line = r#"nilometer_port_discards_total{port="p\"0",reason="ttl"} 3"#;
        assert!(lines.contains(&line), "{}", page.0);
        let told = lines.iter().filter(|line| line.starts_with("# TYPE nilometer_port_in_bytes"));
        assert_eq!(told.count(), 1);
    }
}

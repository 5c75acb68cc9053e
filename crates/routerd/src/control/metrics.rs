//! The counters as Prometheus reads them: its text format, version 0.0.4.
//!
//! The counters are kept where packets pass, and a metrics library would keep them a second time; all
//! that remains of one is this page of text, so it is written here. Series are bounded: ports, sources
//! of routes and reasons by their number, queues and filters by `QUEUES_LISTED` a port and
//! `FILTERS_TOLD`; no prefix has one.

use std::fmt::{Display, Write};

use nilometer_router::rib::RibCounters;

use super::answer::Refused;
use super::command_channel::CommandChannel;
use super::connection_table::{ConnectionTables, Ended};
use super::look::used_queues;
use super::plugins::PluginView;
use super::view::{FilterView, QueueView, SourceView};
use crate::rib_thread::RibStatus;
use crate::tally::{PORT_LEVELS, PORT_LOSSES, PORT_TOTALS, PortTally, ROUTER_TOTALS, Tally, tally};

/// Queues of each port that have series, the first in use.
const QUEUES_LISTED: usize = 64;
/// Queues that the metrics cover at most.
const QUEUES_LOOKED_AT: u32 = 1_024;
/// Filters that have series, by number.
const FILTERS_TOLD: usize = 1_000;

/// A page of text for Prometheus.
struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP nilometer_{name} {help}\n# TYPE nilometer_{name} {kind}");
    }

    fn line(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let _ = write!(self.0, "nilometer_{name}");
        for (at, (label, value)) in labels.iter().enumerate() {
            let sign = if at == 0 { '{' } else { ',' };
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.0, "{sign}{label}=\"{value}\"");
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{end} {value}");
    }

    /// A counter, with a line for each of its labels.
    fn counter<'a, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        lines: impl IntoIterator<Item = ([(&'a str, &'a str); N], u64)>,
    ) {
        self.family(name, "counter", help);
        lines.into_iter().for_each(|(labels, value)| self.line(name, &labels, value));
    }

    /// Writes a gauge: a value that goes up and down.
    fn gauge<'a, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        lines: impl IntoIterator<Item = ([(&'a str, &'a str); N], impl Display)>,
    ) {
        self.family(name, "gauge", help);
        lines.into_iter().for_each(|(labels, value)| self.line(name, &labels, value));
    }
}

/// Everything that has been counted.
///
/// # Errors
/// When the router has stopped.
pub fn metrics(commands: &CommandChannel) -> Result<String, Refused> {
    let (tally, queues) = commands.ask(|driver| {
        let ports = 0..driver.router().ports().len();
        let used = |port| used_queues(driver, port, 0..QUEUES_LOOKED_AT);
        let listed = |port| used(port).take(QUEUES_LISTED).collect();
        let queues = ports.map(listed).collect::<Vec<Vec<_>>>();
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
    plugins(&mut page, &commands.plugins()?.plugins);
    routes(&mut page, &status, &sources);
    changes(&mut page, &status);
    connections(&mut page, &commands.connection_tables);
    Ok(page.0)
}

fn whole(page: &mut Page, tally: &Tally) {
    let help = "Packets of the router, by event.";
    page.counter("packets_total", help, ROUTER_TOTALS.map(|(way, of)| ([("way", way)], of(tally))));
    let paths = tally.paths;
    let ways = [
        ("shortcut", paths.shortcut),
        ("pipeline", paths.pipeline),
        ("slow_path", paths.slow_path),
    ];
    let help = "Packets by forwarding path.";
    page.counter("path_packets_total", help, ways.map(|(path, count)| ([("path", path)], count)));
    page.gauge("inside_packets", "Packets currently in the router.", [([], tally.inside)]);
    page.gauge(
        "balances",
        "Whether the packet counters balance.",
        [([], u8::from(tally.balances))],
    );
    let help = "Broadcasts of distributed queueing.";
    page.counter("broadcasts_total", help, [([], tally.broadcasts)]);
    page.gauge("uptime_seconds", "Seconds since the router started.", [([], tally.seconds)]);
}

fn ports(page: &mut Page, ports: &[PortTally]) {
    let counts = |of: fn(&PortTally) -> u64| {
        ports.iter().map(move |port| ([("port", port.name.as_str())], of(port)))
    };
    for (key, _, help, _, of) in PORT_TOTALS {
        page.counter(&format!("port_{key}_total"), help, counts(of));
    }
    for (key, _, help, _, of) in PORT_LEVELS {
        page.gauge(&format!("port_{key}"), help, counts(of));
    }
    let up = counts(|port| u64::from(port.state == "up"));
    page.gauge("port_up", "Whether the port is up.", up);
    for (key, _, help, _, of) in PORT_LOSSES {
        let counts = ports.iter().flat_map(|port| {
            let labels = |reason| [("port", port.name.as_str()), ("reason", reason)];
            of(port).iter().map(move |(reason, count)| (labels(reason.as_str()), *count))
        });
        page.counter(&format!("port_{key}_total"), help, counts);
    }
}

fn waiting(page: &mut Page, ports: &[PortTally], queues: &[Vec<QueueView>]) {
    type Count = fn(&QueueView) -> u64;
    let counts: [(&str, &str, &str, Count); 3] = [
        ("queue_packets", "gauge", "Packets waiting in a queue.", |queue| queue.packets),
        ("queue_bytes", "gauge", "Bytes waiting in a queue.", |queue| queue.bytes),
        ("queue_sent_bytes_total", "counter", "Bytes sent from a queue.", |queue| queue.sent_bytes),
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
    let ids: Vec<String> = filters.iter().map(|filter| filter.id.to_string()).collect();
    let all = || ids.iter().map(|id| [("filter", id.as_str())]).zip(filters);
    let packets = all().map(|(id, filter)| (id, filter.packets));
    page.counter("filter_packets_total", "Packets that matched a filter.", packets);
    let bytes = all().map(|(id, filter)| (id, filter.bytes));
    page.counter(
        "filter_bytes_total",
        "Bytes that matched a filter, from the IP header on.",
        bytes,
    );
}

fn plugins(page: &mut Page, plugins: &[PluginView]) {
    type Count = fn(&PluginView) -> u64;
    let counts: [(&str, &str, Count); 8] = [
        ("packets", "Packets that a plugin instance processed.", |it| it.packets),
        ("bytes", "Their bytes, from the IP header on.", |it| it.bytes),
        ("dropped", "Packets that it dropped.", |it| it.dropped),
        ("emitted", "Packets that it emitted.", |it| it.emitted),
        ("not_emitted", "Packets that it could not emit.", |it| it.not_emitted),
        ("fault_dropped", "Packets dropped since it was disabled.", |it| it.fault_dropped),
        ("bypassed", "Packets that bypassed it since it was disabled.", |it| it.bypassed),
        ("faults", "Calls that failed.", |it| it.faults),
    ];
    for (name, help, count) in counts {
        let lines = plugins
            .iter()
            .map(|it| ([("plugin", it.name.as_str()), ("class", it.class.as_str())], count(it)));
        page.counter(&format!("plugin_{name}_total"), help, lines);
    }
    let up =
        plugins.iter().map(|it| ([("plugin", it.name.as_str())], u8::from(it.fault.is_none())));
    page.gauge("plugin_up", "Whether the instance is enabled.", up);
    let memory = plugins.iter().map(|it| ([("plugin", it.name.as_str())], it.memory_bytes));
    page.gauge("plugin_memory_bytes", "Memory of the instance in bytes.", memory);
    let own = plugins.iter().flat_map(|it| {
        let labels = |counter| [("plugin", it.name.as_str()), ("counter", counter)];
        it.counters.iter().map(move |(counter, count)| (labels(counter.as_str()), *count))
    });
    page.counter("plugin_own_total", "Counters defined by plugins.", own);
}

/// How many routes there are, and what they take.
fn routes(page: &mut Page, status: &RibStatus, sources: &[SourceView]) {
    let listed = sources.iter().flat_map(|it| {
        let labels = |family| [("source", it.source.as_str()), ("family", family)];
        by_family([it.v4, it.v6]).map(move |([(_, family)], count)| (labels(family), count))
    });
    let help = "Routes by source, whether best or not.";
    page.gauge("routes", help, listed);
    let connected = sources
        .iter()
        .filter_map(|it| Some(([("source", it.source.as_str())], u8::from(it.connected?))));
    page.gauge("route_source_connected", "Whether a source of routes is connected.", connected);
    let prefixes = by_family([status.prefixes_v4, status.prefixes_v6]);
    page.gauge("route_prefixes", "Prefixes that have a route.", prefixes);
    let help = "Bytes of the table of routes from all sources.";
    let bytes = [status.rib_v4_bytes, status.rib_v6_bytes];
    page.gauge("routing_table_bytes", help, by_family(bytes));
    let help = "Bytes of the forwarding table.";
    let bytes = [status.fib_v4_bytes, status.fib_v6_bytes];
    page.gauge("forwarding_table_bytes", help, by_family(bytes));
    page.gauge("next_hops", "Next hops in use by routes.", [([], status.next_hops)]);
}

/// Values of IPv4 and of IPv6, with their labels.
fn by_family<V>([v4, v6]: [V; 2]) -> [([(&'static str, &'static str); 1], V); 2] {
    [([("family", "ipv4")], v4), ([("family", "ipv6")], v6)]
}

/// What became of the updates from sources.
fn changes(page: &mut Page, status: &RibStatus) {
    let both = [&status.routes_v4, &status.routes_v6];
    let updates = by_family(both).into_iter().flat_map(|([family], it)| {
        let kinds = [
            ("added", it.added),
            ("changed", it.changed),
            ("repeated", it.repeated),
            ("withdrawn", it.withdrawn),
            ("swept", it.swept),
            ("unknown", it.unknown),
        ];
        kinds.map(|(change, count)| ([family, ("change", change)], count))
    });
    page.counter("route_updates_total", "Route updates, by result.", updates);
    let help = "Changes of the forwarding table.";
    let updates = by_family(both.map(|it| it.fib_updates));
    page.counter("forwarding_table_updates_total", help, updates);
    let of_both = |count: fn(&RibCounters) -> u64| both.map(count).iter().sum::<u64>();
    let refused = [
        ("routes_max", of_both(|it| it.refused_by_limit)),
        ("forwarding_table_full", of_both(|it| it.refused - it.refused_by_limit)),
        ("next_hops_full", status.table.next_hops_refused),
    ];
    let help = "Route updates without room, by the table that was full.";
    let refused = refused.map(|(reason, count)| ([("reason", reason)], count));
    page.counter("route_updates_refused_total", help, refused);
    let help =
        "When a route was added, changed or taken out last, since 1970; 0 where none ever was.";
    let changed = status.changed_at.as_secs_f64();
    page.gauge("route_last_change_timestamp_seconds", help, [([], changed)]);
}

/// Connections to the control processor, and how they ended: of each door all that came are open or
/// ended.
fn connections(page: &mut Page, connection_tables: &ConnectionTables) {
    let doors =
        [("unix", connection_tables.unix.counts()), ("tcp", connection_tables.tcp.counts())];
    let came = doors.map(|(door, counts)| ([("door", door)], counts.came));
    let help = "Connections to the control processor.";
    page.counter("control_connections_total", help, came);
    let open = doors.map(|(door, counts)| ([("door", door)], counts.open));
    page.gauge("control_connections_open", "Open connections to the control processor.", open);
    let ended = doors.into_iter().flat_map(|(door, counts)| {
        let labels = move |how: Ended| [("door", door), ("reason", how.name())];
        Ended::ALL.into_iter().zip(counts.ended).map(move |(how, count)| (labels(how), count))
    });
    page.counter(
        "control_connections_ended_total",
        "Closed connections to the control processor, by reason.",
        ended,
    );
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn routes_are_counted_by_source_and_family_and_refusals_by_reason() {
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
    fn labels_are_quoted_and_metric_families_declared_once() {
        let mut page = Page(String::new());
        let reason = BTreeMap::from([("ttl".to_owned(), 3)]);
        let port = PortTally { name: "p\"0".into(), discards: reason, ..PortTally::default() };
        ports(&mut page, &[port.clone(), PortTally { name: "p1".into(), ..port }]);
        let lines: Vec<&str> = page.0.lines().collect();
        let line = r#"nilometer_port_discards_total{port="p\"0",reason="ttl"} 3"#;
        assert!(lines.contains(&line), "{}", page.0);
        let listed = lines.iter().filter(|line| line.starts_with("# TYPE nilometer_port_in_bytes"));
        assert_eq!(listed.count(), 1);
    }
}

//! The objects: IF-MIB (RFC 2863), the counters of IP-MIB (RFC 4293), and our own, which
//! `docs/NILOMETER-MIB.txt` describes.
//!
//! A port of number n has ifIndex n + 1. Counters begin with the router and end with it, so that a
//! manager sees a discontinuity when it is started again (by the session's sysUpTime).
//!
//! Our own objects are under Net-SNMP's place for local use: Nilometer has no enterprise number.

use std::iter;

use anyhow::{Result, anyhow};

use super::Tree;
use super::agentx::Value;
use crate::control::answer::Refused;
use crate::control::command_channel::CommandChannel;
use crate::control::plugins::PluginView;
use crate::control::view::{FilterView, PortView};
use crate::tally::{Object, Tally, objects};

/// ifNumber, ifTable, ifXTable, the scalars of ip, and ours. The daemon has the host's, and a request goes
/// to the longest registration that it lies within, so these are as long as the daemon's own.
pub(super) const SUBTREES: [&[u32]; 9] = [
    INTERFACES,
    &[1, 3, 6, 1, 2, 1, 2, 2],
    &[1, 3, 6, 1, 2, 1, 31, 1, 1],
    IP,
    &[1, 3, 6, 1, 2, 1, 4, 1],
    &[1, 3, 6, 1, 2, 1, 4, 1, 0],
    &[1, 3, 6, 1, 2, 1, 4, 2],
    &[1, 3, 6, 1, 2, 1, 4, 2, 0],
    OURS,
];

const INTERFACES: &[u32] = &[1, 3, 6, 1, 2, 1, 2];
const IF_ENTRY: &[u32] = &[1, 3, 6, 1, 2, 1, 2, 2, 1];
const IF_X_ENTRY: &[u32] = &[1, 3, 6, 1, 2, 1, 31, 1, 1, 1];
const IP: &[u32] = &[1, 3, 6, 1, 2, 1, 4];
/// netSnmpPlaypen, and a number that no other MIB there is likely to have.
const OURS: &[u32] = &[1, 3, 6, 1, 4, 1, 8072, 9999, 9999, 7_711];
const QUEUE_ENTRY: &[u32] = &[1, 3, 6, 1, 4, 1, 8072, 9999, 9999, 7_711, 1, 1, 1];
const FILTER_ENTRY: &[u32] = &[1, 3, 6, 1, 4, 1, 8072, 9999, 9999, 7_711, 1, 2, 1];
const FABRIC: &[u32] = &[1, 3, 6, 1, 4, 1, 8072, 9999, 9999, 7_711, 1, 3];
const PLUGIN_ENTRY: &[u32] = &[1, 3, 6, 1, 4, 1, 8072, 9999, 9999, 7_711, 1, 4, 1];
const PLUGIN_OWN_ENTRY: &[u32] = &[1, 3, 6, 1, 4, 1, 8072, 9999, 9999, 7_711, 1, 5, 1];
/// The longest DisplayString (RFC 2579), bytes.
const DISPLAY_BYTES_MAX: usize = 255;
/// `ethernetCsmacd` of IANAifType.
const ETHERNET: i32 = 6;
/// Discards because of the IP header or its addresses.
const HEADER_ERRORS: [&str; 7] = [
    "short",
    "version",
    "header_length",
    "header_checksum",
    "total_length",
    "extensions",
    "options",
];
const ADDRESS_ERRORS: [&str; 4] =
    ["martian_source", "martian_destination", "reverse_path", "other_station"];

/// All objects as they are now.
pub(super) fn tree(commands: &CommandChannel) -> Result<Tree> {
    let as_error = |why: Refused| anyhow!(why.error);
    let (tally, ports) =
        (commands.tally().map_err(as_error)?, commands.ports().map_err(as_error)?.ports);
    let mut tree = Tree::new();
    put(&mut tree, INTERFACES, 0, [(1, Value::Integer(ports.len() as i32))]);
    for port in &ports {
        interface(&mut tree, port);
        counters(&mut tree, port);
    }
    internet(&mut tree, &tally);
    let mut from = Some(0);
    while let Some(first) = from {
        let view = commands.filters(first).map_err(as_error)?;
        view.filters.iter().for_each(|filter| one_filter(&mut tree, filter));
        from = view.next;
    }
    fabric(&mut tree, &tally, commands)?;
    let plugins = commands.plugins().map_err(as_error)?.plugins;
    plugins.iter().for_each(|view| plugin(&mut tree, view));
    Ok(tree)
}

/// Enters the columns of one row; a scalar is a row of number 0.
fn put(tree: &mut Tree, entry: &[u32], row: u32, columns: impl IntoIterator<Item = (u32, Value)>) {
    put_indexed(tree, entry, &[row], columns);
}

/// Puts an object of a row with a longer index.
fn put_indexed(
    tree: &mut Tree,
    entry: &[u32],
    row: &[u32],
    columns: impl IntoIterator<Item = (u32, Value)>,
) {
    let named =
        columns.into_iter().map(|(column, value)| ([entry, &[column], row].concat(), value));
    tree.extend(named);
}

fn sum<'a>(counts: impl IntoIterator<Item = &'a u64>) -> u64 {
    counts.into_iter().sum()
}

fn interface(tree: &mut Tree, port: &PortView) {
    let index = port.number as u32 + 1;
    let counters = &port.counters;
    // A link without a configured rate reports 0, like a device without a speed.
    let rate = port.rate_bps.unwrap_or(0);
    let status = match counters.state.as_str() {
        "up" => 1,
        "down" => 2,
        _ => 6,
    };
    let mac: Vec<u8> =
        port.mac.split(':').filter_map(|octet| u8::from_str_radix(octet, 16).ok()).collect();
    let name = || Value::Octets(counters.name.clone().into_bytes());
    let columns = [
        (1, Value::Integer(index as i32)),
        (2, name()),
        (3, Value::Integer(ETHERNET)),
        (4, Value::Integer(i32::from(port.mtu_bytes))),
        (5, Value::Gauge(rate)),
        (6, Value::Octets(mac)),
        (7, Value::Integer(1)),
        (8, Value::Integer(status)),
        (9, Value::Ticks(0)),
        (20, Value::Counter(0)),
    ];
    put(tree, IF_ENTRY, index, columns);
    put(tree, IF_X_ENTRY, index, [(1, name()), (15, Value::Gauge(rate / 1_000_000))]);
    let discipline = Value::Octets(counters.discipline.clone().into_bytes());
    put(tree, QUEUE_ENTRY, index, [(2, discipline)]);
}

/// Enters the counters of a port from the rows of the tally.
fn counters(tree: &mut Tree, port: &PortView) {
    for (object, count) in objects(&port.counters) {
        let (entry, column, value) = match object {
            Object::If(column) => (IF_ENTRY, column, Value::Counter(count)),
            Object::IfX(column) => (IF_X_ENTRY, column, Value::Counter64(count)),
            Object::QueueLevel(column) => (QUEUE_ENTRY, column, Value::Gauge(count)),
            Object::QueueCount(column) => (QUEUE_ENTRY, column, Value::Counter64(count)),
        };
        put(tree, entry, port.number as u32 + 1, [(column, value)]);
    }
}

fn internet(tree: &mut Tree, tally: &Tally) {
    let discards = |names: &[&str]| {
        let is_one = |reason: &String| names.contains(&reason.as_str());
        let discards = tally.ports.iter().flat_map(|port| &port.discards);
        discards.filter(|(reason, _)| is_one(reason)).map(|(_, count)| count).sum::<u64>()
    };
    let all: u64 = tally.ports.iter().map(|port| sum(port.discards.values())).sum();
    let (header, address) = (discards(&HEADER_ERRORS), discards(&ADDRESS_ERRORS));
    let (unspoken, no_route) = (discards(&["not_spoken"]), discards(&["no_route"]));
    let rest = all.saturating_sub(header + address + unspoken + no_route);
    let delivered = tally.punted + tally.absorbed;
    let columns = [
        (1, Value::Integer(1)),
        (2, Value::Integer(64)),
        (3, Value::Counter(tally.received)),
        (4, Value::Counter(header)),
        (5, Value::Counter(address)),
        (6, Value::Counter(tally.transmitted.saturating_sub(tally.made + tally.injected))),
        (7, Value::Counter(unspoken)),
        (8, Value::Counter(rest)),
        (9, Value::Counter(delivered)),
        (10, Value::Counter(tally.made + tally.injected)),
        (11, Value::Counter(tally.dropped)),
        (12, Value::Counter(no_route)),
    ];
    put(tree, IP, 0, columns);
}

fn one_filter(tree: &mut Tree, view: &FilterView) {
    let index = view.id + 1;
    let columns = [
        (2, Value::Octets(view.filter.action.name().into())),
        (3, Value::Counter64(view.packets)),
        (4, Value::Counter64(view.bytes)),
    ];
    put(tree, FILTER_ENTRY, index, columns);
}

/// An instance: its row has its name, behind its length, as the index (RFC 2578, 7.7).
fn plugin(tree: &mut Tree, view: &PluginView) {
    let length = view.name.len() as u32;
    let row: Vec<u32> = iter::once(length).chain(view.name.bytes().map(u32::from)).collect();
    let text = |text: &str| {
        let shown = text.bytes().map(|byte| if byte.is_ascii() { byte } else { b'?' });
        Value::Octets(shown.take(DISPLAY_BYTES_MAX).collect())
    };
    let columns = [
        (2, text(&view.class)),
        (3, text(&view.version)),
        (4, text(&view.engine)),
        (5, text(view.fault.as_deref().unwrap_or_default())),
        (6, Value::Counter64(view.packets)),
        (7, Value::Counter64(view.bytes)),
        (8, Value::Counter64(view.dropped)),
        (9, Value::Counter64(view.emitted)),
        (10, Value::Counter64(view.not_emitted)),
        (11, Value::Counter64(view.fault_dropped)),
        (12, Value::Counter64(view.bypassed)),
        (13, Value::Counter64(view.faults)),
        (14, Value::Gauge(view.memory_bytes)),
    ];
    put_indexed(tree, PLUGIN_ENTRY, &row, columns);
    for (number, (name, count)) in (1..).zip(&view.counters) {
        let columns = [(2, text(name)), (3, Value::Counter64(*count))];
        put_indexed(tree, PLUGIN_OWN_ENTRY, &[&row[..], &[number]].concat(), columns);
    }
}

fn fabric(tree: &mut Tree, tally: &Tally, commands: &CommandChannel) -> Result<()> {
    let view = commands.fabric().map_err(|why| anyhow!(why.error))?;
    let micros = view.period_us as u64;
    let scalars = [
        (1, Value::Octets(view.queueing.into_bytes())),
        (2, Value::Counter64(tally.broadcasts)),
        (3, Value::Gauge(micros)),
        (4, Value::Gauge(view.link_rate_bps / 1_000)),
        (5, Value::Gauge((view.speedup * 1_000.0) as u64)),
    ];
    put(tree, FABRIC, 0, scalars);
    Ok(())
}

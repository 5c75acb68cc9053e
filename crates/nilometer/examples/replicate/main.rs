//! Makes large inputs of small ones, for `benches/records.sh`: copies with shifted addresses and times.
//!
//! `records` reads flow records from any input that `nilometer flows` reads (without one, the embedded
//! sample) and writes so many copies of them as exporters would: NetFlow v5, v9 and IPFIX as datagrams
//! one after the other, nfcapd's files in layouts 1 and 2. `packets` does so with a pcap capture of
//! Ethernet. Copies lie evenly over a span of time and are written in the order in which their flows
//! ended, as an exporter sends them. Copy `k` has both addresses moved by `k mod 256` networks and its
//! higher port by the rest of `k`, both directions alike, so that connections stay connections and a
//! population of hosts is a network's and not the Internet's. Sampled records are left out.

mod encode;
mod packets;

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use clap::{Parser, ValueEnum};
use nilometer_files::input::records::{FlowOptions, read_flows};
use nilometer_flow::{FlowKey, FlowRecord};
use nilometer_traffic::synthetic;

/// When the first copy begins: 2026-01-01, ns since 1970.
const ORIGIN_NS: u64 = 1_767_225_600_000_000_000;
const SECOND_NS: u64 = 1_000_000_000;

#[derive(Parser)]
enum Verb {
    /// Copies of flow records.
    Records(Records),
    /// Copies of the packets of a capture.
    Packets(packets::Packets),
}

#[derive(clap::Args)]
struct Records {
    /// Output format.
    #[arg(long, value_enum)]
    format: Format,
    /// Number of records to write.
    #[arg(long, default_value_t = 10_000_000)]
    count: u64,
    /// Seconds over which copies are spread.
    #[arg(long, default_value_t = 3_600)]
    seconds: u64,
    /// Start of the first copy, in seconds after the start of 2026.
    #[arg(long, default_value_t = 0)]
    begin: u64,
    /// Output file.
    #[arg(short, long)]
    output: PathBuf,
    /// Any input of `nilometer flows`.
    inputs: Vec<PathBuf>,
}

/// Output formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Netflow5,
    Netflow9,
    Ipfix,
    Nfcapd1,
    Nfcapd2,
}

fn main() -> Result<()> {
    match Verb::parse() {
        Verb::Records(options) => replicate(&options),
        Verb::Packets(options) => packets::replicate(&options),
    }
}

/// Records to be copied, their times since the beginning of their input.
fn seeds(inputs: &[PathBuf], is_v4_only: bool) -> Result<Vec<FlowRecord>> {
    let mut seeds = Vec::new();
    let mut add = |mut records: Vec<FlowRecord>| {
        let first_ns = records.iter().map(|record| record.start_ns).min().unwrap_or(0);
        for record in &mut records {
            record.start_ns -= first_ns;
            record.end_ns -= first_ns;
        }
        seeds.extend(records);
    };
    for input in inputs {
        let mut records = Vec::new();
        let inputs = std::slice::from_ref(input);
        read_flows(inputs, &FlowOptions::default(), &mut |_| {}, &mut |record| {
            records.push(record);
            Ok(())
        })?;
        add(records);
    }
    if inputs.is_empty() {
        add(synthetic::records());
    }
    seeds.retain(|record| record.sampling_interval < 2);
    seeds.retain(|record| !is_v4_only || record.key.source.is_ipv4());
    ensure!(!seeds.is_empty(), "no records to copy");
    Ok(seeds)
}

fn replicate(options: &Records) -> Result<()> {
    let seeds = seeds(&options.inputs, options.format == Format::Netflow5)?;
    let span_ns = options.seconds * SECOND_NS;
    let copies = options.count.div_ceil(seeds.len() as u64);
    // By the end of each: (end, copy, seed).
    let mut order: Vec<(u64, u32, u32)> = Vec::with_capacity(options.count as usize);
    for n in 0..options.count {
        let (copy, seed) = (n / seeds.len() as u64, n % seeds.len() as u64);
        let record = &seeds[seed as usize];
        let start_ns = (copy * (span_ns / copies) + record.start_ns) % span_ns;
        let end_ns = start_ns + (record.end_ns - record.start_ns).min(span_ns);
        order.push((end_ns, copy as u32, seed as u32));
    }
    order.sort_unstable();
    let begin_ns = ORIGIN_NS + options.begin * SECOND_NS;
    let copies = order.into_iter().map(|(end_ns, copy, seed)| {
        let seed = &seeds[seed as usize];
        let lasts_ns = (seed.end_ns - seed.start_ns).min(span_ns);
        FlowRecord {
            key: moved(seed.key, copy),
            start_ns: begin_ns + end_ns - lasts_ns,
            end_ns: begin_ns + end_ns,
            ..seed.clone()
        }
    });
    encode::write(&options.output, options.format, copies)
}

/// The five-tuple of copy `copy`.
fn moved(key: FlowKey, copy: u32) -> FlowKey {
    let (network, rest) = (copy % 256, copy / 256);
    let port = |port: u16, other: u16| {
        let is_moved = port >= other && port >= 1_024;
        let span = u32::from(u16::MAX) - 1_024;
        let place = u32::from(port.max(1_024)) - 1_024 + 1_009 * rest;
        if is_moved { (1_024 + place % span) as u16 } else { port }
    };
    FlowKey {
        source: moved_address(key.source, network),
        destination: moved_address(key.destination, network),
        source_port: port(key.source_port, key.destination_port),
        destination_port: port(key.destination_port, key.source_port),
        protocol: key.protocol,
    }
}

fn moved_address(address: IpAddr, network: u32) -> IpAddr {
    match address {
        IpAddr::V4(v4) => IpAddr::V4((v4.to_bits() ^ network << 12).into()),
        IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() ^ u128::from(network) << 80).into()),
    }
}

/// A file that is written under a temporary name and then gets its own.
fn write_file(
    path: &Path,
    write: impl FnOnce(&mut std::io::BufWriter<std::fs::File>) -> Result<()>,
) -> Result<()> {
    let partial = path.with_extension("partial");
    let mut file = std::io::BufWriter::with_capacity(1 << 20, std::fs::File::create(&partial)?);
    write(&mut file)?;
    file.into_inner()?.sync_all()?;
    Ok(std::fs::rename(&partial, path)?)
}

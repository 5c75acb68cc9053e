//! Flow records as exporters and collectors write them, in the forms that are most common.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::net::IpAddr;
use std::path::Path;

use anyhow::Result;
use nilometer_flow::FlowRecord;
use nilometer_flow::netflow5;

use super::{Format, write_file};

const MILLI_NS: u64 = 1_000_000;
/// The uptime of the exporter when it begins, ms.
const UPTIME_MS: u64 = 10_000_000;
/// Records in a datagram, as exporters send them.
const V5_RECORDS: usize = 30;
const V9_RECORDS: usize = 24;
/// Datagrams between two repetitions of the templates.
const TEMPLATE_EVERY: u32 = 100;
/// Bytes of a block of nfcapd.
const BLOCK_BYTES: usize = 1 << 20;

/// Writes all records to the file `path`.
pub fn write(path: &Path, format: Format, records: impl Iterator<Item = FlowRecord>) -> Result<()> {
    write_file(path, |file| match format {
        Format::Netflow5 => netflow5(file, records),
        Format::Netflow9 => templated(file, records, 9),
        Format::Ipfix => templated(file, records, 10),
        Format::Nfcapd1 => nfcapd(file, records, 1),
        Format::Nfcapd2 => nfcapd(file, records, 2),
    })
}

/// Records in groups of `count`.
fn groups(
    mut records: impl Iterator<Item = FlowRecord>,
    count: usize,
) -> impl Iterator<Item = Vec<FlowRecord>> {
    std::iter::from_fn(move || {
        let group: Vec<FlowRecord> = records.by_ref().take(count).collect();
        (!group.is_empty()).then_some(group)
    })
}

/// When a datagram of these records leaves: after the last of them, ms since 1970.
fn leaves_ms(group: &[FlowRecord]) -> u64 {
    group.iter().map(|record| record.end_ns).max().unwrap_or(0) / MILLI_NS + 1
}

fn netflow5(file: &mut BufWriter<File>, records: impl Iterator<Item = FlowRecord>) -> Result<()> {
    let (mut flow_sequence, mut begun_ms) = (0u32, None);
    for group in groups(records, V5_RECORDS) {
        let now_ms = leaves_ms(&group);
        let begun_ms = *begun_ms.get_or_insert(now_ms - UPTIME_MS);
        let header = netflow5::Header {
            uptime_ms: (now_ms - begun_ms) as u32,
            unix_secs: (now_ms / 1_000) as u32,
            unix_nsecs: (now_ms % 1_000 * MILLI_NS) as u32,
            flow_sequence,
            ..netflow5::Header::default()
        };
        let narrow = |record: &FlowRecord| FlowRecord {
            octets: record.octets.min(u32::MAX.into()),
            packets: record.packets.min(u32::MAX.into()),
            ..record.clone()
        };
        let group: Vec<FlowRecord> = group.iter().map(narrow).collect();
        file.write_all(&netflow5::encode(&header, &group)?)?;
        flow_sequence = flow_sequence.wrapping_add(group.len() as u32);
    }
    Ok(())
}

/// (element, length) in the order of the template; those of addresses first.
const V9_FIELDS: [(u16, u16); 13] = [
    (10, 4),
    (14, 4),
    (7, 2),
    (11, 2),
    (4, 1),
    (6, 1),
    (5, 1),
    (2, 4),
    (1, 4),
    (22, 4),
    (21, 4),
    (16, 4),
    (17, 4),
];
const IPFIX_FIELDS: [(u16, u16); 13] = [
    (10, 4),
    (14, 4),
    (7, 2),
    (11, 2),
    (4, 1),
    (6, 1),
    (5, 1),
    (2, 8),
    (1, 8),
    (152, 8),
    (153, 8),
    (16, 4),
    (17, 4),
];

fn templates(version: u16) -> Vec<u8> {
    let fields = if version == 9 { V9_FIELDS } else { IPFIX_FIELDS };
    let mut body = Vec::new();
    for (id, addresses) in [(256u16, [(8u16, 4u16), (12, 4)]), (257, [(27, 16), (28, 16)])] {
        body.extend(id.to_be_bytes());
        body.extend((fields.len() as u16 + 2).to_be_bytes());
        for (element, length) in addresses.into_iter().chain(fields) {
            body.extend(element.to_be_bytes());
            body.extend(length.to_be_bytes());
        }
    }
    set(if version == 9 { 0 } else { 2 }, &body)
}

fn set(id: u16, body: &[u8]) -> Vec<u8> {
    let padded = body.len().next_multiple_of(4);
    let mut set = id.to_be_bytes().to_vec();
    set.extend((padded as u16 + 4).to_be_bytes());
    set.extend(body);
    set.resize(padded + 4, 0);
    set
}

fn templated(
    file: &mut BufWriter<File>,
    records: impl Iterator<Item = FlowRecord>,
    version: u16,
) -> Result<()> {
    let (mut datagrams, mut data_records, mut begun_ms) = (0u32, 0u32, None);
    for group in groups(records, V9_RECORDS) {
        let now_ms = leaves_ms(&group);
        let begun_ms = *begun_ms.get_or_insert(now_ms - UPTIME_MS);
        let (mut count, mut body) = (group.len() as u16, Vec::new());
        if datagrams.is_multiple_of(TEMPLATE_EVERY) {
            body.extend(templates(version));
            count += 2;
        }
        for is_v4 in [true, false] {
            let one = group.iter().filter(|record| record.key.source.is_ipv4() == is_v4);
            let rows: Vec<u8> = one.flat_map(|record| row(record, version, begun_ms)).collect();
            if !rows.is_empty() {
                body.extend(set(if is_v4 { 256 } else { 257 }, &rows));
            }
        }
        let (uptime_ms, seconds) = ((now_ms - begun_ms) as u32, now_ms.div_ceil(1_000) as u32);
        file.write_all(&version.to_be_bytes())?;
        if version == 9 {
            // The header's seconds are whole: the uptime is what it showed then.
            let uptime_ms = uptime_ms + (u64::from(seconds) * 1_000 - now_ms) as u32;
            file.write_all(&count.to_be_bytes())?;
            for word in [uptime_ms, seconds, datagrams, 0] {
                file.write_all(&word.to_be_bytes())?;
            }
        } else {
            file.write_all(&(body.len() as u16 + 16).to_be_bytes())?;
            for word in [seconds, data_records, 0] {
                file.write_all(&word.to_be_bytes())?;
            }
        }
        file.write_all(&body)?;
        datagrams += 1;
        data_records = data_records.wrapping_add(group.len() as u32);
    }
    Ok(())
}

fn row(record: &FlowRecord, version: u16, begun_ms: u64) -> Vec<u8> {
    let key = &record.key;
    let mut row = Vec::with_capacity(96);
    for address in [key.source, key.destination] {
        match address {
            IpAddr::V4(address) => row.extend(address.octets()),
            IpAddr::V6(address) => row.extend(address.octets()),
        }
    }
    row.extend([0, 0, 0, 1, 0, 0, 0, 2]);
    row.extend(key.source_port.to_be_bytes());
    row.extend(key.destination_port.to_be_bytes());
    row.extend([key.protocol, record.tcp_flags, 0]);
    for count in [record.packets, record.octets] {
        match version {
            9 => row.extend((count.min(u32::MAX.into()) as u32).to_be_bytes()),
            _ => row.extend(count.to_be_bytes()),
        }
    }
    for at_ns in [record.start_ns, record.end_ns] {
        match version {
            9 => row.extend(((at_ns / MILLI_NS).wrapping_sub(begun_ms) as u32).to_be_bytes()),
            _ => row.extend((at_ns / MILLI_NS).to_be_bytes()),
        }
    }
    row.extend([0; 8]);
    row
}

/// A file of nfcapd, uncompressed, in layout 1 or 2.
fn nfcapd(
    file: &mut BufWriter<File>,
    records: impl Iterator<Item = FlowRecord>,
    layout: u16,
) -> Result<()> {
    let (mut blocks, mut block, mut count) = (Vec::new(), Vec::with_capacity(BLOCK_BYTES), 0u32);
    // The header says how many blocks there are: room is left for it.
    let header_bytes = if layout == 1 { 276 } else { 40 };
    file.write_all(&vec![0; header_bytes])?;
    let mut close = |block: &mut Vec<u8>, count: &mut u32, file: &mut BufWriter<File>| {
        let kind: u32 = if layout == 1 { 2 } else { 3 };
        for word in [*count, block.len() as u32, kind] {
            file.write_all(&word.to_le_bytes())?;
        }
        file.write_all(block)?;
        blocks.push(());
        block.clear();
        *count = 0;
        anyhow::Ok(())
    };
    let (mut flows, mut packets, mut octets) = (0u64, 0u64, 0u64);
    for record in records {
        if block.len() + 256 > BLOCK_BYTES {
            close(&mut block, &mut count, file)?;
        }
        flows += 1;
        packets += record.packets;
        octets += record.octets;
        match layout {
            1 => layout1(&mut block, &record),
            _ => layout2(&mut block, &record),
        }
        count += 1;
    }
    close(&mut block, &mut count, file)?;
    let blocks = blocks.len() as u32;
    let mut header = Vec::with_capacity(header_bytes);
    header.extend(0xa50c_u16.to_le_bytes());
    header.extend(layout.to_le_bytes());
    if layout == 1 {
        header.extend([0u32, blocks].map(u32::to_le_bytes).concat());
        header.resize(140, 0);
        for total in [flows, octets, packets] {
            header.extend(total.to_le_bytes());
        }
        header.resize(header_bytes, 0);
    } else {
        header.extend(0x0107_0100_u32.to_le_bytes());
        header.extend([0; 8]); // when it was made
        header.extend([0; 16]); // no compression, no encryption, no appendix
        header.extend([BLOCK_BYTES as u32 * 5, blocks].map(u32::to_le_bytes).concat());
    }
    file.flush()?;
    Ok(std::os::unix::fs::FileExt::write_all_at(file.get_ref(), &header, 0)?)
}

fn addresses(block: &mut Vec<u8>, record: &FlowRecord) {
    for address in [record.key.source, record.key.destination] {
        match address {
            IpAddr::V4(address) => block.extend(address.to_bits().to_le_bytes()),
            IpAddr::V6(address) => {
                let bits = address.to_bits();
                block.extend(((bits >> 64) as u64).to_le_bytes());
                block.extend((bits as u64).to_le_bytes());
            }
        }
    }
}

fn layout1(block: &mut Vec<u8>, record: &FlowRecord) {
    let (key, start) = (&record.key, block.len());
    let (start_ms, end_ms) = (record.start_ns / MILLI_NS, record.end_ns / MILLI_NS);
    let is_v6 = u8::from(key.source.is_ipv6());
    block.extend(10u16.to_le_bytes());
    block.extend([0, 0]);
    // Wide counts of packets and bytes.
    block.extend([is_v6 | 0x6, 0, 1, 0]);
    block.extend(((start_ms % 1_000) as u16).to_le_bytes());
    block.extend(((end_ms % 1_000) as u16).to_le_bytes());
    block.extend(((start_ms / 1_000) as u32).to_le_bytes());
    block.extend(((end_ms / 1_000) as u32).to_le_bytes());
    block.extend([0, record.tcp_flags, key.protocol, 0]);
    block.extend(key.source_port.to_le_bytes());
    block.extend(key.destination_port.to_le_bytes());
    block.extend([0; 4]);
    addresses(block, record);
    block.extend(record.packets.to_le_bytes());
    block.extend(record.octets.to_le_bytes());
    let bytes = (block.len() - start) as u16;
    block[start + 2..start + 4].copy_from_slice(&bytes.to_le_bytes());
}

fn layout2(block: &mut Vec<u8>, record: &FlowRecord) {
    let (key, start) = (&record.key, block.len());
    block.extend(11u16.to_le_bytes());
    block.extend([0, 0, 3, 0, 0, 0, 0, 0, 0, 9]);
    block.extend([1u16, 52].map(u16::to_le_bytes).concat());
    let (start_ms, end_ms) = (record.start_ns / MILLI_NS, record.end_ns / MILLI_NS);
    for word in [start_ms, end_ms, end_ms, record.packets, record.octets] {
        block.extend(word.to_le_bytes());
    }
    block.extend(key.source_port.to_le_bytes());
    block.extend(key.destination_port.to_le_bytes());
    block.extend([key.protocol, record.tcp_flags, 0, 0]);
    let (kind, bytes) = if key.source.is_ipv4() { (2u16, 12u16) } else { (3, 36) };
    block.extend([kind, bytes].map(u16::to_le_bytes).concat());
    addresses(block, record);
    // Interfaces, as every exporter tells them, with what else stands there.
    block.extend([4u16, 20].map(u16::to_le_bytes).concat());
    block.extend([1u32, 2, 0, 0].map(u32::to_le_bytes).concat());
    let bytes = (block.len() - start) as u16;
    block[start + 2..start + 4].copy_from_slice(&bytes.to_le_bytes());
}

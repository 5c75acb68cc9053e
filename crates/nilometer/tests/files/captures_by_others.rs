//! Captures read by third-party programs: packet by packet by `pcap-parser`, connection by connection
//! by tshark, flow by flow by nfpcapd.

mod compared;
mod tshark;

use std::fs;
use std::path::{Path, PathBuf};

use nilometer_files::input::capture::Capture;
use nilometer_files::input::pcap::{Pcap, is_pcap};
use nilometer_files::input::pcapng::{Pcapng, is_pcapng};
use nilometer_files::input::window::Window;
use pcap_parser::traits::PcapReaderIterator;
use pcap_parser::{Block, LegacyPcapReader, PcapBlockOwned, PcapError, PcapNGReader};

/// Longer than any block of the shared captures.
const BUFFER_BYTES: usize = 4 << 20;

/// A packet as both report it: its time in nanoseconds, its length on the link, and the captured
/// bytes.
type ReadPacket = (Option<u64>, u32, Vec<u8>);

fn ours(bytes: &[u8]) -> Vec<ReadPacket> {
    let mut capture = if is_pcap(bytes) {
        Capture::Pcap(Pcap::new(Window::new(bytes)).expect("a header"))
    } else {
        Capture::Pcapng(Box::new(Pcapng::new(Window::new(bytes)).expect("a header")))
    };
    let mut read_packets = Vec::new();
    while let Some(packet) = capture.next_packet().expect("memory can be read") {
        read_packets.push((packet.stamp_ns, packet.original_bytes, packet.frame.to_vec()));
    }
    read_packets
}

/// The packets that they read until the file ends, or until the first error.
fn theirs(bytes: &[u8]) -> (Vec<ReadPacket>, Option<String>) {
    let mut read_packets = Vec::new();
    let refused = if is_pcap(bytes) {
        legacy(bytes, &mut read_packets)
    } else {
        blocks(bytes, &mut read_packets)
    };
    (read_packets, refused)
}

fn legacy(bytes: &[u8], read_packets: &mut Vec<ReadPacket>) -> Option<String> {
    let mut reader = match LegacyPcapReader::new(BUFFER_BYTES, bytes) {
        Ok(reader) => reader,
        Err(error) => return Some(format!("{error:?}")),
    };
    let mut unit_ns = 1_000;
    loop {
        match reader.next() {
            Ok((offset, block)) => {
                match block {
                    PcapBlockOwned::LegacyHeader(header) => {
                        unit_ns = if header.is_nanosecond_precision() { 1 } else { 1_000 };
                    }
                    PcapBlockOwned::Legacy(block) => {
                        let stamp_ns = u64::from(block.ts_sec) * 1_000_000_000
                            + u64::from(block.ts_usec) * unit_ns;
                        read_packets.push((Some(stamp_ns), block.origlen, block.data.to_vec()));
                    }
                    PcapBlockOwned::NG(_) => return Some("a block of pcapng".to_owned()),
                }
                reader.consume(offset);
            }
            Err(PcapError::Eof) => return None,
            Err(PcapError::Incomplete(_)) => {
                if let Err(error) = reader.refill() {
                    return Some(format!("{error:?}"));
                }
            }
            Err(error) => return Some(format!("{error:?}")),
        }
    }
}

fn blocks(bytes: &[u8], read_packets: &mut Vec<ReadPacket>) -> Option<String> {
    let mut reader = match PcapNGReader::new(BUFFER_BYTES, bytes) {
        Ok(reader) => reader,
        Err(error) => return Some(format!("{error:?}")),
    };
    // Resolution and offset of each interface of the section, as its options have them.
    let mut interfaces: Vec<(u64, i64, u32)> = Vec::new();
    loop {
        match reader.next() {
            Ok((offset, block)) => {
                match block {
                    PcapBlockOwned::NG(Block::SectionHeader(_)) => interfaces.clear(),
                    PcapBlockOwned::NG(Block::InterfaceDescription(of)) => {
                        let resolution = of.ts_resolution().unwrap_or(1_000_000);
                        interfaces.push((resolution, of.if_tsoffset, of.snaplen));
                    }
                    PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
                        let (resolution, shift_s, _) = interfaces[packet.if_id as usize];
                        let ticks = u128::from(packet.ts_high) << 32 | u128::from(packet.ts_low);
                        let ns = ticks * 1_000_000_000 / u128::from(resolution);
                        let ns = ns as i128 + i128::from(shift_s) * 1_000_000_000;
                        let frame = packet.data[..packet.caplen as usize].to_vec();
                        // Stamps saturate with us.
                        let ns = ns.clamp(0, u64::MAX.into()) as u64;
                        read_packets.push((Some(ns), packet.origlen, frame));
                    }
                    PcapBlockOwned::NG(Block::SimplePacket(packet)) => {
                        let (.., snap) = interfaces[0];
                        let snap = if snap == 0 { u32::MAX } else { snap };
                        let kept = packet.origlen.min(snap) as usize;
                        read_packets.push((None, packet.origlen, packet.data[..kept].to_vec()));
                    }
                    _ => {}
                }
                reader.consume(offset);
            }
            Err(PcapError::Eof) => return None,
            Err(PcapError::Incomplete(_)) => {
                if let Err(error) = reader.refill() {
                    return Some(format!("{error:?}"));
                }
            }
            Err(error) => return Some(format!("{error:?}")),
        }
    }
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push(path);
        }
    }
}

#[test]
fn captures_have_the_same_packets_for_another() {
    let Some(data) = std::env::var_os("NILOMETER_DATA") else {
        println!("skipped: public captures read by pcap-parser (set NILOMETER_DATA)");
        return;
    };
    let mut paths = Vec::new();
    files(&Path::new(&data).join("pcap"), &mut paths);
    paths.sort();
    let (mut alike, mut packets) = (0, 0);
    let (mut refusals, mut different) = (Vec::new(), Vec::<String>::new());
    for path in paths {
        let bytes = fs::read(&path).expect("a file");
        if !is_pcap(&bytes) && !is_pcapng(&bytes) {
            continue;
        }
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let (yours, refused) = theirs(&bytes);
        if let Some(why) = refused {
            refusals.push(format!("{name}: {why}"));
            continue;
        }
        let mine = ours(&bytes);
        let unlike = mine.iter().zip(&yours).position(|(mine, yours)| mine != yours);
        let first = unlike.map(|at| (at, &mine[at], &yours[at]));
        if mine.len() != yours.len() || first.is_some() {
            let counts = [mine.len(), yours.len()];
            different.push(format!("{name}: {counts:?}, first {first:?}"));
        }
        alike += 1;
        packets += mine.len();
    }
    println!("{alike} captures of {packets} packets alike; refused by pcap-parser: {refusals:#?}");
    assert!(different.is_empty(), "{different:#?}");
    assert!(alike > 300 && packets > 50_000, "{alike} captures of {packets} packets");
}

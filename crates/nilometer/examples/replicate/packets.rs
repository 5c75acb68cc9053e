//! Copies of a capture's packets: IPv4 addresses of copy `k` moved by `k` networks, times shifted. Or
//! segments of as many flows as one likes, each of a length that some packet of the capture has, the flows'
//! turns drawn by lot: the most that a meter can be asked to handle, since no packet is of the flow before it.

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use anyhow::{Result, bail, ensure};
use nilometer_files::input::capture::Capture;
use nilometer_files::input::open::{self, Input};

use nilometer_stat::Rng;
use nilometer_wire::build::{self, Tcp};

use super::{ORIGIN_NS, SECOND_NS, write_file};

/// Bytes of Ethernet, IPv4 and TCP.
const HEADERS_BYTES: usize = 54;
const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

#[derive(clap::Args)]
pub struct Packets {
    /// Number of packets to write.
    #[arg(long, default_value_t = 3_000_000)]
    count: u64,
    /// Write all copies at once, with their times scaled to this many seconds: a busy link with concurrent flows. By
    /// default copies follow each other at their own speed.
    #[arg(long)]
    seconds: Option<u64>,
    /// Write no copies, but headers of this many TCP flows from SYN to FIN, in random order, within a minute.
    #[arg(long, conflicts_with = "seconds", value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    flows: Option<u32>,
    /// Output file, pcap.
    #[arg(short, long)]
    output: PathBuf,
    /// An Ethernet capture.
    input: PathBuf,
}

struct Packet {
    at_ns: u64,
    original_bytes: u32,
    frame: Vec<u8>,
}

/// Writes the copies, in the order of their times.
pub fn replicate(options: &Packets) -> Result<()> {
    let (_, Input::Capture(mut capture)) = open::open(&options.input, false)? else {
        bail!("{}: is not a capture", options.input.display());
    };
    let packets = read(&mut capture)?;
    write_file(&options.output, |file| {
        for word in [0xa1b2_3c4d, 0x0004_0002, 0, 0, 65_535, 1u32] {
            file.write_all(&word.to_le_bytes())?;
        }
        if let Some(flows) = options.flows {
            return drawn(options.count, flows, &packets, file);
        }
        for (since_ns, copy, packet) in order(options, &packets) {
            let packet = &packets[packet as usize];
            write_packet(file, since_ns, &moved(&packet.frame, copy), packet.original_bytes)?;
        }
        Ok(())
    })
}

fn write_packet(
    file: &mut impl Write,
    since_ns: u64,
    frame: &[u8],
    original_bytes: u32,
) -> io::Result<()> {
    let at_ns = ORIGIN_NS + since_ns;
    let stamp = [(at_ns / SECOND_NS) as u32, (at_ns % SECOND_NS) as u32];
    for word in stamp.into_iter().chain([frame.len() as u32, original_bytes]) {
        file.write_all(&word.to_le_bytes())?;
    }
    file.write_all(frame)
}

/// Writes `count` packets of `flows` flows, as many of each but for one, in an order drawn by lot.
fn drawn(count: u64, flows: u32, lengths: &[Packet], file: &mut impl Write) -> Result<()> {
    let mut turns: Vec<u32> = (0..count).map(|n| (n % u64::from(flows)) as u32).collect();
    let mut lot = Rng::new(1, 0, 0);
    lot.shuffle(&mut turns);
    let mut sent = vec![0u64; flows as usize];
    for (n, &flow) in (0u64..).zip(&turns) {
        let all = count / u64::from(flows) + u64::from(u64::from(flow) < count % u64::from(flows));
        let sent = &mut sent[flow as usize];
        *sent += 1;
        let flags = match *sent {
            1 => SYN,
            last if last == all => FIN | ACK,
            _ => ACK,
        };
        let original_bytes = lengths[lot.below(lengths.len() as u64) as usize].original_bytes;
        let frame = segment(flow, flags, *sent as u32 * 1_460, original_bytes as usize);
        let since_ns = n * (60 * SECOND_NS / count);
        write_packet(file, since_ns, &frame[..HEADERS_BYTES], frame.len() as u32)?;
    }
    Ok(())
}

/// A frame of a flow, of `frame_bytes` if its headers have room in them.
fn segment(flow: u32, flags: u8, sequence: u32, frame_bytes: usize) -> Vec<u8> {
    const HOSTS: u32 = 60_000;
    let host = |side: u32, number: u32, port: u32| {
        SocketAddr::from((Ipv4Addr::from_bits(side + number), port as u16))
    };
    let source = host(0xc612_0000, flow % HOSTS, 1_024 + flow / HOSTS);
    let destination = host(0xc613_0000, flow.wrapping_mul(0x9e37_79b1) >> 16, 443);
    let payload = vec![0; frame_bytes.clamp(HEADERS_BYTES, 1_514) - HEADERS_BYTES];
    let segment = Tcp { flags, sequence, payload: &payload, ..Tcp::new(source, destination) };
    build::ethernet(&segment.ip_packet())
}

/// When each packet that is written comes, ns since the first: of which copy, and which of its packets.
fn order(options: &Packets, packets: &[Packet]) -> Vec<(u64, u32, u32)> {
    let first_ns = packets.iter().map(|packet| packet.at_ns).min().unwrap_or(0);
    let last_ns = packets.iter().map(|packet| packet.at_ns).max().unwrap_or(0);
    let lasts_ns = last_ns - first_ns + SECOND_NS;
    let all = (0..options.count).map(|n| {
        let (copy, packet) = (n / packets.len() as u64, n % packets.len() as u64);
        let since_ns = packets[packet as usize].at_ns - first_ns;
        let at_ns = match options.seconds {
            None => copy * lasts_ns + since_ns,
            Some(seconds) => {
                let scaled = u128::from(since_ns) * u128::from(seconds * SECOND_NS);
                (scaled / u128::from(lasts_ns)) as u64
            }
        };
        (at_ns, copy as u32, packet as u32)
    });
    let mut order: Vec<_> = all.collect();
    if options.seconds.is_some() {
        order.sort_unstable();
    }
    order
}

fn read(capture: &mut Capture<nilometer_files::input::source::Stream>) -> Result<Vec<Packet>> {
    let mut packets = Vec::new();
    while let Some(packet) = capture.next_packet()? {
        ensure!(packet.link_type == 1, "only captures of Ethernet are copied");
        packets.push(Packet {
            at_ns: packet.stamp_ns.unwrap_or(0),
            original_bytes: packet.original_bytes,
            frame: packet.frame.to_vec(),
        });
    }
    ensure!(!packets.is_empty(), "the capture holds no packet");
    Ok(packets)
}

/// The frame of copy `copy`: both addresses of its outermost IPv4 header moved, and its checksum set.
fn moved(frame: &[u8], copy: u32) -> Vec<u8> {
    const IP: usize = 14;
    let mut frame = frame.to_vec();
    let is_ipv4 = frame.get(12..14) == Some(&[8, 0]) && frame.len() >= IP + 20;
    let header_bytes = usize::from(frame.get(IP).copied().unwrap_or(0) & 15) * 4;
    if !is_ipv4 || header_bytes < 20 || frame.len() < IP + header_bytes {
        return frame;
    }
    for at in [IP + 12, IP + 16] {
        let address: [u8; 4] = frame[at..at + 4].try_into().expect("four bytes");
        let address = u32::from_be_bytes(address) ^ copy << 12;
        frame[at..at + 4].copy_from_slice(&address.to_be_bytes());
    }
    frame[IP + 10..IP + 12].fill(0);
    let words = frame[IP..IP + header_bytes].chunks_exact(2);
    let sum: u32 = words.map(|two| u32::from(u16::from_be_bytes([two[0], two[1]]))).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
    frame[IP + 10..IP + 12].copy_from_slice(&checksum.to_be_bytes());
    frame
}

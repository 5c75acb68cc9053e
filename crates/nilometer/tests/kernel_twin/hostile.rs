//! Hostile packets: real captures as they are, and our own packets randomly mutated.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use nilometer_files::input::open::{Input, open};
use nilometer_stat::Rng;
use nilometer_wire::build;

/// Packets of one capture.
const OF_ONE_CAPTURE: usize = 120;
/// Packets changed by chance.
const CHANGED: usize = 8_000;

/// Ethertypes and IP packets, `most` at most.
pub fn packets(most: usize) -> Vec<(u16, Vec<u8>)> {
    let mut found = changed();
    match std::env::var_os("NILOMETER_DATA") {
        None => println!("skipped the captures: NILOMETER_DATA is not set"),
        Some(folder) => {
            for file in captures(&Path::new(&folder).join("pcap")) {
                read(&file, &mut found);
            }
        }
    }
    found.truncate(most);
    found
}

/// Every file below, in order.
fn captures(folder: &Path) -> Vec<PathBuf> {
    let (mut files, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            match path.is_dir() {
                true => folders.push(path),
                false => files.push(path),
            }
        }
    }
    files.sort();
    files
}

/// The first IP packets of an Ethernet capture.
fn read(file: &Path, found: &mut Vec<(u16, Vec<u8>)>) {
    let Ok((_, Input::Capture(mut capture))) = open(file, false) else { return };
    for _ in 0..OF_ONE_CAPTURE {
        let Ok(Some(packet)) = capture.next_packet() else { return };
        let [.., high, low] = packet.frame[..packet.frame.len().min(14)] else { continue };
        let kind = u16::from_be_bytes([high, low]);
        let is_ip = packet.link_type == 1 && matches!(kind, 0x0800 | 0x86dd);
        if is_ip && packet.frame.len() > 34 && packet.frame.len() <= 1_514 {
            found.push((kind, packet.frame[14..].to_vec()));
        }
    }
}

/// Sound packets with a few bytes changed; half of them with a correct header checksum.
fn changed() -> Vec<(u16, Vec<u8>)> {
    let mut rng = Rng::new(1812, 4, 0);
    let below = |rng: &mut Rng, most: usize| (rng.next_u64() % most as u64) as usize;
    let hosts = [("198.18.0.2", "198.19.0.2"), ("fd00:18::2", "fd00:19::2")];
    let own = [("198.18.0.2", "198.18.0.1"), ("fd00:18::2", "fd00:19::1")];
    let mut packets = Vec::with_capacity(CHANGED);
    for number in 0..CHANGED {
        let family = number % 2;
        let (from, to) = if below(&mut rng, 4) == 0 { own[family] } else { hosts[family] };
        let end = |text: &str, port| SocketAddr::new(text.parse().expect("an address"), port);
        let payload = vec![7; [0, 8, 100, 1_280, 1_452][below(&mut rng, 5)]];
        let mut packet = match below(&mut rng, 3) {
            0 => build::icmp(end(from, 0).ip(), end(to, 0).ip(), [8, 128][family], 0, &payload),
            _ => build::udp(end(from, 4_000), end(to, 5_000), &payload),
        };
        packet.truncate(1_500);
        for _ in 0..below(&mut rng, 4) {
            let at = below(&mut rng, [24, 48][family]).min(packet.len() - 1);
            packet[at] = rng.next_u64() as u8;
        }
        if family == 0 && below(&mut rng, 4) > 0 {
            sum(&mut packet);
        }
        packets.push(([0x0800, 0x86dd][family], packet));
    }
    packets
}

/// Gives an IPv4 header the checksum that fits.
fn sum(packet: &mut [u8]) {
    let header = (usize::from(packet[0] & 15) * 4).clamp(20, packet.len());
    packet[10..12].fill(0);
    let words = packet[..header].chunks_exact(2);
    let sum: u32 = words.map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    packet[10..12].copy_from_slice(&(!(folded as u16)).to_be_bytes());
}

//! A model's laws beyond five distributions, against other programs' view of the same captures.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use nilometer_files::input::records::{FlowOptions, read_flows};
use nilometer_flow::FlowRecord;
use nilometer_lab::trial::source::{EstimateRequest, model};
use nilometer_stat::Empirical;
use nilometer_stat::distance::ks_to;
use nilometer_traffic::round_trips::Source;
use nilometer_traffic::udp::{UdpClass, conversations};

fn data() -> Option<PathBuf> {
    let data = std::env::var_os("NILOMETER_DATA").map(PathBuf::from);
    if data.is_none() {
        println!("skipped: public captures (set NILOMETER_DATA)");
    }
    data
}

#[test]
fn round_trips_are_those_of_tshark() -> Result<()> {
    let Some(data) = data() else { return Ok(()) };
    let oracle = include_str!("../oracles/initial_rtt.tsv");
    for line in oracle.lines().filter(|line| !line.starts_with('#')) {
        let (capture, trips) = line.split_once('\t').context("a capture and its round trips")?;
        let mut trips: Vec<f64> =
            trips.split(' ').map(str::parse).collect::<Result<_, _>>().context(line.to_owned())?;
        let request = EstimateRequest::of(vec![data.join("pcap").join(capture)]);
        let found = model(&request, &mut |_| {})?.model.round_trips.context("round trips")?;
        ensure!(found.source == Source::Handshakes, "{capture}: {:?}", found.source);
        let ks = ks_to(&mut trips, &found.law);
        println!("{capture}: {} pairs, KS {ks:.4}", trips.len());
        // tshark also counts openings whose packets do not fit together: two of 118, four of 63.
        let most =
            if capture.contains("alexa") || capture.contains("gnutella") { 0.07 } else { 0.0 };
        ensure!(ks <= most, "{capture}: KS {ks}");
    }
    Ok(())
}

/// A classic, little-endian pcap of Ethernet without the segments that open connections; their answers stay, because
/// flows without any SYN are not in the model.
fn without_openings(whole: &[u8]) -> Vec<u8> {
    assert_eq!((whole[0], whole[20]), (0xd4, 1), "a little-endian pcap of Ethernet");
    let (header, mut rest) = whole.split_at(24);
    let mut left = header.to_vec();
    while let Some(length) = rest.get(8..12) {
        let length = u32::from_le_bytes(length.try_into().expect("four bytes"));
        let (packet, later) = rest.split_at(16 + length as usize);
        let ip = &packet[16 + 14..];
        let tcp = match ip {
            [first, ..] if first >> 4 == 4 && ip[9] == 6 => ip.get(usize::from(first & 15) * 4..),
            [first, ..] if first >> 4 == 6 && ip[6] == 6 => ip.get(40..),
            _ => None,
        };
        let opens = tcp.and_then(|tcp| tcp.get(13)).is_some_and(|flags| flags & 0x12 == 0x02);
        left.extend(if opens { &[] } else { packet });
        rest = later;
    }
    left
}

#[test]
fn time_stamps_tell_round_trips_where_openings_were_not_seen() -> Result<()> {
    let Some(data) = data() else { return Ok(()) };
    let directory = std::env::temp_dir().join(format!("nilometer-echoes-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    for name in ["netflix", "ethereum", "reddit", "teams"] {
        let capture = data.join("pcap/nDPI/pcap").join(name).with_extension("pcap");
        let trips = |capture: PathBuf| -> Result<_> {
            let model = model(&EstimateRequest::of(vec![capture]), &mut |_| {})?.model;
            model.round_trips.context("round trips")
        };
        let opened = trips(capture.clone())?;
        let cut = directory.join(name).with_extension("pcap");
        std::fs::write(&cut, without_openings(&std::fs::read(&capture)?))?;
        let measured = trips(cut)?;
        assert_eq!((opened.source, measured.source), (Source::Handshakes, Source::TimeStamps));
        let quartiles = |law: &Empirical| [0.25, 0.5, 0.75].map(|u| law.quantile(u) * 1e3);
        println!(
            "{name}: {} pairs by openings, {:.1?} ms; {} by time stamps, {:.1?} ms",
            opened.law.samples(),
            quartiles(&opened.law),
            measured.law.samples(),
            quartiles(&measured.law)
        );
        for (opened, measured) in quartiles(&opened.law).iter().zip(quartiles(&measured.law)) {
            ensure!((measured / opened - 1.0).abs() < 0.15, "{name}: {measured} ms for {opened}");
        }
    }
    std::fs::remove_dir_all(&directory)?;
    Ok(())
}

#[test]
fn records_tell_the_same_but_of_round_trips_a_bound() -> Result<()> {
    let Some(data) = data() else { return Ok(()) };
    let capture = data.join("pcap/nDPI/pcap/alexa-app.pcapng");
    let whole = model(&EstimateRequest::of(vec![capture.clone()]), &mut |_| {})?.model;
    let directory = std::env::temp_dir().join(format!("nilometer-richer-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    let table = directory.join("flows.parquet");
    let made = std::process::Command::new(env!("CARGO_BIN_EXE_nilometer"))
        .arg("flows")
        .args([&capture, Path::new("-o"), &table])
        .output()?;
    ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let measured = model(&EstimateRequest::of(vec![table]), &mut |_| {})?.model;
    std::fs::remove_dir_all(&directory)?;
    assert_eq!(measured.round_trips.context("starts of flows")?.source, Source::FlowStarts);
    assert_eq!(whole.round_trips.context("round trips")?.source, Source::Handshakes);
    assert_eq!(measured.connection_law, whole.connection_law);
    assert_eq!(measured.udp, whole.udp);
    Ok(())
}

/// nDPI's label of a conversation, as one of our classes; none where nDPI does not know it or we have no class
/// for it. For peers that contact each other nothing shows whether they do so periodically or at random.
fn expected(label: &str, found: UdpClass) -> Option<UdpClass> {
    Some(match label.split('.').next()? {
        "DNS" | "MDNS" | "LLMNR" => UdpClass::DnsLike,
        "NetBIOS" if !label.ends_with("SMBv1") => UdpClass::DnsLike,
        "NetBIOS" | "NTP" | "DHCP" | "DHCPV6" | "SSDP" | "WSD" | "Dropbox" | "Spotify" => {
            UdpClass::Periodic
        }
        "QUIC" => UdpClass::QuicLike,
        "STUN" | "Skype_TeamsCall" | "Webex" | "RTP" => UdpClass::RtpLike,
        "Gnutella" | "ETHEREUM" | "BitTorrent" if found == UdpClass::Periodic => found,
        "Gnutella" | "ETHEREUM" | "BitTorrent" | "SIP" | "NAT-PMP" | "BACnet" => UdpClass::Exchange,
        _ => return None,
    })
}

type Ends = [(IpAddr, u16); 2];

fn ends(text: &str) -> Option<(IpAddr, u16)> {
    let (address, port) = text.rsplit_once(':')?;
    Some((address.trim_matches(['[', ']']).parse().ok()?, port.parse().ok()?))
}

/// The UDP conversations of nDPI's list, by their ends, with their labels.
fn labels(list: &str) -> BTreeMap<Ends, String> {
    let one = |line: &str| {
        let (_, rest) = line.trim_start().split_once("\tUDP ")?;
        let mut words = rest.split(' ');
        let (from, _, to) = (ends(words.next()?)?, words.next()?, ends(words.next()?)?);
        let (_, label) = rest.split_once("[proto: ")?.1.split_once(']')?.0.split_once('/')?;
        Some(([from.min(to), from.max(to)], label.to_owned()))
    };
    list.lines().filter_map(one).collect()
}

fn records(capture: &Path) -> Result<Vec<FlowRecord>> {
    let mut records = Vec::new();
    let mut keep = |record| {
        records.push(record);
        Ok(())
    };
    read_flows(&[capture.to_owned()], &FlowOptions::default(), &mut |_| {}, &mut keep)?;
    Ok(records)
}

#[test]
fn classes_of_udp_are_those_of_ndpi() -> Result<()> {
    let Some(data) = data() else { return Ok(()) };
    let mut matrix: BTreeMap<(UdpClass, UdpClass), u64> = BTreeMap::new();
    let mut lists: Vec<PathBuf> = std::fs::read_dir(data.join("pcap/nDPI/result"))?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    lists.sort();
    for list in lists {
        let name = list.file_stem().context("a name")?;
        let capture = data.join("pcap/nDPI/pcap").join(name);
        let labels = labels(&String::from_utf8_lossy(&std::fs::read(&list)?));
        if labels.is_empty() || !capture.exists() {
            continue;
        }
        for one in conversations(&records(&capture)?) {
            let from = (one.key.source, one.key.source_port);
            let to = (one.key.destination, one.key.destination_port);
            let label = labels.get(&[from.min(to), from.max(to)]);
            if let Some(expected) = label.and_then(|label| expected(label, one.class)) {
                *matrix.entry((expected, one.class)).or_default() += 1;
            }
        }
    }
    println!("{:<14} {}", "nDPI \\ here", UdpClass::ALL.map(UdpClass::name).join(" "));
    for row in UdpClass::ALL {
        let cells = UdpClass::ALL.map(|column| *matrix.get(&(row, column)).unwrap_or(&0));
        println!("{:<14} {cells:?}", row.name());
        let all: u64 = cells.iter().sum();
        let right = *matrix.get(&(row, row)).unwrap_or(&0);
        ensure!(10 * right >= 8 * all, "{}: {right} of {all} are told", row.name());
    }
    let all: u64 = matrix.values().sum();
    let right: u64 = UdpClass::ALL.iter().filter_map(|&class| matrix.get(&(class, class))).sum();
    println!("{right} of {all} conversations");
    ensure!(all > 500 && 100 * right >= 95 * all, "{right} of {all}");
    Ok(())
}

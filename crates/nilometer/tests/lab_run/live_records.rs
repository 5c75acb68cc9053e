//! `flows --listen` and `--interface` as a user sees them: exports and packets on loopback, signals, losses.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;

use crate::common::{Room, Running, privileged, text};
use nilometer_flow::netflow5::{self, Header};
use nilometer_flow::record::{UDP, tcp_flags};
use nilometer_flow::{EndReason, FlowKey, FlowRecord};
use nilometer_linux::namespace::Namespace;
use serde_json::Value;

/// A port of loopback that was free a moment ago, and a socket that sends to it.
fn rendezvous() -> (SocketAddr, UdpSocket) {
    let free = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    let to = free.local_addr().expect("an address");
    (to, UdpSocket::bind("127.0.0.1:0").expect("loopback"))
}

/// A datagram of NetFlow v5 whose records are numbered from `first` on.
fn export(first: u32, count: usize) -> Vec<u8> {
    let begun_ns = 1_700_000_000_000_000_000;
    let record = |number: u32| FlowRecord {
        key: FlowKey {
            source: Ipv4Addr::new(198, 51, 100, (number % 50) as u8).into(),
            destination: Ipv4Addr::new(203, 0, 113, (number % 7) as u8).into(),
            source_port: 1_024 + number as u16,
            destination_port: 443,
            protocol: 6,
        },
        start_ns: begun_ns + u64::from(number) * 1_000_000,
        end_ns: begun_ns + u64::from(number) * 1_000_000 + 5_000_000_000,
        packets: 4,
        octets: 4_000,
        tcp_flags: tcp_flags::SYN | tcp_flags::ACK | tcp_flags::FIN,
        payload_octets: None,
        opened: None,
        end_reason: EndReason::Unknown,
        sampling_interval: 0,
    };
    let records: Vec<FlowRecord> = (first..first + count as u32).map(record).collect();
    let header = Header {
        uptime_ms: 900_000,
        unix_secs: 1_700_000_100,
        unix_nsecs: 0,
        flow_sequence: first,
        engine_type: 0,
        engine_id: 0,
        sampling_mode: 0,
        sampling_interval: 0,
    };
    netflow5::encode(&header, &records).expect("it fits")
}

/// The arguments of a listening command, with more appended.
fn listening(to: SocketAddr, more: &[&str]) -> Vec<String> {
    let words = ["flows", "--listen", &to.to_string(), "--json"];
    words.iter().chain(more).map(|word| (*word).to_owned()).collect()
}

fn started(room: &Room, words: &[String], word: &str) -> Running {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut running = room.start(&words);
    // Its later output is little enough to stay in the pipe.
    running.read_until(word);
    running
}

fn counted(running: Running, status: i32) -> Value {
    let output = running.end();
    assert_eq!(output.status.code(), Some(status), "{}", text(&output.stdout));
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

fn lines(room: &Room, name: &str) -> Vec<String> {
    let mut lines: Vec<String> = room.read(name).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn live_exports_decode_as_a_file_of_the_same_datagrams() {
    let room = Room::new("heard");
    let (to, sender) = rendezvous();
    let mut running = started(&room, &listening(to, &["-o", "heard.ndjson"]), "listening on");
    // Twenty records were exported and never arrived; one datagram is nothing, one contradicts itself.
    let sent = [export(0, 30), export(30, 30), export(80, 24)];
    let mut broken = export(104, 3);
    broken.truncate(60);
    for datagram in sent.iter().map(Vec::as_slice).chain([&b"hello"[..], &broken]) {
        sender.send_to(datagram, to).expect("loopback");
    }
    thread::sleep(Duration::from_millis(200));
    running.signal(libc::SIGTERM);
    let counts = counted(running, 0);
    assert_eq!(counts["flow_records"], 84);
    assert_eq!((&counts["format"], &counts["exporters"]), (&"NetFlow v5".into(), &1.into()));
    let exports = &counts["exports"];
    assert_eq!((&exports["datagrams"], &exports["lost"]), (&3.into(), &20.into()), "{exports}");
    assert_eq!((&exports["malformed"], &exports["other_packets"]), (&1.into(), &1.into()));
    let live = &counts["live"];
    assert_eq!((&live["received"], &live["kernel_dropped"]), (&5.into(), &0.into()), "{live}");
    assert_eq!(
        (&live["stopped_by"], &live["source"]),
        (&"signal".into(), &format!("udp {to}").into())
    );
    room.write("sent.nf5", sent.concat());
    room.done(&["flows", "sent.nf5", "-o", "read.ndjson"]);
    assert_eq!(lines(&room, "heard.ndjson"), lines(&room, "read.ndjson"));
}

/// A NetFlow v9 datagram: a template, or one record with a byte count.
fn version9(source: u32, sequence: u32, record: Option<u32>) -> Vec<u8> {
    let mut bytes = [0, 9, 0, 1].to_vec();
    for word in [100_000, 1_700_000_000, sequence, source] {
        bytes.extend(u32::to_be_bytes(word));
    }
    let words: Vec<u16> = match record {
        // Source, destination, bytes and packets.
        None => vec![0, 24, 256, 4, 8, 4, 12, 4, 1, 4, 2, 4],
        Some(octets) => {
            vec![256, 20, 0xc633, 0x6401, 0xcb00, 0x7101, 0, octets as u16, 0, 1]
        }
    };
    bytes.extend(words.into_iter().flat_map(u16::to_be_bytes));
    bytes
}

/// Waits until the receiver has emptied its buffer, so that the kernel drops nothing.
fn wait_until_fetched(by: SocketAddr) {
    let port = format!(":{:04X}", by.port());
    let waits = || {
        let table = std::fs::read_to_string("/proc/net/udp").expect("the kernel tells");
        table.lines().skip(1).any(|line| {
            let mut words = line.split_whitespace().skip(1);
            let is_it = words.next().is_some_and(|local| local.ends_with(&port));
            let queues = words.nth(2).and_then(|queues| queues.split_once(':'));
            is_it && queues.is_some_and(|(_, received)| received != "00000000")
        })
    };
    while waits() {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Strangers invent thousands of source IDs, and of addresses; an exporter comes among them.
#[test]
fn templates_of_strangers_do_not_silence_an_exporter() {
    let room = Room::new("strangers");
    let (to, stranger) = rendezvous();
    let mut running = started(&room, &listening(to, &["-o", "heard.csv"]), "listening on");
    let mut sent = 0u32;
    let mut send = |socket: &UdpSocket, datagram: &[u8]| {
        socket.send_to(datagram, to).expect("loopback");
        sent += 1;
        if sent.is_multiple_of(64) {
            wait_until_fetched(to);
        }
    };
    let mut invented = 0;
    let mut attack = |count: u32, send: &mut dyn FnMut(&UdpSocket, &[u8])| {
        for number in invented..invented + count {
            send(&stranger, &version9(1_000 + number, 0, None));
            let address = Ipv4Addr::from(0x7f10_0001 + number);
            let other = UdpSocket::bind((address, 0)).expect("all of 127.0.0.0/8 is here");
            send(&other, &version9(7, 0, None));
        }
        invented += count;
    };
    attack(5_000, &mut send);
    let exporter = UdpSocket::bind("127.200.0.1:0").expect("loopback");
    send(&exporter, &version9(1, 0, None));
    attack(500, &mut send);
    for number in 1..=200 {
        send(&exporter, &version9(1, number, Some(number)));
        attack(5, &mut send);
    }
    wait_until_fetched(to);
    running.signal(libc::SIGTERM);
    let counts = counted(running, 0);
    assert_eq!(counts["live"]["kernel_dropped"], 0, "{counts}");
    assert_eq!(counts["flow_records"], 200, "{counts}");
    let skipped = &counts["skipped"];
    assert!(skipped["template_evicted"].as_u64().is_some_and(|count| count > 5_000), "{counts}");
    assert!(skipped["no_template"].is_null() && skipped["domain_limit"].is_null(), "{counts}");
    let warnings = counts["warnings"].as_array().expect("a list");
    let is_it = |message: &&str| message.contains(" templates were forgotten, of ");
    let message: Vec<&str> = warnings.iter().filter_map(Value::as_str).filter(is_it).collect();
    let [message] = message[..] else { panic!("one line says it: {warnings:?}") };
    assert!(message.contains(" of them of 127.0.0.1, because more came"), "{message}");
    assert!(message.ends_with("by 0 of them records had been read"), "{message}");
}

#[test]
fn a_live_capture_ends_by_itself_or_keeps_its_results() {
    let room = Room::new("ends");
    let (to, sender) = rendezvous();
    let words = listening(to, &["--count", "4", "-o", "count.csv"]);
    let running = started(&room, &words, "listening on");
    for number in 0..10 {
        sender.send_to(&export(number * 2, 2), to).expect("loopback");
    }
    let counts = counted(running, 0);
    assert_eq!(
        (&counts["live"]["received"], &counts["live"]["stopped_by"]),
        (&4.into(), &"count".into())
    );
    assert_eq!(counts["flow_records"], 8);
    assert_eq!(room.read("count.csv").lines().count(), 1 + 8);

    let running = started(&room, &listening(to, &["--seconds", "0.3"]), "listening on");
    let counts = counted(running, 0);
    assert_eq!(
        (&counts["flow_records"], &counts["live"]["stopped_by"]),
        (&0.into(), &"seconds".into())
    );
    assert!(counts["live"]["seconds"].as_f64().is_some_and(|seconds| seconds >= 0.3), "{counts}");

    let words = listening(to, &["--seconds", "1000", "-o", "cut.csv"]);
    let mut running = started(&room, &words, "listening on");
    sender.send_to(&export(0, 5), to).expect("loopback");
    thread::sleep(Duration::from_millis(200));
    running.signal(libc::SIGINT);
    let counts = counted(running, 130);
    assert_eq!(
        (&counts["flow_records"], &counts["live"]["stopped_by"]),
        (&5.into(), &"signal".into())
    );
    assert_eq!(room.read("cut.csv").lines().count(), 1 + 5);
}

/// A process that is stopped reads nothing: what does not fit its buffer is lost, and counted by the kernel.
#[test]
fn datagrams_dropped_by_the_kernel_are_counted_and_warned_of() {
    const SENT: u32 = 60_000;
    let room = Room::new("dropped");
    let (to, sender) = rendezvous();
    let mut running = started(&room, &listening(to, &[]), "listening on");
    running.signal(libc::SIGSTOP);
    for number in 0..SENT {
        sender.send_to(&export(30 * number, 30), to).expect("loopback");
    }
    running.signal(libc::SIGCONT);
    thread::sleep(Duration::from_millis(500));
    running.signal(libc::SIGTERM);
    let counts = counted(running, 0);
    let live = &counts["live"];
    let [received, dropped] =
        ["received", "kernel_dropped"].map(|key| live[key].as_u64().expect("a count"));
    assert!(received > 0 && dropped > 0, "{live}");
    assert_eq!(received + dropped, u64::from(SENT));
    let lost = counts["exports"]["lost"].as_u64().expect("a count");
    assert!(lost <= 30 * dropped, "{lost} records of {dropped} datagrams");
    let warned = counts["warnings"].to_string();
    assert!(warned.contains(&format!("dropped {dropped} datagrams")), "{warned}");
}

#[test]
fn packets_of_an_interface_are_metered_once() {
    if !privileged("an interface metered live") {
        return;
    }
    const SENT: u64 = 300;
    let room = Room::new("watched");
    let inside = Namespace::new().expect("a namespace");
    let words: Vec<String> =
        ["flows", "--interface", "lo", "--json", "-o", "out.ndjson"].map(str::to_owned).into();
    let mut running = inside.run(|| started(&room, &words, "watching interface lo"));
    let (from, to) = inside.run(|| {
        let (to, sender) = rendezvous();
        let receiver = UdpSocket::bind(to).expect("loopback");
        for _ in 0..SENT {
            sender
                .send_to(&[7; 100], receiver.local_addr().expect("an address"))
                .expect("loopback");
        }
        (sender.local_addr().expect("an address"), to)
    });
    thread::sleep(Duration::from_millis(300));
    running.signal(libc::SIGINT);
    let counts = counted(running, 0);
    assert_eq!(
        (&counts["format"], &counts["live"]["kernel_dropped"]),
        (&"live packets".into(), &0.into())
    );
    let records = lines(&room, "out.ndjson");
    let records: Vec<Value> =
        records.iter().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let ours = records.iter().filter(|record| {
        record["sourceTransportPort"] == from.port()
            && record["destinationTransportPort"] == to.port()
            && record["protocolIdentifier"] == UDP
    });
    let sum = |key: &str| ours.clone().filter_map(|record| record[key].as_u64()).sum::<u64>();
    assert_eq!((sum("packetDeltaCount"), sum("octetDeltaCount")), (SENT, SENT * 128));
    assert_eq!(sum("payloadOctets"), SENT * 100);
}

#[test]
fn impossible_live_inputs_are_refused_in_one_line() {
    let room = Room::new("live-refused");
    room.write("a.pcap", crate::common::capture(3, |_| 400));
    let line = room.refused(&["flows", "--listen", "192.0.2.1:2055"]);
    assert!(line.contains("cannot listen on 192.0.2.1:2055"), "{line}");
    let line = room.refused(&["flows", "--listen", "2055"]);
    assert!(line.contains("--listen"), "{line}");
    let line = room.refused(&["flows", "--interface", "nosuch0"]);
    assert!(line.contains("nosuch0"), "{line}");
    for words in [
        &["flows", "--listen", "127.0.0.1:0", "--interface", "lo"][..],
        &["flows", "--listen", "127.0.0.1:0", "a.pcap"],
        &["flows", "a.pcap", "--seconds", "1"],
        &["flows", "--listen", "127.0.0.1:0", "--seconds", "0"],
        &["flows", "--listen", "127.0.0.1:0", "--count", "0"],
        &["flows"],
    ] {
        room.refused(words);
    }
}

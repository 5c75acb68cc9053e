//! Targets of the pure crates: decoders of datagrams, records and messages that work on slices.
//!
//! A target panics when something does not hold. A test of the workspace plays the corpus through the
//! same functions (`crates/nilometer/tests/files/corpus.rs`).

use nilometer_flow::FlowRecord;
use nilometer_flow::collector::Collector;
use nilometer_flow::counts::Counts;
use nilometer_flow::framing::{Extent, extent, well_formed};
use nilometer_flow::nfcapd::Blocks;
use nilometer_flow::template::{Exporter, Limits};
use nilometer_flow::{flow_tools, netflow5, netflow7};
use nilometer_reservation::message::Message;
use nilometer_reservation::packet;
use nilometer_router::classifier::classbench;
use nilometer_router::fpm;
use nilometer_router::header::Header;
use nilometer_router::rtnetlink::{self, Ignored, Messages};
use nilometer_video::{Receiver, container};
use nilometer_wire::link::LinkType;
use nilometer_wire::packet::{Parsed, parse};

/// A target: its name, and what it does with bytes.
pub type Target = (&'static str, fn(&[u8]));

/// All targets here.
pub const TARGETS: [Target; 14] = [
    ("netflow5", of_netflow5),
    ("netflow7", of_netflow7),
    ("netflow9", of_netflow9),
    ("ipfix", of_ipfix),
    ("sflow", of_sflow),
    ("framing", of_framing),
    ("nfcapd", of_nfcapd),
    ("flow_tools", of_flow_tools),
    ("frame", of_frame),
    ("fpm", of_fpm),
    ("rtnetlink", of_rtnetlink),
    ("filters", of_filters),
    ("video", of_video),
    ("rsvp", of_rsvp),
];

/// Records of any decoder are in their order, and no more than so many bytes may announce.
fn hold(flows: &[FlowRecord], bytes: usize, record_bytes_min: usize) {
    assert!(flows.iter().all(|flow| flow.end_ns >= flow.start_ns));
    assert!(flows.len() * record_bytes_min <= bytes, "{} of {bytes} bytes", flows.len());
}

/// One datagram of NetFlow v5: decoded in both ways, and what encodes is decoded again.
pub fn of_netflow5(bytes: &[u8]) {
    let mut flows = Vec::new();
    let each = netflow5::decode_each(bytes, &mut |flow| flows.push(flow));
    let whole = netflow5::decode(bytes);
    match (&each, &whole) {
        (Ok((header, _)), Ok(datagram)) => {
            assert_eq!((header, &flows), (&datagram.header, &datagram.records));
            hold(&flows, bytes.len(), netflow5::RECORD_BYTES);
        }
        (Err(one), Err(two)) => {
            assert!(one == two && flows.is_empty());
        }
        _ => panic!("{each:?} and {whole:?}"),
    }
    let mut stream = netflow5::Stream::new(bytes);
    let mut before = 0;
    while let Some(Ok(_)) = stream.next() {
        assert!(stream.offset() > before && stream.offset() <= bytes.len());
        before = stream.offset();
    }
}

/// One datagram of NetFlow v7.
pub fn of_netflow7(bytes: &[u8]) {
    let mut flows = Vec::new();
    match netflow7::decode_each(bytes, &mut |flow| flows.push(flow)) {
        Ok(_) => hold(&flows, bytes.len(), netflow7::RECORD_BYTES),
        Err(_) => assert!(flows.is_empty()),
    }
}

/// Datagrams of one version, each behind its length in sixteen bits, from two exporters in turn.
fn collect(version: &[u8], bytes: &[u8]) {
    let limits = Limits {
        domains_max: 20,
        domains_of_address_max: 12,
        templates_max: 50,
        templates_of_address_max: 30,
        fields_max: 40,
        held_bytes_max: 5_000,
    };
    let mut collector = Collector::new(limits);
    let (mut rest, mut heard, mut given) = (bytes, 0u64, 0u64);
    while let Some((length, after)) = rest.split_first_chunk::<2>() {
        let (body, after) =
            after.split_at(usize::from(u16::from_be_bytes(*length)).min(after.len()));
        rest = after;
        let datagram = [version, body].concat();
        let exporter = Exporter { address: [10, 0, 0, 1 + (heard % 2) as u8].into(), port: 7 };
        let out = &mut |flow: FlowRecord| {
            assert!(flow.end_ns >= flow.start_ns);
            given += 1;
        };
        // Damage is counted by the collector, whose counts are looked at below.
        let _ = collector.receive(exporter, 1_700_000_000_000_000_000, &datagram, out);
        heard += 1;
        let counts = collector.counts();
        assert!(counts.bytes.held <= 5_000 && collector.exporters() <= 60, "{counts:?}");
    }
    collector.finish();
    let counts = collector.counts();
    counts.assert_balanced();
    assert_eq!(counts.datagrams + counts.malformed, heard);
    assert_eq!(counts.given(), given);
}

/// Datagrams of NetFlow v9: templates, options, records in any order.
pub fn of_netflow9(bytes: &[u8]) {
    collect(&[0, 9], bytes);
}

/// Messages of IPFIX.
pub fn of_ipfix(bytes: &[u8]) {
    collect(&[0, 10], bytes);
}

/// Datagrams of sFlow v5.
pub fn of_sflow(bytes: &[u8]) {
    collect(&[0, 0, 0, 5], bytes);
}

/// A stream cut into datagrams: every cut goes forward, and more bytes never make a datagram shorter.
pub fn of_framing(bytes: &[u8]) {
    let mut rest = bytes;
    while let Extent::Ends(length) = extent(rest, true) {
        assert!(length > 0);
        let Some((datagram, after)) = rest.split_at_checked(length) else { break };
        if let Extent::Ends(again) = extent(datagram, true) {
            assert!(again <= length, "{again} of {length}");
        }
        well_formed(datagram);
        rest = after;
    }
    if let Extent::Needs(needed) = extent(rest, false) {
        assert!(needed > rest.len(), "{needed} are there: {}", rest.len());
    }
}

/// A file of nfcapd, its blocks not compressed.
pub fn of_nfcapd(bytes: &[u8]) {
    let Ok(blocks) = Blocks::new(bytes) else { return };
    let file = *blocks.file();
    let (mut counts, mut flows) = (Counts::default(), Vec::new());
    for block in blocks {
        let Ok((block, body, is_appendix)) = block else { break };
        block.compression(&file, is_appendix);
        if is_appendix {
            block.totals(body);
        } else {
            block.decode(&file, body, &mut counts, &mut |flow| flows.push(flow));
        }
        counts.assert_balanced();
    }
    assert_eq!(counts.given(), flows.len() as u64);
    hold(&flows, bytes.len(), 16);
}

/// A file of flow-tools, not compressed.
pub fn of_flow_tools(bytes: &[u8]) {
    let Ok(header) = flow_tools::Header::read(bytes) else { return };
    let (mut counts, mut flows) = (Counts::default(), Vec::new());
    let body = &bytes[header.header_bytes..];
    let taken = header.decode(body, &mut counts, &mut |flow| flows.push(flow));
    assert!(taken <= body.len());
    header.finish(&body[taken..], &mut counts);
    counts.assert_balanced();
    assert_eq!(counts.given(), flows.len() as u64);
    hold(&flows, body.len(), 48);
}

/// A frame of the link type that its first two bytes say, as a capture holds it and as the router gets it.
pub fn of_frame(bytes: &[u8]) {
    let Some((number, frame)) = bytes.split_first_chunk::<2>() else { return };
    let lengths = [frame.len() as u32, frame.len() as u32 + 1_000];
    if let Some(link) = LinkType::from_dlt(u16::from_be_bytes(*number).into()) {
        for original_bytes in lengths {
            if let Parsed::Ip(ip) = parse(link, frame, original_bytes) {
                assert!(ip.ip_bytes > 0, "{ip:?}");
                ip.ports();
            }
        }
    }
    // What the router cannot use it says; both of its doors are tried.
    let _ = Header::read(frame);
    let _ = Header::read_ipv4(frame);
    let _ = Header::read_ipv6(frame);
}

/// A connection of the forwarding plane manager, received at once and in pieces.
pub fn of_fpm(bytes: &[u8]) {
    let read = |step: usize| {
        let (mut stream, mut updates) = (fpm::Stream::new(), Vec::new());
        let mut ended = None;
        'pieces: for piece in bytes.chunks(step) {
            let mut piece = piece;
            while !piece.is_empty() {
                let space = stream.space();
                let count = space.len().min(piece.len());
                assert!(count > 0, "there is always space after what was read");
                space[..count].copy_from_slice(&piece[..count]);
                stream.filled(count);
                piece = &piece[count..];
                if let Err(fault) = stream.updates(&mut updates) {
                    ended = Some(format!("{fault:?}"));
                    break 'pieces;
                }
            }
        }
        (format!("{updates:?}"), format!("{:?}", stream.counters()), ended)
    };
    assert_eq!(read(usize::MAX), read(7), "pieces say the same");
}

/// Messages of rtnetlink.
pub fn of_rtnetlink(bytes: &[u8]) {
    let mut ignored = Ignored::default();
    let messages = Messages::new(bytes).take_while(Result::is_ok).flatten();
    let mut count = 0;
    for message in messages {
        // A fault is named, and ends a real connection; here what follows is read as well.
        let _ = rtnetlink::read(&message, &mut ignored);
        count += 1;
    }
    assert!(count * 16 <= bytes.len());
}

/// Text of filters and of packet headers in ClassBench's form.
pub fn of_filters(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let lines = text.lines().count();
    if let Ok(rules) = classbench::read_rules(&text) {
        assert!(rules.len() <= lines);
    }
    if let Ok(headers) = classbench::read_trace(&text) {
        assert!(headers.len() <= lines);
    }
}

/// A file of Wave Video packets, of frames that are not too large to be rebuilt again and again.
pub fn of_video(bytes: &[u8]) {
    let (mut receiver, mut packets, mut frames) = (None, 0, 0);
    let read = container::packets(bytes, &mut |container, packet| {
        let (size, levels) = (container.size, container.levels);
        if size.frame_bytes() > 1 << 12 {
            return;
        }
        let receiver =
            receiver.get_or_insert_with(|| Receiver::new(size, levels, levels.subbands()));
        packets += 1;
        // What cannot be used is counted by the receiver, whose counts are looked at below.
        let _ = receiver.receive(packet, &mut |frame, _| {
            assert_eq!(frame.size(), size);
            frames += 1;
        });
        let counts = receiver.counts();
        counts.assert_balanced();
        assert_eq!((counts.packets, counts.frames), (packets, frames));
    });
    assert!(packets * 22 <= bytes.len() as u64);
    if let (Ok((_, count)), Some(receiver)) = (read, receiver) {
        let before = frames;
        if let Ok(counts) = receiver.finish(count, &mut |_, _| frames += 1) {
            assert!(counts.frames == frames && frames == before.max(count.into()));
        }
    }
}

/// A message of RSVP, without its checksum: what is read is written, and read the same again. Or a packet of one.
pub fn of_rsvp(bytes: &[u8]) {
    let mut unsummed = bytes.to_vec();
    unsummed.iter_mut().skip(2).take(2).for_each(|byte| *byte = 0);
    if let Ok(received) = Message::read(&unsummed) {
        let again = Message::read(&received.message.write(received.send_ttl));
        assert_eq!(again.map(|again| again.message), Ok(received.message));
    }
    if let Ok((_, message)) = packet::read(bytes) {
        assert!(message.len() < bytes.len());
    }
}

//! NetFlow v7: a datagram made by hand, and what is wrong with others.

use nilometer_flow::netflow7::{Error, decode_each};

fn datagram() -> Vec<u8> {
    let mut bytes = vec![0, 7, 0, 2];
    for word in [90_000u32, 1_700_000_000, 500_000_000, 77, 0] {
        bytes.extend(word.to_be_bytes());
    }
    for number in 1..=2u8 {
        bytes.extend([10, 0, 0, number, 10, 0, 1, number, 0, 0, 0, 0, 0, 1, 0, 2]);
        for word in [4, 4_000, 80_000, 85_500u32] {
            bytes.extend(word.to_be_bytes());
        }
        bytes.extend([0x9c, 0x40, 0, 80, 1, 0x1b, 6, 0, 0, 0, 0, 0, 24, 24, 0, 0, 192, 0, 2, 9]);
    }
    bytes
}

#[test]
fn a_datagram_is_decoded() {
    let mut flows = Vec::new();
    let (header, reversed) = decode_each(&datagram(), &mut |flow| flows.push(flow)).unwrap();
    assert_eq!((header.flow_sequence, header.sampling_interval, reversed), (77, 0, 0));
    assert_eq!(flows.len(), 2);
    let flow = &flows[1];
    assert_eq!((flow.key.source.to_string(), flow.key.source_port), ("10.0.0.2".into(), 40_000));
    assert_eq!((flow.packets, flow.octets, flow.tcp_flags), (4, 4_000, 0x1b));
    assert_eq!(header.export_ns() - flow.start_ns, 10_000_000_000);
    assert_eq!(flow.end_ns - flow.start_ns, 5_500_000_000);
}

#[test]
fn damage_is_named() {
    let good = datagram();
    let refused = |bytes: &[u8]| decode_each(bytes, &mut |_| panic!("a record")).unwrap_err();
    for kept in 0..good.len() {
        let needed_bytes = if kept < 24 { 24 } else { 128 };
        assert_eq!(refused(&good[..kept]), Error::Cut { needed_bytes, found_bytes: kept });
    }
    let longer = [&good[..], &[0]].concat();
    assert_eq!(refused(&longer), Error::Trailing { offset: 128, bytes: 1 });
    assert_eq!(refused(&[0, 5, 0, 0]), Error::Version(5));
    let crowded = [&[0, 7, 0, 29][..], &good[4..]].concat();
    assert_eq!(refused(&crowded), Error::Count(29));
    let record = &good[24..76];
    let full = [&[0, 7, 0, 28][..], &good[4..24], &record.repeat(28)].concat();
    let mut flows = 0;
    assert!(decode_each(&full, &mut |_| flows += 1).is_ok());
    assert_eq!(flows, 28);
    assert!(Error::Count(29).to_string().contains("29 records"));
}

//! Tests of the pcapng reader, on files they write themselves.

use super::*;

/// Writes blocks in one byte order.
struct Writer {
    big_endian: bool,
    file: Vec<u8>,
}

impl Writer {
    fn new(big_endian: bool) -> Writer {
        let mut writer = Writer { big_endian, file: Vec::new() };
        writer.section();
        writer
    }

    fn u32(&self, value: u32) -> [u8; 4] {
        if self.big_endian { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn u16(&self, value: u16) -> [u8; 2] {
        if self.big_endian { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn block(&mut self, kind: u32, parts: &[&[u8]]) {
        let mut body = parts.concat();
        body.resize(body.len().next_multiple_of(4), 0);
        let length = self.u32(body.len() as u32 + 12);
        let kind = self.u32(kind);
        self.file.extend([&kind[..], &length, &body, &length].concat());
    }

    fn section(&mut self) {
        let (magic, major, minor) = (self.u32(BYTE_ORDER_MAGIC), self.u16(1), self.u16(0));
        self.block(SECTION_HEADER, &[&magic, &major, &minor, &[0xff; 8]]);
    }

    fn interface(&mut self, link_type: u16, snap_bytes: u32, options: &[(u16, &[u8])]) {
        let mut written = Vec::new();
        for (code, value) in options {
            written.extend(self.u16(*code));
            written.extend(self.u16(value.len() as u16));
            written.extend(*value);
            written.resize(written.len().next_multiple_of(4), 0);
        }
        let (link, snap) = (self.u16(link_type), self.u32(snap_bytes));
        self.block(INTERFACE_DESCRIPTION, &[&link, &[0; 2], &snap, &written]);
    }

    fn enhanced(&mut self, interface: u32, ticks: u64, original_bytes: u32, frame: &[u8]) {
        let words =
            [interface, (ticks >> 32) as u32, ticks as u32, frame.len() as u32, original_bytes];
        let words: Vec<u8> = words.into_iter().flat_map(|word| self.u32(word)).collect();
        let mut padded = frame.to_vec();
        padded.resize(frame.len().next_multiple_of(4), 0xee);
        let comment = [&self.u16(1)[..], &self.u16(2), b"hi\0\0", &[0; 4]].concat();
        self.block(ENHANCED_PACKET, &[&words, &padded, &comment]);
    }
}

type Seen = (Option<u64>, u32, u32, Vec<u8>);

fn read(file: &[u8]) -> (Vec<Seen>, Ending) {
    let mut pcapng = Pcapng::new(Window::new(file)).expect("a section header");
    let mut seen = Vec::new();
    while let Some(packet) = pcapng.next_packet().expect("memory can be read") {
        let frame = packet.frame.to_vec();
        seen.push((packet.stamp_ns, packet.link_type, packet.original_bytes, frame));
    }
    (seen, pcapng.ending().clone())
}

#[test]
fn sections_change_byte_order_and_forget_interfaces() {
    let mut file = Vec::new();
    for big_endian in [true, false] {
        let mut writer = Writer::new(big_endian);
        writer.interface(if big_endian { 1 } else { 113 }, 0, &[]);
        writer.block(0x0bad_beef, &[b"a block of the future"]);
        writer.enhanced(0, 1_500_000, 60, b"frame");
        file.extend(writer.file);
    }
    let (seen, ending) = read(&file);
    let packet = |link| (Some(1_500_000_000), link, 60, b"frame".to_vec());
    assert_eq!(seen, [packet(1), packet(113)]);
    assert_eq!(ending, Ending::Whole);
}

#[test]
fn every_unit_of_time_is_understood() {
    let minus_one = (-1i64).to_be_bytes();
    let after_2554 = (i64::MAX).to_be_bytes();
    type Options<'a> = &'a [(u16, &'a [u8])];
    let cases: [(Options, u64, u64); 9] = [
        (&[], 7, 7_000),
        (&[(OPTION_RESOLUTION, &[9])], 7, 7),
        (&[(OPTION_RESOLUTION, &[0])], 7, 7_000_000_000),
        (&[(OPTION_RESOLUTION, &[12])], 7_999, 7),
        (&[(OPTION_RESOLUTION, &[127])], u64::MAX, 0),
        (&[(OPTION_RESOLUTION, &[0x80 | 10])], 1_536, 1_500_000_000),
        (&[(OPTION_RESOLUTION, &[0])], u64::MAX, u64::MAX),
        (&[(OPTION_OFFSET, &minus_one)], 1_000_001, 1_000),
        (&[(OPTION_OFFSET, &after_2554)], 7, u64::MAX),
    ];
    for (options, ticks, expected_ns) in cases {
        let mut writer = Writer::new(true);
        writer.interface(1, 0, options);
        writer.enhanced(0, ticks, 1, b"x");
        assert_eq!(read(&writer.file).0[0].0, Some(expected_ns), "{options:?}, {ticks} ticks");
    }
}

#[test]
fn simple_and_obsolete_packets_are_read() {
    let mut writer = Writer::new(false);
    writer.interface(1, 6, &[]);
    writer.interface(101, 0, &[]);
    let eight = writer.u32(8);
    writer.block(SIMPLE_PACKET, &[&eight, b"123456\0\0"]);
    let words = [5, 9, 4, 1_400].map(|word| writer.u32(word)).concat();
    let interface = writer.u16(1);
    writer.block(OBSOLETE_PACKET, &[&interface, &[0; 2], &words, b"abcd"]);
    let (seen, _) = read(&writer.file);
    let stamp = ((5u64 << 32) + 9) * 1_000;
    assert_eq!(
        seen,
        [(None, 1, 8, b"123456".to_vec()), (Some(stamp), 101, 1_400, b"abcd".to_vec())]
    );
}

#[test]
fn every_truncation_is_detected_and_earlier_packets_are_kept() {
    let mut writer = Writer::new(false);
    writer.interface(1, 0, &[]);
    let mut ends = vec![writer.file.len()];
    for number in 0..3 {
        writer.enhanced(0, number, 9, b"123456789");
        ends.push(writer.file.len());
    }
    for length in SECTION_HEADER_BYTES..writer.file.len() {
        let (seen, ending) = read(&writer.file[..length]);
        assert_eq!(seen.len(), ends[1..].iter().filter(|end| **end <= length).count());
        let whole = ends.contains(&length) || length == SECTION_HEADER_BYTES;
        assert_eq!(ending == Ending::Whole, whole, "cut at {length}");
        assert!(!matches!(ending, Ending::Damaged { .. }), "cut at {length}");
    }
    for length in 4..SECTION_HEADER_BYTES {
        let cut = Pcapng::new(Window::new(&writer.file[..length]));
        assert!(matches!(cut, Err(HeaderError::Cut { .. })), "cut at {length}");
    }
}

#[test]
fn damage_names_its_offset_and_never_panics() {
    let mut writer = Writer::new(true);
    writer.interface(1, 0, &[]);
    let first = writer.file.len();
    writer.enhanced(0, 1, 9, b"123456789");
    let second = writer.file.len();
    writer.enhanced(7, 1, 9, b"123456789");
    let (seen, ending) = read(&writer.file);
    assert_eq!(seen.len(), 1);
    let Ending::Damaged { offset, what } = ending else { panic!("{ending:?}") };
    assert_eq!(offset, second as u64);
    assert!(what.contains("interface 7"), "{what}");

    let whole = &writer.file[..second];
    for at in 0..whole.len() {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut broken = whole.to_vec();
            broken[at] = value;
            let Ok(mut pcapng) = Pcapng::new(Window::new(&broken[..])) else { continue };
            while let Some(packet) = pcapng.next_packet().expect("memory can be read") {
                assert!(packet.frame.len() <= broken.len() - first);
            }
        }
    }
}

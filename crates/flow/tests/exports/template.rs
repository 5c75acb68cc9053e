//! The template engine: the examples of the documents, and what exporters do beyond them.

use std::net::IpAddr;

use nilometer_flow::counts::{Counts, Skip};
use nilometer_flow::template::{Exporter, Limits, Session};
use nilometer_flow::{EndReason, FlowRecord};

use crate::capture::somebody;

const EXPORT_SECS: u32 = 1_700_000_000;
pub const EXPORT_NS: u64 = EXPORT_SECS as u64 * 1_000_000_000;
const UPTIME_MS: u32 = 100_000;
pub const MILLI: u64 = 1_000_000;

/// A field of a template: element, length, and the enterprise if there is one.
pub type Field = (u16, u16, Option<u32>);

pub fn iana(element: u16, length: u16) -> Field {
    (element, length, None)
}

fn fields(fields: &[Field]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (element, length, enterprise) in fields {
        let marked = element | if enterprise.is_some() { 0x8000 } else { 0 };
        bytes.extend([marked.to_be_bytes(), length.to_be_bytes()].concat());
        bytes.extend(enterprise.iter().flat_map(|number| number.to_be_bytes()));
    }
    bytes
}

pub fn words(words: &[usize]) -> Vec<u8> {
    words.iter().flat_map(|word| (*word as u16).to_be_bytes()).collect()
}

pub fn template(id: usize, of: &[Field]) -> Vec<u8> {
    [words(&[id, of.len()]), fields(of)].concat()
}

/// An options template of IPFIX.
pub fn options(id: usize, scope: &[Field], of: &[Field]) -> Vec<u8> {
    let count = scope.len() + of.len();
    [words(&[id, count, scope.len()]), fields(scope), fields(of)].concat()
}

/// An options template of version 9.
pub fn options_v9(id: usize, scope: &[Field], of: &[Field]) -> Vec<u8> {
    [words(&[id, 4 * scope.len(), 4 * of.len()]), fields(scope), fields(of)].concat()
}

pub fn set(id: usize, body: &[u8]) -> Vec<u8> {
    [&words(&[id, 4 + body.len()]), body].concat()
}

fn head(sequence: u32, domain: u32) -> Vec<u8> {
    [EXPORT_SECS, sequence, domain].iter().flat_map(|word| word.to_be_bytes()).collect()
}

pub fn v9(sequence: u32, domain: u32, sets: &[Vec<u8>]) -> Vec<u8> {
    [words(&[9, sets.len()]), UPTIME_MS.to_be_bytes().to_vec(), head(sequence, domain)]
        .into_iter()
        .chain(sets.iter().cloned())
        .collect::<Vec<_>>()
        .concat()
}

pub fn ipfix(sequence: u32, domain: u32, sets: &[Vec<u8>]) -> Vec<u8> {
    let body = sets.concat();
    [words(&[10, 16 + body.len()]), head(sequence, domain), body].concat()
}

/// The results of datagrams.
pub struct Decoded {
    session: Session,
    pub counts: Counts,
    pub flows: Vec<FlowRecord>,
}

impl Decoded {
    fn new(limits: Limits) -> Decoded {
        Decoded { session: Session::new(limits), counts: Counts::default(), flows: Vec::new() }
    }

    pub fn of(datagrams: &[Vec<u8>]) -> Decoded {
        let mut decoded = Decoded::new(Limits::default());
        datagrams.iter().for_each(|datagram| decoded.hear(somebody(), datagram));
        decoded
    }

    pub fn hear(&mut self, exporter: Exporter, datagram: &[u8]) {
        let flows = &mut self.flows;
        let out = &mut |record| flows.push(record);
        self.session.receive(exporter, datagram, &mut self.counts, out).unwrap();
        self.counts.assert_balanced();
    }

    fn skipped(&self, reason: Skip) -> u64 {
        self.counts.skips.of(reason)
    }
}

pub fn octets(addresses: &[[u8; 4]], numbers: &[u32]) -> Vec<u8> {
    let numbers: Vec<u8> = numbers.iter().flat_map(|number| number.to_be_bytes()).collect();
    [addresses.concat(), numbers].concat()
}

/// Source, destination, packets, bytes: the minimum of a flow.
pub const LEAST: [Field; 4] = [(8, 4, None), (12, 4, None), (2, 4, None), (1, 4, None)];

pub fn least(number: u8) -> Vec<u8> {
    octets(&[[10, 0, 0, number], [10, 0, 1, number]], &[3, 1_500])
}

#[test]
fn the_examples_of_both_documents_are_understood() {
    // RFC 3954, section 10, and RFC 7011, appendix A: the same template, three flows, two options.
    let of = [iana(8, 4), iana(12, 4), iana(15, 4), iana(2, 4), iana(1, 4)];
    let records = [
        octets(&[[192, 0, 2, 12], [192, 0, 2, 254], [192, 0, 2, 1]], &[5_009, 5_344_385]),
        octets(&[[192, 0, 2, 27], [192, 0, 2, 23], [192, 0, 2, 2]], &[748, 388_934]),
        octets(&[[192, 0, 2, 56], [192, 0, 2, 65], [192, 0, 2, 3]], &[5, 6_534]),
    ];
    let reported = [iana(41, 2), iana(42, 2)];
    let v9_options = words(&[1, 345, 10_201, 2, 690, 20_402]);
    let ipfix_options = [[0, 0].to_vec(), words(&[1, 345, 10_201, 0, 2, 690, 20_402])].concat();
    let datagrams = [
        v9(
            1,
            0,
            &[
                set(0, &template(256, &of)),
                set(256, &records.concat()),
                set(1, &[options_v9(258, &[iana(3, 2)], &reported), vec![0; 2]].concat()),
                set(258, &v9_options),
            ],
        ),
        ipfix(
            1,
            0,
            &[
                set(2, &template(256, &of)),
                set(256, &records.concat()),
                set(3, &[options(258, &[iana(141, 4)], &reported), vec![0; 2]].concat()),
                set(258, &ipfix_options),
            ],
        ),
    ];
    for datagram in datagrams {
        let decoded = Decoded::of(&[datagram]);
        assert_eq!((decoded.counts.flows, decoded.counts.options), (3, 2));
        assert_eq!((decoded.counts.templates, decoded.counts.bytes.padding), (2, 2));
        let first = &decoded.flows[0];
        assert_eq!(first.key.source, IpAddr::from([192, 0, 2, 12]));
        assert_eq!(first.key.destination, IpAddr::from([192, 0, 2, 254]));
        let sums: Vec<_> = decoded.flows.iter().map(|flow| (flow.packets, flow.octets)).collect();
        assert_eq!(sums, [(5_009, 5_344_385), (748, 388_934), (5, 6_534)]);
        assert_eq!((first.start_ns, decoded.counts.times_absent), (EXPORT_NS, 3), "no times");
    }
}

#[test]
fn fields_of_variable_length_and_of_enterprises_are_passed() {
    // RFC 7011, section 7: one byte of length, or 255 and two.
    let of = [(82, 0xffff, None), iana(8, 4), (3, 0xffff, Some(32_473)), iana(12, 4), iana(1, 8)];
    let tail = |number| [&[10, 0, 1, number][..], &777u64.to_be_bytes()].concat();
    let short = [&b"\x05hello"[..], &[10, 0, 0, 1], b"\0", &tail(1)].concat();
    let long = [&[255, 1, 0x2c][..], &[b'x'; 300], &[10, 0, 0, 2], b"\x01y", &tail(2)].concat();
    let cut = [&[255, 200, 0][..], &[0; 30]].concat();
    let sets = [set(2, &template(300, &of)), set(300, &[short, long, cut].concat())];
    let decoded = Decoded::of(&[ipfix(0, 7, &sets)]);
    assert_eq!((decoded.counts.records, decoded.counts.flows), (3, 2));
    assert_eq!(decoded.skipped(Skip::RecordDamaged), 1);
    let sources: Vec<_> = decoded.flows.iter().map(|flow| flow.key.source.to_string()).collect();
    assert_eq!(sources, ["10.0.0.1", "10.0.0.2"]);
    assert!(decoded.flows.iter().all(|flow| flow.octets == 777));
}

#[test]
fn a_biflow_is_two_records() {
    // RFC 5103: the reverse of an element is its number under enterprise 29305.
    let reverse = |element, length| (element, length, Some(29_305));
    let of = [
        iana(8, 4),
        iana(12, 4),
        iana(7, 2),
        iana(11, 2),
        iana(4, 1),
        iana(152, 8),
        iana(153, 8),
        iana(1, 4),
        iana(2, 4),
        iana(6, 2),
        reverse(1, 4),
        reverse(2, 4),
        reverse(6, 1),
        iana(136, 1),
        iana(239, 1),
    ];
    let record = |back: u32| {
        let head = [&[10, 0, 0, 1, 10, 0, 0, 2][..], &words(&[40_000, 443]), &[6]].concat();
        let times = [(EXPORT_NS / MILLI - 9), (EXPORT_NS / MILLI - 2)].map(u64::to_be_bytes);
        let counts = [&octets(&[], &[900, 9])[..], &[1, 0x12]].concat();
        let behind = [&octets(&[], &[back * 100, back])[..], &[0x13, 3, 1]].concat();
        [head, times.concat(), counts, behind].concat()
    };
    let sets = [set(2, &template(256, &of)), set(256, &[record(4), record(0)].concat())];
    let decoded = Decoded::of(&[ipfix(0, 0, &sets)]);
    assert_eq!(
        (decoded.counts.flows, decoded.counts.reverse_flows),
        (2, 1),
        "nothing came back once"
    );
    let (there, back) = (&decoded.flows[0], &decoded.flows[1]);
    assert_eq!(back.key, there.key.reversed());
    assert_eq!((there.octets, there.packets, there.tcp_flags), (900, 9, 0x12));
    assert_eq!((back.octets, back.packets, back.tcp_flags), (400, 4, 0x13));
    assert_eq!((there.opened, back.opened), (Some(true), Some(false)));
    assert_eq!((there.end_reason, back.end_reason), (EndReason::EndOfFlow, EndReason::EndOfFlow));
    assert_eq!((there.start_ns, there.end_ns), (EXPORT_NS - 9 * MILLI, EXPORT_NS - 2 * MILLI));
    assert_eq!((back.start_ns, back.end_ns), (there.start_ns, there.end_ns));
}

#[test]
fn every_unit_of_time_is_understood() {
    let ntp = |ns: u64| {
        let seconds = ns / 1_000_000_000 + 2_208_988_800;
        let fraction = ((ns % 1_000_000_000) << 32).div_ceil(1_000_000_000);
        (seconds << 32 | fraction).to_be_bytes().to_vec()
    };
    let (start_ns, end_ns) = (EXPORT_NS - 5_250 * MILLI, EXPORT_NS - 1_125 * MILLI);
    let number = |value: u64| value.to_be_bytes().to_vec();
    let short = |value: u32| value.to_be_bytes().to_vec();
    let cases = [
        (150, 151, number(start_ns / 1_000_000_000), number(end_ns / 1_000_000_000), 1_000_000_000),
        (152, 153, number(start_ns / MILLI), number(end_ns / MILLI), MILLI),
        (154, 155, ntp(start_ns), ntp(end_ns), 1),
        (156, 157, ntp(start_ns), ntp(end_ns), 1),
        (158, 159, short(5_250_000), short(1_125_000), 1),
        (22, 21, short(UPTIME_MS - 5_250), short(UPTIME_MS - 1_125), 1),
        (152, 161, number(start_ns / MILLI), short(4_125), MILLI),
        (162, 153, short(4_125_000), number(end_ns / MILLI), MILLI),
    ];
    for (one, other, first, last, unit_ns) in cases {
        let times = [iana(one, first.len() as u16), iana(other, last.len() as u16)];
        // Elements of lesser precision beside them change nothing.
        let of = [&LEAST[..], &times, &[iana(150, 4)]].concat();
        let of = if one == 150 || one == 162 { &of[..6] } else { &of };
        let record = [least(1), first, last, short(7)].concat();
        let record = &record[..of.iter().map(|field| usize::from(field.1)).sum()];
        let sets = [set(0, &template(256, of)), set(256, record)];
        let flow = &Decoded::of(&[v9(1, 1, &sets)]).flows[0];
        let whole = |ns: u64| ns / unit_ns * unit_ns;
        assert_eq!((flow.start_ns, flow.end_ns), (whole(start_ns), whole(end_ns)), "{one} {other}");
    }
}

#[test]
fn boot_time_is_estimated_until_it_is_exported() {
    let of = [&LEAST[..], &[iana(22, 4), iana(21, 4)]].concat();
    let record = |first, last| [least(1), octets(&[], &[first, last])].concat();
    let known = set(2, &template(256, &of));
    let first = ipfix(0, 0, &[known, set(256, &[record(1_000, 5_000), record(0, 8_000)].concat())]);
    let reported = options(257, &[iana(149, 4)], &[iana(160, 8)]);
    let start_ms = EXPORT_NS / MILLI - 10_000;
    let told_by = [&[0; 4][..], &start_ms.to_be_bytes()].concat();
    let second =
        ipfix(2, 0, &[set(3, &reported), set(257, &told_by), set(256, &record(1_000, 5_000))]);
    let decoded = Decoded::of(&[first, second]);
    let times: Vec<_> = (decoded.flows.iter())
        .map(|flow| [flow.start_ns, flow.end_ns].map(|ns| (EXPORT_NS - ns) / MILLI))
        .collect();
    // Ages in ms: the first flow seems to end as it is exported; the second ended later in uptime, so
    // the zero was 3 s before; then the exporter says that it was 10 s ago.
    assert_eq!(times, [[4_000, 0], [8_000, 0], [9_000, 5_000]]);
    assert_eq!(decoded.counts.times_estimated, 2);
}

#[test]
fn records_wait_for_their_template() {
    let late = v9(2, 5, &[set(0, &template(256, &LEAST))]);
    let early = v9(1, 5, &[set(256, &[least(1), least(2)].concat()), set(257, &[0; 9])]);
    let mut decoded = Decoded::of(&[early.clone(), v9(9, 6, &[set(0, &template(256, &LEAST))])]);
    assert_eq!(decoded.flows.len(), 0, "the template of another domain is no help");
    assert_eq!(decoded.counts.bytes.held, 41);
    decoded.hear(somebody(), &late);
    assert_eq!((decoded.flows.len(), decoded.counts.sets_late), (2, 1));
    decoded.session.finish(&mut decoded.counts);
    decoded.counts.assert_balanced();
    assert_eq!(decoded.skipped(Skip::NoTemplate), 1, "257 never came");

    let mut decoded = Decoded::new(Limits { held_bytes_max: 150, ..Limits::default() });
    (0..9).for_each(|_| decoded.hear(somebody(), &early));
    assert!(decoded.counts.bytes.held <= 150 && decoded.skipped(Skip::NoTemplate) >= 16);
    decoded.hear(somebody(), &late);
    assert_eq!(decoded.flows.len() as u64, 2 * decoded.counts.sets_late);
}

#[test]
fn a_template_can_change_and_be_withdrawn() {
    let other = [iana(12, 4), iana(8, 4), iana(1, 4), iana(2, 4)];
    let records = |id| set(id, &least(1));
    let mut decoded = Decoded::of(&[
        ipfix(0, 0, &[set(2, &[template(256, &LEAST), template(257, &LEAST)].concat())]),
        ipfix(0, 0, &[records(256), set(2, &template(256, &other)), records(256)]),
    ]);
    assert_eq!((decoded.flows[0].packets, decoded.flows[1].packets), (3, 1_500));
    // RFC 7011, section 8.1: one by its identifier, all by that of the set.
    decoded
        .hear(somebody(), &ipfix(2, 0, &[set(2, &words(&[256, 0])), records(256), records(257)]));
    assert_eq!((decoded.flows.len(), decoded.counts.withdrawn), (3, 1));
    decoded.hear(somebody(), &ipfix(4, 0, &[set(2, &words(&[2, 0])), records(257)]));
    assert_eq!((decoded.flows.len(), decoded.counts.withdrawn), (3, 2));
    assert_eq!(decoded.counts.bytes.held, 32);
}

#[test]
fn sampling_intervals_are_read_in_every_encoding_and_when_they_come_late() {
    let of = [&LEAST[..], &[iana(48, 1)]].concat();
    let record = |sampler| [least(1), vec![sampler]].concat();
    let options = options_v9(300, &[iana(1, 4)], &[iana(48, 1), iana(49, 1), iana(50, 4)]);
    let sampler = |id: u8, interval: u32| [&[0; 4][..], &[id, 2], &interval.to_be_bytes()].concat();
    let decoded = Decoded::of(&[
        v9(1, 0, &[set(0, &template(256, &of)), set(256, &record(1))]),
        v9(2, 0, &[set(1, &options), set(300, &[sampler(1, 100), sampler(2, 4_000)].concat())]),
        v9(3, 0, &[set(256, &[record(1), record(2), record(9)].concat())]),
    ]);
    let intervals: Vec<_> = decoded.flows.iter().map(|flow| flow.sampling_interval).collect();
    assert_eq!(intervals, [0, 100, 4_000, 4_000]);
    assert_eq!(decoded.counts.sampling_late, 1);
    assert_eq!(decoded.session.sampling_intervals().collect::<Vec<_>>(), [4_000]);

    // RFC 5477: n in a row and m left out; n out of m; a probability; and an interval in the record.
    let number = |value: u32| value.to_be_bytes().to_vec();
    let ways: [(&[u16], Vec<u8>, u32); 6] = [
        (&[305, 306], [number(1), number(255)].concat(), 256),
        (&[305, 306], [number(10), number(90)].concat(), 10),
        (&[305, 309, 310], [number(1), number(2), number(1_000)].concat(), 500),
        (&[311], 0.001f32.to_bits().to_be_bytes().to_vec(), 1_000),
        (&[305], number(512), 512),
        (&[34], number(64), 64),
    ];
    for (elements, values, interval) in ways {
        let reported: Vec<_> = elements.iter().map(|element| iana(*element, 4)).collect();
        let sets = [
            set(3, &self::options(257, &[iana(302, 4)], &reported)),
            set(257, &[number(7), values.clone()].concat()),
            set(2, &template(256, &[&LEAST[..], &[iana(302, 4)]].concat())),
            set(256, &[least(1), number(7)].concat()),
            set(2, &template(258, &[&LEAST[..], &reported].concat())),
            set(258, &[least(1), values].concat()),
        ];
        let flows = Decoded::of(&[ipfix(0, 0, &sets)]).flows;
        assert_eq!(
            [0, 1].map(|n: usize| flows[n].sampling_interval),
            [interval; 2],
            "{elements:?}"
        );
    }
}

#[test]
fn gaps_in_the_numbering_are_counted() {
    let known = |set_id| set(set_id, &template(256, &LEAST));
    let records = set(256, &[least(1), least(2)].concat());
    let v9s = [1, 2, 5].map(|number| v9(number, 0, &[known(0), records.clone()]));
    assert_eq!(Decoded::of(&v9s).counts.datagrams_lost, 2);
    let messages = [0, 2, 9].map(|number| ipfix(number, 0, &[known(2), records.clone()]));
    assert_eq!(Decoded::of(&messages).counts.records_lost, 5);
    // Two ports, two numberings; a set that cannot be read leaves the next number unknown.
    let mut decoded = Decoded::of(&messages[..2]);
    let other = Exporter { port: 9, ..somebody() };
    decoded.hear(other, &ipfix(500, 0, &[set(999, &[0; 8])]));
    decoded.hear(other, &ipfix(900, 0, std::slice::from_ref(&records)));
    decoded.hear(somebody(), &ipfix(4, 0, &[records]));
    assert_eq!(decoded.counts.records_lost, 0);
}

#[test]
fn records_without_flow_data_are_skipped_by_length() {
    let layer2 = [iana(56, 6), iana(80, 6), iana(1, 4)];
    let event = [iana(8, 4), iana(12, 4), iana(233, 1)];
    let nowhere = [iana(8, 0), iana(12, 0)];
    let sets = [
        set(0, &[template(256, &layer2), template(257, &event), template(258, &nowhere)].concat()),
        set(256, &[0; 35]),
        set(257, &[0; 9]),
        set(77, &[0; 8]),
        set(0, &words(&[259, 9, 1, 4])),
    ];
    let decoded = Decoded::of(&[v9(1, 0, &sets)]);
    assert_eq!((decoded.counts.records, decoded.counts.flows), (3, 0));
    let reasons = [Skip::NoAddresses, Skip::NoCounts, Skip::TemplateDamaged, Skip::SetUnknown];
    assert_eq!(reasons.map(|reason| decoded.skipped(reason)), [2, 1, 2, 1]);
}

#[test]
fn numbers_may_be_short_and_the_last_of_twins_is_the_inner_one() {
    // RFC 7011, section 6.2; both families in one template, as some exporters do.
    let of = [iana(8, 4), iana(12, 4), iana(27, 16), iana(28, 16), iana(1, 3), iana(2, 1)];
    let of = [&of[..], &[iana(4, 1), iana(4, 1), iana(7, 2), iana(11, 2)]].concat();
    let v6 = |last: u8| [&[0xfd][..], &[0; 14], &[last]].concat();
    let counts = [1, 0, 1, 200, 4, 17, 0, 53, 0, 99];
    let six = [vec![0; 8], v6(1), v6(2), counts.to_vec()].concat();
    let four = [vec![10, 0, 0, 1, 10, 0, 0, 2], vec![0; 32], counts.to_vec()].concat();
    let sets = [set(0, &template(256, &of)), set(256, &[six, four].concat())];
    let flows = Decoded::of(&[v9(1, 0, &sets)]).flows;
    assert_eq!(flows[0].key.source.to_string(), "fd00::1");
    assert_eq!(flows[1].key.destination.to_string(), "10.0.0.2");
    for flow in flows {
        assert_eq!((flow.octets, flow.packets, flow.key.protocol), (65_537, 200, 17));
        assert_eq!((flow.key.source_port, flow.key.destination_port), (53, 99));
    }
}

#[test]
fn limits_hold() {
    let limits = Limits { domains_max: 2, templates_max: 3, fields_max: 4, ..Limits::default() };
    let mut decoded = Decoded::new(limits);
    for domain in 0..4 {
        let sets = [set(2, &[template(256, &LEAST), template(257, &LEAST)].concat())];
        decoded.hear(somebody(), &ipfix(0, domain, &sets));
    }
    assert_eq!((decoded.counts.templates, decoded.session.domains()), (8, 2));
    let over = [Skip::TemplateEvicted, Skip::DomainEvicted].map(|reason| decoded.skipped(reason));
    assert_eq!(over, [5, 2]);
    let wide = [&LEAST[..], &[iana(4, 1)]].concat();
    let sets = [set(2, &[template(258, &wide), template(256, &LEAST)].concat())];
    decoded.hear(somebody(), &ipfix(0, 0, &sets));
    assert_eq!(decoded.skipped(Skip::TemplateLimit), 1, "five fields");
    assert_eq!(decoded.counts.bytes.padding, 0, "and what follows them was found");
}

/// RFC 5103, section 6.3: the opening side, where the exporter states it; otherwise by the first
/// flags (CERT, element 14).
#[test]
fn biflow_direction_identifies_the_initiator() {
    let of = [&LEAST[..], &[(14, 1, Some(6_871)), iana(239, 1)]].concat();
    for (flags, direction, opened) in [
        (0x02, 0, Some(true)),
        (0x12, 0, Some(false)),
        (0x10, 0, None),
        (0x12, 1, Some(true)),
        (0x10, 1, Some(true)),
        (0x02, 2, Some(false)),
        (0x00, 2, Some(false)),
        (0x02, 3, Some(true)),
        (0x11, 3, None),
    ] {
        let record = [&least(1)[..], &[flags, direction]].concat();
        let sets = [set(2, &template(256, &of)), set(256, &record)];
        let decoded = Decoded::of(&[ipfix(0, 0, &sets)]);
        assert_eq!(decoded.flows[0].opened, opened, "{flags} {direction}");
    }
}

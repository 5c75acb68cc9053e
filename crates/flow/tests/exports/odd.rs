//! The template engine where exporters do what no document's example does.

use crate::capture::somebody;
use crate::template::{
    Decoded, EXPORT_NS, Field, LEAST, MILLI, iana, ipfix, least, octets, set, template, v9, words,
};

#[test]
fn an_uptime_may_have_wrapped() {
    let of = [&LEAST[..], &[iana(22, 4), iana(21, 4), iana(160, 8)]].concat();
    // The exporter started 60 days ago, and its uptime wrapped after 49.7; or it does not state its start.
    let day_ms = 86_400_000;
    let uptime_ms = 60 * day_ms;
    let ages = |system_init_ms: u64, [first, last]: [u64; 2]| {
        let times = octets(&[], &[first as u32, last as u32]);
        let record = [least(1), times, system_init_ms.to_be_bytes().to_vec()].concat();
        let decoded =
            Decoded::of(&[ipfix(0, 0, &[set(2, &template(256, &of)), set(256, &record)])]);
        let flow = &decoded.flows[0];
        [flow.start_ns, flow.end_ns].map(|ns| (EXPORT_NS - ns) / MILLI)
    };
    let told_ms = EXPORT_NS / MILLI - uptime_ms;
    assert_eq!(ages(told_ms, [uptime_ms - 5_000, uptime_ms - 10]), [5_000, 10]);
    assert_eq!(ages(0, [(1 << 32) - 5_000, 3_000]), [8_000, 0], "it wrapped within the flow");
    let long_ms = uptime_ms - 11 * day_ms;
    assert_eq!(ages(told_ms, [long_ms, uptime_ms]), [11 * day_ms, 0], "and within this one");
}

#[test]
fn initiator_octets_are_payload() {
    // As ASAs count: 231 and 232 without packets, or with them (298 and 299).
    let of = [iana(8, 4), iana(12, 4), iana(231, 4), iana(232, 8), iana(298, 4), iana(299, 4)];
    let counts = [&octets(&[], &[500, 0])[..], &octets(&[], &[90, 7, 3])].concat();
    let record = [octets(&[[10, 0, 0, 1], [10, 0, 0, 2]], &[]), counts].concat();
    let decoded = Decoded::of(&[v9(1, 0, &[set(0, &template(256, &of)), set(256, &record)])]);
    let reported: Vec<_> = (decoded.flows.iter())
        .map(|flow| (flow.packets, flow.octets, flow.payload_octets))
        .collect();
    assert_eq!(reported, [(7, 500, Some(500)), (3, 90, Some(90))]);
    // Where bytes of packets are counted as well, they are used.
    let both = [&of[..4], &[iana(1, 4)]].concat();
    let record = [&record[..20], &[0, 0, 2, 0]].concat();
    let decoded = Decoded::of(&[v9(1, 0, &[set(0, &template(256, &both)), set(256, &record)])]);
    assert_eq!((decoded.flows[0].octets, decoded.flows[0].payload_octets), (512, None));
}

#[test]
fn flags_may_stand_in_a_list() {
    // YAF without its SiLK mode: flags of the first packet and of all, both ways, in a record of another
    // template in a subTemplateMultiList.
    let of =
        [&LEAST[..], &[(2, 4, Some(29_305)), iana(4, 1), iana(293, 0xffff), iana(7, 2)]].concat();
    let cert = |element| (element, 1, Some(6_871));
    let tcp = [iana(184, 4), cert(14), cert(15), cert(16_398), cert(16_399)];
    let listed =
        |id: usize, records: &[u8]| [words(&[id, 4 + records.len()]), records.to_vec()].concat();
    let record = |list: &[u8]| {
        let head = [least(1), octets(&[], &[2]), vec![6]].concat();
        let list = [&[255][..], &words(&[1 + list.len()]), &[3], list].concat();
        [head, list, words(&[443])].concat()
    };
    let flags = listed(301, &[0, 0, 0, 9, 0x02, 0x1b, 0x12, 0x1b]);
    let macs = listed(302, &[7; 12]);
    let records = [
        record(&[&macs[..], &flags].concat()),
        record(&[]),
        record(&[&listed(999, &[1]), &flags[..9]].concat()),
        record(&[1, 45, 0, 2]),
    ];
    let templates =
        [template(300, &of), template(301, &tcp), template(302, &[iana(56, 6), iana(80, 6)])];
    let sets = [set(2, &templates.concat()), set(300, &records.concat())];
    let decoded = Decoded::of(&[ipfix(0, 0, &sets)]);
    let reported: Vec<_> = decoded.flows.iter().map(|flow| (flow.tcp_flags, flow.opened)).collect();
    let none = (0, None);
    assert_eq!(reported[..2], [(0x1b, Some(true)), (0x1b, Some(false))]);
    assert_eq!(reported[2..], [none; 6], "not those of the record before");
    assert_eq!((decoded.counts.flows, decoded.counts.lists_unknown), (4, 1));
    assert!(decoded.flows.iter().all(|flow| flow.key.protocol == 6));
}

/// With the old template its records would be cut in the wrong places.
#[test]
fn a_template_that_cannot_be_redefined_is_forgotten() {
    let many: Vec<Field> = (0..600).map(|_| iana(1, 1)).collect();
    let nothing = [iana(8, 0), iana(12, 0)];
    for other in [&many[..], &nothing] {
        let known = [set(2, &template(256, &LEAST)), set(256, &least(1))];
        let mut decoded = Decoded::of(&[ipfix(0, 0, &known)]);
        let redefined = [set(2, &template(256, other)), set(256, &[7; 600])];
        decoded.hear(somebody(), &ipfix(1, 0, &redefined));
        assert_eq!((decoded.flows.len(), decoded.counts.bytes.held), (1, 600));
        decoded.hear(somebody(), &ipfix(1, 0, &[set(2, &template(257, &LEAST))]));
        assert_eq!(decoded.counts.templates, 2, "and there is room for another");
    }
}

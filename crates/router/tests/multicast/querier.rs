//! The router's queries and their timing, the querier election, and hosts of older versions.

use nilometer_router::multicast::{
    GroupTable, Membership, Message, Query, Record, RecordKind, STATIC_MAX, Settings,
    SettingsError, StaticError, Version,
};
use nilometer_wire::{Span, Time};

use crate::MAC;
use crate::frames::{Hosts, igmp, one};

/// A port and its clock.
struct Port<A> {
    membership: Membership<A>,
    now: Time,
}

impl<A: Hosts> Port<A> {
    fn new(settings: Settings) -> Port<A> {
        let now = Time::ZERO;
        let membership = Membership::new(now, settings, MAC, A::on_link(100)).expect("settings");
        Port { membership, now }
    }

    /// A port that has sent its first queries.
    fn settled(settings: Settings) -> Port<A> {
        let mut port = Port::new(settings);
        port.until(1_000);
        port
    }

    fn hear(&mut self, frame: &[u8]) {
        self.membership.receive(self.now, frame);
    }

    /// The queries until `tenths` after the beginning, each with its moment in tenths of a second.
    fn until(&mut self, tenths: u64) -> Vec<(u64, Query<A>)> {
        let end = Time::ZERO + Span::from_nanos(100_000_000) * tenths;
        let mut queries = Vec::new();
        while let Some(due) = self.membership.poll_timeout().filter(|due| *due <= end) {
            self.now = due.max(self.now);
            self.membership.handle_timeout(self.now);
            let mut frame = [0; 256];
            while let Some(bytes) = self.membership.poll_transmit(&mut frame) {
                let Ok((from, Message::Query(query))) = A::read(&frame[..bytes]) else {
                    panic!("a query that can be read")
                };
                assert_eq!(from, A::on_link(100));
                queries.push((self.now.as_nanos() / 100_000_000, query));
            }
        }
        self.now = end;
        queries
    }
}

/// When the queries were for a group, and with how many sources.
fn specific<A: Hosts>(queries: &[(u64, Query<A>)]) -> Vec<(u64, usize, bool)> {
    let some = queries.iter().filter(|(_, query)| query.group != A::NONE);
    some.map(|(at, query)| (*at, query.sources.len(), query.is_suppressed)).collect()
}

fn other_router<A: Hosts>(number: u64, version: Version) -> Vec<u8> {
    let query = Query {
        group: A::NONE,
        sources: Vec::new(),
        response_interval: Span::from_secs(10),
        is_suppressed: false,
        robustness: 4,
        query_interval: Span::from_secs(60),
        version,
    };
    let mut frame = [0; 256];
    let bytes = A::write_query(&query, (MAC, A::on_link(number)), &mut frame);
    frame[..bytes].to_vec()
}

fn asks_at_once_and_then_every_125_seconds<A: Hosts>() {
    let queries = Port::<A>::new(Settings::default()).until(3_000);
    let moments: Vec<u64> = queries.iter().map(|(at, _)| *at).collect();
    // RFC 3376, 8.6: a quarter of the interval between the first.
    assert_eq!(moments, [0, 312, 1_562, 2_812]);
    assert!(queries.iter().all(|(_, query)| query.response_interval == Span::from_secs(10)));
}

#[test]
fn rfc_3376_8_6_startup() {
    asks_at_once_and_then_every_125_seconds::<u32>();
    asks_at_once_and_then_every_125_seconds::<u128>();
}

fn the_leaver_is_gone_after_the_last_member_time<A: Hosts>() {
    for is_older in [false, true] {
        let leave = || match is_older {
            true => A::older(A::group(1), true),
            false => one(RecordKind::ToInclude, A::group(1), &[]),
        };
        let mut port = Port::<A>::settled(Settings::default());
        port.hear(&A::older(A::group(1), false));
        port.hear(&leave());
        assert_eq!(specific(&port.until(1_019)), [(1_000, 0, false), (1_010, 0, false)]);
        assert!(port.membership.wants(A::group(1), A::source(1)));
        assert!(port.until(1_020).is_empty());
        assert!(!port.membership.wants(A::group(1), A::source(1)));
        // Another member answers: the group stays, and the S flag makes listening routers keep it.
        port.hear(&A::older(A::group(1), false));
        port.hear(&leave());
        assert_eq!(specific(&port.until(1_021)), [(1_020, 0, false)]);
        port.hear(&A::older(A::group(1), false));
        assert_eq!(specific(&port.until(1_100)), [(1_030, 0, true)]);
        assert!(port.membership.wants(A::group(1), A::source(1)));
        // Without another report it lasts for the membership interval, 260 s.
        port.until(1_021 + 2_599);
        assert!(port.membership.wants(A::group(1), A::source(1)));
        port.until(1_021 + 2_600);
        assert_eq!(port.membership.groups().count(), 0);
    }
}

#[test]
fn rfc_3376_6_6_3_leaves() {
    the_leaver_is_gone_after_the_last_member_time::<u32>();
    the_leaver_is_gone_after_the_last_member_time::<u128>();
}

#[test]
fn rfc_3376_6_6_3_2_sources_are_queried_too() {
    let mut port = Port::<u32>::settled(Settings::default());
    let sources: Vec<u32> = (0..12).map(u32::source).collect();
    port.hear(&one(RecordKind::Allow, u32::group(1), &sources));
    port.hear(&one(RecordKind::Block, u32::group(1), &sources));
    assert_eq!(specific(&port.until(1_001)), [(1_000, 10, false), (1_000, 2, false)]);
    port.hear(&one(RecordKind::IsInclude, u32::group(1), &sources[..3]));
    let second = [(1_010, 9, false), (1_010, 3, true)];
    assert_eq!(specific(&port.until(1_100)), second);
    let wanted: Vec<bool> =
        sources.iter().map(|source| port.membership.wants(u32::group(1), *source)).collect();
    assert!(wanted[..3].iter().all(|is_wanted| *is_wanted) && !wanted[3..].contains(&true));
}

fn the_lowest_address_asks<A: Hosts>() {
    let mut port = Port::<A>::settled(Settings::default());
    port.hear(&other_router::<A>(101, Version::Newest));
    port.hear(&other_router::<A>(100, Version::Newest));
    assert!(port.membership.is_querier());
    port.hear(&one(RecordKind::ToExclude, A::group(1), &[]));
    port.hear(&other_router::<A>(50, Version::Newest));
    assert!(!port.membership.is_querier());
    // As a non-querier it sends no query on a leave, which changes nothing by itself.
    port.hear(&one(RecordKind::ToInclude, A::group(1), &[]));
    port.hear(&other_router::<A>(70, Version::Newest));
    // The other's 4 × 60 s and half of 10 s are in force (RFC 3376, 8.5).
    assert!(port.until(1_000 + 2_449).is_empty());
    assert!(!port.membership.is_querier());
    let queries = port.until(1_000 + 2_450);
    assert!(port.membership.is_querier());
    let query = &queries[0].1;
    assert_eq!((query.robustness, query.query_interval), (2, Span::from_secs(125)), "its own");
}

#[test]
fn rfc_3376_6_6_2_election() {
    the_lowest_address_asks::<u32>();
    the_lowest_address_asks::<u128>();
    let mut port = Port::<u32>::settled(Settings::default());
    let mut general = vec![0x11, 100, 0, 0, 0, 0, 0, 0];
    port.hear(&igmp(0, 0xe000_0001, general.clone()));
    general[1] = 0;
    port.hear(&igmp(u32::on_link(1), 0xe000_0001, general));
    assert!(port.membership.is_querier(), "no other router, and a router of version 1");
    assert_eq!(port.membership.ledger().queries_heard, 2);
}

#[test]
fn rfc_3376_7_3_2_hosts_of_older_versions() {
    let joins = |kind: u8| {
        let mut message = vec![kind, 0, 0, 0];
        message.extend(u32::group(1).to_be_bytes());
        igmp(u32::on_link(200), u32::group(1), message)
    };
    // Next to a host of version 2 no host can block sources.
    let mut port = Port::<u32>::settled(Settings::default());
    port.hear(&joins(0x16));
    port.hear(&one(RecordKind::Block, u32::group(1), &[u32::source(1)]));
    port.hear(&one(RecordKind::ToExclude, u32::group(1), &[u32::source(1)]));
    assert!(specific(&port.until(1_100)).is_empty());
    assert!(port.membership.wants(u32::group(1), u32::source(1)));
    // Next to a host of version 1 leaves are ignored.
    port.hear(&joins(0x12));
    port.hear(&u32::older(u32::group(1), true));
    assert!(specific(&port.until(1_200)).is_empty());
    assert!(port.membership.wants(u32::group(1), u32::source(1)));
}

#[test]
fn a_port_of_an_older_version_is_a_router_of_that_version() {
    let settings = Settings { version: Version::Older, ..Settings::default() };
    let mut port = Port::<u32>::new(settings);
    assert!(port.until(1_000).iter().all(|(_, query)| query.version == Version::Older));
    port.hear(&one(RecordKind::ToExclude, u32::group(1), &[]));
    assert_eq!((port.membership.ledger().newer, port.membership.groups().count()), (1, 0));
    port.hear(&u32::older(u32::group(1), false));
    assert_eq!(port.membership.groups().count(), 1);
    port.hear(&u32::older(u32::group(1), true));
    let queries = port.until(1_100);
    assert!(queries.len() == 2 && queries.iter().all(|(_, query)| query.group == u32::group(1)));
}

#[test]
fn limits_hold_and_are_counted() {
    let settings = Settings { groups_max: 5, messages_per_second: 20, ..Settings::default() };
    let mut port = Port::<u128>::settled(settings);
    let records: Vec<Record<u128>> = (0..8)
        .map(|n| Record { kind: RecordKind::ToExclude, group: u128::group(n), sources: vec![] })
        .collect();
    for _ in 0..30 {
        port.hear(&u128::report(&records));
    }
    let ledger = *port.membership.ledger();
    assert_eq!((ledger.hurried, ledger.groups_refused, ledger.records), (10, 60, 100));
    assert_eq!(port.membership.groups().count(), 5);
    let local = Record { kind: RecordKind::ToExclude, group: 0xff02 << 112 | 5, sources: vec![] };
    port.until(1_001);
    port.hear(&u128::report(&[local]));
    assert_eq!(port.membership.ledger().local, 1);
    for (settings, why) in [
        (Settings { robustness: 0, ..settings }, SettingsError::Count),
        (Settings { response_interval: Span::from_secs(125), ..settings }, SettingsError::Interval),
        (Settings { messages_per_second: 0, ..settings }, SettingsError::Limit),
    ] {
        assert_eq!(Membership::new(Time::ZERO, settings, MAC, 1u32).err(), Some(why));
    }
}

#[test]
fn static_groups_are_independent_of_reports() {
    let (group, source) = (u32::group(1), u32::source(1));
    let mut table = GroupTable::new();
    let ports = |table: &GroupTable<u32>, source| table.ports(group, source).collect::<Vec<_>>();
    table.add_static(9, group, None).expect("a group");
    table.add_static(2, group, Some(source)).expect("a group");
    assert_eq!((ports(&table, source), ports(&table, 1)), (vec![2, 9], vec![9]));
    let mut port = Port::<u32>::settled(Settings::default());
    port.hear(&one(RecordKind::ToExclude, group, &[source]));
    table.refresh(2, group, &port.membership);
    assert_eq!((ports(&table, source), ports(&table, 1)), (vec![2, 9], vec![2, 9]));
    table.forget(2, group);
    assert_eq!((ports(&table, source), ports(&table, 1)), (vec![2, 9], vec![9]));
    assert!(table.remove_static(2, group, Some(source)));
    assert!(!table.remove_static(2, group, Some(source)));
    assert!(table.remove_static(9, group, None) && table.is_empty());
    assert_eq!(table.add_static(1, 0xe000_0005, None), Err(StaticError::Group));
    assert_eq!(table.add_static(1, group, Some(group)), Err(StaticError::Source));
    for number in 0..STATIC_MAX as u64 {
        table.add_static(1, u32::group(number), None).expect("room");
    }
    assert_eq!(table.add_static(2, group, None), Err(StaticError::Full));
    assert!(table.remove_static(1, u32::group(3), None));
    assert_eq!(table.add_static(2, group, None), Ok(()));
}

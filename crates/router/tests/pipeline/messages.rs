//! The message of each fault, word by word: operators read it, and scripts may search for it.

use nilometer_router::classifier::classbench;
use nilometer_router::discard::{Discard, Discards};
use nilometer_router::fpm::FpmFault;
use nilometer_router::neighbour::{self, AdvertisingError, OwnError};
use nilometer_router::next_hop::NextHopFault;
use nilometer_router::pipeline::RouterError;
use nilometer_router::pipeline::admin::Refusal;
use nilometer_router::pipeline::groups::{MulticastError, StaticGroup};
use nilometer_router::pipeline::port::PortError;
use nilometer_router::rtnetlink::NetlinkFault;
use nilometer_router::{
    AnyPrefix, Engine, EngineFault, Fault, Full, Refused, RibFault, Source, multicast,
};

/// Asserts the message of each of these, in their order.
fn assert_messages<T: ToString>(values: impl IntoIterator<Item = T>, lines: &[&str]) {
    let message: Vec<String> = values.into_iter().map(|one| one.to_string()).collect();
    assert_eq!(message, lines);
}

#[test]
fn messages_about_tables_and_routes() {
    let full = "the forwarding table is full; make it with more room";
    assert_messages([Full], &[full]);
    let limit = "the route limit is reached; raise it";
    assert_messages([RibFault::Limit, RibFault::Fib], &[limit, full]);
    assert_messages(Source::ALL, &["local", "connected", "static", "fpm", "kernel"]);
    let unknown = format!(
        "no lookup engine of this name; there are {}",
        Engine::ALL.map(|engine| engine.to_string()).join(" ")
    );
    let faults = [EngineFault::Unknown, EngineFault::Family(Engine::Dxr), EngineFault::Full];
    let family = format!("{} does not look up IPv6 addresses", Engine::Dxr.name());
    assert_messages(faults, &[&unknown, &family, full]);
    assert!(Engine::ALL.into_iter().all(|engine| engine.to_string() == engine.name()));
    let prefixes = ["10.0.0.0/8", "fd00::/7"].map(|text| {
        let (address, length) = text.split_once('/').expect("a slash");
        let address = address.parse().expect("an address");
        AnyPrefix::new(address, length.parse().expect("a length")).expect("a prefix")
    });
    assert_messages(prefixes, &["10.0.0.0/8", "fc00::/7"]);
    let malformed =
        "10.0.0.1/8".parse::<nilometer_router::Prefix<u32>>().map_err(|why| why.to_string());
    let not = "not a prefix: an address, a slash and a length with no bit set behind it";
    assert_eq!(malformed, Err(not.to_owned()));
    let faults =
        [NextHopFault::Full, NextHopFault::Members, NextHopFault::Weight, NextHopFault::Unknown];
    assert_messages(
        faults,
        &[
            "the table of next hops is full; make it with more room",
            "a group has 1 to 256 members",
            "a member of a group has a weight of 1 or more",
            "no next hop has this number",
        ],
    );
}

#[test]
fn messages_about_route_sources() {
    let faults =
        [NetlinkFault::Length, NetlinkFault::Value, NetlinkFault::Prefix, NetlinkFault::Number];
    assert_messages(
        faults,
        &[
            "a netlink length does not fit the bytes",
            "a netlink attribute has the wrong size",
            "a route's prefix is longer than an address",
            "a next-hop object without a number",
        ],
    );
    assert_messages(
        [FpmFault::Version(2), FpmFault::Kind(3), FpmFault::Length(4)],
        &[
            "FPM version 2, not 1",
            "an FPM frame of kind 3, not netlink: load dplane_fpm_nl",
            "an FPM frame of 4 bytes",
        ],
    );
}

#[test]
fn messages_about_packets_and_filters() {
    use Fault::{Extensions, HeaderChecksum, HeaderLength, Short, TotalLength, Version};
    assert_messages(
        [Short, Version, HeaderLength, HeaderChecksum, TotalLength, Extensions],
        &[
            "the frame ends before its headers do",
            "the IP version is not that of the ethertype",
            "the IPv4 header length is below 20 bytes",
            "the IPv4 header checksum is wrong",
            "the IP length is shorter than the header or beyond the frame",
            "the extension headers are broken or too many",
        ],
    );
    assert_messages(
        [Refused::BeyondLimit { rules_max: 100 }, Refused::Taken],
        &[
            "the classifier holds rules 0 to 99 only",
            "there is a rule of this number; remove it first",
        ],
    );
    let malformed = classbench::read_rules("\nno filter\n").map_err(|why| why.to_string());
    assert_eq!(malformed, Err("line 2: a filter begins with @".to_owned()));
    let mut discards = Discards::default();
    for (number, why) in Discard::ALL.into_iter().enumerate() {
        (0..=number).for_each(|_| discards.count(why));
        assert_eq!(discards.of(why), number as u64 + 1, "{}", why.name());
    }
    let count = Discard::ALL.len() as u64;
    assert_eq!(discards.total(), count * (count + 1) / 2);
    let mut names = Discard::ALL.map(Discard::name).to_vec();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Discard::ALL.len(), "every reason has a name of its own");
}

#[test]
fn messages_about_neighbours() {
    use neighbour::Malformed::*;
    assert_messages(
        [Packet, Kind, HopLimit, Checksum, Code, Short, Target, Option, Source, Destination],
        &[
            "not a whole ICMPv6 packet",
            "not a message of neighbour discovery",
            "the hop limit is not 255",
            "the ICMPv6 checksum is wrong",
            "the code is not 0",
            "the message ends before its kind does",
            "the target is a group",
            "an option has a wrong length or is cut",
            "the source may not send it",
            "it may not be sent to this destination",
        ],
    );
    assert_messages(
        neighbour::Reason::ALL,
        &[
            "the next hop does not answer",
            "a later packet took its place",
            "too many addresses are being resolved",
            "the neighbour table is full",
            "too many packets wait for neighbours",
            "the next hop is on no prefix of the port",
            "the next hop is the port's own address",
            "the next hop is not the address of one host",
            "the entry was removed",
        ],
    );
    use AdvertisingError::{Interval, Lifetime, NoLinkLocal, Prefix};
    assert_messages(
        [Interval, Lifetime, Prefix, NoLinkLocal],
        &[
            "interval_max is not from 4 to 1,800 s, or interval_min not from 3 s to three quarters \
             of it",
            "lifetime_s is not 0 nor from interval_max to 9,000",
            "a prefix is too long, link-local or preferred too long",
            "the port has no link-local address",
        ],
    );
    assert_messages(
        [OwnError::NotHost, OwnError::Length, OwnError::Full, OwnError::Mac],
        &[
            "not an address that one host can have",
            "the prefix is longer than an address",
            "a port has 64 addresses of a family at most",
            "not a link-layer address that one station can have",
        ],
    );
    use neighbour::SettingsError::{Entries, Packets, Requests, Timer, Unresolved};
    assert_messages(
        [Entries, Unresolved, Packets, Requests, Timer],
        &[
            "entries_max is not from 1 to 1,048,576",
            "unresolved_max is not from 1 to entries_max",
            "waiting_max is 0 or more than packets_max",
            "multicast_requests or unicast_requests is 0",
            "a timer is below 1 ms, or failed is not from 1 to 3 s",
        ],
    );
}

#[test]
fn messages_about_groups() {
    use multicast::Malformed::*;
    assert_messages(
        [Packet, HopLimit, RouterAlert, Checksum, Kind, Short, Group, Source],
        &[
            "not a whole packet of IGMP or MLD",
            "the TTL or hop limit is not 1",
            "the router alert is missing",
            "the checksum is wrong",
            "not a query or report of a known version",
            "the message is shorter than it claims",
            "the group address is not multicast",
            "the source may not send it",
        ],
    );
    use multicast::SettingsError::{Count, Interval, Limit};
    let settings = [Count, Interval, Limit].map(MulticastError::Settings);
    let fixed = StaticGroup { group: "239.1.2.3".parse().expect("a group"), source: None };
    use multicast::StaticError;
    let fixed = [StaticError::Group, StaticError::Source, StaticError::Full]
        .map(|why| MulticastError::Static(fixed, why));
    let at_most = format!("239.1.2.3: there are {} static groups at most", multicast::STATIC_MAX);
    assert_messages(
        settings.into_iter().chain(fixed).chain([MulticastError::Off]),
        &[
            "robustness or last_member_count is not from 1 to 7",
            "an interval of queries or responses is out of range",
            "groups_max is not from 1 to 65,536, sources_max from 1 to 1,024 or \
             messages_per_second from 1 to 1,000,000",
            "239.1.2.3: no group, or one that never leaves its link",
            "239.1.2.3: the source is not one host's address",
            &at_most,
            "multicast is off on the port",
        ],
    );
}

#[test]
fn messages_about_ports() {
    let errors = [
        PortError::Mtu(67),
        PortError::Mtu6(1_279),
        PortError::Own(OwnError::Length),
        PortError::Neighbours(neighbour::SettingsError::Requests),
        PortError::Multicast(MulticastError::Off),
    ];
    let lines = [
        "an MTU is 68 to 9216 bytes, not 67",
        "a port with IPv6 addresses has an MTU of 1280 bytes at least, not 1279",
        "the prefix is longer than an address",
        "multicast_requests or unicast_requests is 0",
        "multicast is off on the port",
    ];
    assert_messages(errors.clone(), &lines);
    assert_messages(errors.clone().map(Refusal::Port), &lines);
    let with_port = lines.map(|line| format!("port lan: {line}"));
    assert_messages(
        errors.map(|why| RouterError::Port("lan".to_owned(), why)),
        &with_port.each_ref().map(|x| &x[..]),
    );
    assert_messages(
        [Refusal::NoPort(9), Refusal::Occupied(1), Refusal::Vacant(2), Refusal::Draining(0)],
        &[
            "there is no port 9",
            "port 1 is in use; unplug it first",
            "port 2 is vacant; plug it in first",
            "packets of the last user of port 0 are on their way; try again",
        ],
    );
}

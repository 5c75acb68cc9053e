//! One-packet flow setups, explicit routes and reservations by API; and any message at any time.

mod network;
mod samples;

use std::net::IpAddr;

use network::*;
use nilometer_reservation::message::*;
use nilometer_reservation::process::{
    FlowFilter, HoldError, HoldRequest, HostError, Interface, NextHop, RsvpProcess, Settings,
    SetupRequest,
};
use nilometer_reservation::{AdmissionError, Arrival, Side, Upcall};
use nilometer_stat::Rng;
use nilometer_wire::{Span, Time};

const MEGA: f32 = 1_000_000.0;

/// Sender 0, router 1, routers 2 and 3 beside each other and joined, router 4, receiver 5; 1-2-4 is found first.
fn diamond() -> Network {
    Network::new(6, &[(0, 1), (1, 2), (1, 3), (2, 4), (3, 4), (4, 5), (2, 3)])
}

fn set_up(
    network: &mut Network,
    rate: f32,
    port: u16,
    route: &[RouteNode],
) -> Result<(Session, Sender), HostError> {
    let session = udp_session(network.address(5));
    let sender = Sender { source: network.address(0), port };
    let route = (!route.is_empty()).then(|| ExplicitRoute(route.to_vec()));
    let request = SetupRequest { session, sender, flowspec: load(rate), route, plugins: None };
    network.with(0, |process, now, query| process.set_up(now, request, &RoutesByClosure(query)))?;
    network.run(SECOND);
    Ok((session, sender))
}

/// The upcalls of setups at the receiver: routers that reserved, and whether some did not.
fn arrived(network: &mut Network) -> Vec<(u32, bool)> {
    let arrived = |upcall| match upcall {
        Upcall::FlowSetup { hops, is_broken, .. } => Some((hops, is_broken)),
        _ => None,
    };
    network.take_upcalls(5).into_iter().filter_map(arrived).collect()
}

#[test]
fn one_packet_sets_up_path_and_reservation() {
    let mut network = diamond();
    let (session, sender) = set_up(&mut network, MEGA, 1, &[]).expect("a way");
    assert_eq!(network.packets.len(), 4, "one packet by four links");
    for router in [1, 2, 4] {
        let reservation = network.planes[router].values().next().expect("installed");
        assert_eq!((reservation.rate_bytes, reservation.is_pinned), (1_000_000, true));
        assert_eq!(reservation.flows, [FlowFilter::new(&session, Some(&sender))]);
    }
    assert_eq!(arrived(&mut network), [(3, false)]);
    // It is repeated, lives on, and ends with its sender's word.
    network.run(Span::from_secs(3_000));
    assert_eq!(network.rates(4), [1_000_000]);
    network.with(0, |process, _, _| assert!(process.take_back(session, sender)));
    network.run(SECOND);
    assert!(network.planes.iter().all(|plane| plane.is_empty()));
    // Or with its sender's death.
    set_up(&mut network, MEGA, 1, &[]).expect("a way");
    network.kill(0);
    network.run(Span::from_secs(150));
    assert_eq!(network.rates(1), [1_000_000]);
    network.run(Span::from_secs(60));
    assert!(network.planes.iter().all(|plane| plane.is_empty()));
}

#[test]
fn a_setup_refused_at_a_node_is_marked_broken() {
    let mut network = diamond();
    set_up(&mut network, 5.0 * MEGA, 1, &[]).expect("a way");
    assert_eq!(arrived(&mut network), [(3, false)]);
    // All routers refuse the second.
    set_up(&mut network, 5.0 * MEGA, 2, &[]).expect("a way");
    assert_eq!(arrived(&mut network), [(0, true)]);
    assert_eq!(network.nodes[1].counts().admission_refused, 1);
    // By router 3 two links are free, and one router reserves.
    let by_three = RouteNode::loose(network.address(3));
    set_up(&mut network, 5.0 * MEGA, 3, &[by_three]).expect("a way");
    assert_eq!(arrived(&mut network), [(1, true)]);
    assert_eq!(network.rates(3), [5_000_000]);
}

#[test]
fn flows_go_through_named_nodes_in_their_order() {
    let mut network = diamond();
    // Link 2 joins routers 1 and 3, link 4 routers 3 and 4.
    let end = |link: u8, end: u8| IpAddr::from([10, 0, link, end]);
    let strict = [end(0, 2), end(2, 2), end(4, 2)].map(RouteNode::strict);
    let (session, _) = set_up(&mut network, MEGA, 1, &strict).expect("a way");
    assert_eq!((network.rates(3), network.rates(2)), (vec![1_000_000], vec![]));
    let reservation = network.planes[1].values().next().expect("installed");
    assert_eq!(reservation.next_hop, end(2, 2));
    // A detour, and the same nodes in another order: link 6 joins routers 2 and 3, link 3 routers 2 and 4.
    let detour = [end(0, 2), end(2, 2), end(6, 1), end(3, 2)].map(RouteNode::strict);
    set_up(&mut network, MEGA, 2, &detour).expect("a way");
    let next_hop = |network: &Network, node: usize| {
        network.planes[node].values().next_back().expect("installed").next_hop
    };
    let hops = [1, 3, 2, 4].map(|node| next_hop(&network, node));
    assert_eq!(hops, [end(2, 2), end(6, 1), end(3, 2), end(5, 2)], "in the given order");
    let detour = [end(0, 2), end(1, 2), end(6, 2), end(4, 2)].map(RouteNode::strict);
    set_up(&mut network, MEGA, 3, &detour).expect("a way");
    let hops = [1, 2, 3, 4].map(|node| next_hop(&network, node));
    assert_eq!(hops, [end(1, 2), end(6, 2), end(4, 2), end(5, 2)], "in the other order");
    // An RSVP path by the same nodes, with its reservation behind it.
    let sender = Sender { source: network.address(0), port: 9 };
    let route = Some(ExplicitRoute(strict.to_vec()));
    network
        .with(0, |process, now, query| {
            let tspec = Tspec::new(2.0 * MEGA, 3_000.0);
            process.announce(now, session, (sender, tspec), route, &RoutesByClosure(query))
        })
        .expect("a way");
    network.run(SECOND);
    let flows = vec![descriptor(2.0 * MEGA, &[sender])];
    network
        .with(5, |process, now, _| process.reserve(now, session, Style::FixedFilter, flows, false))
        .expect("a path");
    network.run(SECOND);
    assert_eq!(network.rates(3), [1_000_000, 1_000_000, 1_000_000, 2_000_000]);
    network.run(Span::from_secs(1_000));
    assert_eq!(network.rates(3), [1_000_000, 1_000_000, 1_000_000, 2_000_000], "pinned");
}

#[test]
fn an_impossible_route_is_refused_with_a_path_err() {
    let mut network = diamond();
    let session = udp_session(network.address(5));
    let sender = Sender { source: network.address(0), port: 1 };
    let announce = |network: &mut Network, nodes: &[RouteNode]| {
        let route = Some(ExplicitRoute(nodes.to_vec()));
        network.with(0, |process, now, query| {
            let tspec = Tspec::new(MEGA, 3_000.0);
            process.announce(now, session, (sender, tspec), route, &RoutesByClosure(query))
        })
    };
    let [first, far] = [1, 4].map(|node| network.address(node));
    let first = RouteNode::strict(IpAddr::from([10, 0, 0, 2]).max(first));
    let far = RouteNode::strict(far);
    assert_eq!(announce(&mut network, &[first, far]), Ok(()));
    network.run(SECOND);
    let upcalls = network.take_upcalls(0);
    let [Upcall::PathError { error, .. }] = &upcalls[..] else { panic!("{upcalls:?}") };
    assert_eq!(error.error, ErrorCode::BAD_STRICT_NODE, "router 4 is no neighbour of router 1");
    assert_eq!(error.node, first.address);
    let refused = announce(&mut network, &[far]);
    assert_eq!(refused, Err(HostError::Route(ErrorCode::BAD_STRICT_NODE)));
}

fn hold_request(rate_bytes: u64, input: u32) -> HoldRequest {
    HoldRequest {
        holder: "test".to_owned(),
        flow: FlowFilter {
            source: None,
            destination: IpAddr::from([10, 0, 5, 2]),
            protocol: 17,
            source_port: None,
            destination_port: Some(5_004),
        },
        input: Some(input),
        via: None,
        rate_bytes,
        bucket_bytes: 3_000,
        lifetime: Span::from_secs(60),
        plugins: None,
    }
}

#[test]
fn reservations_by_api_live_as_long_as_they_are_refreshed() {
    let mut network = diamond();
    let hold = |network: &mut Network, request: HoldRequest| {
        network.with(1, |process, now, query| process.hold(now, request, &RoutesByClosure(query)))
    };
    let id = hold(&mut network, hold_request(5_000_000, 0)).expect("fits");
    let refused = AdmissionError::Bandwidth {
        port: 0,
        side: Side::Input,
        requested: 4_000_000,
        available: 3_000_000,
    };
    let second = hold(&mut network, hold_request(4_000_000, 0));
    assert_eq!(second, Err(HoldError::Admission(refused)));
    let next_hop = IpAddr::from([10, 0, 2, 2]);
    let via = Some(next_hop);
    let pinned = hold(&mut network, HoldRequest { via, ..hold_request(3_000_000, 0) });
    let pinned = pinned.expect("another output");
    assert_eq!(
        (network.planes[1][&pinned].next_hop, network.planes[1][&pinned].output),
        (next_hop, 2)
    );
    network.run(Span::from_secs(50));
    network.with(1, |process, now, _| assert!(process.refresh_hold(now, id)));
    network.run(Span::from_secs(20));
    assert_eq!(network.rates(1), [5_000_000], "the other has expired");
    network.with(1, |process, _, _| assert!(process.release_hold(id)));
    assert!(network.rates(1).is_empty());
    let bad = [
        (HoldRequest { holder: String::new(), ..hold_request(1, 0) }, HoldError::Name),
        (hold_request(0, 0), HoldError::NoRate),
        (
            HoldRequest { lifetime: Span::ZERO, ..hold_request(1, 0) },
            HoldError::Lifetime(Span::from_secs(3_600)),
        ),
    ];
    for (request, why) in bad {
        assert_eq!(hold(&mut network, request), Err(why));
    }
}

/// With any message at any time, limits hold, and the accounts are right (`Network::with` checks them).
#[test]
fn any_messages_keep_the_books_right() {
    let settings = |node: &RsvpProcess| {
        let mut settings = Settings::new(Vec::new(), 5);
        let ports = (0..).take_while(|port| node.admission().reservable(*port).is_some());
        settings.interfaces = ports
            .map(|port| Interface::new([IpAddr::from([10, 0, port as u8, 1])], CAPACITY))
            .collect();
        (settings.sessions_max, settings.states_max, settings.reservations_max) = (6, 3, 8);
        settings
    };
    let mut network = Network::new(4, &[(0, 1), (0, 2), (0, 3)]);
    network.nodes[0] = RsvpProcess::new(settings(&network.nodes[0]));
    let mut most = 0;
    for step in 0..20_000 {
        let mut rng = Rng::new(8, samples::PURPOSE, step);
        let kind = MessageType::ALL[rng.below(9) as usize];
        let arrival = Arrival {
            port: rng.below(4) as u32,
            source: IpAddr::from([10, 0, 0, 2]),
            ttl: rng.below(4) as u8,
        };
        // Few sessions, senders and hops, so that messages concern the same state.
        let message = narrowed(
            samples::message(&mut Rng::new(9, samples::PURPOSE, rng.below(300)), kind),
            &mut rng,
        );
        let bytes = message.write(9);
        network.with(0, |process, now, _| {
            let everywhere = |destination: IpAddr, to: &mut Vec<NextHop>| {
                let IpAddr::V4(four) = destination else { return };
                let port = u32::from(four.octets()[3] % 4);
                to.push(NextHop { port, address: destination });
            };
            process.handle_message(now, &arrival, &bytes, &RoutesByClosure(&everywhere));
            process.handle_timeout(now);
        });
        network.now += Span::from_nanos(rng.below(2_000_000_000));
        most = most.max(network.planes[0].len());
        assert!(network.nodes[0].sessions() <= 6 && network.planes[0].len() <= 8);
    }
    let counts = *network.nodes[0].counts();
    assert!(
        most >= 4 && counts.effective > 1_000 && counts.admission_refused > 10,
        "{most} {counts:?}"
    );
    network.now = Time::from_nanos(1 << 50);
    network.with(0, |process, now, _| process.handle_timeout(now));
    assert_eq!((network.nodes[0].sessions(), network.planes[0].len()), (0, 0), "all expires");
}

/// The same message with one of few sessions, senders and hops.
fn narrowed(mut message: Message, rng: &mut Rng) -> Message {
    let session = udp_session(IpAddr::from([192, 0, 2, rng.below(8) as u8]));
    let sender = Sender { source: IpAddr::from([198, 51, 100, rng.below(4) as u8]), port: 1 };
    let hop =
        Hop { address: IpAddr::from([10, 0, 9, rng.below(3) as u8]), handle: rng.below(5) as u32 };
    let shrink = |flows: &mut [FlowDescriptor]| {
        flows.iter_mut().flat_map(|flow| &mut flow.senders).for_each(|one| *one = sender);
    };
    match &mut message {
        Message::Path(m) => (m.session, m.sender, m.hop, m.route) = (session, sender, hop, None),
        Message::Resv(m) => {
            (m.session, m.hop, m.confirm) = (session, hop, None);
            shrink(&mut m.flows);
        }
        Message::PathErr(m) => (m.session, m.sender) = (session, sender),
        Message::ResvErr(m) => {
            (m.session, m.hop) = (session, hop);
            shrink(core::slice::from_mut(&mut m.flow));
        }
        Message::PathTear(m) => (m.session, m.sender, m.hop) = (session, sender, hop),
        Message::ResvTear(m) => {
            (m.session, m.hop) = (session, hop);
            m.senders.iter_mut().for_each(|one| *one = sender);
        }
        Message::ResvConf(m) => m.session = session,
        Message::FlowSetup(m) => {
            (m.session, m.sender, m.hop, m.route) = (session, sender, hop, None)
        }
        Message::FlowRelease(m) => (m.session, m.sender, m.hop) = (session, sender, hop),
    }
    message
}

//! RSVP between hosts and routers in virtual time: set up, refresh, loss, tear, expiry, refusal.

mod network;

use network::*;
use nilometer_reservation::Upcall;
use nilometer_reservation::message::{ErrorCode, Sender, Session, Style};
use nilometer_reservation::process::HostError;
use nilometer_wire::{Span, Time};

const MEGA: f32 = 1_000_000.0;
/// L = (K + 0.5) * 1.5 * R with K = 3 and R = 30 s.
const LIFETIME: Span = Span::from_nanos(157_500_000_000);

/// Sender 0, routers 1 and 2, receiver 3.
fn chain() -> Network {
    Network::new(4, &[(0, 1), (1, 2), (2, 3)])
}

/// A path from node 0 to node 3 and a reservation of 1 MB/s for it.
fn reserved(network: &mut Network) -> (Session, Sender) {
    let session = udp_session(network.address(3));
    let sender = network.announce(0, session, MEGA);
    network.run(SECOND);
    reserve(network, 3, session, Style::FixedFilter, MEGA, &[sender]).expect("a path is there");
    network.run(SECOND);
    (session, sender)
}

fn reserve(
    network: &mut Network,
    node: usize,
    session: Session,
    style: Style,
    rate: f32,
    senders: &[Sender],
) -> Result<(), HostError> {
    let flows = vec![descriptor(rate, senders)];
    network.with(node, |process, now, _| process.reserve(now, session, style, flows, true))
}

fn is_empty(network: &Network, node: usize) -> bool {
    network.planes[node].is_empty() && network.nodes[node].sessions() == 0
}

#[test]
fn a_reservation_is_made_hop_by_hop_and_confirmed() {
    let mut network = chain();
    let (session, sender) = reserved(&mut network);
    for router in [1, 2] {
        let reservation = network.planes[router].values().next().expect("installed");
        assert_eq!((reservation.rate_bytes, reservation.bucket_bytes), (1_000_000, 3_000));
        assert_eq!((&reservation.inputs[..], reservation.output), (&[0][..], 1));
        let flow = reservation.flows[0];
        assert_eq!((flow.source, flow.source_port), (Some(sender.source), Some(4_000)));
        assert_eq!((flow.destination, flow.destination_port), (session.destination, Some(5_004)));
    }
    assert_eq!(network.planes[2].values().next().expect("one").next_hop, session.destination);
    let upcalls = network.take_upcalls(3);
    assert!(matches!(upcalls[0], Upcall::Path { .. }), "{upcalls:?}");
    assert_eq!(upcalls[1], Upcall::Confirmed { session, node: network.address(0) });
    let upcalls = network.take_upcalls(0);
    assert!(matches!(&upcalls[..], [Upcall::Resv { flows, .. }] if flows[0].senders == [sender]));
}

#[test]
fn refreshes_keep_a_reservation_and_come_once_a_period() {
    let mut network = chain();
    reserved(&mut network);
    let before = network.packets.len();
    network.run(Span::from_secs(3_000));
    assert_eq!(network.rates(1), [1_000_000]);
    assert_eq!(network.rates(2), [1_000_000]);
    // Three Paths and three Resvs a period, for a hundred periods.
    let sent = network.packets.len() - before;
    assert!((540..=660).contains(&sent), "{sent}");
    assert!(network.nodes.iter().all(|node| node.counts().expired == 0));
}

#[test]
fn lost_messages_are_made_good_by_refreshes() {
    let mut network = chain();
    network.loss = 0.3;
    let session = udp_session(network.address(3));
    let sender = network.announce(0, session, MEGA);
    // The path may need refreshes to get there.
    let is_there = (0..1_000).any(|_| {
        network.run(SECOND);
        reserve(&mut network, 3, session, Style::FixedFilter, MEGA, &[sender]).is_ok()
    });
    assert!(is_there);
    let mut there = 0;
    for _ in 0..1_000 {
        network.run(Span::from_secs(30));
        there += u32::from(network.rates(1) == [1_000_000] && network.rates(2) == [1_000_000]);
    }
    // Four losses in a row, of one of five messages: about 4 periods in 100.
    assert!(there > 900, "{there} of 1,000 periods");
    network.loss = 0.0;
    network.run(Span::from_secs(200));
    assert_eq!((network.rates(1), network.rates(2)), (vec![1_000_000], vec![1_000_000]));
}

#[test]
fn tears_take_everything_back_at_once() {
    let mut network = chain();
    let (session, sender) = reserved(&mut network);
    network.with(3, |process, now, _| assert!(process.release(now, session)));
    network.run(SECOND);
    assert!(network.planes[1].is_empty() && network.planes[2].is_empty());
    assert_eq!(network.nodes[1].sessions(), 1, "the path is still there");
    let upcalls = network.take_upcalls(0);
    assert!(matches!(upcalls.last(), Some(Upcall::Resv { flows, .. }) if flows.is_empty()));
    network.with(0, |process, now, _| assert!(process.withdraw(now, session, sender)));
    network.run(SECOND);
    assert!((0..4).all(|node| is_empty(&network, node)));
    // When a sender ends, the reservation ends, too.
    let (session, sender) = reserved(&mut network);
    network.with(0, |process, now, _| process.withdraw(now, session, sender));
    network.run(SECOND);
    assert!((0..3).all(|node| is_empty(&network, node)));
    assert_eq!(network.take_upcalls(3).last(), Some(&Upcall::PathGone { session, sender }));
}

#[test]
fn state_expires_when_its_host_dies() {
    for host in [0, 3] {
        let mut network = chain();
        reserved(&mut network);
        let neighbour = if host == 0 { 1 } else { 2 };
        network.run(Span::from_secs(1_000));
        network.kill(host);
        // The last refresh came at most 45 s before the death.
        network.run(Span::from_nanos(LIFETIME.as_nanos() - 46_000_000_000));
        assert_eq!(network.rates(neighbour), [1_000_000], "it lives for L after its last refresh");
        network.run(Span::from_secs(47));
        assert!(network.planes[1].is_empty() && network.planes[2].is_empty());
        assert!(network.nodes[neighbour].counts().expired > 0);
        if host == 0 {
            assert!(is_empty(&network, 1) && is_empty(&network, 2));
        }
    }
}

#[test]
fn over_admission_is_refused_with_a_resv_err_at_the_receiver() {
    let mut network = chain();
    let session = udp_session(network.address(3));
    let sender = network.announce(0, session, 6.0 * MEGA);
    network.run(SECOND);
    reserve(&mut network, 3, session, Style::FixedFilter, 6.0 * MEGA, &[sender]).expect("fits");
    network.run(SECOND);
    let other = Session { port: 6_000, ..session };
    let second = network.announce(0, other, 6.0 * MEGA);
    network.run(SECOND);
    network.take_upcalls(3);
    reserve(&mut network, 3, other, Style::FixedFilter, 6.0 * MEGA, &[second]).expect("sent");
    network.run(SECOND);
    let upcalls = network.take_upcalls(3);
    let [Upcall::ResvError { session: refused, error, flow }] = &upcalls[..] else {
        panic!("{upcalls:?}")
    };
    assert_eq!((*refused, error.error), (other, ErrorCode::BANDWIDTH_UNAVAILABLE));
    assert_eq!((error.is_in_place, &flow.senders[..]), (false, &[second][..]));
    assert_eq!((network.rates(1), network.rates(2)), (vec![6_000_000], vec![6_000_000]));
    let refused = |node: usize| network.nodes[node].counts().admission_refused;
    assert_eq!((refused(1), refused(2)), (0, 1));
    // A larger request for an existing reservation: the old one stays, and the error says so.
    network.announce(0, session, 9.0 * MEGA);
    network.run(SECOND);
    network.take_upcalls(3);
    reserve(&mut network, 3, session, Style::FixedFilter, 9.0 * MEGA, &[sender]).expect("sent");
    network.run(SECOND);
    let upcalls = network.take_upcalls(3);
    assert!(matches!(&upcalls[..], [Upcall::ResvError { error, .. }] if error.is_in_place));
    assert_eq!(network.rates(2), [6_000_000]);
    // What fits beside it is admitted.
    reserve(&mut network, 3, other, Style::FixedFilter, 2.0 * MEGA, &[second]).expect("sent");
    network.run(SECOND);
    assert_eq!(network.rates(2), [2_000_000, 6_000_000]);
    assert!(network.rates(2).iter().sum::<u64>() <= RESERVABLE);
}

/// Senders 0 and 1 at router 2, router 3, receiver 4.
fn two_senders(style: Style) -> (Network, Session, [Sender; 2]) {
    let mut network = Network::new(5, &[(0, 2), (1, 2), (2, 3), (3, 4)]);
    let session = udp_session(network.address(4));
    let senders = [0, 1].map(|node| network.announce(node, session, MEGA));
    network.run(SECOND);
    let flows = match style {
        Style::FixedFilter => senders.iter().map(|s| descriptor(MEGA, &[*s])).collect(),
        Style::SharedExplicit => vec![descriptor(MEGA, &senders)],
        Style::WildcardFilter => vec![descriptor(MEGA, &[])],
    };
    network
        .with(4, |process, now, _| process.reserve(now, session, style, flows, false))
        .expect("paths are there");
    network.run(SECOND);
    (network, session, senders)
}

#[test]
fn fixed_filter_reserves_for_each_sender() {
    let (mut network, session, senders) = two_senders(Style::FixedFilter);
    assert_eq!(network.rates(3), [1_000_000, 1_000_000]);
    assert_eq!(network.rates(2), [1_000_000, 1_000_000]);
    network.with(0, |process, now, _| process.withdraw(now, session, senders[0]));
    network.run(SECOND);
    assert_eq!((network.rates(2), network.rates(3)), (vec![1_000_000], vec![1_000_000]));
}

#[test]
fn shared_explicit_reserves_once_for_the_senders_it_names() {
    let (mut network, session, senders) = two_senders(Style::SharedExplicit);
    for router in [2, 3] {
        assert_eq!(network.rates(router), [1_000_000]);
        let reservation = network.planes[router].values().next().expect("one");
        assert_eq!(reservation.flows.len(), 2);
    }
    assert_eq!(network.planes[2].values().next().expect("one").inputs, [0, 1]);
    // One sender less: the reservation continues for the other, and upstream of the first it is gone.
    reserve(&mut network, 4, session, Style::SharedExplicit, MEGA, &senders[..1]).expect("sent");
    network.run(SECOND);
    let reservation = network.planes[2].values().next().expect("one");
    assert_eq!((reservation.flows.len(), &reservation.inputs[..]), (1, &[0][..]));
    let upcalls = network.take_upcalls(1);
    assert!(matches!(upcalls.last(), Some(Upcall::Resv { flows, .. }) if flows.is_empty()));
}

#[test]
fn wildcard_filter_reserves_once_for_all_senders() {
    let (mut network, session, _) = two_senders(Style::WildcardFilter);
    for router in [2, 3] {
        assert_eq!(network.rates(router), [1_000_000]);
        let reservation = network.planes[router].values().next().expect("one");
        assert_eq!(reservation.flows[0].source, None);
    }
    let conflicting = reserve(&mut network, 4, session, Style::FixedFilter, MEGA, &[]);
    assert_eq!(conflicting, Err(HostError::Refused), "no sender is named");
    network.with(4, |process, now, _| process.release(now, session));
    network.run(SECOND);
    assert!(network.planes[2].is_empty() && network.planes[3].is_empty());
}

/// Sender 0, routers 1 and 2, receivers 3, 4 and 5 of a group behind router 2.
fn tree() -> (Network, Session, Sender) {
    let mut network = Network::new(6, &[(0, 1), (1, 2), (2, 3), (2, 4), (2, 5)]);
    [3, 4, 5].into_iter().for_each(|node| network.join(node));
    let session = udp_session(GROUP);
    let sender = network.announce(0, session, 9.0 * MEGA);
    network.run(SECOND);
    (network, session, sender)
}

#[test]
fn requests_of_several_receivers_merge_to_the_largest() {
    let (mut network, session, sender) = tree();
    reserve(&mut network, 3, session, Style::FixedFilter, MEGA, &[sender]).expect("sent");
    network.run(SECOND);
    reserve(&mut network, 4, session, Style::FixedFilter, 3.0 * MEGA, &[sender]).expect("sent");
    network.run(SECOND);
    assert_eq!(network.rates(2), [1_000_000, 3_000_000], "one at each output");
    assert_eq!(network.rates(1), [3_000_000], "one for both");
    network.with(4, |process, now, _| process.release(now, session));
    network.run(SECOND);
    assert_eq!((network.rates(2), network.rates(1)), (vec![1_000_000], vec![1_000_000]));
}

/// The killer reservation: a request that is too large for a link upstream would take the smaller ones that it is merged
/// with along (RFC 2205, 2.5).
#[test]
fn a_request_that_is_too_large_leaves_the_smaller_ones_alone() {
    let (mut network, session, sender) = tree();
    // 6 MB/s of 8 are taken between the routers and the sender.
    let other = udp_session(network.address(2));
    let taken = network.announce(0, other, 6.0 * MEGA);
    network.run(SECOND);
    reserve(&mut network, 2, other, Style::FixedFilter, 6.0 * MEGA, &[taken]).expect("sent");
    network.run(SECOND);
    assert_eq!(network.rates(1), [6_000_000]);
    // The large request comes first, and fails in the middle.
    reserve(&mut network, 4, session, Style::FixedFilter, 5.0 * MEGA, &[sender]).expect("sent");
    network.run(SECOND);
    assert!(network.take_upcalls(4).iter().any(|up| matches!(up, Upcall::ResvError { .. })));
    reserve(&mut network, 3, session, Style::FixedFilter, MEGA, &[sender]).expect("sent");
    network.run(SECOND);
    assert_eq!(network.rates(1), [1_000_000, 6_000_000], "the small one is there");
    reserve(&mut network, 5, session, Style::FixedFilter, 1.5 * MEGA, &[sender]).expect("sent");
    network.run(SECOND);
    // The small one stays as long as both are requested, through many attempts of the large one.
    network.take_upcalls(3);
    for _ in 0..40 {
        network.run(Span::from_secs(30));
        assert_eq!(network.rates(1), [1_500_000, 6_000_000], "{:?}", network.now);
    }
    let errors = network.take_upcalls(3);
    assert!(!errors.iter().any(|up| matches!(up, Upcall::ResvError { .. })), "{errors:?}");
    // Once there is room, the large one has it.
    network.with(2, |process, now, _| process.release(now, other));
    network.run(Span::from_secs(200));
    assert_eq!(network.rates(1), [5_000_000]);
}

#[test]
fn reservations_move_with_a_route_that_is_not_reserved_and_stay_otherwise() {
    // Sender 0, router 1, routers 2 and 3 beside each other, router 4, receiver 5; 1-2-4 is found first.
    let links = [(0, 1), (1, 2), (1, 3), (2, 4), (3, 4), (4, 5)];
    let mut network = Network::new(6, &links);
    let session = udp_session(network.address(5));
    let sender = network.announce(0, session, MEGA);
    network.run(SECOND);
    let paths = |network: &Network| [2, 3].map(|router| network.nodes[router].sessions());
    assert_eq!(paths(&network), [1, 0]);
    network.cut(1);
    network.with(1, |process, now, query| process.routes_changed(now, &RoutesByClosure(query)));
    network.run(SECOND);
    assert_eq!(paths(&network)[1], 1, "the path has moved");
    reserve(&mut network, 5, session, Style::FixedFilter, MEGA, &[sender]).expect("sent");
    network.run(SECOND);
    assert_eq!((network.rates(3), network.rates(1)), (vec![1_000_000], vec![1_000_000]));
    // The better way is back, but the reservation pins the flow.
    network.join_link(1);
    network.with(1, |process, now, query| process.routes_changed(now, &RoutesByClosure(query)));
    network.run(Span::from_secs(1_000));
    assert_eq!((network.rates(3), network.rates(2)), (vec![1_000_000], vec![]));
    assert!(network.planes[1].values().all(|reservation| reservation.is_pinned));
    // Without it, the flow follows the routing table.
    network.with(5, |process, now, _| process.release(now, session));
    network.run(Span::from_secs(200));
    assert_eq!(paths(&network), [1, 0]);
    assert_eq!(network.now, Time::from_nanos(1_203_000_000_000));
}

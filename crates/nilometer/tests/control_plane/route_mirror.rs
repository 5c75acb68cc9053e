//! Silent changes of the kernel to its routes, as the mirror sees them.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use nilometer_linux::namespace::Namespace;
use nilometer_linux::netlink::Netlink;
use nilometer_linux::veth::VethEnd;
use nilometer_router::{Hop, RouteLimits, RouteTarget, RouteUpdate, Source, rtnetlink};
use nilometer_routerd::kernel::KernelMirror;
use nilometer_routerd::rib_thread::{Engines, RibThread};

use crate::forwarder::{Forwarder, wait};
use crate::netlink::{Message, UNICAST, route};

/// `RTM_NEWNEXTHOP`, and `NHA_ID` and `NHA_BLACKHOLE`.
const NEW_NEXT_HOP: u16 = 104;
const ID: u16 = 1;
const BLACKHOLE: u16 = 4;
const PATIENCE: Duration = Duration::from_secs(10);

/// Creates a kernel object, and waits for the confirmation.
fn make(netlink: &Socket, mut request: Vec<u8>) {
    const REQUEST_CREATE_ACKNOWLEDGE: u16 = 0x405;
    request[6..8].copy_from_slice(&REQUEST_CREATE_ACKNOWLEDGE.to_ne_bytes());
    netlink.send(&request, 0).expect("the kernel hears");
    let (answer, _) = netlink.recv_from_full().expect("the kernel answers");
    assert_eq!((answer[4], &answer[16..20]), (rtnetlink::ERROR as u8, &[0; 4][..]), "no error");
}

/// A socket to the kernel of a namespace.
fn requests(namespace: &Namespace) -> Socket {
    let socket = namespace.enter(|| {
        let socket = Socket::new(NETLINK_ROUTE)?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(socket)
    });
    socket.expect("netlink")
}

/// A route to 10.0.0.0/8 by two links, in equal shares, entered into the kernel.
fn two_ways(netlink: &Socket, links: [u32; 2]) {
    let way = |(third, link): (u8, u32)| {
        [&[16, 0, 0, 0][..], &link.to_ne_bytes(), &[8, 0, 5, 0, 198, 18, third, 2]].concat()
    };
    let ways: Vec<u8> = (0..).zip(links).flat_map(way).collect();
    let request = route(rtnetlink::NEW_ROUTE, IpAddr::from([10, 0, 0, 0]), 8, 4, UNICAST);
    make(netlink, request.attribute(9, &ways).bytes());
}

#[test]
fn a_way_whose_link_goes_down_is_left_until_it_comes_up() {
    if !crate::common::privileged("ways of the kernel") {
        return;
    }
    let [r1, r2] = [(); 2].map(|()| Namespace::new().expect("a namespace"));
    let mut near = r1.enter(Netlink::open).expect("netlink");
    let mut far = r2.enter(Netlink::open).expect("netlink");
    let rib = RibThread::start(RouteLimits::default(), Engines::default()).expect("a thread");
    let links = [0, 1].map(|number: u8| {
        let (ours, theirs) = (format!("r1-{number}"), format!("r2-{number}"));
        let end =
            |namespace, name, last| VethEnd { namespace, name, mac: [2, 0, 0, 0, number, last] };
        near.create_veth(end(&r1, &ours, 1), end(&r2, &theirs, 2), 1_500).expect("a link");
        near.add_address(&ours, [198, 18, number, 1].into(), 24).expect("an address");
        near.set_up(&ours).expect("up");
        far.set_up(&theirs).expect("up");
        let link = near.link(&ours).expect("it is there").index;
        rib.set_port(link, number.into());
        link
    });
    two_ways(&requests(&r1), links);
    let _mirror = KernelMirror::start(Some(&r1), rib.news()).expect("it mirrors");
    let mut forwarder = Forwarder::new(&rib);
    let mut ports = || {
        let mut ports = BTreeSet::new();
        for flow in 0..64 {
            if let [Some(Hop::Via { port, .. })] = forwarder.batch(&[0x0a01_0101], flow)[..] {
                ports.insert(port);
            }
        }
        ports
    };
    for _ in 0..2 {
        wait("both ways", || ports() == BTreeSet::from([0, 1]));
        near.set_down("r1-1").expect("down");
        wait("one way", || ports() == BTreeSet::from([0]));
        near.set_up("r1-1").expect("up");
    }
    wait("both ways again", || ports() == BTreeSet::from([0, 1]));
}

/// Three objects and the end of their dump are one datagram.
#[test]
fn existing_next_hop_objects_are_reported() {
    if !crate::common::privileged("next-hop objects of the kernel") {
        return;
    }
    let namespace = Namespace::new().expect("a namespace");
    let (netlink, ids) = (requests(&namespace), [7, 8, 19]);
    for id in ids {
        // For IPv4, by hand.
        let object = Message::new(NEW_NEXT_HOP, &[2, 0, 4, 0, 0, 0, 0, 0]).number(ID, id);
        make(&netlink, object.attribute(BLACKHOLE, &[]).bytes());
    }
    let (news, receiver) = sync_channel(10_000);
    let mirror = KernelMirror::start(Some(&namespace), news).expect("it mirrors");
    let (mut reported, mut is_over, began) = (Vec::new(), false, Instant::now());
    while !is_over && began.elapsed() < PATIENCE {
        let Ok(batch) = receiver.recv_timeout(PATIENCE) else { continue };
        for update in batch.updates {
            match update {
                RouteUpdate::Define { id, way: RouteTarget::Fate(Hop::Blackhole) } => {
                    reported.push(id)
                }
                RouteUpdate::ReplayEnds => is_over |= batch.source == Source::Kernel,
                _ => {}
            }
        }
    }
    assert!(is_over, "{:?}", mirror.status());
    reported.sort_unstable();
    assert_eq!(reported, ids);
}

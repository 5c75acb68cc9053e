//! What the kernel does to its routes without a word, as its mirror sees it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use nilometer_lab::device::namespace::Namespace;
use nilometer_lab::device::netlink::{Netlink, VethEnd};
use nilometer_lab::route::keeper::{Engines, Keeper};
use nilometer_lab::route::kernel::KernelMirror;
use nilometer_router::{Hop, RouteLimits, rtnetlink};

mod common;
#[path = "common/forwarder.rs"]
mod forwarder;
#[path = "../../router/tests/netlink/mod.rs"]
mod netlink;

use forwarder::{Forwarder, wait};
use netlink::{UNICAST, route};

/// A route to 10.0.0.0/8 by two links, in equal shares, entered into the kernel.
fn two_ways(netlink: &Socket, links: [u32; 2]) {
    let way = |(third, link): (u8, u32)| {
        [&[16, 0, 0, 0][..], &link.to_ne_bytes(), &[8, 0, 5, 0, 198, 18, third, 2]].concat()
    };
    let ways: Vec<u8> = (0..).zip(links).flat_map(way).collect();
    let mut request = route(rtnetlink::NEW_ROUTE, IpAddr::from([10, 0, 0, 0]), 8, 4, UNICAST)
        .attribute(9, &ways)
        .bytes();
    const REQUEST_CREATE_ACKNOWLEDGE: u16 = 0x405;
    request[6..8].copy_from_slice(&REQUEST_CREATE_ACKNOWLEDGE.to_ne_bytes());
    netlink.send(&request, 0).expect("the kernel hears");
    let (answer, _) = netlink.recv_from_full().expect("the kernel answers");
    assert_eq!((answer[4], &answer[16..20]), (rtnetlink::ERROR as u8, &[0; 4][..]), "no error");
}

#[test]
fn a_way_whose_link_goes_down_is_left_until_it_comes_up() {
    if !common::privileged("ways of the kernel") {
        return;
    }
    let [r1, r2] = [(); 2].map(|()| Namespace::new().expect("a namespace"));
    let mut near = r1.enter(Netlink::open).expect("netlink");
    let mut far = r2.enter(Netlink::open).expect("netlink");
    let keeper = Keeper::start(RouteLimits::default(), Engines::default()).expect("a thread");
    let links = [0, 1].map(|number: u8| {
        let (ours, theirs) = (format!("r1-{number}"), format!("r2-{number}"));
        let end =
            |namespace, name, last| VethEnd { namespace, name, mac: [2, 0, 0, 0, number, last] };
        near.create_veth(end(&r1, &ours, 1), end(&r2, &theirs, 2), 1_500).expect("a link");
        near.add_address(&ours, [198, 18, number, 1].into(), 24).expect("an address");
        near.set_up(&ours).expect("up");
        far.set_up(&theirs).expect("up");
        let link = near.link(&ours).expect("it is there").index;
        keeper.set_port(link, number.into());
        link
    });
    let socket = r1.enter(|| {
        let socket = Socket::new(NETLINK_ROUTE)?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(socket)
    });
    two_ways(&socket.expect("netlink"), links);
    let _mirror = KernelMirror::start(Some(&r1), keeper.news()).expect("it mirrors");
    let mut forwarder = Forwarder::new(&keeper);
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

//! Reverse path tests in the pipeline: each mode makes the test of RFC 3704, against existing
//! routes.

use std::net::{IpAddr, Ipv4Addr};

use nilometer_router::Prefix;
use nilometer_router::discard::Discard;
use nilometer_router::fib::NextHop;
use nilometer_router::forward::urpf::Mode;
use nilometer_router::next_hop::Hop;

use crate::bench::{Bench, framed, udp};

const MODES: [Mode; 5] =
    [Mode::Off, Mode::Strict, Mode::Feasible, Mode::Loose, Mode::LooseWithoutDefault];

fn via(bench: &mut Bench, port: u16) -> NextHop {
    let gateway = IpAddr::from(Ipv4Addr::new(198, 18, port as u8, 2));
    bench.way(Hop::Via { port, gateway: Some(gateway) })
}

/// Under which modes a packet from `source` that comes by `port` passes.
fn passing(bench: &mut Bench, port: usize, source: &str) -> Vec<Mode> {
    let frame = framed(port, &udp(source, "198.19.1.9", 30));
    let passes = |mode: &Mode| {
        bench.router.port_mut(port).set_reverse_path(*mode);
        let before = bench.router.ports()[port].discards().of(Discard::ReversePath);
        let is_out = !bench.pass(port, &frame).is_empty();
        let refused = bench.router.ports()[port].discards().of(Discard::ReversePath) - before;
        assert_eq!(is_out, refused == 0, "{mode:?}");
        is_out
    };
    let modes = MODES.into_iter().filter(passes).collect();
    bench.router.port_mut(port).set_reverse_path(Mode::Off);
    modes
}

#[test]
fn any_known_route_is_feasible() {
    let mut bench = Bench::new();
    let (best, longer) = (via(&mut bench, 2), via(&mut bench, 3));
    bench.route4("198.51.0.0/16", best);
    bench.route4("198.51.7.0/24", longer);
    bench.renew();
    let prefix: Prefix<u32> = "198.51.0.0/16".parse().expect("a prefix");
    bench.router.reverse_paths4_mut().set_others(prefix, best, &[0]).expect("room");
    let (loose, all) = ([Mode::Off, Mode::Loose, Mode::LooseWithoutDefault], MODES);
    let feasible = [Mode::Off, Mode::Feasible, Mode::Loose, Mode::LooseWithoutDefault];
    assert_eq!(passing(&mut bench, 2, "198.51.0.9"), all, "the best");
    assert_eq!(passing(&mut bench, 0, "198.51.0.9"), feasible, "another");
    assert_eq!(passing(&mut bench, 3, "198.51.0.9"), loose, "none");
    assert_eq!(passing(&mut bench, 0, "198.51.7.9"), loose, "a longer prefix has no other");
    bench.router.reverse_paths4_mut().set_others(prefix, best, &[]).expect("room");
    assert_eq!(passing(&mut bench, 0, "198.51.0.9"), loose, "not any more");
}

#[test]
fn the_default_route_is_distinguished_from_others() {
    let mut bench = Bench::new();
    let only_off = [Mode::Off];
    assert_eq!(passing(&mut bench, 0, "198.51.0.9"), only_off, "no route at all");
    let default = via(&mut bench, 2);
    bench.renew();
    bench.router.reverse_paths4_mut().set_default(Some(default));
    let but_last = [Mode::Off, Mode::Strict, Mode::Feasible, Mode::Loose];
    assert_eq!(passing(&mut bench, 2, "198.51.0.9"), but_last);
    assert_eq!(passing(&mut bench, 0, "198.51.0.9"), [Mode::Off, Mode::Loose]);
    assert_eq!(passing(&mut bench, 2, "198.19.2.9"), MODES, "a route of its own");
    // It is forwarded by, on the fast path and for the router's own packets.
    let out = bench.pass(0, &framed(0, &udp("198.19.0.9", "198.51.0.9", 30)));
    assert!(matches!(out[..], [(2, _)]), "{out:?}");
    let expired = crate::bench::with_hop_limit(udp("198.51.0.9", "198.19.1.9", 30), 1);
    assert!(matches!(bench.pass(0, &framed(0, &expired))[..], [(2, _)]));
    bench.router.reverse_paths4_mut().set_default(None);
    let out = bench.pass(0, &framed(0, &udp("198.19.0.9", "198.51.0.9", 30)));
    assert_eq!(out.first().map(|(_, frame)| crate::icmp(frame)), Some((3, 0)));
}

//! Routes are committed after their next hops are published: no reader meets a number that says nothing.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use nilometer_router::{
    AnyPrefix, FibLinear, Hop, Lookups, Member, Path, Prefix, RouteLimits, RouteTable, RouteTarget,
    RouteUpdate, Snapshot, Source, TreeBitmap,
};
use nilometer_stat::Rng;

type Table = RouteTable<TreeBitmap<u32>, FibLinear<u128>>;

const PREFIXES: u64 = 64;

fn table() -> Table {
    let limits = RouteLimits { next_hops: 1_000, buckets: 1 << 16, ..RouteLimits::default() };
    let fib = TreeBitmap::new(100_000).expect("room");
    let mut table = RouteTable::new(limits, fib, FibLinear::new());
    for link in 1..5 {
        table.set_port(link, link as u16);
    }
    table
}

fn prefix(number: u64) -> AnyPrefix {
    AnyPrefix::V4(Prefix::new(0x0a00_0000 + ((number as u32) << 8), 24).expect("short enough"))
}

fn some_way(rng: &mut Rng) -> RouteTarget {
    let gateway = |rng: &mut Rng| Some(IpAddr::V4(Ipv4Addr::from(rng.below(200) as u32)));
    let link = 1 + rng.below(4) as u32;
    match rng.below(5) {
        0 => RouteTarget::Path(Path { link, gateway: gateway(rng), weight: 1 }),
        1 => {
            let paths = (1..4).map(|link| Path { link, gateway: gateway(rng), weight: 1 });
            RouteTarget::Paths(paths.collect())
        }
        2 => {
            let hop = |port| Hop::Via { port, gateway: None };
            let members = [(1, 1), (2, 1 + rng.below(3) as u16)];
            RouteTarget::Members(
                members.map(|(port, weight)| Member { hop: hop(port), weight }).into(),
            )
        }
        3 => RouteTarget::Fate(Hop::Blackhole),
        _ => RouteTarget::Object(rng.below(8) as u32),
    }
}

fn some_update(rng: &mut Rng) -> RouteUpdate {
    let prefix = prefix(rng.below(PREFIXES));
    match rng.below(20) {
        0 => RouteUpdate::ReplayBegins,
        1 => RouteUpdate::ReplayEnds,
        2 | 3 => RouteUpdate::Forget { id: rng.below(8) as u32 },
        4..=6 => {
            let path = Path { link: 1 + rng.below(4) as u32, gateway: None, weight: 1 };
            RouteUpdate::Define { id: rng.below(8) as u32, way: RouteTarget::Path(path) }
        }
        7..=9 => RouteUpdate::Withdraw { prefix, metric: 0 },
        _ => RouteUpdate::Announce { prefix, protocol: 4, metric: 0, way: some_way(rng) },
    }
}

/// Every route leads to a number that the snapshot knows.
fn holds(lookups: &mut dyn Lookups<u32>, snapshot: &Snapshot, when: &str) {
    let addresses: Vec<u32> = (0..PREFIXES as u32).map(|at| 0x0a00_0000 + (at << 8)).collect();
    let mut found = vec![None; addresses.len()];
    lookups.look_up(&addresses, &mut found);
    for (next, address) in found.into_iter().zip(addresses) {
        let Some(next) = next else { continue };
        assert!(snapshot.resolve(next, 7).is_some(), "{when}: {next:?} of {address:x}");
    }
}

#[test]
fn a_reader_knows_every_number_that_it_meets() {
    let mut rng = Rng::new(4, 1, 0);
    let mut table = table();
    let mut lookups = nilometer_router::ServingFib::reader(table.fib_v4()).expect("a place");
    for round in 0..3_000 {
        let source = [Source::Fpm, Source::Static][rng.below(2) as usize];
        let updates: Vec<_> = (0..1 + rng.below(12)).map(|_| some_update(&mut rng)).collect();
        let prepared = table.prepare(source, &updates);
        let snapshot: Arc<Snapshot> = table.hops_mut().snapshot();
        holds(&mut *lookups, &snapshot, &format!("{round}, before the routes change"));
        table.commit(prepared);
        holds(&mut *lookups, &snapshot, &format!("{round}, after"));
    }
    assert!(table.rib_v4().counters().fib_updates > 1_000 && table.rib_v4().counters().swept > 10);
}

#[test]
fn one_step_and_two_come_to_the_same() {
    let mut rng = Rng::new(5, 1, 0);
    let (mut one, mut two) = (table(), table());
    for _ in 0..500 {
        let updates: Vec<_> = (0..1 + rng.below(40)).map(|_| some_update(&mut rng)).collect();
        for update in &updates {
            one.apply(Source::Fpm, std::slice::from_ref(update));
        }
        let prepared = two.prepare(Source::Fpm, &updates);
        two.commit(prepared);
        // Released numbers can be reused after a snapshot.
        drop((one.hops_mut().snapshot(), two.hops_mut().snapshot()));
        let ways = |table: &Table| {
            let mut best: Vec<_> = table.rib_v4().best().collect();
            best.sort_by_key(|route| route.prefix);
            let ways =
                best.into_iter().map(|route| (route.prefix, table.hops().members(route.next)));
            ways.collect::<Vec<_>>()
        };
        assert_eq!(ways(&one), ways(&two));
    }
    assert_eq!(one.hops().len(), two.hops().len(), "nothing is held that is not used");
}

#[test]
fn updates_that_cannot_be_applied_are_counted() {
    let mut table = table();
    let announce =
        |number, way| RouteUpdate::Announce { prefix: prefix(number), protocol: 4, metric: 0, way };
    let path = |link| Path { link, gateway: None, weight: 1 };
    let updates = [
        announce(1, RouteTarget::Path(path(1))),
        announce(2, RouteTarget::Path(path(9))),
        announce(3, RouteTarget::Paths(vec![path(9), path(1)])),
        RouteUpdate::Forget { id: 5 },
        announce(4, RouteTarget::Object(6)),
    ];
    table.apply(Source::Fpm, &updates);
    let counters = table.counters();
    let counted = [counters.not_a_port, counters.unknown_objects, counters.early];
    assert_eq!((counted, counters.next_hops_refused), ([2, 1, 1], 0));
    // A group has 256 members at most.
    for (count, refused) in [(256, 0), (257, 1)] {
        let gateway = |number| Some(IpAddr::V4(Ipv4Addr::from(number)));
        let paths = (0..count).map(|number| Path { gateway: gateway(number), ..path(1) }).collect();
        table.apply(Source::Fpm, &[announce(5, RouteTarget::Paths(paths))]);
        assert_eq!(table.counters().next_hops_refused, refused, "{count} paths");
    }
    for (count, refused) in [(256, 1), (257, 2)] {
        let way = RouteTarget::Objects((0..count).map(|id| (1_000 + id, 1)).collect());
        table.apply(Source::Fpm, &[RouteUpdate::Define { id: 7, way }]);
        assert_eq!(table.counters().next_hops_refused, refused, "{count} objects");
    }
}

#[test]
fn a_group_is_smaller_without_a_forgotten_object() {
    let mut table = table();
    let path = |link| RouteTarget::Path(Path { link, gateway: None, weight: 1 });
    let AnyPrefix::V4(to) = prefix(1) else { panic!("IPv4") };
    let updates = [
        RouteUpdate::Define { id: 1, way: path(1) },
        RouteUpdate::Define { id: 2, way: path(2) },
        RouteUpdate::Define { id: 3, way: RouteTarget::Objects(vec![(1, 1), (2, 3)]) },
        RouteUpdate::Define { id: 4, way: path(3) },
        RouteUpdate::Announce {
            prefix: prefix(1),
            protocol: 4,
            metric: 0,
            way: RouteTarget::Object(3),
        },
    ];
    table.apply(Source::Fpm, &updates);
    let members = |table: &Table| {
        let next = table.rib_v4().best_of(to).expect("a route").next;
        let members = table.hops().members(next).into_iter();
        members.map(|member| (member.hop, member.weight)).collect::<Vec<_>>()
    };
    let via = |port| Hop::Via { port, gateway: None };
    assert_eq!(members(&table), [(via(1), 1), (via(2), 3)]);
    table.apply(Source::Fpm, &[RouteUpdate::Forget { id: 4 }]);
    assert_eq!(members(&table), [(via(1), 1), (via(2), 3)], "it was in no group");
    table.apply(Source::Fpm, &[RouteUpdate::Forget { id: 2 }]);
    assert_eq!(members(&table).iter().map(|member| member.0).collect::<Vec<_>>(), [via(1)]);
    table.apply(Source::Fpm, &[RouteUpdate::Forget { id: 1 }]);
    assert_eq!(members(&table).iter().map(|member| member.0).collect::<Vec<_>>(), [Hop::Failed]);
}

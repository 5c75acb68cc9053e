//! Routes are committed after their next hops are published: no reader meets a number that says nothing.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use nilometer_router::{
    AnyPrefix, FibLinear, Hop, Lookups, Member, Path, Prefix, RouteLimits, RouteTable, RouteUpdate,
    Snapshot, Source, TreeBitmap, Way,
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

fn some_way(rng: &mut Rng) -> Way {
    let gateway = |rng: &mut Rng| Some(IpAddr::V4(Ipv4Addr::from(rng.below(200) as u32)));
    let link = 1 + rng.below(4) as u32;
    match rng.below(5) {
        0 => Way::Path(Path { link, gateway: gateway(rng), weight: 1 }),
        1 => {
            let paths = (1..4).map(|link| Path { link, gateway: gateway(rng), weight: 1 });
            Way::Paths(paths.collect())
        }
        2 => {
            let hop = |port| Hop::Via { port, gateway: None };
            let members = [(1, 1), (2, 1 + rng.below(3) as u16)];
            Way::Members(members.map(|(port, weight)| Member { hop: hop(port), weight }).into())
        }
        3 => Way::Fate(Hop::Blackhole),
        _ => Way::Object(rng.below(8) as u32),
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
            RouteUpdate::Define { id: rng.below(8) as u32, way: Way::Path(path) }
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
        // Numbers that were let go can be had again after a snapshot.
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

//! Every forwarding table under whole routing tables of the Internet (`NILOMETER_DATA`), against a map by prefix.

use std::collections::HashMap;
use std::io::Read;
use std::path::PathBuf;

use flate2::read::GzDecoder;
use nilometer_router::{Engine, Fib, NextHop, Prefix, Routed};
use nilometer_stat::Rng;

/// All prefixes of the table of 2024; nothing, and a line that says so, without the data.
fn prefixes() -> Option<String> {
    let Some(data) = std::env::var_os("NILOMETER_DATA") else {
        eprintln!("NILOMETER_DATA: not set; full routing tables are skipped");
        return None;
    };
    let path = PathBuf::from(data).join("routing/bart/prefixes.txt.gz");
    let packed = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut text = String::new();
    GzDecoder::new(&packed[..]).read_to_string(&mut text).expect("text");
    Some(text)
}

/// The next hop of a route that names none: neighbours hardly ever share one.
fn any_next(rng: &mut Rng) -> NextHop {
    NextHop(1 + rng.below(64) as u16)
}

/// The longest matching prefix in the map, by trying each length.
fn longest<A: Routed + std::hash::Hash>(
    map: &HashMap<Prefix<A>, NextHop>,
    address: A,
) -> Option<NextHop> {
    let by_length = |length| map.get(&Prefix::new(address, length)?).copied();
    (0..=A::BITS).rev().find_map(by_length)
}

fn hold<A: Routed + std::hash::Hash>(
    engine: Engine,
    prefixes: &[Prefix<A>],
    operations: u64,
    any: impl Fn(&mut Rng) -> A,
) {
    let mut rng = Rng::new(7, 1, 0);
    let mut table = engine.table::<A>(prefixes.len()).expect("room for the roots");
    let mut map = HashMap::new();
    for &prefix in prefixes {
        let next = any_next(&mut rng);
        assert_eq!(table.insert(prefix, next), Ok(map.insert(prefix, next)));
    }
    assert!(table.balances() && table.len() == prefixes.len());
    let bytes = table.bytes() as f64 / prefixes.len() as f64;
    println!("{engine}: {} prefixes of {} bits: {bytes:.2} bytes each", prefixes.len(), A::BITS);
    for _ in 0..operations {
        let prefix = prefixes[rng.below(prefixes.len() as u64) as usize];
        match rng.below(4) {
            0 => assert_eq!(table.remove(prefix), Ok(map.remove(&prefix))),
            1 => {
                let next = any_next(&mut rng);
                assert_eq!(table.insert(prefix, next), Ok(map.insert(prefix, next)));
            }
            2 => assert_eq!(table.lookup(prefix.address()), longest(&map, prefix.address())),
            _ => {
                let address = any(&mut rng);
                assert_eq!(table.lookup(address), longest(&map, address));
            }
        }
    }
    assert!(table.balances() && table.len() == map.len());
}

#[test]
fn a_million_operations_on_the_table_of_ipv4() {
    let Some(text) = prefixes() else { return };
    let prefixes: Vec<Prefix<u32>> = text.lines().filter_map(|line| line.parse().ok()).collect();
    assert_eq!(prefixes.len(), 901_899);
    for engine in [Engine::Lines, Engine::TreeBitmap] {
        hold(engine, &prefixes, 1_000_000, |rng| rng.next_u64() as u32);
    }
    for engine in [Engine::WideLines, Engine::Direct, Engine::Poptrie, Engine::Dxr] {
        hold(engine, &prefixes, 100_000, |rng| rng.next_u64() as u32);
    }
}

#[test]
fn a_million_operations_on_the_table_of_ipv6() {
    let Some(text) = prefixes() else { return };
    let prefixes: Vec<Prefix<u128>> = text.lines().filter_map(|line| line.parse().ok()).collect();
    assert_eq!(prefixes.len(), 160_147);
    for (engine, operations) in
        [(Engine::Lines, 1_000_000), (Engine::TreeBitmap, 1_000_000), (Engine::WideLines, 100_000)]
    {
        // Of the part that is given out.
        hold(engine, &prefixes, operations, |rng| {
            let high = 0x2000 << 48 | rng.next_u64() >> 3;
            u128::from(high) << 64 | u128::from(rng.next_u64())
        });
    }
}

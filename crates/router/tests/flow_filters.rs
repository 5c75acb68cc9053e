//! Flow filters against a scan of strings of bits, and cached answers against fresh ones.

use std::collections::BTreeMap;

use nilometer_router::classifier::{FlowCache, FlowFilters, FlowPrefix};
use nilometer_router::{
    Action, Classified, Classifier, ClassifierTuples, Key, Ports, Rule, RuleId,
};
use nilometer_stat::Rng;

/// The bits of a key, first to last, as text.
fn bits<A: Classified>(key: &Key<A>) -> String {
    let mut text = String::new();
    for address in [key.destination, key.source] {
        (0..A::BITS).for_each(|at| text.push_str(if address.bits(at, 1) == 1 { "1" } else { "0" }));
    }
    text + &format!("{:08b}{:016b}{:016b}", key.protocol, key.destination_port, key.source_port)
}

fn key<A>(rng: &mut Rng, address: fn(&mut Rng) -> A) -> Key<A> {
    Key {
        source: address(rng),
        destination: address(rng),
        source_port: (rng.below(3) << 14 | rng.below(3)) as u16,
        destination_port: (rng.below(2) << 15 | rng.below(2)) as u16,
        protocol: [6, 17][rng.below(2) as usize],
        flags: rng.below(256) as u8,
    }
}

fn hold<A: Classified>(operations: u32, length_max: u32, address: fn(&mut Rng) -> A) {
    assert_eq!(FlowPrefix::<A>::LENGTH_MAX, length_max);
    let mut rng = Rng::new(4, 1, u64::from(length_max));
    let mut filters = FlowFilters::<A>::new(400);
    let mut naive: BTreeMap<u32, String> = BTreeMap::new();
    let mut lengths_found = std::collections::BTreeSet::new();
    for operation in 0..operations {
        let id = rng.below(400) as u32;
        if naive.remove(&id).is_some() {
            assert!(filters.remove(RuleId(id)));
        } else {
            let from = key(&mut rng, address);
            let length = rng.below(u64::from(length_max) + 1) as u32;
            let prefix = FlowPrefix::new(&from, length).expect("not too long");
            assert_eq!(filters.insert(RuleId(id), &prefix, Action::Reserved(id)), Ok(()));
            naive.insert(id, bits(&from)[..length as usize].to_owned());
        }
        if operation % 20_000 == 19_999 {
            filters.replan();
        }
        let header = key(&mut rng, address);
        let string = bits(&header);
        let matching = naive.iter().filter(|(_, prefix)| string.starts_with(prefix.as_str()));
        let longest = matching.max_by_key(|(id, prefix)| (prefix.len(), std::cmp::Reverse(**id)));
        assert_eq!(filters.rules().classify(&header), longest.map(|(id, _)| RuleId(*id)));
        lengths_found.extend(longest.map(|(_, prefix)| prefix.len()));
    }
    assert!(filters.rules().balances() && filters.rules().len() == naive.len());
    let longest = *lengths_found.last().expect("something matched");
    assert!(longest > length_max as usize - 16 && lengths_found.len() > 50, "{lengths_found:?}");
    assert_eq!(FlowPrefix::new(&key(&mut rng, address), length_max + 1), None);
}

#[test]
fn the_longest_of_104_bits_wins() {
    hold::<u32>(60_000, 104, |rng| (rng.below(2) << 31 | rng.below(2)) as u32);
}

#[test]
fn the_longest_of_296_bits_wins() {
    hold::<u128>(30_000, 296, |rng| u128::from(rng.below(2)) << 127 | u128::from(rng.below(2)));
}

#[test]
fn a_cached_answer_does_not_outlive_an_update() {
    let mut rng = Rng::new(5, 1, 0);
    let mut classifier = ClassifierTuples::<u32>::new(64);
    let mut cache = FlowCache::new(256);
    for round in 0..2_000u32 {
        let id = RuleId(rng.below(64) as u32);
        if classifier.remove(id).is_none() {
            let port = rng.below(8) as u16;
            let ports = Ports::new(port, port + 3).expect("in order");
            let rule = Rule { source_ports: ports, ..Rule::any(round % 7, Action::Permit) };
            assert_eq!(classifier.insert(id, rule), Ok(()));
        }
        let keys: Vec<Key<u32>> =
            (0..200).map(|_| Key { source_port: rng.below(12) as u16, ..Key::default() }).collect();
        let mut found = vec![None; keys.len()];
        cache.classify_batch(&classifier, &keys, &mut found);
        assert!(keys.iter().map(|key| classifier.classify(key)).eq(found));
    }
    let (hits, misses) = cache.hits_and_misses();
    assert!(hits + misses == 400_000 && hits > 100_000 && misses >= 2_000, "{hits} {misses}");
}

//! The classifier under ClassBench's sets of filters (`NILOMETER_DATA`), against linear search.

use std::path::PathBuf;

use nilometer_router::classifier::classbench::{read_rules, read_trace};
use nilometer_router::{Classifier, ClassifierLinear, ClassifierTuples, Key, Rule, RuleId};
use nilometer_stat::Rng;

/// Sets of about a thousand filters, then of ten thousand.
const SETS: [&str; 15] = [
    "acl1_1k", "acl2_1k", "acl3_1k", "acl4_1k", "acl5_1k", "fw1_1k", "fw2_1k", "fw3_1k", "fw4_1k",
    "fw5_1k", "ipc1_1k", "ipc2_1k", "acl1_10k", "fw1_10k", "ipc1_10k",
];
/// Headers drawn for each set.
const HEADERS: usize = 20_000;

/// The folder of the sets; nothing, and a line that says so, without it.
fn folder() -> Option<PathBuf> {
    let Some(data) = std::env::var_os("NILOMETER_DATA") else {
        eprintln!("NILOMETER_DATA: not set; ClassBench's sets are skipped");
        return None;
    };
    Some(PathBuf::from(data).join("classifier"))
}

fn text(path: PathBuf) -> String {
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A header of a rule; one of eight has another's source, so that rules further back match too.
fn header(rules: &[Rule<u32>], rng: &mut Rng) -> Key<u32> {
    let mut any = || rules[rng.below(rules.len() as u64) as usize];
    let (rule, other) = (any(), any());
    let host = |bits: u32, length: u32| bits & u32::MAX.checked_shr(length).unwrap_or(0);
    let source = if rng.below(8) == 0 { other.source } else { rule.source };
    let mut port = |ports: nilometer_router::Ports| {
        let count = u64::from(ports.last() - ports.first()) + 1;
        ports.first() + rng.below(count) as u16
    };
    let (source_port, destination_port) = (port(rule.source_ports), port(rule.destination_ports));
    let bits = rng.next_u64();
    Key {
        source: source.address() | host(bits as u32, source.length()),
        destination: rule.destination.address()
            | host((bits >> 32) as u32, rule.destination.length()),
        source_port,
        destination_port,
        protocol: rule.protocol.value() | rng.below(256) as u8 & !rule.protocol.mask(),
        flags: rule.flags.value() | rng.below(256) as u8 & !rule.flags.mask(),
    }
}

fn filled<C: Classifier<u32>>(mut classifier: C, rules: &[Rule<u32>]) -> C {
    for (id, rule) in rules.iter().enumerate() {
        assert_eq!(classifier.insert(RuleId(id as u32), *rule), Ok(()));
    }
    classifier
}

#[test]
fn every_set_is_searched_as_if_from_its_first_filter_on() {
    let Some(folder) = folder() else { return };
    for (number, set) in SETS.iter().enumerate() {
        let rules = read_rules(&text(folder.join("neurocuts/classbench").join(set))).expect(set);
        let count = rules.len() as u32;
        let mut tuples = filled(ClassifierTuples::<u32>::new(count), &rules);
        let mut linear = filled(ClassifierLinear::<u32>::new(count), &rules);
        let mut rng = Rng::new(9, 1, number as u64);
        let keys: Vec<Key<u32>> = (0..HEADERS).map(|_| header(&rules, &mut rng)).collect();
        let mut found = vec![None; keys.len()];
        for round in 0..3 {
            // As inserted, as planned, and with half the filters removed by updates.
            match round {
                1 => tuples.replan(),
                2 => {
                    for _ in 0..rules.len() * 2 {
                        let id = RuleId(rng.below(u64::from(count)) as u32);
                        let removed = tuples.remove(id);
                        assert_eq!(removed, linear.remove(id));
                        if removed.is_none() {
                            let rule = rules[id.0 as usize];
                            assert_eq!(tuples.insert(id, rule), Ok(()));
                            assert_eq!(linear.insert(id, rule), Ok(()));
                        }
                    }
                }
                _ => {}
            }
            assert!(tuples.balances() && tuples.len() == linear.len(), "{set}");
            tuples.classify_batch(&keys, &mut found);
            assert!(keys.iter().map(|key| linear.classify(key)).eq(found.iter().copied()), "{set}");
        }
    }
}

#[test]
fn the_filter_that_a_header_of_a_trace_was_made_from_is_never_missed() {
    let Some(folder) = folder() else { return };
    for set in ["acl1", "fw1", "ipc1"] {
        let name = format!("{set}_seed_1.rules");
        let folder = folder.join("VPP-ACL");
        let rules = read_rules(&text(folder.join("1k_1").join(&name))).expect(set);
        let trace = text(folder.join("trace_shot/1k_1").join(name + "_trace"));
        let keys = read_trace(&trace).expect(set);
        let origins = trace.lines().filter_map(|line| line.split_whitespace().last()?.parse().ok());
        let mut tuples = filled(ClassifierTuples::<u32>::new(rules.len() as u32), &rules);
        tuples.replan();
        for (key, origin) in keys.iter().zip(origins) {
            let origin: u32 = origin;
            assert!(rules[origin as usize].matches(key), "{set}: {key:?} is not of {origin}");
            assert!(tuples.classify(key).is_some_and(|found| found.0 <= origin));
        }
        assert!(keys.len() > 500, "{set}");
    }
}

//! The classifier and its linear twin against a scan of all rules, while rules come and go.

use nilometer_router::classifier::FlowCache;
use nilometer_router::classifier::settled::RULES_SETTLED_MAX;
use nilometer_router::{
    Action, ByPort, Classified, Classifier, ClassifierLinear, ClassifierTuples, ClassifierVectors,
    Inputs, Key, Octet, Ports, Prefix, Refused, Rule, RuleId,
};
use nilometer_stat::Rng;

/// Numbers that rules of a test may have.
const RULES_MAX: u32 = 600;

/// The first of all rules that matches, by testing each of them.
fn scanned<A: Classified>(rules: &[Option<Rule<A>>], key: &Key<A>) -> Option<RuleId> {
    let numbered = rules.iter().enumerate().filter_map(|(id, rule)| Some((id as u32, (*rule)?)));
    let matching = numbered.filter(|(_, rule)| {
        let is_within =
            |prefix: Prefix<A>, address: A| address.truncated(prefix.length()) == prefix.address();
        let is_of = |octet: Octet, value: u8| (value ^ octet.value()) & octet.mask() == 0;
        let is_among = |ports: Ports, port: u16| (ports.first()..=ports.last()).contains(&port);
        is_within(rule.source, key.source)
            && is_within(rule.destination, key.destination)
            && is_among(rule.source_ports, key.source_port)
            && is_among(rule.destination_ports, key.destination_port)
            && is_of(rule.protocol, key.protocol)
            && is_of(rule.flags, key.flags)
    });
    matching.min_by_key(|(id, rule)| (rule.priority, *id)).map(|(id, _)| RuleId(id))
}

/// What addresses, rules and headers of one test are drawn from.
struct Chance<A> {
    rng: Rng,
    /// An address out of few, so that prefixes nest.
    address: fn(&mut Rng) -> A,
}

impl<A: Classified> Chance<A> {
    fn port(&mut self) -> u16 {
        let few = [0, 1, 53, 80, 443, 1_023, 1_024, 32_768, 65_534, u16::MAX];
        few[self.rng.below(few.len() as u64) as usize]
    }

    fn ports(&mut self) -> Ports {
        let (one, other) = (self.port(), self.port());
        match self.rng.below(3) {
            0 => Ports::ANY,
            1 => Ports::exact(one),
            _ => Ports::new(one.min(other), one.max(other)).expect("in order"),
        }
    }

    fn octet(&mut self) -> Octet {
        let (value, mask) = (self.rng.below(4) as u8, self.rng.below(4) as u8);
        [Octet::ANY, Octet::exact(value), Octet::new(value, mask)][self.rng.below(3) as usize]
    }

    fn prefix(&mut self) -> Prefix<A> {
        let length = match self.rng.below(3) {
            0 => 0,
            1 => u64::from(A::BITS),
            _ => self.rng.below(u64::from(A::BITS) + 1),
        };
        Prefix::new((self.address)(&mut self.rng), length as u32).expect("not too long")
    }

    fn rule(&mut self) -> Rule<A> {
        Rule {
            source: self.prefix(),
            destination: self.prefix(),
            source_ports: self.ports(),
            destination_ports: self.ports(),
            protocol: self.octet(),
            flags: self.octet(),
            ..Rule::any(self.rng.below(100) as u32, Action::Permit)
        }
    }

    fn key(&mut self) -> Key<A> {
        Key {
            source: (self.address)(&mut self.rng),
            destination: (self.address)(&mut self.rng),
            source_port: self.port(),
            destination_port: self.port(),
            protocol: self.rng.below(4) as u8,
            flags: self.rng.below(4) as u8,
        }
    }
}

/// Inserts and removes at random, `operations` times, and classifies a header with every classifier
/// after each.
fn hold<A: Classified>(seed: u64, operations: u32, address: fn(&mut Rng) -> A) {
    let mut chance = Chance { rng: Rng::new(seed, 1, u64::from(A::BITS)), address };
    let mut tuples = ClassifierTuples::<A>::new(RULES_MAX);
    let mut linear = ClassifierLinear::<A>::new(RULES_MAX);
    let mut vectors = ClassifierVectors::<A>::new(RULES_MAX);
    let mut rules: Vec<Option<Rule<A>>> = vec![None; RULES_MAX as usize];
    let mut answered = 0u32;
    for operation in 0..operations {
        // The number of rules swings between few and nearly all.
        let share = if operation / 20_000 % 2 == 0 { 90 } else { 10 };
        let id = RuleId(chance.rng.below(u64::from(RULES_MAX)) as u32);
        let place = &mut rules[id.0 as usize];
        if chance.rng.below(100) < share {
            let rule = chance.rule();
            let expected = if place.is_some() { Err(Refused::Taken) } else { Ok(()) };
            place.get_or_insert(rule);
            assert_eq!(tuples.insert(id, rule), expected);
            assert_eq!(linear.insert(id, rule), expected);
            assert_eq!(vectors.insert(id, rule), expected);
        } else {
            let expected = place.take();
            assert_eq!(tuples.remove(id), expected);
            assert_eq!(linear.remove(id), expected);
            assert_eq!(vectors.remove(id), expected);
            // Half of them come back as they were.
            if let Some(rule) = expected.filter(|_| chance.rng.below(2) == 0) {
                assert_eq!(vectors.insert(id, rule), Ok(()));
                assert_eq!(vectors.rule(id), Some(&rule));
                assert_eq!(vectors.remove(id), expected);
            }
        }
        if operation % 50_000 == 49_999 {
            tuples.replan();
        }
        if operation % 30_000 == 29_999 {
            vectors.settle();
            assert!(!vectors.is_stale());
        }
        if operation % 1_000 == 0 {
            assert!(tuples.balances(), "after {operation} operations");
            let count = rules.iter().flatten().count();
            assert_eq!([tuples.len(), linear.len(), vectors.len()], [count; 3]);
        }
        let key = chance.key();
        let expected = linear.classify(&key);
        if operation % 16 == 0 {
            assert_eq!(expected, scanned(&rules, &key));
        }
        assert_eq!(tuples.classify(&key), expected, "{key:?} after {operation} operations");
        assert_eq!(vectors.classify(&key), expected, "{key:?} after {operation} operations");
        answered += u32::from(expected.is_some());
    }
    assert!(answered > operations / 10, "{answered} of {operations} headers have a rule");
}

#[test]
fn a_million_updates_of_ipv4_and_every_header_between() {
    hold::<u32>(7, 700_000, |rng| (rng.below(4) << 30 | rng.below(4) << 14 | rng.below(4)) as u32);
}

#[test]
fn updates_of_ipv6_and_every_header_between() {
    hold::<u128>(7, 300_000, |rng| {
        u128::from(rng.below(4)) << 126 | u128::from(rng.below(4)) << 70 | u128::from(rng.below(4))
    });
}

#[test]
fn batches_answer_as_single_searches_do() {
    let mut chance = Chance { rng: Rng::new(8, 1, 0), address: |rng| rng.below(64) as u32 };
    let mut tuples = ClassifierTuples::<u32>::new(RULES_MAX);
    for id in 0..RULES_MAX {
        assert_eq!(tuples.insert(RuleId(id), chance.rule()), Ok(()));
    }
    for count in [0, 1, 15, 16, 17, 1_000] {
        let keys: Vec<Key<u32>> = (0..count).map(|_| chance.key()).collect();
        let mut found = vec![None; count];
        tuples.classify_batch(&keys, &mut found);
        assert!(keys.iter().map(|key| tuples.classify(key)).eq(found));
    }
}

/// Settled rules, settled rules with new ones beside them, and too many rules to settle.
#[test]
fn vectors_answer_as_tables_do() {
    let mut chance = Chance { rng: Rng::new(9, 1, 0), address: |rng| rng.below(1 << 12) as u32 };
    let mut tuples = ClassifierTuples::<u32>::new(4_000);
    let mut vectors = ClassifierVectors::<u32>::new(4_000);
    for id in (0..4_000).map(RuleId) {
        let rule = chance.rule();
        assert_eq!((tuples.insert(id, rule), vectors.insert(id, rule)), (Ok(()), Ok(())));
        if ![0, 1, 255, 256, 257, 300, 1_000, 2_048, 2_100, 3_999].contains(&id.0) {
            continue;
        }
        if id.0 != 300 {
            vectors.settle();
        }
        for gone in [RuleId(0), RuleId(id.0 / 2)] {
            assert_eq!(tuples.remove(gone), vectors.remove(gone));
        }
        let keys: Vec<Key<u32>> = (0..3_000).map(|_| chance.key()).collect();
        let (mut one, mut other) = (vec![None; keys.len()], vec![None; keys.len()]);
        tuples.classify_batch(&keys, &mut one);
        vectors.classify_batch(&keys, &mut other);
        assert_eq!(one, other, "{} rules", id.0);
        assert!(keys.iter().map(|key| vectors.classify(key)).eq(one), "{} rules", id.0);
    }
    assert!(vectors.bytes() > 100_000);
}

#[test]
fn rules_beyond_the_limit_are_refused_and_change_nothing() {
    let mut tuples = ClassifierTuples::<u32>::new(3);
    let mut linear = ClassifierLinear::<u32>::new(3);
    let mut vectors = ClassifierVectors::<u32>::new(3);
    let engines: [&mut dyn Classifier<u32>; 3] = [&mut tuples, &mut linear, &mut vectors];
    for engine in engines {
        for id in 0..3 {
            assert_eq!(engine.insert(RuleId(id), Rule::any(9, Action::Deny)), Ok(()));
        }
        engine.settle();
        let generation = engine.generation();
        let beyond = engine.insert(RuleId(3), Rule::any(0, Action::Permit));
        assert_eq!(beyond, Err(Refused::BeyondLimit { rules_max: 3 }));
        assert_eq!(engine.insert(RuleId(1), Rule::any(0, Action::Deny)), Err(Refused::Taken));
        assert_eq!((engine.len(), engine.generation()), (3, generation));
        assert_eq!(engine.classify(&Key::default()), Some(RuleId(0)));
        assert!(engine.remove(RuleId(3)).is_none() && engine.remove(RuleId(0)).is_some());
        assert_eq!(engine.rule(RuleId(0)), None);
        assert_eq!(engine.classify(&Key::default()), Some(RuleId(1)));
        assert!(engine.generation() > generation);
    }
}

#[test]
fn rules_of_one_tuple_and_key_all_fit_one_bucket() {
    let mut tuples = ClassifierTuples::<u32>::new(5_000);
    for id in 0..5_000 {
        let priority = id * 7_919 % 5_000;
        let rule = Rule { protocol: Octet::new(255, 1), ..Rule::any(priority, Action::Deny) };
        assert_eq!(tuples.insert(RuleId(id), rule), Ok(()));
    }
    tuples.replan();
    assert!(tuples.balances());
    let first = |tuples: &ClassifierTuples<u32>| {
        tuples.classify(&Key { protocol: 17, ..Key::default() }).map(|id| id.0 * 7_919 % 5_000)
    };
    for priority in 0..4_999 {
        assert_eq!(first(&tuples), Some(priority));
        let id = (0..5_000).find(|id| id * 7_919 % 5_000 == priority).expect("one");
        assert!(tuples.remove(RuleId(id)).is_some());
    }
    assert!(tuples.balances() && tuples.len() == 1);
}

/// Rules for all ports and for some come and go, and packets of every port meet those that are for it.
fn hold_by_port<A: Classified + Default>(
    classifier: Box<dyn Classifier<A> + Send>,
    address: fn(&mut Rng) -> A,
) {
    const PORTS: u64 = 5;
    let mut chance = Chance { rng: Rng::new(10, 1, u64::from(A::BITS)), address };
    let mut by_port = ByPort::new(classifier);
    let mut cache = FlowCache::new(64);
    let mut rules: Vec<Option<(Inputs, Rule<A>)>> = vec![None; RULES_MAX as usize];
    let mut of_lists = 0;
    for operation in 0..6_000 {
        // Lists open and close again.
        let share = if operation / 500 % 2 == 0 { 90 } else { 5 };
        let id = RuleId(chance.rng.below(u64::from(RULES_MAX)) as u32);
        let place = &mut rules[id.0 as usize];
        if chance.rng.below(100) < share {
            // The last port is named by none.
            let named = chance.rng.below(1 << (PORTS - 1)) as usize;
            let inputs = Inputs::of((0..PORTS as usize - 1).filter(|port| named >> port & 1 == 1));
            let inputs = inputs.filter(|_| chance.rng.below(2) == 0).unwrap_or_default();
            let rule = chance.rule();
            let expected = if place.is_some() { Err(Refused::Taken) } else { Ok(()) };
            place.get_or_insert((inputs, rule));
            assert_eq!(by_port.insert(id, inputs, rule), expected);
        } else {
            assert_eq!(by_port.remove(id), place.take().map(|(_, rule)| rule));
        }
        if operation % 997 == 0 {
            by_port.settle();
        }
        let expected = rules[id.0 as usize].as_ref().map(|(inputs, rule)| (rule, *inputs));
        assert_eq!(by_port.rule(id), expected);
        let input = chance.rng.below(PORTS) as usize;
        let of_port = |rule: &Option<(Inputs, Rule<A>)>| {
            rule.filter(|(inputs, _)| inputs.contains(input)).map(|(_, rule)| rule)
        };
        let here: Vec<Option<Rule<A>>> = rules.iter().map(of_port).collect();
        // (Long batches take the scan most of its time.)
        let longest = if operation % 8 == 0 { 80 } else { 10 };
        let keys: Vec<Key<A>> = (0..chance.rng.below(longest)).map(|_| chance.key()).collect();
        let expected: Vec<_> = keys.iter().map(|key| scanned(&here, key)).collect();
        for _ in 0..2 {
            let (mut found, mut cached) = (vec![None; keys.len()], vec![None; keys.len()]);
            by_port.classify_batch(input, &keys, &mut found);
            cache.classify_by_port(&by_port, input, &keys, &mut cached);
            assert_eq!(found, expected, "port {input} after {operation} operations");
            assert_eq!(cached, expected, "port {input} after {operation} operations, cached");
        }
        // The same headers by another port, which the cache must distinguish.
        let mut cached = vec![None; keys.len()];
        cache.classify_by_port(&by_port, PORTS as usize - 1, &keys, &mut cached);
        let every = |rule: &Option<(Inputs, Rule<A>)>| {
            rule.filter(|(inputs, _)| *inputs == Inputs::ANY).map(|(_, rule)| rule)
        };
        let every: Vec<Option<Rule<A>>> = rules.iter().map(every).collect();
        assert!(keys.iter().map(|key| scanned(&every, key)).eq(cached));
        let flags = here.iter().flatten().any(|rule| rule.flags != Octet::ANY);
        assert_eq!(by_port.looks_at_flags(input), flags);
        let is_listed = |id: &RuleId| rules[id.0 as usize].is_some_and(|it| it.0 != Inputs::ANY);
        of_lists += expected.iter().flatten().filter(|id| is_listed(id)).count();
        assert_eq!(by_port.len(), rules.iter().flatten().count());
    }
    assert!(of_lists > 3_000, "{of_lists} headers met a rule of their port");
}

#[test]
fn packets_of_each_port_meet_the_rules_for_it() {
    let few = |rng: &mut Rng| (rng.below(4) << 30 | rng.below(4)) as u32;
    hold_by_port(Box::new(ClassifierLinear::new(RULES_MAX)), few);
    hold_by_port(Box::new(ClassifierTuples::new(RULES_MAX)), few);
    hold_by_port(Box::new(ClassifierVectors::new(RULES_MAX)), few);
    let few = |rng: &mut Rng| u128::from(rng.below(4)) << 126 | u128::from(rng.below(4));
    hold_by_port(Box::new(ClassifierVectors::new(RULES_MAX)), few);
}

#[test]
fn a_rule_that_is_refused_leaves_no_list_behind() {
    let mut by_port = ByPort::<u32>::new(Box::new(ClassifierVectors::new(2)));
    let one = Inputs::of([7]).expect("a port");
    let refused = by_port.insert(RuleId(2), one, Rule::any(0, Action::Deny));
    assert_eq!(refused, Err(Refused::BeyondLimit { rules_max: 2 }));
    assert_eq!((by_port.len(), by_port.generation()), (0, 0));
    let mut found = [None];
    by_port.classify_batch(7, &[Key::default()], &mut found);
    assert_eq!((found, by_port.rule(RuleId(2))), ([None], None));
    assert_eq!(by_port.remove(RuleId(2)), None);
    assert_eq!(Inputs::of([]), None);
    assert_eq!(Inputs::of([3, Inputs::PORTS_MAX]), None);
    let last = Inputs::of([Inputs::PORTS_MAX - 1]).expect("the last that can be named");
    assert!(last.contains(127) && !last.contains(0) && !last.contains(128) && !last.contains(255));
    assert!(Inputs::ANY.contains(128) && Inputs::ANY.contains(0));
}

#[test]
fn a_port_looks_at_flags_while_a_rule_of_its_own_does() {
    let mut by_port = ByPort::<u32>::new(Box::new(ClassifierLinear::new(9)));
    let looks = |by_port: &ByPort<u32>| [2, 3].map(|port| by_port.looks_at_flags(port));
    let with_flags = Rule { flags: Octet::new(2, 2), ..Rule::any(1, Action::Deny) };
    let of_port = Inputs::of([2]).expect("a port");
    for (id, inputs) in [(0, of_port), (1, of_port), (2, Inputs::ANY)] {
        by_port.insert(RuleId(id), inputs, with_flags).expect("room");
        by_port.insert(RuleId(id + 3), inputs, Rule::any(2, Action::Deny)).expect("room");
    }
    assert_eq!(looks(&by_port), [true, true]);
    for (id, expected) in [(2, [true, false]), (0, [true, false]), (1, [false, false])] {
        assert!(by_port.remove(RuleId(id + 3)).is_some() && by_port.remove(RuleId(id)).is_some());
        assert_eq!(looks(&by_port), expected, "without rule {id}");
    }
}

/// A set of three places: recent headers are cached, the fourth takes the place of the oldest.
#[test]
fn three_flows_of_a_set_are_known() {
    let mut classifier = ClassifierLinear::<u32>::new(2);
    classifier.insert(RuleId(1), Rule::any(1, Action::Permit)).expect("room");
    let mut cache = FlowCache::new(3);
    let key = |port: u16| Key { source_port: port, ..Key::<u32>::default() };
    let mut counts = Vec::new();
    for port in [1, 2, 3, 1, 2, 3, 3, 1, 2, 4, 4, 3, 2, 1] {
        let mut found = [None];
        cache.classify_batch(&classifier, &[key(port)], &mut found);
        assert_eq!(found, [Some(RuleId(1))]);
        counts.push(cache.hits_and_misses().0);
    }
    assert_eq!(counts, [0, 0, 0, 1, 2, 3, 4, 5, 6, 6, 7, 8, 9, 9]);
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

/// Vectors are settled again when more than 64 rules are young, tables planned again when more are
/// unplanned than half of those that were planned, and 32.
#[test]
fn many_new_rules_make_a_classifier_stale() {
    let mut vectors = ClassifierVectors::<u32>::new(1_000);
    for id in 0..200 {
        assert_eq!(vectors.is_stale(), id > 64, "{id} young rules");
        assert_eq!(vectors.insert(RuleId(id), Rule::any(id, Action::Permit)), Ok(()));
    }
    vectors.settle();
    assert!(!vectors.is_stale());
    // More than can be settled stay in tables, which are stale by a rule of their own.
    let most = RULES_SETTLED_MAX as u32;
    let mut vectors = ClassifierVectors::<u32>::new(most + 10);
    for id in 0..most {
        assert_eq!(vectors.insert(RuleId(id), Rule::any(id, Action::Permit)), Ok(()));
    }
    vectors.settle();
    assert!(!vectors.is_stale(), "as many as can be settled");
    for id in most..most + 2 {
        assert_eq!(vectors.insert(RuleId(id), Rule::any(id, Action::Permit)), Ok(()));
        assert!(vectors.is_stale(), "{id}: those that are settled are not to be");
    }
    vectors.settle();
    assert!(!vectors.is_stale(), "none is settled any more");
    let mut tuples = ClassifierTuples::<u32>::new(1_000);
    let mut stale_from = Vec::new();
    for id in 0..200 {
        if tuples.is_stale() {
            stale_from.push(id);
            tuples.replan();
            assert!(!tuples.is_stale());
        }
        assert_eq!(tuples.insert(RuleId(id), Rule::any(id, Action::Permit)), Ok(()));
    }
    // 33 are more than 32, then 49 than 33 / 2 + 32, then 74 than 82 / 2 + 32; 111 do not come.
    assert_eq!(stale_from, [33, 82, 156]);
}

/// Recorded, not derived: the memory of a thousand rules, and the part of a port's list.
#[test]
fn the_memory_of_a_thousand_rules() {
    let few = |rng: &mut Rng| (rng.below(4) << 30 | rng.below(4) << 14 | rng.below(4)) as u32;
    type Made = Box<dyn Classifier<u32> + Send>;
    let classifiers: [fn() -> Made; 3] = [
        || Box::new(ClassifierLinear::new(2_000)),
        || Box::new(ClassifierTuples::new(2_000)),
        || Box::new(ClassifierVectors::new(2_000)),
    ];
    let mut reported = Vec::new();
    for make in classifiers {
        let mut chance = Chance { rng: Rng::new(12, 1, 0), address: few };
        let (mut alone, mut by_port) = (make(), ByPort::new(make()));
        for id in 0..1_000 {
            let rule = chance.rule();
            alone.insert(RuleId(id), rule).expect("room");
            let inputs = Inputs::of((id % 3 == 0).then_some(2)).unwrap_or_default();
            by_port.insert(RuleId(id), inputs, rule).expect("room");
        }
        let young = alone.bytes();
        alone.settle();
        by_port.settle();
        reported.push([young, alone.bytes(), by_port.bytes()]);
    }
    let expected =
        [[48_000, 48_000, 96_000], [98_224, 99_656, 197_559], [113_488, 147_528, 232_752]];
    assert_eq!(reported, expected);
}

//! The judge tested on networks whose laws are known: hardly any second sample differs, and nearly all copies
//! that are wrong in one law differ in that one.
//!
//! `NILOMETER_SEEDS=100` runs the whole test, which takes a while; otherwise a few seeds are tried.

#[path = "truths/alterations.rs"]
mod alterations;
#[path = "truths/truth.rs"]
mod truth;

use std::collections::BTreeMap;
use std::thread;

use nilometer_conversation::{Connection, Side};
use nilometer_likeness::{Settings, Verdict, judge};
use truth::{Truth, observed};

type Alteration = fn(Vec<Connection>, u64) -> Vec<Connection>;

/// How often each verdict was given on a law.
#[derive(Debug, Default, Clone, Copy)]
struct VerdictCounts {
    alike: u64,
    differs: u64,
    too_few: u64,
}

fn seeds() -> u64 {
    let requested = std::env::var("NILOMETER_SEEDS").ok();
    requested.map_or(3, |text| text.parse().expect("NILOMETER_SEEDS is a number"))
}

/// The verdicts on each law, over all seeds, for copies altered by `alter`.
fn counts(alter: Alteration) -> BTreeMap<String, VerdictCounts> {
    let of = |seed: u64| {
        let original = observed(Truth::USUAL.connections(2 * seed));
        let copy = observed(alter(Truth::USUAL.connections(2 * seed + 1), seed));
        judge(&original, &copy, &Settings { seed, ..Settings::default() })
    };
    let threads = thread::available_parallelism().map_or(1, usize::from) as u64;
    let judged: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|part| {
                scope.spawn(move || (part..seeds()).step_by(threads as usize).map(of).collect())
            })
            .collect();
        workers
            .into_iter()
            .flat_map(|worker| -> Vec<_> { worker.join().expect("no panic") })
            .collect()
    });
    let mut all: BTreeMap<String, VerdictCounts> = BTreeMap::new();
    for law in judged.iter().flat_map(|judgement| &judgement.likeness) {
        let counts = all.entry(law.name.clone()).or_default();
        match law.verdict {
            Verdict::Alike => counts.alike += 1,
            Verdict::Differs => counts.differs += 1,
            Verdict::TooFew | Verdict::NotPlayed => counts.too_few += 1,
        }
    }
    all
}

#[test]
fn a_second_sample_is_alike() {
    let all = counts(|copy, _| copy);
    println!("{all:#?}");
    let reported = all.values().filter(|counts| counts.too_few * 2 < seeds()).count();
    assert!(reported >= 12, "{reported} laws are told");
    for (law, counts) in &all {
        assert!(counts.differs <= (seeds() * 5).div_ceil(100), "{law}: {counts:?}");
    }
}

/// With packets of clients alone, no law measures what servers sent, and what clients sent is judged as
/// usual.
#[test]
fn unseen_directions_enter_no_law() {
    let one_sided = |seed| {
        let mut connections = Truth::USUAL.connections(seed);
        connections.iter_mut().for_each(|one| one.carried[1].packets = 0);
        observed(connections)
    };
    let (original, copy) = (one_sided(1), one_sided(2));
    assert_eq!(original.one_side(), Some(Side::Client));
    assert_eq!(observed(Truth::USUAL.connections(1)).one_side(), None);
    let judgement = judge(&original, &copy, &Settings::default());
    let of = |law| judgement.of(law).expect("a law");
    for law in ["size_answered", "size_answered_tail"] {
        assert_eq!((of(law).verdict, of(law).samples_original), (Verdict::TooFew, 0));
    }
    assert_eq!(of("size_asked").verdict, Verdict::Alike);
}

/// Unanswered probes do not make a capture of one direction: there was no other direction that it could have
/// missed.
#[test]
fn probes_make_no_capture_of_one_direction() {
    let mut connections = Truth::USUAL.connections(1);
    connections.truncate(60);
    let mut probe = connections[0].clone();
    probe.steps.clear();
    probe.carried = Default::default();
    probe.carried[0].packets = 1;
    connections.extend(std::iter::repeat_n(probe.clone(), 600));
    assert_eq!(observed(connections).one_side(), None);
    assert_eq!(observed(vec![probe; 600]).one_side(), None);
}

/// Starts ten times as close together, as requested: gaps and arrivals match the original's, and rates are not
/// compared.
#[test]
fn a_faster_copy_is_compared_on_the_originals_clock() {
    let original = observed(Truth::USUAL.connections(1));
    let mut connections = Truth::USUAL.connections(2);
    let first_ns = connections[0].start_ns;
    for one in &mut connections {
        let moved_ns = (one.start_ns - first_ns) * 9 / 10;
        (one.start_ns, one.end_ns) = (one.start_ns - moved_ns, one.end_ns - moved_ns);
    }
    let copy = observed(connections);
    let requested = judge(&original, &copy, &Settings { speed: 10.0, ..Settings::default() });
    let unasked = judge(&original, &copy, &Settings::default());
    for law in ["gap", "session_arrivals", "gap_correlation", "sources", "size_answered"] {
        assert_eq!(requested.of(law).expect("a law").verdict, Verdict::Alike, "{law}");
    }
    for law in ["gap", "session_arrivals"] {
        assert_eq!(unasked.of(law).expect("a law").verdict, Verdict::Differs, "{law}");
    }
    for law in ["packets_per_second", "bytes_per_second", "scaling"] {
        assert_eq!(requested.of(law).expect("a law").verdict, Verdict::NotPlayed, "{law}");
    }
}

/// The name of an alteration, the alteration, the law in which it must be found, and the other laws that it
/// changes.
const ALTERATIONS: [(&str, Alteration, &str, &[&str]); 6] = [
    (
        "sizes x 1.5",
        alterations::larger,
        "size_answered",
        &[
            "size_asked",
            "size_asked_tail",
            "size_answered_tail",
            "bytes_by_size",
            "bytes_per_second",
            "packet_size",
            "scaling",
            "bytes_by_host",
        ],
    ),
    (
        "tail cut at p99",
        alterations::without_tail,
        "bytes_by_size",
        &["size_answered_tail", "bytes_per_second", "scaling", "bytes_by_host"],
    ),
    (
        "half of the hosts",
        alterations::half_of_the_hosts,
        "sources",
        &["destinations", "pairs", "bytes_by_host", "gap", "gap_correlation", "session_arrivals"],
    ),
    (
        "gaps shuffled",
        alterations::shuffled_gaps,
        "gap_correlation",
        &["session_arrivals", "bytes_per_second", "packets_per_second", "scaling", "gap"],
    ),
    (
        "gaps independent",
        alterations::independent_gaps,
        "gap_correlation",
        &["session_arrivals", "bytes_per_second", "packets_per_second", "scaling", "gap"],
    ),
    (
        "server-first dropped",
        alterations::without_server_first,
        "first_speaker",
        &[
            "size_asked",
            "size_asked_tail",
            "size_answered",
            "exchanges",
            "gap",
            "session_arrivals",
            "bytes_per_second",
            "packets_per_second",
        ],
    ),
];

#[test]
fn each_alteration_is_found_in_its_own_law_only() {
    for (name, alter, own, touched) in ALTERATIONS {
        let all = counts(alter);
        println!("{name}: {all:#?}");
        assert!(all[own].differs * 100 >= seeds() * 95, "{name}: {own}: {:?}", all[own]);
        for (law, counts) in
            all.iter().filter(|(law, _)| !touched.contains(&law.as_str()) && *law != own)
        {
            assert!(counts.differs <= (seeds() * 5).div_ceil(100), "{name}: {law}: {counts:?}");
        }
    }
}

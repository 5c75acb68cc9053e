//! A recording: what every discipline decides under made-up traffic, what settings are refused, and
//! the rates of distributed queueing.
//!
//! These numbers were not derived; they record what the disciplines decided when the file was
//! written, after each had been compared with its naive twin. A line that changes on purpose is
//! rewritten with `UPDATE=1 cargo test --release -p nilometer-queue`, and then read: which
//! disciplines changed, and was that meant?

#[path = "../../wire/tests/recording/mod.rs"]
mod recording;

mod twin;

use std::fmt::Write;

use nilometer_queue::broadcast::{Announcement, Board};
use nilometer_queue::distributed::{Allocator, SwitchShape, Variant, hi, lo};
use nilometer_queue::pie::Delay;
use nilometer_queue::tdrr::Averaging;
use nilometer_queue::{Any, Capacity, Discipline, DisciplineKind, End, Hashing, Reason, Settings};
use nilometer_stat::Rng;
use nilometer_wire::{Ecn, Rate, Span, Time};
use recording::Digest;
use twin::Piece;

const RECORDING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/recorded.txt");
const RATE: Rate = Rate::from_megabits(10);

/// Settings as they come, and with every option changed.
fn settings(kind: DisciplineKind, number: usize) -> Settings {
    let capacity =
        [Capacity::Packets(40), Capacity::Bytes(40_000), Capacity::Cells(900)][number % 3];
    let mut settings = Settings::new(kind, capacity, RATE);
    settings.queues = 16;
    if kind == DisciplineKind::Pie {
        // Room for the delays that it acts upon, which are longer than those of a full buffer here.
        settings.capacity =
            [Capacity::Packets(400), Capacity::Bytes(400_000), Capacity::Cells(9_000)][number % 3];
    }
    if number < 3 {
        return settings;
    }
    (settings.hashing, settings.seed, settings.index) = (Hashing::Mixed, 9, 4);
    settings.mtu_bytes = 1_200;
    let red = &mut settings.red;
    (red.weight, red.max_probability, red.gentle, red.ecn) = (0.05, 0.3, true, true);
    (red.min_percent, red.max_percent) = (10.0, 60.0);
    let blue = &mut settings.blue;
    (blue.increment, blue.decrement, blue.ecn) = (0.05, 0.004, true);
    (blue.freeze, blue.threshold_percent) = (Span::from_nanos(7_000_000), Some(50.0));
    settings.drr_drop_from = End::Tail;
    settings.tdrr.averaging = Averaging::OverTime(Span::from_nanos(30_000_000));
    settings.tdrr.drop_from = End::Tail;
    settings.qsdrr.drop_from = End::Tail;
    settings.qsdrr.strictly_smallest = true;
    settings.qsdrr.release_below_percent = Some(30);
    for codel in [&mut settings.codel, &mut settings.fq_codel.codel] {
        (codel.target, codel.interval, codel.ecn) =
            (Span::from_nanos(2_000_000), Span::from_nanos(20_000_000), true);
    }
    (settings.fq_codel.queues, settings.fq_codel.quantum_bytes) = (8, 700);
    settings.pie.target = Span::from_nanos(4_000_000);
    settings.pie.update = Span::from_nanos(9_000_000);
    settings.pie.mark_below = Some(0.2);
    settings.pie.burst = Span::from_nanos(25_000_000);
    settings.pie.derandomise = number.is_multiple_of(2);
    if number == 5 {
        settings.pie.delay = Delay::Timestamp;
    }
    settings
}

/// Phases of overload and of idleness at a link of 10 Mb/s; each decision, and the state of the
/// queues.
fn decisions(kind: DisciplineKind, number: usize, table: &mut String) {
    let settings = settings(kind, number);
    let mut queue = Any::<Piece>::new(&settings).expect("in range");
    let mut digest = Digest::new();
    digest.say(settings);
    for weighted in 0..4 {
        digest.say(queue.set_weight(weighted, 1 + weighted));
    }
    digest.say((
        queue.set_weight(99, 1),
        queue.set_weight(0, 0),
        queue.virtual_tail_drop().is_some(),
    ));
    let (mut rng, mut drops) = (Rng::new(21, 5, number as u64), Vec::new());
    let (mut now, mut free_at) = (Time::ZERO, Time::ZERO);
    let (mut left, mut marked) = (0, 0);
    for event in 0..9_000 {
        let load = [12.0, 0.6, 1.3, 3.0, 0.2, 1.05][event / 500 % 6];
        now += Span(rng.exponential(8.0e8 / load) as u64);
        while free_at <= now {
            let Some(piece) = queue.dequeue(free_at, &mut drops) else {
                free_at = now + Span(1);
                break;
            };
            free_at += RATE.span_of(u64::from(piece.bytes.max(1)));
            left += 1;
            marked += u32::from(piece.ecn == Ecn::Congestion);
            digest.say((piece.id, piece.ecn));
        }
        let flow = if rng.below(3) == 0 { 1 } else { rng.below(40) as u32 };
        // The last number has packets of one size, sixteen of which are the stretch over which PIE
        // measures a rate.
        let sizes = if number == 6 { [1_024; 5] } else { [40, 1_000, 1_200, 1_201, 576] };
        let bytes = sizes[rng.below(5) as usize];
        let mut piece = Piece::new(event as u32, flow, bytes);
        if rng.below(3) > 0 {
            piece.ecn = Ecn::Capable0;
        }
        queue.enqueue(now, piece, &mut drops);
        digest.say(queue.backlog());
        if event % 50 == 0 {
            digest.say(
                (0..17).map(|queue_number| queue.queue_state(queue_number)).collect::<Vec<_>>(),
            );
        }
    }
    let count = |reason| drops.iter().filter(|drop| drop.0 == reason).count();
    let counts = Reason::OF_DISCIPLINES.map(count);
    digest.say(drops);
    let name = kind.name();
    writeln!(
        table,
        "{name:9} {number} {left:5} left {marked:4} marked {counts:?} {:016x}",
        digest.0
    )
    .unwrap();
}

fn refusals(table: &mut String) {
    type Change = fn(&mut Settings);
    let changes: [(DisciplineKind, Change); 33] = [
        (DisciplineKind::TailDrop, |s| s.capacity = Capacity::Packets(0)),
        (DisciplineKind::TailDrop, |s| s.mtu_bytes = 0),
        (DisciplineKind::Drr, |s| s.queues = 1_048_577),
        (DisciplineKind::Red, |s| s.red.weight = 0.0),
        (DisciplineKind::Red, |s| s.red.weight = 1.1),
        (DisciplineKind::Red, |s| s.red.max_probability = 0.0),
        (DisciplineKind::Red, |s| s.red.max_probability = 1.1),
        (DisciplineKind::Red, |s| s.red.min_percent = -1.0),
        (DisciplineKind::Red, |s| s.red.max_percent = s.red.min_percent),
        (DisciplineKind::Red, |s| s.red.max_percent = 101.0),
        (DisciplineKind::Red, |s| s.red.typical_bytes = 0),
        (DisciplineKind::Blue, |s| s.blue.increment = 0.0),
        (DisciplineKind::Blue, |s| s.blue.increment = 1.1),
        (DisciplineKind::Blue, |s| s.blue.decrement = 0.0),
        (DisciplineKind::Blue, |s| s.blue.decrement = 1.1),
        (DisciplineKind::Blue, |s| s.blue.threshold_percent = Some(0.0)),
        (DisciplineKind::Blue, |s| s.blue.threshold_percent = Some(101.0)),
        (DisciplineKind::Tdrr, |s| s.tdrr.averaging = Averaging::PerDeparture(0.0)),
        (DisciplineKind::Tdrr, |s| s.tdrr.averaging = Averaging::PerDeparture(1.1)),
        (DisciplineKind::Tdrr, |s| s.tdrr.averaging = Averaging::OverTime(Span::ZERO)),
        (DisciplineKind::Qsdrr, |s| s.qsdrr.release_below_percent = Some(0)),
        (DisciplineKind::CoDel, |s| s.codel.target = Span::ZERO),
        (DisciplineKind::CoDel, |s| s.codel.interval = s.codel.target),
        (DisciplineKind::FqCoDel, |s| s.fq_codel.queues = 0),
        (DisciplineKind::FqCoDel, |s| s.fq_codel.queues = 1_048_577),
        (DisciplineKind::FqCoDel, |s| s.fq_codel.quantum_bytes = 256),
        (DisciplineKind::FqCoDel, |s| s.fq_codel.quantum_bytes = 65_536),
        (DisciplineKind::FqCoDel, |s| s.fq_codel.codel.target = Span::ZERO),
        (DisciplineKind::Pie, |s| s.pie.target = Span::ZERO),
        (DisciplineKind::Pie, |s| s.pie.update = Span::ZERO),
        (DisciplineKind::Pie, |s| s.pie.mark_below = Some(0.0)),
        (DisciplineKind::Pie, |s| s.pie.mark_below = Some(1.0)),
        (DisciplineKind::Pie, |s| s.pie.mark_below = Some(1.1)),
    ];
    for (kind, change) in changes {
        let mut settings = Settings::new(kind, Capacity::Packets(10), RATE);
        change(&mut settings);
        let entry = match Any::<Piece>::new(&settings) {
            Ok(queue) => format!("{} takes it", queue.kind().name()),
            Err(error) => error.to_string(),
        };
        writeln!(table, "{entry}").unwrap();
    }
}

/// Rates of rows under random boards, by each set of equations.
fn rates(table: &mut String) {
    let ports = 5;
    let (minimum_backlog_bytes, minimum_share) = (700, Variant::minimum_share(ports));
    let deferring = |deferral_periods| Variant::DqPlus {
        minimum_backlog_bytes,
        minimum_share,
        deferral_periods,
    };
    let variants = [
        Variant::Original,
        Variant::Reserved { minimum_backlog_bytes, minimum_share },
        deferring(None),
        deferring(Some(2)),
    ];
    for variant in variants {
        let mut digest = Digest::new();
        let mut rng = Rng::new(31, 6, 0);
        let fabric =
            SwitchShape::new(ports, 1.7, RATE, Span::from_nanos(500_000)).expect("a fabric");
        digest.say((fabric, fabric.capacity(), fabric.ports(), fabric.speedup()));
        digest.say((fabric.link(), fabric.period(), variant.name()));
        let mut allocator = Allocator::new(fabric, variant).expect("in range");
        let mut last = Vec::new();
        for _ in 0..300 {
            let mut board = Board::new(ports).expect("a board");
            for port in 0..ports {
                let bytes =
                    |rng: &mut Rng| [0, rng.below(3_000), rng.below(90_000)][rng.below(3) as usize];
                let entry = Announcement {
                    output_backlog_bytes: bytes(&mut rng),
                    input_backlog_bytes: (0..ports).map(|_| bytes(&mut rng)).collect(),
                };
                board.hear(port, &entry).expect("heard");
            }
            for input in 0..ports {
                last = allocator.allocate(&board, input).expect("a row").to_vec();
                digest.say((&last, allocator.rates(), allocator.hi(), allocator.lo()));
            }
            digest.say((board.row(1), board.output_bytes(2), board.column_bytes(3)));
        }
        let last: Vec<u64> = last.into_iter().map(|rate| rate as u64).collect();
        writeln!(table, "{}: last rates {last:?} {:016x}", variant.name(), digest.0).unwrap();
    }
    let shares = [
        hi(300, 900, 0, 4),
        hi(0, 0, 0, 4),
        hi(300, 900, 100, 4),
        lo(300, 300, 900, 0.25),
        lo(0, 0, 0, 0.5),
    ];
    assert_eq!(shares, [300.0 / 900.0, 0.0, 400.0 / 1_300.0, 0.5, 0.5], "equations 1, 2, 5 and 6");
}

#[test]
fn decisions_and_rates_are_as_recorded() {
    let mut table = String::new();
    for kind in DisciplineKind::ALL {
        (0..7).for_each(|number| decisions(kind, number, &mut table));
    }
    refusals(&mut table);
    rates(&mut table);
    recording::compare(RECORDING, &table);
}

//! Distributed queueing: rates against a naive twin, against worked examples, and within the
//! fabric.

use nilometer_queue::broadcast::{Announcement, Board, DqError, PORTS_MAX};
use nilometer_queue::distributed::{Allocator, SwitchShape, Variant};
use nilometer_stat::Rng;
use nilometer_wire::{Rate, Span};

const PURPOSE: u32 = 0xd901;
const PERIOD: Span = Span::from_nanos(500_000);
const LINK_BPS: f64 = 70e6;

/// The backlogs of a whole switch, as no port of it ever sees them.
struct Backlogs {
    output: Vec<u64>,
    input: Vec<Vec<u64>>,
}

impl Backlogs {
    fn board(&self) -> Board {
        let mut board = Board::new(self.output.len()).unwrap();
        for (port, row) in self.input.iter().enumerate() {
            let announcement = Announcement {
                output_backlog_bytes: self.output[port],
                input_backlog_bytes: row.clone(),
            };
            board.hear(port, &announcement).unwrap();
        }
        board
    }

    /// Mostly empty, unequal and extreme: what rates go wrong on.
    fn random(rng: &mut Rng, ports: usize) -> Backlogs {
        let busy = rng.unit();
        let mut bytes = || match rng.unit() {
            u if u > busy => 0,
            _ => 1u64 << rng.below(41),
        };
        let output = (0..ports).map(|_| bytes()).collect();
        let input = (0..ports).map(|_| (0..ports).map(|_| bytes()).collect()).collect();
        Backlogs { output, input }
    }
}

fn fabric(ports: usize, speedup: f64) -> SwitchShape {
    SwitchShape::new(ports, speedup, Rate::from_megabits(70), PERIOD).unwrap()
}

fn reserved(ports: usize, bytes: u64) -> Variant {
    Variant::Reserved { minimum_backlog_bytes: bytes, minimum_share: Variant::minimum_share(ports) }
}

fn dq_plus(ports: usize, bytes: u64, deferral_periods: Option<u32>) -> Variant {
    Variant::DqPlus {
        minimum_backlog_bytes: bytes,
        minimum_share: Variant::minimum_share(ports),
        deferral_periods,
    }
}

fn variants(ports: usize) -> [Variant; 4] {
    [
        Variant::Original,
        reserved(ports, 520),
        dq_plus(ports, 520, None),
        dq_plus(ports, 9000, Some(3)),
    ]
}

/// All rates of a switch, each row computed as its port would.
fn rates(fabric: SwitchShape, variant: Variant, board: &Board) -> Vec<Vec<f64>> {
    let mut allocator = Allocator::new(fabric, variant).unwrap();
    (0..fabric.ports()).map(|i| allocator.allocate(board, i).unwrap().to_vec()).collect()
}

/// The equations as they stand in the paper, one entry at a time, sums and all.
fn naive(b: &Backlogs, speedup: f64, variant: Variant, i: usize, j: usize) -> f64 {
    let n = b.output.len();
    let (minimum, share, deferral) = match variant {
        Variant::Original => (0.0, 0.0, None),
        Variant::Reserved { minimum_backlog_bytes, minimum_share } => {
            (minimum_backlog_bytes as f64, minimum_share, None)
        }
        Variant::DqPlus { minimum_backlog_bytes, minimum_share, deferral_periods } => {
            (minimum_backlog_bytes as f64, minimum_share, deferral_periods)
        }
    };
    let or_zero = |x: f64| if x.is_nan() { 0.0 } else { x };
    let column = |j: usize| (0..n).map(|h| b.input[h][j] as f64).sum::<f64>();
    let hi =
        |j: usize| or_zero((minimum + b.input[i][j] as f64) / (n as f64 * minimum + column(j)));
    let lo = |j: usize| {
        let mut urgent = or_zero(b.input[i][j] as f64 / (b.output[j] as f64 + column(j)));
        if let Some(periods) = deferral {
            let enough = LINK_BPS / 8.0 * 500e-6 * f64::from(periods);
            urgent *= f64::max(0.0, 1.0 - b.output[j] as f64 / enough);
        }
        share + urgent
    };
    let all_lo: f64 = (0..n).map(lo).sum();
    let first = |j: usize| speedup * LINK_BPS * f64::min(hi(j), or_zero(lo(j) / all_lo));
    let mut rate = first(j);
    if matches!(variant, Variant::DqPlus { .. }) {
        let left = speedup * LINK_BPS - (0..n).map(first).sum::<f64>();
        let slack = |j: usize| speedup * LINK_BPS * hi(j) - first(j);
        let slacks: f64 = (0..n).map(slack).sum();
        rate += slack(j).min(or_zero(left * slack(j) / slacks));
    }
    rate
}

#[test]
fn the_naive_twin_gives_the_same_rates() {
    for case in 0..400 {
        let mut rng = Rng::new(1, PURPOSE, case);
        let ports = 1 + rng.below(12) as usize;
        let speedup = [1.0, 1.25, 1.5, 2.0, 3.0][rng.below(5) as usize];
        let backlogs = Backlogs::random(&mut rng, ports);
        let board = backlogs.board();
        for variant in variants(ports) {
            let got = rates(fabric(ports, speedup), variant, &board);
            for (i, row) in got.iter().enumerate() {
                for (j, &rate) in row.iter().enumerate() {
                    let want = naive(&backlogs, speedup, variant, i, j);
                    assert!(
                        (rate - want).abs() < 1.0,
                        "case {case} {variant:?} r[{i}][{j}] = {rate}, not {want}"
                    );
                }
            }
        }
    }
}

/// What the allocator shows of itself is what Figures 20 and 21 of the paper define.
#[test]
fn the_shares_shown_are_those_of_the_equations() {
    let mut rng = Rng::new(4, PURPOSE, 0);
    let backlogs = Backlogs::random(&mut rng, 5);
    let board = backlogs.board();
    let shape = fabric(5, 1.5);
    assert_eq!((shape.ports(), shape.speedup()), (5, 1.5));
    assert_eq!((shape.link(), shape.period()), (Rate::from_megabits(70), PERIOD));
    let mut allocator = Allocator::new(shape, Variant::Original).unwrap();
    for i in 0..5 {
        allocator.allocate(&board, i).unwrap();
        for j in 0..5 {
            let mine = backlogs.input[i][j] as f64;
            let column: f64 = (0..5).map(|h| backlogs.input[h][j] as f64).sum();
            let share = |all: f64| if all > 0.0 { mine / all } else { 0.0 };
            assert!((allocator.hi()[j] - share(column)).abs() < 1e-9, "hi[{i}][{j}]");
            let behind = backlogs.output[j] as f64 + column;
            assert!((allocator.lo()[j] - share(behind)).abs() < 1e-9, "lo[{i}][{j}]");
        }
    }
}

#[test]
fn no_row_and_no_column_asks_the_fabric_for_more_than_it_has() {
    for case in 0..600 {
        let mut rng = Rng::new(2, PURPOSE, case);
        let ports = if case % 150 == 149 { 200 } else { 1 + rng.below(33) as usize };
        let speedup = 1.0 + 2.0 * rng.unit();
        let board = Backlogs::random(&mut rng, ports).board();
        let most = fabric(ports, speedup).capacity().bits_per_second() as f64;
        for variant in variants(ports) {
            let rates = rates(fabric(ports, speedup), variant, &board);
            for k in 0..ports {
                let row: f64 = rates[k].iter().sum();
                let column: f64 = rates.iter().map(|r| r[k]).sum();
                assert!(rates[k].iter().all(|&r| r >= 0.0), "case {case}: {:?}", rates[k]);
                assert!(row <= most * (1.0 + 1e-12), "case {case} row {k}: {row} > {most}");
                assert!(
                    column <= most * (1.0 + 1e-12),
                    "case {case} column {k}: {column} > {most}"
                );
            }
        }
    }
}

#[test]
fn every_output_is_promised_its_rate_where_the_urgencies_fit() {
    let mut promised = 0;
    for case in 0..400 {
        let mut rng = Rng::new(3, PURPOSE, case);
        let ports = 2 + rng.below(9) as usize;
        let backlogs = Backlogs::random(&mut rng, ports);
        let board = backlogs.board();
        let mut allocator = Allocator::new(fabric(ports, 2.0), Variant::Original).unwrap();
        for i in 0..ports {
            let rates = allocator.allocate(&board, i).unwrap().to_vec();
            if allocator.lo().iter().sum::<f64>() > 2.0 {
                continue;
            }
            for (rate, lo) in rates.iter().zip(allocator.lo()) {
                assert!(*rate >= LINK_BPS * lo - 1e-3, "case {case}: {rate} < L * {lo}");
            }
            promised += 1;
        }
    }
    assert!(promised > 500, "only {promised} rows fit: the test says little");
}

fn close(got: &[Vec<f64>], want: [[f64; 2]; 2]) {
    for (got, want) in got.iter().flatten().zip(want.iter().flatten()) {
        assert!((got - want).abs() < 1e-6, "{got} is not {want}");
    }
}

#[test]
fn a_switch_of_two_ports_worked_by_hand() {
    // B_1 = 100, B_2 = 0; input 1 holds 300 and 100, input 2 holds 100 and 0. S·L = 140 Mb/s.
    // hi_1 = 3/4, 1; lo_1 = 300/500, 100/100; wt_1 = 0.6/1.6, 1/1.6 = 3/8, 5/8.
    // hi_2 = 1/4, 0; lo_2 = 100/500, 0; wt_2 = 1, 0.
    let b = Backlogs { output: vec![100, 0], input: vec![vec![300, 100], vec![100, 0]] };
    close(&rates(fabric(2, 2.0), Variant::Original, &b.board()), [[52.5e6, 87.5e6], [35e6, 0.0]]);
    // The same under equations 5 and 6 with B_min = 100 and lo_min = 1/4: hi_1 = 400/600, 200/300;
    // lo_1 = 0.85, 1.25, so wt_1 = 0.85/2.1, 1.25/2.1. hi_2 = 200/600, 100/300; lo_2 = 0.45, 0.25,
    // so wt_2 = 0.45/0.7, 0.25/0.7: both at the ceiling.
    let got = rates(fabric(2, 2.0), reserved(2, 100), &b.board());
    let want = [[140e6 * 0.85 / 2.1, 140e6 * 1.25 / 2.1], [140e6 / 3.0, 140e6 / 3.0]];
    close(&got, want);
}

#[test]
fn the_end_of_stage_one_worked_by_hand() {
    // Four of eight inputs hold 880 KB for output 1, at which 1.76 MB wait, and nothing else.
    let mut b = Backlogs { output: vec![0; 8], input: vec![vec![0; 8]; 8] };
    b.output[0] = 1_760_000;
    (0..4).for_each(|i| b.input[i][0] = 880_000);
    let board = b.board();
    let megabits = |variant| {
        let row = rates(fabric(8, 2.0), variant, &board).swap_remove(0);
        (row[0] / 1e6, row[7] / 1e6, row.iter().sum::<f64>() / 1e6)
    };
    // Equation 3: a quarter of 140 to output 1, nothing to the others.
    assert_eq!(megabits(Variant::Original), (35.0, 0.0, 35.0));
    // lo = 1/16 + 1/6 and seven times 1/16; an idle queue gets 140 * (1/16) / (2/3) = 13.125.
    let (backlogged, idle, _) = megabits(reserved(8, 520));
    assert!((backlogged - 34.98).abs() < 0.01 && (idle - 13.125).abs() < 1e-9, "{idle}");
    // DQ+ deals the rest: (140 - 34.98) / 7 = 15.0, the paper's "about 15 Mb/s".
    let (backlogged, idle, sum) = megabits(dq_plus(8, 520, None));
    assert!((backlogged - 34.98).abs() < 0.01 && (idle - 15.0).abs() < 0.01, "{idle}");
    assert!((sum - 140.0).abs() < 1e-6, "{sum}");
}

#[test]
fn announcements_replace_each_other() {
    let mut rng = Rng::new(4, PURPOSE, 0);
    let mut board = Board::new(5).unwrap();
    for _ in 0..50 {
        let backlogs = Backlogs::random(&mut rng, 5);
        for (port, row) in backlogs.input.iter().enumerate() {
            let announcement = Announcement {
                output_backlog_bytes: backlogs.output[port],
                input_backlog_bytes: row.clone(),
            };
            board.hear(port, &announcement).unwrap();
        }
        assert_eq!(board, backlogs.board());
        for j in 0..5 {
            let sum: u128 = backlogs.input.iter().map(|row| u128::from(row[j])).sum();
            assert_eq!(board.column_bytes(j), sum);
        }
    }
}

#[test]
fn the_largest_switch_computes_a_row() {
    let mut board = Board::new(PORTS_MAX).unwrap();
    let row = vec![u64::MAX; PORTS_MAX];
    for port in 0..PORTS_MAX {
        let input_backlog_bytes = row.clone();
        let announcement = Announcement { output_backlog_bytes: u64::MAX, input_backlog_bytes };
        board.hear(port, &announcement).unwrap();
    }
    for variant in variants(PORTS_MAX) {
        let mut allocator = Allocator::new(fabric(PORTS_MAX, 2.0), variant).unwrap();
        let sum: f64 = allocator.allocate(&board, 1000).unwrap().iter().sum();
        assert!((sum - 140e6).abs() < 1.0, "{variant:?}: {sum}");
    }
}

#[test]
fn invalid_values_are_refused() {
    let link = Rate::from_megabits(70);
    assert_eq!(Board::new(0).unwrap_err(), DqError::Ports(0));
    assert_eq!(Board::new(PORTS_MAX + 1).unwrap_err(), DqError::Ports(PORTS_MAX + 1));
    assert_eq!(SwitchShape::new(8, 0.9, link, PERIOD).unwrap_err(), DqError::Speedup(0.9));
    assert!(SwitchShape::new(8, f64::NAN, link, PERIOD).is_err());
    assert_eq!(SwitchShape::new(8, 2.0, link, Span::ZERO).unwrap_err(), DqError::Period);
    let fabric = fabric(8, 2.0);
    let with = |variant| Allocator::new(fabric, variant).unwrap_err();
    assert_eq!(with(reserved(8, 0)), DqError::MinimumBacklog(0));
    assert_eq!(with(dq_plus(8, 520, Some(0))), DqError::Deferral(0));
    // Both limits are allowed, and one more of either is not.
    for variant in [reserved(8, 1 << 30), dq_plus(8, 520, Some(1_000_000)), dq_plus(8, 1, Some(1))]
    {
        assert!(Allocator::new(fabric, variant).is_ok());
    }
    assert_eq!(with(reserved(8, (1 << 30) + 1)), DqError::MinimumBacklog((1 << 30) + 1));
    assert_eq!(with(dq_plus(8, 520, Some(1_000_001))), DqError::Deferral(1_000_001));
    let share = Variant::Reserved { minimum_backlog_bytes: 1, minimum_share: 1.5 };
    assert_eq!(with(share), DqError::MinimumShare(1.5));
    let mut board = Board::new(8).unwrap();
    let short = Announcement { output_backlog_bytes: 0, input_backlog_bytes: vec![0; 7] };
    assert_eq!(board.hear(0, &short).unwrap_err(), DqError::Length(7));
    let announcement = Announcement { output_backlog_bytes: 0, input_backlog_bytes: vec![0; 8] };
    assert_eq!(board.hear(8, &announcement).unwrap_err(), DqError::NoSuchPort(8));
    let mut allocator = Allocator::new(fabric, Variant::Original).unwrap();
    assert_eq!(allocator.allocate(&board, 8).unwrap_err(), DqError::NoSuchPort(8));
    assert_eq!(allocator.allocate(&Board::new(4).unwrap(), 0).unwrap_err(), DqError::Ports(4));
}

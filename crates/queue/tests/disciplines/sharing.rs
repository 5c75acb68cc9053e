//! The sharing of a buffer: against a twin that counts everything anew, and what it promises.

use nilometer_queue::sharing::ReserveError;
use nilometer_queue::{Alpha, Reason, Shares, Sharing};
use nilometer_stat::Rng;

const PURPOSE: u32 = u32::from_be_bytes(*b"shar");

/// A list of the packets that are in the buffer, by queue.
struct Twin {
    held: Vec<usize>,
    queues: usize,
    packets: u64,
    reserve: u64,
    alpha: f64,
}

impl Twin {
    fn of(&self, queue: usize) -> u64 {
        self.held.iter().filter(|held| **held == queue).count() as u64
    }

    fn shared_free(&self) -> i64 {
        let shared = self.packets - self.reserve * self.queues as u64;
        let beyond = |queue| self.of(queue).saturating_sub(self.reserve);
        shared as i64 - (0..self.queues).map(beyond).sum::<u64>() as i64
    }

    fn admits(&self, queue: usize) -> Result<(), Reason> {
        let (held, free) = (self.of(queue), self.shared_free());
        if held < self.reserve
            || free > 0 && ((held - self.reserve) as f64) < self.alpha * free as f64
        {
            return Ok(());
        }
        let is_full = self.held.len() as u64 >= self.packets;
        Err(if is_full { Reason::Full } else { Reason::Share })
    }
}

#[test]
fn the_twin_admits_the_same_packets() {
    let mut seen = [0u32; 3];
    for case in 0..400 {
        let mut rng = Rng::new(1, PURPOSE, case);
        let queues = 1 + rng.below(8) as usize;
        let packets = rng.below(80);
        let reserve_packets = (rng.below(4) > 0).then(|| rng.below(packets / queues as u64 + 1));
        let alpha = Alpha::of_exponent(rng.below(15) as i8 - 7).expect("-7 to 7");
        let sharing = Sharing { reserve_packets, alpha };
        let mut shares = Shares::new(queues, packets, sharing).expect("the reserves fit");
        let reserve = u64::from(shares.reserve());
        let mut twin = Twin { held: Vec::new(), queues, packets, reserve, alpha: alpha.value() };
        let favourite = rng.below(queues as u64);
        for _ in 0..400 {
            let any = rng.below(queues as u64);
            let queue = if rng.below(2) == 0 { favourite } else { any } as usize;
            match rng.below(7) {
                0..4 => {
                    let answer = shares.admit(queue);
                    assert_eq!(answer, twin.admits(queue), "case {case}");
                    if answer.is_ok() {
                        twin.held.push(queue);
                    }
                    seen[answer
                        .map_or_else(|why| 1 + usize::from(why == Reason::Share), |()| 0)] += 1;
                }
                4 if rng.below(20) == 0 => {
                    // What comes back is in, room or not.
                    shares.impose(queue, 1);
                    twin.held.push(queue);
                }
                _ => {
                    let leaving = rng.below(twin.of(queue) + 1).min(3) as u32;
                    shares.leave(queue, leaving);
                    for _ in 0..leaving {
                        let at = twin.held.iter().position(|held| *held == queue);
                        twin.held.remove(at.expect("it is held"));
                    }
                }
            }
            assert_eq!(shares.total(), twin.held.len() as u64);
            assert_eq!(u64::from(shares.used(queue)), twin.of(queue));
            assert_eq!(shares.shared_free(), twin.shared_free().max(0) as u64, "case {case}");
        }
    }
    assert!(seen.iter().all(|count| *count > 2_000), "admitted, full, share: {seen:?}");
}

/// Whatever comes for the others: a queue that alone would stay within its reserve loses nothing.
#[test]
fn a_queue_within_its_reserve_loses_nothing() {
    let (mut tested, mut lost_by_others) = (0u64, 0u64);
    for case in 0..300 {
        let mut rng = Rng::new(2, PURPOSE, case);
        let queues = 2 + rng.below(30) as usize;
        let reserve = 1 + rng.below(40);
        let packets = reserve * queues as u64 + rng.below(200);
        let alpha = Alpha::of_exponent(rng.below(15) as i8 - 7).expect("-7 to 7");
        let sharing = Sharing { reserve_packets: Some(reserve), alpha };
        let mut shares = Shares::new(queues, packets, sharing).expect("the reserves fit");
        let (quiet, load) = (rng.below(queues as u64) as usize, 1 + rng.below(100));
        for _ in 0..300 {
            for _ in 0..rng.below(4 * load) {
                let queue = rng.below(queues as u64) as usize;
                if queue != quiet {
                    lost_by_others += u64::from(shares.admit(queue).is_err());
                }
            }
            // As many as the reserve has room for, at once.
            let room = reserve - u64::from(shares.used(quiet));
            for _ in 0..rng.below(room + 1) {
                assert_eq!(shares.admit(quiet), Ok(()), "case {case}");
                tested += 1;
            }
            for queue in 0..queues {
                let leaving = rng.below(u64::from(shares.used(queue)) + 1).min(2) as u32;
                shares.leave(queue, leaving);
            }
            assert!(shares.total() <= packets, "case {case}: more than the buffer holds");
        }
    }
    assert!(tested > 100_000 && lost_by_others > 100_000, "{tested}, {lost_by_others}");
}

/// With `k` queues that want more than they get, `S/(1 + ka)` of the shared part stay free.
#[test]
fn thresholds_leave_room_for_the_next() {
    for exponent in -3..=5 {
        let alpha = Alpha::of_exponent(exponent).expect("in range");
        let sharing = Sharing { reserve_packets: Some(100), alpha };
        for busy in 1..=6u64 {
            let mut shares = Shares::new(8, 800 + 10_000, sharing).expect("the reserves fit");
            for _ in 0..20_000 {
                (0..busy as usize).for_each(|queue| _ = shares.admit(queue));
            }
            let free = 10_000.0 / (1.0 + busy as f64 * alpha.value());
            let reported = shares.shared_free() as f64;
            assert!(
                (reported - free).abs() <= 1.0 + busy as f64,
                "{exponent}, {busy}: {reported}, {free}"
            );
            let (least, most) = (shares.used(0), shares.used(busy as usize - 1));
            assert!(least.abs_diff(most) <= 1, "equals get equal: {least}, {most}");
        }
    }
}

/// Without a number half of the buffer is divided, rounded down.
#[test]
fn reserves_are_the_number_given_or_an_equal_part_of_half() {
    let of = |queues, packets| Sharing::default().reserve(queues, packets);
    assert_eq!([of(1, 100), of(8, 100), of(7, 100), of(51, 100)], [50, 6, 7, 0]);
    assert_eq!([of(0, 100), of(3, 0), of(2, 9)], [50, 0, 2]);
    let given = Sharing { reserve_packets: Some(9), alpha: Alpha::TWO };
    assert_eq!([given.reserve(1, 100), given.reserve(50, 4)], [9, 9]);
}

#[test]
fn invalid_values_are_refused() {
    let sharing = |reserve| Sharing { reserve_packets: Some(reserve), alpha: Alpha::TWO };
    assert!(Shares::new(5, 100, sharing(20)).is_ok(), "nothing is left to be shared");
    let refused = Shares::new(5, 104, sharing(21)).expect_err("105 are more than 104");
    assert_eq!(refused, ReserveError { queues: 5, reserve_packets: 21, packets: 104 });
    assert_eq!((refused.needed(), refused.most()), (105, 20));
    assert!(Shares::new(3, u64::MAX, sharing(u64::MAX)).is_err());
    for (value, is_one) in [(1.0, true), (0.25, true), (128.0, true), (3.0, false), (256.0, false)]
    {
        assert_eq!(Alpha::new(value).is_some_and(|alpha| alpha.value() == value), is_one);
    }
    assert!([0.0, -2.0, f64::NAN].into_iter().all(|value| Alpha::new(value).is_none()));
    assert_eq!((Alpha::of_exponent(8), Alpha::of_exponent(i8::MIN)), (None, None));
    assert_eq!((Alpha::of_exponent(-8), Alpha::of_exponent(0)), (None, Alpha::new(1.0)));
    assert_eq!(
        [7, -7].map(|e| Alpha::of_exponent(e).map(Alpha::value)),
        [128.0, 1.0 / 128.0].map(Some)
    );
}

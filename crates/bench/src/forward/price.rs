//! The price of a packet: how precisely the rounds give it, and when it is reported.
//!
//! A round gives one price: processor seconds for a frame that was forwarded ([`super`]). Prices of rounds
//! scatter, by tenths on a quiet machine and by more on one that is shared, and some are far off. So
//!
//! - the **price of a point is the trimmed mean** of its rounds, with the interval that goes with it
//!   ([`nilometer_stat::trimmed`]): a fifth of the rounds at either end is left out, so that an outlier
//!   moves neither;
//! - there are **more rounds where the interval is wide**: it is examined after [`ROUNDS_MIN`] rounds, and
//!   again whenever half as many more have been made, until half its width is at most [`HALF_WIDTH_MAX`] of
//!   the price;
//! - a price that is not known that well when the bound on rounds is reached is **not reported**,
//!   with the reason;
//! - a round in which others disturbed what was measured ([`super::usage`]) is discarded and counted.
//!
//! # What the interval says
//!
//! A run that looks often and stops at a narrow interval stops when it is narrow by chance; with
//! Student's law at 95 % such intervals contained the truth in as few as 90 % of simulated points. So
//! each look is at [`LOOK`], with which 95 % contain it ([`CONFIDENCE`]) where rounds scatter evenly
//! about a middle, much or little (the tests simulate it). Where they do not, fewer do: if a quarter of
//! the rounds cost a third more, four intervals in five. Rounds beside each other are alike, since a
//! machine drifts for seconds and minutes: of many rounds ([`BATCHES`] of at least
//! [`BATCH_ROUNDS_MIN`]) the error is that of batches of successive ones
//! ([`nilometer_stat::Trimmed::of_batches`]). *With fewer rounds they are assumed independent, and if
//! the machine drifts the error is too small*: to compare runs, use `--rounds 100 --rounds-max 100`.
//! As each round sets everything up anew, what changes with that, such as the place of buffers, is in
//! the interval; what changes in the machine from one run to the next, such as where a hypervisor
//! places its processors, is in no interval that one run can give. Runs are compared by
//! [`super::repeat`].

use nilometer_stat::trimmed::VALUES_MIN;
use nilometer_stat::{ConfidenceInterval, Trimmed};

/// Rounds before the first look, unless fewer are requested.
pub const ROUNDS_MIN: u32 = 8;
/// The stated confidence of an interval: the share of points whose truth it contains.
pub const CONFIDENCE: f64 = 0.95;
/// The level of Student's law at each look.
pub const LOOK: f64 = 0.975;
/// A price is reported when half its interval is at most this share of it.
pub const HALF_WIDTH_MAX: f64 = 0.1;
/// Batches of successive rounds, from which the error of many rounds is computed.
pub const BATCHES: usize = 12;
/// Rounds of the shortest batch.
pub const BATCH_ROUNDS_MIN: usize = VALUES_MIN;
/// The share of points that may stay unreported in a run that has succeeded.
pub const UNREPORTED_MAX: f64 = 0.1;

/// The rounds of a point.
#[derive(Clone, Debug, PartialEq)]
pub struct Rounds {
    prices: Vec<f64>,
    discarded: u32,
    /// The number of kept rounds at the next look.
    next_look: usize,
    most: u32,
    is_decided: bool,
}

/// The result of a point's rounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Price {
    /// Processor seconds for a frame, with its error; `None` if there are too few rounds.
    pub seconds: Option<Trimmed>,
    /// Why it is not reported; `None` if it is.
    pub not_told: Option<String>,
    /// Rounds that were kept.
    pub rounds: u32,
    /// Rounds that were discarded.
    pub discarded: u32,
}

impl Price {
    /// The interval of frames per processor second; `None` if it reaches a price of zero.
    pub fn rate_interval(&self) -> Option<ConfidenceInterval> {
        let ConfidenceInterval { low, high } = self.seconds?.interval(LOOK);
        (low > 0.0).then(|| ConfidenceInterval { low: 1.0 / high, high: 1.0 / low })
    }

    /// Frames per processor second, where that is reported.
    pub fn rate(&self) -> Option<f64> {
        self.not_told.is_none().then(|| self.seconds.map(|price| 1.0 / price.mean))?
    }
}

impl Rounds {
    /// No rounds yet, of at least `least` that are kept and `most` in all.
    pub fn new(least: u32, most: u32) -> Rounds {
        let (next_look, prices) = (least.min(most) as usize, Vec::new());
        Rounds { prices, discarded: 0, next_look, most, is_decided: false }
    }

    /// Whether there are to be more.
    pub fn are_wanted(&self) -> bool {
        !self.is_decided && (self.prices.len() as u32) + self.discarded < self.most
    }

    /// A round that was disturbed.
    pub fn discard(&mut self) {
        self.discarded += 1;
    }

    /// A round with its price, in processor seconds; not a number where nothing was forwarded.
    pub fn keep(&mut self, price: f64) {
        self.prices.push(price);
        let count = self.prices.len();
        if count >= self.next_look {
            self.next_look = count + (count / 2).max(1);
            self.is_decided = self.look().is_none();
        }
    }

    /// Their middle, with its error.
    fn middle(&self) -> Option<Trimmed> {
        if self.prices.len() < BATCHES * BATCH_ROUNDS_MIN {
            return Trimmed::of(&self.prices);
        }
        Trimmed::of_batches(&self.prices, BATCHES)
    }

    /// Why the price is not known well enough, if it is not.
    fn look(&self) -> Option<String> {
        let few = self.prices.len() < VALUES_MIN;
        if few && self.discarded > 0 {
            let all = self.prices.len() as u32 + self.discarded;
            return Some(format!("others disturbed {} of {all} rounds", self.discarded));
        }
        if few {
            return Some(format!(
                "{} rounds are too few, {VALUES_MIN} the least",
                self.prices.len()
            ));
        }
        let Some(price) = self.middle() else {
            return Some("in some rounds nothing was forwarded".to_owned());
        };
        let (half, mean) = (price.half_width(LOOK), price.mean);
        if mean <= 0.0 || half >= mean {
            return Some("the price is lost in the noise of generator and sink".to_owned());
        }
        (half > HALF_WIDTH_MAX * mean).then(|| {
            let (percent, rounds) = (100.0 * half / mean, self.prices.len());
            format!("the interval is +-{percent:.0} % after {rounds} rounds")
        })
    }

    /// Their result, once no more are needed.
    pub fn price(&self) -> Price {
        let not_told = if self.is_decided { None } else { self.look() };
        let rounds = self.prices.len() as u32;
        Price { seconds: self.middle(), not_told, rounds, discarded: self.discarded }
    }

    /// The prices of the rounds that were kept.
    pub fn prices(&self) -> &[f64] {
        &self.prices
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_stat::Rng;

    /// Rounds drawn until no more are wanted.
    fn drawn(draw: impl Fn(&mut Rng) -> f64, point: u64, most: u32) -> Price {
        let mut rng = Rng::new(53, 1, point);
        let mut rounds = Rounds::new(ROUNDS_MIN, most);
        while rounds.are_wanted() {
            match rng.below(20) {
                0 => rounds.discard(),
                _ => rounds.keep(1e-6 * draw(&mut rng)),
            }
        }
        rounds.price()
    }

    /// For many points: the share whose interval contains the truth, the share that is reported, and
    /// the mean number of rounds.
    fn simulated(draw: impl Fn(&mut Rng) -> f64, most: u32) -> [f64; 3] {
        const POINTS: u64 = 1_500;
        let (mut holds, mut told, mut rounds) = (0, 0, 0);
        for point in 0..POINTS {
            let price = drawn(&draw, point, most);
            let [low, high] = price.seconds.expect("enough rounds").interval(LOOK).ends();
            holds += u64::from(low <= 1e-6 && 1e-6 <= high);
            told += u64::from(price.not_told.is_none());
            rounds += u64::from(price.rounds);
        }
        [holds, told, rounds].map(|count| count as f64 / POINTS as f64)
    }

    #[test]
    fn intervals_hold_the_truth_of_even_scatter_though_it_is_looked_often() {
        // Flat, as on a quiet machine: the first look suffices.
        let [holds, told, rounds] = simulated(|rng| 1.0 + 0.03 * rng.normal(), 120);
        assert!(holds >= 0.93 && told > 0.999 && rounds < 8.1, "{holds} {told} {rounds}");
        for scatter in [0.08, 0.12, 0.16, 0.2, 0.3] {
            let [holds, told, rounds] = simulated(|rng| 1.0 + scatter * rng.normal(), 120);
            assert!(holds >= 0.93 && told > 0.97, "{scatter}: {holds} {told} {rounds}");
        }
        // One round in ten is an accident.
        let accidents = |rng: &mut Rng| {
            let scatter = if rng.below(10) == 0 { 1.0 } else { 0.1 };
            1.0 + scatter * rng.normal()
        };
        let [holds, told, rounds] = simulated(accidents, 120);
        assert!(holds >= 0.93 && told > 0.99 && rounds < 24.0, "{holds} {told} {rounds}");
    }

    /// Sixty rounds of a machine that drifts, as in three runs that are compared.
    #[test]
    fn many_rounds_of_a_machine_that_drifts_hold_the_truth() {
        const POINTS: u64 = 1_500;
        let mut holds = 0;
        for point in 0..POINTS {
            let mut rng = Rng::new(59, 1, point);
            let mut drift = rng.normal();
            let mut rounds = Rounds::new(60, 60);
            while rounds.are_wanted() {
                drift = 0.6 * drift + 0.8 * rng.normal();
                rounds.keep(1e-6 * (1.0 + 0.1 * drift + 0.15 * rng.normal()));
            }
            let [low, high] = rounds.price().seconds.expect("enough rounds").interval(LOOK).ends();
            holds += u64::from(low <= 1e-6 && 1e-6 <= high);
        }
        assert!(holds as f64 >= 0.93 * POINTS as f64, "{holds} of {POINTS}");
    }

    /// The essay's claim about rounds with two prices, so that 95 % is not assumed for them.
    #[test]
    fn of_two_prices_fewer_intervals_hold_the_truth() {
        let [often, seldom] = [1.0, 1.3];
        let draw = |rng: &mut Rng, middle: f64| {
            let price = if rng.below(4) == 0 { seldom } else { often };
            price / middle * (1.0 + 0.03 * rng.normal())
        };
        // The truth is the trimmed mean of all that could have been drawn.
        let mut rng = Rng::new(11, 0xf0d2, 0);
        let all: Vec<f64> = (0..200_000).map(|_| draw(&mut rng, 1.0)).collect();
        let middle = Trimmed::of(&all).expect("enough").mean;
        let [holds, told, _] = simulated(|rng| draw(rng, middle), 120);
        assert!((0.7..0.93).contains(&holds) && told > 0.99, "{holds} {told}");
    }

    #[test]
    fn prices_lost_in_the_noise_are_not_reported() {
        // As large as the price itself: a bound of rounds is reached, and the interval stays honest.
        let [holds, told, rounds] = simulated(|rng| 1.0 + rng.normal(), 60);
        assert!(holds >= 0.93 && told < 0.01 && rounds > 50.0, "{holds} {told} {rounds}");
        let nothing = drawn(|rng| 0.2 * rng.normal(), 0, 40);
        assert!(nothing.rate().is_none());
        let why = nothing.not_told.expect("a price about nothing");
        assert!(why.contains("lost in the noise"), "{why}");
        let wide = drawn(|rng| 1.0 + 0.9 * rng.normal(), 3, 30);
        let why = wide.not_told.clone().expect("too wide");
        assert!(why.contains("%") && wide.rate().is_none() && wide.seconds.is_some(), "{why}");
    }

    #[test]
    fn rounds_that_others_disturbed_are_counted_and_end() {
        let mut rounds = Rounds::new(8, 20);
        for _ in 0..20 {
            assert!(rounds.are_wanted());
            rounds.discard();
        }
        assert!(!rounds.are_wanted());
        let price = rounds.price();
        assert_eq!((price.rounds, price.discarded, price.seconds), (0, 20, None));
        let why = price.not_told.expect("no round");
        assert!(why.contains("others disturbed 20 of 20"), "{why}");
        let mut few = Rounds::new(2, 3);
        (0..3).for_each(|_| few.keep(1e-6));
        assert!(few.price().not_told.expect("too few").contains("too few"));
        let mut idle = Rounds::new(8, 8);
        (0..8).for_each(|_| idle.keep(f64::NAN));
        assert!(idle.price().not_told.expect("none").contains("nothing was forwarded"));
    }

    #[test]
    fn the_rate_is_the_price_turned_over() {
        let mut rounds = Rounds::new(8, 8);
        (0..8).for_each(|round| rounds.keep(2e-6 + 1e-9 * f64::from(round)));
        let price = rounds.price();
        let (rate, interval) = (price.rate().expect("told"), price.rate_interval().expect("so"));
        assert!((rate - 1.0 / 2.003_5e-6).abs() < 1.0, "{rate}");
        assert!(interval.holds(rate) && interval.high / interval.low < 1.01, "{interval:?}");
    }
}

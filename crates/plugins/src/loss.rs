//! Packets lost by chance: one by one, or in bursts after Gilbert's model. (Delay would have to hold packets: not yet.)

use alloc::string::String;

use nilometer_plugin::{Context, Decision, Packet, Plugin, Settings};

const PACKETS: usize = 0;
const LOST: usize = 1;

/// Loses packets.
///
/// Settings: `rate=P`, the share of packets that is lost, from 0 to 1; `burst=B`, the mean number of packets lost one after
/// the other, 1/(1-P) unless given, with which losses are independent. It is Gilbert's model (Bell System Technical
/// Journal, 1960) with a bad state in which every packet is lost: it is left with probability 1/B and entered with
/// P/(B(1-P)).
pub struct Loss {
    enter: f64,
    leave: f64,
    is_bad: bool,
}

impl Plugin for Loss {
    const NAME: &'static str = "loss";
    const VERSION: &'static str = "1.0.0";
    const SEEN_BYTES: u16 = 0;
    const COUNTERS: &'static [&'static str] = &["packets", "lost"];

    fn new(configuration: &str) -> Result<Loss, String> {
        let mut settings = Settings::parse(configuration)?;
        let rate: f64 = settings.required("rate")?;
        let burst: Option<f64> = settings.optional("burst")?;
        settings.finish()?;
        if !(0.0..=1.0).contains(&rate) {
            return Err("`rate=` must be from 0 to 1".into());
        }
        if rate == 1.0 {
            return Ok(Loss { enter: 1.0, leave: 0.0, is_bad: true });
        }
        let burst = burst.unwrap_or(1.0 / (1.0 - rate));
        let enter = rate / (burst * (1.0 - rate));
        // NaN is refused by this, too.
        if !(burst >= 1.0 && enter <= 1.0) {
            return Err("`burst=` must be at least 1, and at least rate/(1-rate)".into());
        }
        Ok(Loss { enter, leave: 1.0 / burst, is_bad: false })
    }

    fn process(&mut self, _: &mut Packet<'_>, context: &mut Context<'_>) -> Decision {
        context.count(PACKETS, 1);
        let chance = context.random().unit();
        self.is_bad = if self.is_bad { chance >= self.leave } else { chance < self.enter };
        if !self.is_bad {
            return Decision::Forward;
        }
        context.count(LOST, 1);
        Decision::Drop
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, refused};

    /// The share that is lost of a million packets, and the mean length of the bursts.
    fn lost(configuration: &str) -> (f64, f64) {
        let mut bench = Bench::<Loss>::new(configuration);
        let (mut bursts, mut before) = (0, Decision::Forward);
        for _ in 0..1_000_000 {
            let decision = bench.decide(&mut []);
            bursts += u32::from(before == Decision::Forward && decision == Decision::Drop);
            before = decision;
        }
        let lost = bench.counters()[LOST] as f64;
        (lost / 1e6, lost / f64::from(bursts))
    }

    #[test]
    fn the_share_and_the_bursts_are_those_of_the_settings() {
        for (configuration, rate, burst) in [
            ("rate=0.01", 0.01, 1.0 / 0.99),
            ("rate=0.3", 0.3, 1.0 / 0.7),
            ("rate=0.02 burst=5", 0.02, 5.0),
        ] {
            let (found_rate, found_burst) = lost(configuration);
            // Within six standard deviations; bursts make losses depend on each other.
            let deviation = libm_sqrt(rate * 2.0 * burst / 1e6);
            assert!((found_rate - rate).abs() < 6.0 * deviation, "{configuration}: {found_rate}");
            assert!((found_burst / burst - 1.0).abs() < 0.06, "{configuration}: {found_burst}");
        }
        assert_eq!(lost("rate=0").0, 0.0);
        assert_eq!(lost("rate=1").0, 1.0);
    }

    /// Newton's method: tests of this crate have no library of functions.
    fn libm_sqrt(of: f64) -> f64 {
        (0..60).fold(1.0, |root, _| (root + of / root) / 2.0)
    }

    #[test]
    fn settings_are_checked() {
        assert_eq!(refused::<Loss>(""), "`rate=` is missing");
        assert_eq!(refused::<Loss>("rate=1.5"), "`rate=` must be from 0 to 1");
        assert_eq!(refused::<Loss>("rate=NaN"), "`rate=` must be from 0 to 1");
        let burst = "`burst=` must be at least 1, and at least rate/(1-rate)";
        assert_eq!(refused::<Loss>("rate=0.1 burst=0"), burst);
        assert_eq!(refused::<Loss>("rate=0.9 burst=2"), burst);
        assert_eq!(refused::<Loss>("rate=0.1 burst=NaN"), burst);
    }
}

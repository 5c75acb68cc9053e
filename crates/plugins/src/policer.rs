//! Traffic metered by token buckets and coloured: the single-rate and the two-rate three-colour marker.
//!
//! Both meters (RFC 2697, RFC 2698) count the bytes of IP packets. A bucket's tokens are exact: they are kept in byte
//! nanoseconds, rate × time is a whole number of them, and nothing is rounded away however often the clock is read.

use alloc::format;
use alloc::string::String;

use nilometer_plugin::{Context, Decision, Packet, Plugin, Settings};

use crate::SECOND_NS;
use crate::remarker::dscp;

const GREEN: usize = 0;
const YELLOW: usize = 1;
const RED: usize = 2;
const DROPPED: usize = 3;
const REMARKED: usize = 4;

/// The largest bucket, bytes: its tokens in byte nanoseconds are a `u64`.
const BURST_BYTES_MAX: u64 = 1 << 34;
/// The highest rate, bytes a second: 800 Gb/s.
const RATE_MAX: u64 = 100_000_000_000;

/// What a packet is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Colour {
    Green = 0,
    Yellow = 1,
    Red = 2,
}

/// What becomes of packets of a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Forward,
    Drop,
    /// The DSCP is set.
    Dscp(u8),
    /// Of an assured forwarding class the drop precedence becomes the colour's (RFC 2597); others are kept.
    Precedence,
}

/// Tokens, in byte nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    tokens: u64,
    most: u64,
}

impl Bucket {
    /// A full one (RFC 2697, 3; RFC 2698, 3).
    fn of(bytes: u64) -> Bucket {
        let most = bytes * SECOND_NS;
        Bucket { tokens: most, most }
    }

    /// Adds tokens, and returns those that found no room.
    fn add(&mut self, tokens: u64) -> u64 {
        let room = self.most - self.tokens;
        self.tokens += tokens.min(room);
        tokens.saturating_sub(room)
    }

    fn has(&self, tokens: u64) -> bool {
        self.tokens >= tokens
    }
}

#[derive(Clone, Copy, Debug)]
enum Meter {
    /// RFC 2697: what the committed bucket has no room for goes to the excess bucket.
    SingleRate { committed: Bucket, excess: Bucket, rate: u64 },
    /// RFC 2698.
    TwoRates { peak: Bucket, committed: Bucket, peak_rate: u64, rate: u64 },
}

impl Meter {
    fn refill(&mut self, elapsed_ns: u64) {
        match self {
            Meter::SingleRate { committed, excess, rate } => {
                let left = committed.add(rate.saturating_mul(elapsed_ns));
                excess.add(left);
            }
            Meter::TwoRates { peak, committed, peak_rate, rate } => {
                peak.add(peak_rate.saturating_mul(elapsed_ns));
                committed.add(rate.saturating_mul(elapsed_ns));
            }
        }
    }

    /// Colours a packet that needs `tokens` tokens and had the colour `before`, which is green if
    /// the meter is colour-blind.
    fn colour(&mut self, tokens: u64, before: Colour) -> Colour {
        match self {
            Meter::SingleRate { committed, excess, .. } => {
                if before == Colour::Green && committed.has(tokens) {
                    committed.tokens -= tokens;
                    Colour::Green
                } else if before <= Colour::Yellow && excess.has(tokens) {
                    excess.tokens -= tokens;
                    Colour::Yellow
                } else {
                    Colour::Red
                }
            }
            Meter::TwoRates { peak, committed, .. } => {
                if before == Colour::Red || !peak.has(tokens) {
                    return Colour::Red;
                }
                peak.tokens -= tokens;
                if before == Colour::Yellow || !committed.has(tokens) {
                    return Colour::Yellow;
                }
                committed.tokens -= tokens;
                Colour::Green
            }
        }
    }
}

/// Polices packets.
///
/// Settings: `cir=` and `cbs=`, the committed rate (bits a second) and burst (bytes); with `ebs=`, the excess burst,
/// it is RFC 2697's meter, with `pir=` and `pbs=`, the peak rate and burst, RFC 2698's. `green=`, `yellow=` and
/// `red=` set the action for a colour: `forward`, `drop`, `dscp:N` or `precedence`; by default, green and yellow are
/// forwarded and red is dropped. `aware=yes` takes the drop precedence of assured forwarding as the colour before.
pub struct Policer {
    meter: Meter,
    actions: [Action; 3],
    is_aware: bool,
    refilled_ns: u64,
}

impl Plugin for Policer {
    const NAME: &'static str = "policer";
    const VERSION: &'static str = "1.0.0";
    const SEEN_BYTES: u16 = 20;
    const COUNTERS: &'static [&'static str] =
        &["green_packets", "yellow_packets", "red_packets", "dropped", "remarked"];

    fn new(configuration: &str) -> Result<Policer, String> {
        let mut settings = Settings::parse(configuration)?;
        let (cir, cbs) = (rate(&mut settings, "cir")?, burst(&mut settings, "cbs")?);
        let has_peak = settings.has("pir");
        let meter = if has_peak {
            let (peak_rate, pbs) = (rate(&mut settings, "pir")?, burst(&mut settings, "pbs")?);
            if peak_rate < cir {
                return Err("`pir=` must be at least `cir=`".into());
            }
            let (peak, committed) = (Bucket::of(pbs), Bucket::of(cbs));
            Meter::TwoRates { peak, committed, peak_rate, rate: cir }
        } else {
            let ebs = if settings.has("ebs") { burst(&mut settings, "ebs")? } else { 0 };
            Meter::SingleRate { committed: Bucket::of(cbs), excess: Bucket::of(ebs), rate: cir }
        };
        let mut actions = [Action::Forward, Action::Forward, Action::Drop];
        for (name, action) in ["green", "yellow", "red"].into_iter().zip(&mut actions) {
            if let Some(text) = settings.text(name) {
                *action = read_action(text)?;
            }
        }
        let is_aware = match settings.text("aware") {
            None | Some("no") => false,
            Some("yes") => true,
            Some(other) => return Err(format!("`aware={other}` is neither yes nor no")),
        };
        settings.finish()?;
        Ok(Policer { meter, actions, is_aware, refilled_ns: 0 })
    }

    fn process(&mut self, packet: &mut Packet<'_>, context: &mut Context<'_>) -> Decision {
        let now_ns = context.now_ns();
        self.meter.refill(now_ns.saturating_sub(self.refilled_ns));
        self.refilled_ns = now_ns;
        let before = match packet.dscp() {
            Some(dscp) if self.is_aware => colour_of(dscp),
            _ => Colour::Green,
        };
        let tokens = u64::from(packet.ip_bytes()) * SECOND_NS;
        let colour = self.meter.colour(tokens, before);
        let counter = match colour {
            Colour::Green => GREEN,
            Colour::Yellow => YELLOW,
            Colour::Red => RED,
        };
        context.count(counter, 1);
        let old = packet.dscp();
        let new = match self.actions[colour as usize] {
            Action::Forward => return Decision::Forward,
            Action::Drop => {
                context.count(DROPPED, 1);
                return Decision::Drop;
            }
            Action::Dscp(dscp) => Some(dscp),
            Action::Precedence => old.map(|dscp| with_precedence(dscp, colour)),
        };
        if let Some(new) = new.filter(|_| new != old)
            && packet.set_dscp(new).is_ok()
        {
            context.count(REMARKED, 1);
        }
        Decision::Forward
    }
}

/// A rate in bits a second, as bytes a second.
fn rate(settings: &mut Settings<'_>, name: &str) -> Result<u64, String> {
    let bits: u64 = settings.required(name)?;
    if !(8..=8 * RATE_MAX).contains(&bits) {
        return Err(format!("`{name}=` must be from 8 to {} bits a second", 8 * RATE_MAX));
    }
    Ok(bits / 8)
}

fn burst(settings: &mut Settings<'_>, name: &str) -> Result<u64, String> {
    let bytes: u64 = settings.required(name)?;
    if bytes > BURST_BYTES_MAX {
        return Err(format!("`{name}=` must be at most {BURST_BYTES_MAX} bytes"));
    }
    Ok(bytes)
}

fn read_action(text: &str) -> Result<Action, String> {
    match text {
        "forward" => Ok(Action::Forward),
        "drop" => Ok(Action::Drop),
        "precedence" => Ok(Action::Precedence),
        _ => match text.strip_prefix("dscp:") {
            Some(number) => dscp(number).map(Action::Dscp),
            None => Err(format!("`{text}` is none of forward, drop, dscp:N and precedence")),
        },
    }
}

/// AFcp is the code point 8c + 2p, with classes and precedences from 1 (RFC 2597, 6).
fn is_assured(dscp: u8) -> bool {
    (1..=4).contains(&(dscp >> 3)) && dscp & 7 != 0 && dscp & 1 == 0
}

fn colour_of(dscp: u8) -> Colour {
    match (is_assured(dscp), dscp & 7) {
        (true, 4) => Colour::Yellow,
        (true, 6) => Colour::Red,
        _ => Colour::Green,
    }
}

fn with_precedence(dscp: u8, colour: Colour) -> u8 {
    if !is_assured(dscp) {
        return dscp;
    }
    dscp & 0x38 | (colour as u8 + 1) << 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, refused, udp};

    /// The meters of the RFCs to the letter, a token at a time: a byte every microsecond, and two at the peak.
    struct Letter {
        is_two_rates: bool,
        committed: u64,
        other: u64,
        most: (u64, u64),
    }

    impl Letter {
        fn microsecond(&mut self) {
            if self.is_two_rates {
                self.committed = self.most.0.min(self.committed + 1);
                self.other = self.most.1.min(self.other + 2);
            } else if self.committed < self.most.0 {
                self.committed += 1;
            } else if self.other < self.most.1 {
                self.other += 1;
            }
        }

        fn colour(&mut self, bytes: u64, before: Colour) -> Colour {
            if self.is_two_rates {
                if before == Colour::Red || self.other < bytes {
                    return Colour::Red;
                }
                self.other -= bytes;
                if before == Colour::Yellow || self.committed < bytes {
                    return Colour::Yellow;
                }
                self.committed -= bytes;
                return Colour::Green;
            }
            if before == Colour::Green && self.committed >= bytes {
                self.committed -= bytes;
                return Colour::Green;
            }
            if before != Colour::Red && self.other >= bytes {
                self.other -= bytes;
                return Colour::Yellow;
            }
            Colour::Red
        }
    }

    #[test]
    fn colours_are_those_of_the_rfcs_token_by_token() {
        for (is_two_rates, settings) in [
            (false, "cir=8000000 cbs=3000 ebs=2000 aware=yes"),
            (true, "cir=8000000 cbs=3000 pir=16000000 pbs=2000 aware=yes"),
        ] {
            let mut policer = Policer::new(settings).expect("settings");
            let mut letter =
                Letter { is_two_rates, committed: 3_000, other: 2_000, most: (3_000, 2_000) };
            let mut random = nilometer_plugin::Random::new(3);
            let mut seen = [0; 3];
            for _ in 0..20_000 {
                let gap_us = u64::from(random.below(1_500));
                (0..gap_us).for_each(|_| letter.microsecond());
                policer.meter.refill(gap_us * 1_000);
                let bytes = u64::from(40 + random.below(1_461));
                let before = [Colour::Green, Colour::Yellow, Colour::Red][random.below(3) as usize];
                let colour = policer.meter.colour(bytes * SECOND_NS, before);
                assert_eq!(colour, letter.colour(bytes, before));
                seen[colour as usize] += 1;
            }
            assert!(seen.iter().all(|count| *count > 1_000), "{seen:?}");
        }
    }

    #[test]
    fn a_long_run_gets_its_rate_for_any_steps_of_the_clock() {
        // 1 Mb/s in packets of 125 bytes is a packet a millisecond; 333 µs steps are no multiple of anything.
        let mut bench = Bench::<Policer>::new("cir=1000000 cbs=250");
        for _ in 0..30_000 {
            bench.decide(&mut udp("10.0.0.1:1", "10.0.0.2:2", 97));
            bench.wait(333_333);
        }
        let green = bench.counters()[GREEN];
        assert!((9_990..=10_002).contains(&green), "{green}");
        assert_eq!(bench.counters()[DROPPED], 30_000 - green);
    }

    #[test]
    fn colours_are_remarked() {
        let mut bench =
            Bench::<Policer>::new("cir=8 cbs=38 ebs=38 yellow=precedence red=dscp:8 green=forward");
        let mut found = [0; 3];
        for found in &mut found {
            let mut packet = udp("10.0.0.1:1", "10.0.0.2:2", 10);
            Packet::new(&mut packet, 38).set_dscp(26).expect("seen"); // AF31
            bench.forwarded(&mut packet);
            *found = Packet::new(&mut packet, 38).dscp().expect("a packet");
        }
        assert_eq!(found, [26, 28, 8], "AF31, AF32, CS1");
        assert_eq!(bench.counters(), [1, 1, 1, 0, 2]);
    }

    #[test]
    fn drop_precedences_are_colours() {
        assert_eq!([10, 12, 14].map(colour_of), [Colour::Green, Colour::Yellow, Colour::Red]);
        for dscp in (0..64).filter(|dscp| colour_of(*dscp) == Colour::Yellow) {
            assert!([12, 20, 28, 36].contains(&dscp));
        }
        assert_eq!(with_precedence(46, Colour::Red), 46);
        assert_eq!(with_precedence(10, Colour::Red), 14);
    }

    #[test]
    fn settings_are_checked() {
        let wrong = [
            ("", "`cir=` is missing"),
            ("cir=1 cbs=1", "`cir=` must be from 8 to 800000000000 bits a second"),
            ("cir=8 cbs=99999999999", "`cbs=` must be at most 17179869184 bytes"),
            ("cir=80 cbs=1 pir=8 pbs=1", "`pir=` must be at least `cir=`"),
            ("cir=80 cbs=1 red=kill", "`kill` is none of forward, drop, dscp:N and precedence"),
            ("cir=80 cbs=1 aware=2", "`aware=2` is neither yes nor no"),
        ];
        for (settings, message) in wrong {
            assert_eq!(refused::<Policer>(settings), message);
        }
    }
}

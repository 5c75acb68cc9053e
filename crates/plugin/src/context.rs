//! The context of a call: the time, the ports, and what a plugin may request besides its decision.

use alloc::vec;
use alloc::vec::Vec;

/// The host that runs the plugin and serves its requests.
pub trait Services {
    /// Sends an IP packet that the plugin made: whether it will be sent.
    fn emit(&mut self, packet: &[u8]) -> bool;

    /// Writes a line for the operator.
    fn log(&mut self, line: &str);

    /// Bits per second that the scheduler of the output gives the flow of the batch now, where that is known.
    fn share_bps(&self) -> Option<u64>;
}

/// An instance's state besides its own value: counters, a timer, random numbers.
#[derive(Clone, Debug)]
pub struct State {
    pub(crate) counters: Vec<u64>,
    pub(crate) timer: Option<u64>,
    pub(crate) random: Random,
}

impl State {
    pub(crate) fn new(counters: usize, seed: u64) -> State {
        State { counters: vec![0; counters], timer: None, random: Random::new(seed) }
    }
}

/// The ports of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortNumbers {
    /// The port by which it arrived.
    pub input: Option<u16>,
    /// The port by which it leaves, if known: on the output side.
    pub output: Option<u16>,
}

/// What surrounds a call.
pub struct Context<'a> {
    now_ns: u64,
    ports: PortNumbers,
    state: &'a mut State,
    services: &'a mut dyn Services,
}

impl<'a> Context<'a> {
    pub(crate) fn new(
        now_ns: u64,
        ports: PortNumbers,
        state: &'a mut State,
        services: &'a mut dyn Services,
    ) -> Context<'a> {
        Context { now_ns, ports, state, services }
    }

    /// Nanoseconds since the router began. It never runs backwards, and is one for all packets of a batch.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// The port by which the packet arrived; `None` in messages and timeouts.
    pub fn input(&self) -> Option<u16> {
        self.ports.input
    }

    /// The port that the packet leaves by, for an instance on the output side.
    pub fn output(&self) -> Option<u16> {
        self.ports.output
    }

    /// Sends an IP packet: whether it will be sent. It is looked up like the router's own.
    pub fn emit(&mut self, packet: &[u8]) -> bool {
        self.services.emit(packet)
    }

    /// Writes a line for the operator. Lines are few and short: the rest is cut.
    pub fn log(&mut self, line: &str) {
        self.services.log(line);
    }

    /// Bits per second that the scheduler of the packet's output gives its flow now: on the output side of a link with a
    /// rate whose discipline shares it by flows (DRR, TDRR, QSDRR).
    pub fn share_bps(&self) -> Option<u64> {
        self.services.share_bps()
    }

    /// Adds to a counter, by its place in `Plugin::COUNTERS`.
    ///
    /// # Panics
    /// When there is no such counter.
    #[inline]
    pub fn count(&mut self, counter: usize, by: u64) {
        self.state.counters[counter] = self.state.counters[counter].wrapping_add(by);
    }

    /// A counter's value.
    ///
    /// # Panics
    /// When there is no such counter.
    pub fn counted(&self, counter: usize) -> u64 {
        self.state.counters[counter]
    }

    /// Has `Plugin::timeout` called at a time, instead of any that was set before.
    pub fn set_timer(&mut self, at_ns: u64) {
        self.state.timer = Some(at_ns);
    }

    /// Cancels the timer.
    pub fn clear_timer(&mut self) {
        self.state.timer = None;
    }

    /// When the timer is due, if it is set.
    pub fn timer(&self) -> Option<u64> {
        self.state.timer
    }

    /// Chance, from the instance's seed.
    pub fn random(&mut self) -> &mut Random {
        &mut self.state.random
    }
}

/// Pseudorandom numbers from a seed: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014). Not for secrets: a few values
/// reveal the next.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The numbers of a seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Any number.
    #[inline]
    pub fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, each as likely as the others within 2⁻³²; zero when `end` is.
    #[inline]
    pub fn below(&mut self, end: u32) -> u32 {
        (((self.any() >> 32) * u64::from(end)) >> 32) as u32
    }

    /// A number from 0 to 1, without 1.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.any() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_splitmix64() {
        // The reference implementation's first values for the seed 1234567.
        let mut random = Random::new(1_234_567);
        let first = [random.any(), random.any(), random.any()];
        assert_eq!(first[0], 6_457_827_717_110_365_317);
        assert_eq!(first[1], 3_203_168_211_198_807_973);
        assert_eq!(first[2], 9_817_491_932_198_370_423);
    }

    #[test]
    fn numbers_stay_in_their_range() {
        let mut random = Random::new(1);
        assert!((0..10_000).all(|_| random.below(7) < 7 && (0.0..1.0).contains(&random.unit())));
        assert_eq!(random.below(0), 0);
    }
}

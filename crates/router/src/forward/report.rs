//! The reporter: whether an ICMP message is sent at all, and an account of each that was not.
//!
//! The caller says what is wrong and hands over the packet as it came in. The rules of what is
//! never answered are applied first, then the limits, so that suppressed messages use up no tokens;
//! only then is a message made. Every call ends in one counter: sent, limited, or silent for one of
//! the reasons, and their sum is the number of calls.

use alloc::vec::Vec;

use nilometer_wire::Time;

use super::double_word;
use super::echo;
use super::hop;
use super::icmp::{Origin, Problem, error_ipv4, error_ipv6};
use super::icmp_suppression::{Arrival, SUPPRESSIONS, Suppression};
use super::limit::{IcmpKind, KINDS, Limiter, Limits};
use super::options::Visit;

/// Why no message came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsent {
    /// It may never be.
    Silent(Suppression),
    /// Not so often.
    Limited,
}

/// What became of all calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IcmpErrorCounters {
    /// Messages made, by [`IcmpKind`].
    pub sent: [u64; KINDS],
    /// Held back by the limits, by [`IcmpKind`].
    pub limited: [u64; KINDS],
    /// Not answered, by [`Suppression`].
    pub silent: [u64; SUPPRESSIONS],
}

impl IcmpErrorCounters {
    /// All calls.
    pub fn total(&self) -> u64 {
        self.sent.iter().chain(&self.limited).chain(&self.silent).sum()
    }
}

/// A packet that causes a message, and when and how it arrived.
#[derive(Clone, Copy, Debug)]
pub struct Cause<'a> {
    /// When.
    pub now: Time,
    /// How.
    pub arrival: Arrival,
    /// The IP packet as it came in; bytes behind it are padding.
    pub packet: &'a [u8],
}

/// Makes a router's ICMP messages.
#[derive(Clone, Debug)]
pub struct Reporter {
    limiter: Limiter,
    hop_limit: u8,
    answers_echo: bool,
    identification: u16,
    silent: [u64; SUPPRESSIONS],
}

impl Reporter {
    /// Under these limits; the seed spreads destinations over the limiter's table.
    pub fn new(limits: Limits, seed: u64) -> Reporter {
        Reporter {
            limiter: Limiter::new(limits, seed),
            hop_limit: hop::ORIGINATED,
            answers_echo: true,
            identification: seed as u16,
            silent: [0; SUPPRESSIONS],
        }
    }

    /// Sets the TTL of all messages (RFC 1812, 4.2.2.9); zero is taken for one.
    pub fn set_hop_limit(&mut self, hop_limit: u8) {
        self.hop_limit = hop_limit.max(1);
    }

    /// Sets how many messages are sent (4.3.2.8).
    pub fn set_limits(&mut self, limits: Limits) {
        self.limiter.set_limits(limits);
    }

    /// Sets whether echo requests are answered; they are by default (4.3.3.6).
    pub fn set_answers_echo(&mut self, answers_echo: bool) {
        self.answers_echo = answers_echo;
    }

    /// The IPv4 packet that informs the sender of `cause` of a problem, from `source`, an address
    /// of the port by which it will leave.
    ///
    /// # Errors
    /// [`Unsent`], counted.
    pub fn error_ipv4(
        &mut self,
        cause: Cause<'_>,
        problem: Problem,
        source: u32,
    ) -> Result<Vec<u8>, Unsent> {
        self.unless_silent(cause.arrival.suppression_ipv4(cause.packet))?;
        let sender = u128::from(double_word(cause.packet, 12));
        self.unless_limited(cause.now, kind_of(problem), sender)?;
        let origin = self.origin(source);
        error_ipv4(problem, cause.packet, cause.arrival, origin).map_err(Unsent::Silent)
    }

    /// The IPv6 packet that informs the sender of `cause` of a problem, from `source`.
    ///
    /// # Errors
    /// [`Unsent`], counted.
    pub fn error_ipv6(
        &mut self,
        cause: Cause<'_>,
        problem: Problem,
        source: u128,
    ) -> Result<Vec<u8>, Unsent> {
        let suppression = match problem.ipv6() {
            None => Some(Suppression::OtherVersion),
            Some(_) => cause.arrival.suppression_ipv6(cause.packet, problem),
        };
        self.unless_silent(suppression)?;
        self.unless_limited(cause.now, kind_of(problem), sender_ipv6(cause.packet))?;
        let origin = self.origin(source);
        error_ipv6(problem, cause.packet, cause.arrival, origin).map_err(Unsent::Silent)
    }

    /// The answer to an IPv4 echo request for the router; `visit` fills in its options.
    ///
    /// # Errors
    /// [`Unsent`], counted.
    pub fn echo_ipv4(&mut self, cause: Cause<'_>, visit: Visit<'_>) -> Result<Vec<u8>, Unsent> {
        let origin = self.origin(double_word(cause.packet, 16));
        let reply = match self.answers_echo {
            true => echo::reply_ipv4(cause.packet, cause.arrival, origin, visit),
            false => Err(Suppression::Unwanted),
        };
        self.unless_silent(reply.as_ref().err().copied())?;
        let sender = u128::from(double_word(cause.packet, 12));
        self.unless_limited(cause.now, IcmpKind::Echo, sender)?;
        reply.map_err(Unsent::Silent)
    }

    /// The answer to an ICMPv6 echo request for the router, from `source`: the address that was
    /// pinged, or one of the port when that was a multicast (RFC 4443, 4.2).
    ///
    /// # Errors
    /// [`Unsent`], counted.
    pub fn echo_ipv6(&mut self, cause: Cause<'_>, source: u128) -> Result<Vec<u8>, Unsent> {
        let origin = self.origin(source);
        let reply = match self.answers_echo {
            true => echo::reply_ipv6(cause.packet, cause.arrival, origin),
            false => Err(Suppression::Unwanted),
        };
        self.unless_silent(reply.as_ref().err().copied())?;
        self.unless_limited(cause.now, IcmpKind::Echo, sender_ipv6(cause.packet))?;
        reply.map_err(Unsent::Silent)
    }

    /// Counts a message that was wanted but cannot be sent: [`Suppression::NoWay`].
    pub fn give_up(&mut self) {
        self.silent[Suppression::NoWay as usize] += 1;
    }

    /// What became of all calls so far.
    pub fn account(&self) -> IcmpErrorCounters {
        IcmpErrorCounters {
            sent: self.limiter.passed(),
            limited: self.limiter.suppressed(),
            silent: self.silent,
        }
    }

    fn origin<A>(&mut self, source: A) -> Origin<A> {
        self.identification = self.identification.wrapping_add(1);
        Origin { source, hop_limit: self.hop_limit, identification: self.identification }
    }

    fn unless_silent(&mut self, suppression: Option<Suppression>) -> Result<(), Unsent> {
        let Some(suppression) = suppression else { return Ok(()) };
        self.silent[suppression as usize] += 1;
        Err(Unsent::Silent(suppression))
    }

    fn unless_limited(&mut self, now: Time, kind: IcmpKind, to: u128) -> Result<(), Unsent> {
        if self.limiter.allow(now, kind, to) { Ok(()) } else { Err(Unsent::Limited) }
    }
}

fn sender_ipv6(packet: &[u8]) -> u128 {
    (8..24).step_by(4).fold(0, |sum, at| sum << 32 | u128::from(double_word(packet, at)))
}

fn kind_of(problem: Problem) -> IcmpKind {
    match problem {
        Problem::TooBig { .. } => IcmpKind::TooBig,
        Problem::HopLimit | Problem::Reassembly => IcmpKind::TimeExceeded,
        Problem::Parameter { .. } | Problem::Option { .. } => IcmpKind::Parameter,
        Problem::Redirect { .. } => IcmpKind::Redirect,
        _ => IcmpKind::Unreachable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_wire::build;

    const SOURCE: u32 = 0xc612_00fe;

    fn packet(kind: u8) -> Vec<u8> {
        let [from, to] = ["198.18.0.1", "198.18.0.254"].map(|text| text.parse().unwrap());
        build::icmp(from, to, kind, 0, &[0; 12])
    }

    fn visit() -> Visit<'static> {
        Visit { outgoing: SOURCE, stamp: 0, is_own: &|_| false }
    }

    #[test]
    fn every_call_ends_in_one_counter() {
        let mut reporter = Reporter::new(Limits::default(), 3);
        let packets = [packet(8), packet(3), packet(0)];
        let mut made = 0;
        for call in 0..3_000u64 {
            let packet = &packets[call as usize % 3];
            let now = Time(call * 1_000_000_000);
            let cause = Cause { now, arrival: Arrival::default(), packet };
            made += u64::from(reporter.error_ipv4(cause, Problem::HopLimit, SOURCE).is_ok());
            made += u64::from(reporter.echo_ipv4(cause, visit()).is_ok());
            made += u64::from(reporter.echo_ipv6(cause, 1).is_ok());
            made += u64::from(reporter.error_ipv6(cause, Problem::HopLimit, 1).is_ok());
        }
        let account = reporter.account();
        assert_eq!(account.total(), 12_000);
        assert_eq!(account.sent.iter().sum::<u64>(), made);
        let echo = IcmpKind::Echo as usize;
        assert_eq!(account.sent[echo] + account.limited[echo], 1_000, "one packet of three");
        let exceeded = IcmpKind::TimeExceeded as usize;
        assert!((35..=40).contains(&account.sent[exceeded]), "10 a second for 3 s and a burst");
        assert_eq!(account.sent[exceeded] + account.limited[exceeded], 2_000);
        assert_eq!(account.silent[Suppression::IcmpError as usize], 2_000);
        assert_eq!(
            account.silent[Suppression::Unsound as usize],
            6_000,
            "IPv4 to IPv6's functions"
        );
        assert_eq!(account.silent[Suppression::Unwanted as usize], 1_000, "a reply");
    }

    #[test]
    fn suppressed_errors_use_no_tokens() {
        let mut reporter = Reporter::new(Limits::default(), 3);
        let (request, error) = (packet(8), packet(11));
        for packet in [&error; 500].into_iter().chain([&request; 10]) {
            let cause = Cause { now: Time::ZERO, arrival: Arrival::default(), packet };
            let answer = reporter.error_ipv4(cause, Problem::NoRoute, SOURCE);
            assert_eq!(answer.is_ok(), packet == &request);
        }
        assert_eq!(reporter.account().limited, [0; KINDS]);
    }

    #[test]
    fn settings_are_kept() {
        let mut reporter = Reporter::new(Limits::default(), 3);
        let request = packet(8);
        let cause = Cause { now: Time::ZERO, arrival: Arrival::default(), packet: &request };
        reporter.set_hop_limit(17);
        let first = reporter.echo_ipv4(cause, visit()).expect("a reply");
        let second = reporter.echo_ipv4(cause, visit()).expect("a reply");
        assert_eq!((first[8], second[8]), (17, 17));
        assert_ne!(first[4..6], second[4..6], "each has its identification");
        reporter.set_answers_echo(false);
        let suppression = reporter.echo_ipv4(cause, visit());
        assert_eq!(suppression, Err(Unsent::Silent(Suppression::Unwanted)));
    }
}

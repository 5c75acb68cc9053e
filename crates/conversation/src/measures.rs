//! Measures of a connection: how it ended, how long it took, its exchanges and think times.

use crate::connection::{Act, Connection, Opening, Step};
use crate::side::Side;

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ending {
    /// Both ends closed, this one first; resets that answer later segments do not change that.
    Closed(Side),
    /// One end alone closed before the packets ended.
    HalfClosed(Side),
    /// This end reset it.
    Reset(Side),
    /// Neither end closed it before the packets ended.
    Open,
    /// Its SYN was answered by a reset.
    Refused,
    /// Its SYN was not answered.
    Unanswered,
}

impl Ending {
    /// All of them, in the order of their numbers.
    pub const ALL: [Ending; 9] = [
        Ending::Closed(Side::Client),
        Ending::Closed(Side::Server),
        Ending::HalfClosed(Side::Client),
        Ending::HalfClosed(Side::Server),
        Ending::Reset(Side::Client),
        Ending::Reset(Side::Server),
        Ending::Open,
        Ending::Refused,
        Ending::Unanswered,
    ];

    /// Its place in [`Ending::ALL`].
    pub fn number(self) -> usize {
        match self {
            Ending::Closed(side) => side.index(),
            Ending::HalfClosed(side) => 2 + side.index(),
            Ending::Reset(side) => 4 + side.index(),
            Ending::Open => 6,
            Ending::Refused => 7,
            Ending::Unanswered => 8,
        }
    }
}

/// One of a connection's exchanges: a request of the client and the server's answer before the client
/// spoke again. Where the server speaks first, the request is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exchange {
    /// Bytes of the client.
    pub asked_bytes: u64,
    /// Bytes of the server.
    pub answered_bytes: u64,
    /// How long the client waited after the previous exchange, ns; `None` in the first.
    pub think_ns: Option<u64>,
}

impl Connection {
    /// How it ended.
    pub fn ending(&self) -> Ending {
        match self.opening {
            Opening::Unanswered => return Ending::Unanswered,
            Opening::Refused => return Ending::Refused,
            Opening::Seen | Opening::Unseen => {}
        }
        let by = |act: Act| self.steps.iter().filter(move |step| step.act == act);
        let mut fins = by(Act::Fin).map(|step| step.by);
        match (fins.next(), fins.next(), by(Act::Reset).next()) {
            // Resets then answer later segments.
            (Some(first), Some(_), _) => Ending::Closed(first),
            (_, _, Some(reset)) => Ending::Reset(reset.by),
            (Some(first), None, None) => Ending::HalfClosed(first),
            (None, ..) => Ending::Open,
        }
    }

    /// Were both its beginning and its end seen?
    pub fn is_whole(&self) -> bool {
        let is_ended = !matches!(self.ending(), Ending::Open | Ending::HalfClosed(_));
        self.opening != Opening::Unseen && is_ended
    }

    /// What each side sent, in the order in which the steps began.
    fn sends(&self) -> impl Iterator<Item = (&Step, u64)> {
        self.steps.iter().filter_map(|step| match step.act {
            Act::Send { bytes, .. } => Some((step, bytes)),
            _ => None,
        })
    }

    /// The side that spoke first; `None` where neither did.
    pub fn speaks_first(&self) -> Option<Side> {
        self.sends().next().map(|(step, _)| step.by)
    }

    /// Its exchanges.
    pub fn exchanges(&self) -> impl Iterator<Item = Exchange> {
        let mut sends = self.sends().peekable();
        let mut number = 0;
        core::iter::from_fn(move || {
            sends.peek()?;
            let mut exchange = Exchange::default();
            let mut is_answered = false;
            while let Some((step, bytes)) = sends.peek() {
                match step.by {
                    Side::Client if is_answered => break,
                    Side::Client => {
                        if number > 0 && exchange.asked_bytes == 0 {
                            exchange.think_ns = Some(step.pause_ns);
                        }
                        exchange.asked_bytes += bytes;
                    }
                    Side::Server => {
                        is_answered = true;
                        exchange.answered_bytes += bytes;
                    }
                }
                sends.next();
            }
            number += 1;
            Some(exchange)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_are_numbered_by_their_places() {
        for (number, ending) in Ending::ALL.into_iter().enumerate() {
            assert_eq!(ending.number(), number);
        }
    }
}

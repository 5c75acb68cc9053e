//! A connection's state for tools beyond its windows: its account of loss recovery, and what is unsent.

use crate::connection::Connection;
use crate::rack::Sums;
use crate::sender::Phase;

/// What the sender is doing about congestion, as Linux names it in `tcp_info`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Episode {
    /// Nothing is amiss.
    Open,
    /// Something arrived out of order.
    Disorder,
    /// The window is being reduced because of a mark.
    Reduction,
    /// Losses are being repaired.
    Recovery,
    /// A timeout's losses are being repaired.
    Loss,
}

impl Connection {
    /// What the sender is doing about congestion. Where [`crate::Recovery::Rack`] is not used a
    /// mark is answered at once, so that there is no [`Episode::Reduction`].
    pub fn episode(&self) -> Episode {
        let state = self.sender.rack_state.as_ref();
        match self.sender.phase {
            Phase::Recovery => Episode::Recovery,
            Phase::Loss => Episode::Loss,
            Phase::Open if state.is_some_and(|state| state.is_reducing()) => Episode::Reduction,
            Phase::Open => {
                let has_sacked = match state {
                    Some(state) => state.segments().sacked > 0,
                    None => self.sender.duplicates > 0 || !self.sender.scoreboard.is_empty(),
                };
                if has_sacked { Episode::Disorder } else { Episode::Open }
            }
        }
    }

    /// Segments under way by their state, with [`crate::Recovery::Rack`] and a peer that has SACK.
    pub fn segments(&self) -> Option<Sums> {
        self.sender.rack_state.as_ref().map(|state| *state.segments())
    }

    /// Bytes written but never sent, and one more for the FIN if the connection was closed; of an
    /// established connection.
    pub fn unsent(&self) -> u64 {
        self.sender.last().saturating_sub(self.sender.max)
    }

    /// The largest number of segments that overtook one (at first the threshold of three), and how
    /// many acknowledgements showed reordering; `None` where [`Connection::segments`] is.
    pub fn reordering(&self) -> Option<(u64, u64)> {
        self.sender.rack_state.as_ref().map(|state| state.reordering())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use nilometer_wire::{Ecn, Time};

    /// Delivers everything that both ends have to send.
    fn settle(ends: &mut [Connection; 2]) {
        let mut is_quiet = false;
        while !is_quiet {
            is_quiet = true;
            for from in 0..2 {
                while let Some(out) = ends[from].poll_transmit(Time::ZERO) {
                    ends[1 - from].receive(Time::ZERO, &out.segment, Ecn::NotCapable);
                    is_quiet = false;
                }
            }
        }
    }

    #[test]
    fn data_held_back_by_the_window_are_unsent() {
        let config = Config { initial_window: 2, ..Config::ns2_reno() };
        let mut ends = [Connection::connect(config, 7), Connection::listen(config, 9)];
        settle(&mut ends);
        assert_eq!(ends[0].unsent(), 0);
        ends[0].write(5_000);
        ends[0].close();
        assert_eq!(ends[0].unsent(), 5_001);
        while ends[0].poll_transmit(Time::ZERO).is_some() {}
        assert_eq!(ends[0].unsent(), 5_001 - 2 * 1_460);
    }
}

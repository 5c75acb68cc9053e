//! What a tool may ask of a connection beyond its windows: the account of loss recovery.

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
        let repair = self.sender.repair.as_ref();
        match self.sender.phase {
            Phase::Recovery => Episode::Recovery,
            Phase::Loss => Episode::Loss,
            Phase::Open if repair.is_some_and(|repair| repair.is_reducing()) => Episode::Reduction,
            Phase::Open => {
                let has_sacked = match repair {
                    Some(repair) => repair.segments().sacked > 0,
                    None => self.sender.duplicates > 0 || !self.sender.scoreboard.is_empty(),
                };
                if has_sacked { Episode::Disorder } else { Episode::Open }
            }
        }
    }

    /// Segments under way by their state, with [`crate::Recovery::Rack`] and a peer that has SACK.
    pub fn segments(&self) -> Option<Sums> {
        self.sender.repair.as_ref().map(|repair| *repair.segments())
    }

    /// By how many segments one was overtaken at most, at first the threshold of three, and how
    /// many acknowledgements told of that; where [`Connection::segments`] has something to tell.
    pub fn reordering(&self) -> Option<(u64, u64)> {
        self.sender.repair.as_ref().map(|repair| repair.reordering())
    }
}

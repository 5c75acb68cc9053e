//! Proportional rate reduction (RFC 9937, which obsoletes 6937): recovery clocked by deliveries.
//!
//! Halving the window at once silences the sender for half a round trip, and then lets it continue
//! at the full rate. Instead each acknowledgement releases as many bytes as keep the ratio of sent
//! to delivered at `ssthresh / RecoverFS`; below `ssthresh` the reduction bound lets it catch up.

/// The account of one recovery.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reduction {
    /// Bytes delivered since recovery began (prr_delivered).
    delivered: u64,
    /// Bytes sent since (prr_out).
    out: u64,
    /// Bytes under way when it began (RecoverFS); at least one.
    flight: u64,
}

impl Reduction {
    /// Recovery begins with `flight` bytes under way.
    pub fn begin(flight: u64) -> Reduction {
        Reduction { delivered: 0, out: 0, flight: flight.max(1) }
    }

    /// Bytes under way when recovery began; at least one.
    pub fn flight(&self) -> u64 {
        self.flight
    }

    /// `bytes` were sent.
    #[inline]
    pub fn sent(&mut self, bytes: u64) {
        self.out += bytes;
    }

    /// The congestion window after an acknowledgement. At first the lost segment must be sent
    /// whatever the ratio says.
    pub fn cwnd(&mut self, progress: &Progress, ssthresh: u64, mss: u32) -> u64 {
        let Progress { delivered, pipe, is_safe } = *progress;
        self.delivered += delivered;
        let mut allowed = if pipe > ssthresh {
            let share = self.delivered as f64 * ssthresh as f64 / self.flight as f64;
            (libm::ceil(share) as u64).saturating_sub(self.out)
        } else {
            let mut bound = self.delivered.saturating_sub(self.out).max(delivered);
            if is_safe {
                bound += u64::from(mss);
            }
            bound.min(ssthresh - pipe)
        };
        if self.out == 0 {
            allowed = allowed.max(u64::from(mss));
        }
        pipe + allowed
    }
}

/// What one acknowledgement in recovery showed.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Bytes that it delivered (DeliveredData).
    pub delivered: u64,
    /// Bytes under way.
    pub pipe: u64,
    /// Whether it advanced and showed no further loss (SafeACK).
    pub is_safe: bool,
}

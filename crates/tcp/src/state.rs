//! The eleven states of a connection (RFC 9293, section 3.3.2).

/// A connection's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// No connection.
    Closed,
    /// Waiting for a SYN.
    Listen,
    /// Our SYN was sent.
    SynSent,
    /// The peer's SYN came, ours is not acknowledged.
    SynReceived,
    /// Data flows both ways.
    Established,
    /// We closed; our FIN is not acknowledged.
    FinWait1,
    /// Our FIN is acknowledged; the peer may still send.
    FinWait2,
    /// The peer closed; we may still send.
    CloseWait,
    /// Both closed; our FIN is not acknowledged.
    Closing,
    /// We closed after the peer; our FIN is not acknowledged.
    LastAck,
    /// Both FINs are acknowledged; waiting for stray segments to die.
    TimeWait,
}

impl State {
    /// Whether data or a FIN of ours may be under way.
    #[inline]
    pub const fn sends(self) -> bool {
        matches!(
            self,
            State::Established
                | State::CloseWait
                | State::FinWait1
                | State::Closing
                | State::LastAck
        )
    }

    /// Whether the peer may still send data.
    #[inline]
    pub const fn receives(self) -> bool {
        matches!(self, State::Established | State::FinWait1 | State::FinWait2)
    }

    /// Whether both ends know each other's sequence numbers.
    pub const fn is_synchronized(self) -> bool {
        !matches!(self, State::Closed | State::Listen | State::SynSent | State::SynReceived)
    }
}

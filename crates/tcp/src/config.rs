//! What one end of a connection is like: profiles of the stacks that papers and people use.

use nilometer_wire::Span;

/// How lost segments are found and repaired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// Fast retransmit and slow start again; no fast recovery (4.3BSD-Tahoe).
    Tahoe,
    /// Fast recovery that ends with the first partial acknowledgement (RFC 2581, 4.3BSD-Reno).
    Reno,
    /// One hole per round trip (RFC 6582).
    NewReno,
    /// From a scoreboard of selective acknowledgements (RFC 2018, 6675).
    Sack,
}

/// Which congestion controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// Additive increase, multiplicative decrease (RFC 5681).
    Reno,
    /// RFC 9438.
    Cubic,
    /// Bottleneck bandwidth and round-trip propagation time (draft-ietf-ccwg-bbr).
    Bbr,
}

/// What lets Reno's window grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// The bytes that were acknowledged, at most two segments of them at a time in slow start
    /// (appropriate byte counting, RFC 3465, L = 2).
    Bytes,
    /// Acknowledgements, whatever they cover: a segment each in slow start, a segment's part
    /// MSS/cwnd each afterwards (RFC 5681, ns-2).
    Acknowledgements,
}

/// One end's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Most payload bytes in a segment, before options.
    pub mss: u16,
    /// How losses are repaired.
    pub recovery: Recovery,
    /// What grows and cuts the window.
    pub algorithm: Algorithm,
    /// What Reno counts.
    pub growth: Growth,
    /// Whether slow start ends when the round-trip time rises (HyStart++, RFC 9406); with
    /// [`Algorithm::Cubic`].
    pub hystart: bool,
    /// Segments that may leave before the first acknowledgement (RFC 6928: 10; ns-2: 1 or 2).
    pub initial_window: u32,
    /// Most bytes that wait for the reader; also what the window field announces.
    pub receive_buffer: u32,
    /// Window scale offered (RFC 7323), if any.
    pub window_scale: Option<u8>,
    /// Whether timestamps are offered (RFC 7323).
    pub timestamps: bool,
    /// Acknowledge every second segment, or after this long (RFC 1122, 4.2.3.2); nothing: every one.
    pub delayed_ack: Option<Span>,
    /// Whether ECN is offered (RFC 3168).
    pub ecn: bool,
    /// Whether small segments wait for acknowledgements (RFC 896).
    pub nagle: bool,
    /// Whether the first two duplicate acknowledgements release a new segment each (RFC 3042).
    pub limited_transmit: bool,
    /// Retransmission timeout before the first measurement (RFC 6298: 1 s).
    pub rto_initial: Span,
    /// Least retransmission timeout (RFC 6298: 1 s; Linux, ns-2: 200 ms).
    pub rto_min: Span,
    /// Most retransmission timeout (RFC 6298: at least 60 s).
    pub rto_max: Span,
}

impl Config {
    /// ns-2's one-way `Agent/TCP/Reno` as the DER's study used it: 1460 bytes (1500 with headers),
    /// no delayed acknowledgements, no options, RTO of at least 200 ms.
    pub const fn ns2_reno() -> Config {
        Config {
            mss: 1460,
            recovery: Recovery::Reno,
            algorithm: Algorithm::Reno,
            growth: Growth::Acknowledgements,
            hystart: false,
            initial_window: 2,
            receive_buffer: 4 << 20,
            window_scale: Some(7),
            timestamps: false,
            delayed_ack: None,
            ecn: false,
            nagle: false,
            limited_transmit: false,
            rto_initial: Span::from_secs(1),
            rto_min: Span::from_nanos(200_000_000),
            rto_max: Span::from_secs(60),
        }
    }
}

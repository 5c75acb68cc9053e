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
    /// From the times at which segments were sent and selectively acknowledged, with tail loss
    /// probes (RFC 8985) and proportional rate reduction. As in Linux, slow start continues while
    /// more than half of the window is used.
    Rack,
}

/// Which congestion controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// Additive increase, multiplicative decrease (RFC 5681).
    Reno,
    /// RFC 9438.
    Cubic,
    /// RFC 9438 in whole segments and milliseconds as Linux computes it, with Linux's HyStart.
    LinuxCubic,
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

/// What becomes of the window when sending begins again after a pause longer than the timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleRestart {
    /// It stays as it was.
    Never,
    /// It is the initial window again (RFC 5681, 4.1).
    Initial,
    /// It is halved for each timeout that passed, down to the initial window, and the threshold
    /// remembers three quarters of it (RFC 2861, Linux).
    Decay,
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
    /// Whether slow start ends when the round-trip time rises: with [`Algorithm::Cubic`] by
    /// HyStart++ (RFC 9406), which gets a round-trip time from each acknowledgement, with
    /// [`Algorithm::LinuxCubic`] by Linux's HyStart.
    pub hystart: bool,
    /// Segments that may leave before the first acknowledgement (RFC 6928: 10; ns-2: 1 or 2).
    pub initial_window: u32,
    /// Most bytes that wait for the reader; also what the window field announces.
    pub receive_buffer: u32,
    /// Window scale offered (RFC 7323), if any.
    pub window_scale: Option<u8>,
    /// Whether timestamps are offered (RFC 7323).
    pub timestamps: bool,
    /// Acknowledge every second segment, or after this long (RFC 1122, 4.2.3.2); `None`: every one.
    pub delayed_ack: Option<Span>,
    /// How many segments one acknowledgement may cover when it is delayed; 2 by RFC 1122.
    pub ack_every: u8,
    /// Segments acknowledged at once before any is delayed (Linux: 16); none any more once an end answers sooner than a
    /// delayed acknowledgement would be due.
    pub quick_acks: u8,
    /// Whether received data counts as read at once; otherwise it waits for `Connection::read`.
    pub auto_read: bool,
    /// Whether ECN is offered (RFC 3168).
    pub ecn: bool,
    /// Whether small segments wait for acknowledgements (RFC 896).
    pub nagle: bool,
    /// NewReno: whether only the first partial acknowledgement restarts the retransmission timer, so
    /// that many holes end in a timeout (RFC 6582, section 4: "impatient"), or every one does ("slow
    /// but steady").
    pub is_impatient: bool,
    /// Whether the first two duplicate acknowledgements release a new segment each (RFC 3042).
    pub limited_transmit: bool,
    /// Whether recovery with SACK reduces the window proportionally (RFC 9937).
    pub prr: bool,
    /// What a pause does to the window.
    pub idle_restart: IdleRestart,
    /// Whether reductions that prove needless are taken back (Eifel, F-RTO, D-SACK: RFC 3522, 5682,
    /// 3708). Not with [`Recovery::Rack`], which looks for none of these signs.
    pub undo: bool,
    /// Whether each acknowledgement gives a round-trip time, or only one per window; costs a record
    /// of each segment.
    pub rtt_each_ack: bool,
    /// Whether the doubling of the timeout ends with any acknowledgement that advances (Linux), or
    /// only with a measurement (RFC 6298, section 5). With [`Recovery::Rack`] always the latter:
    /// where there are timestamps, every acknowledgement that advances measures.
    pub forget_backoff: bool,
    /// Least margin of the timeout above the smoothed round-trip time (G of RFC 6298; Linux keeps
    /// 200 ms).
    pub granularity: Span,
    /// Retransmission timeout before the first measurement (RFC 6298: 1 s).
    pub rto_initial: Span,
    /// Least retransmission timeout (RFC 6298: 1 s; Linux, ns-2: 200 ms).
    pub rto_min: Span,
    /// Most retransmission timeout (RFC 6298: at least 60 s).
    pub rto_max: Span,
    /// Whether an acknowledgement of what was never sent is answered (RFC 9293, 3.10.7.4); Linux
    /// drops it.
    pub answers_unsent: bool,
    /// Whether the tail is probed (RFC 8985, section 7), with [`Recovery::Rack`].
    pub tail_probe: bool,
    /// Timeouts in a row after which the connection is given up (Linux: 15).
    pub retries: u8,
    /// The same for a SYN (Linux: 6).
    pub syn_retries: u8,
    /// How long a connection stays in TIME-WAIT (RFC 9293: twice the maximum segment lifetime).
    pub time_wait: Span,
}

const MS: u64 = 1_000_000;

impl Config {
    /// Whether each acknowledgement is to give a round-trip time. HyStart++ needs eight samples per
    /// round trip (RFC 9406, 4.2), and would never act on one.
    pub(crate) fn times_each_ack(&self) -> bool {
        self.rtt_each_ack || (self.hystart && self.algorithm == Algorithm::Cubic)
    }

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
            is_impatient: false,
            limited_transmit: false,
            prr: false,
            idle_restart: IdleRestart::Never,
            undo: false,
            rtt_each_ack: false,
            forget_backoff: false,
            granularity: Span::from_nanos(MS),
            rto_initial: Span::from_secs(1),
            rto_min: Span::from_nanos(200 * MS),
            rto_max: Span::from_secs(60),
            ack_every: 2,
            quick_acks: 0,
            auto_read: true,
            answers_unsent: true,
            tail_probe: false,
            retries: 15,
            syn_retries: 6,
            time_wait: Span::from_secs(60),
        }
    }

    /// What the RFCs recommend today: SACK, limited transmit, an initial window of ten segments, a
    /// timeout of at least a second, delayed acknowledgements.
    pub const fn rfc() -> Config {
        Config {
            recovery: Recovery::Sack,
            growth: Growth::Bytes,
            initial_window: 10,
            timestamps: true,
            delayed_ack: Some(Span::from_nanos(200 * MS)),
            nagle: true,
            is_impatient: true,
            limited_transmit: true,
            idle_restart: IdleRestart::Initial,
            undo: true,
            rto_min: Span::from_secs(1),
            ..Config::ns2_reno()
        }
    }

    /// ns-2's `Agent/TCP/FullTcp`: 4.4BSD's Reno, two-way, segments of 536 bytes, acknowledgements
    /// delayed by up to 200 ms.
    pub const fn fulltcp() -> Config {
        Config {
            mss: 536,
            delayed_ack: Some(Span::from_nanos(200 * MS)),
            nagle: true,
            ..Config::ns2_reno()
        }
    }

    /// Linux with its defaults: CUBIC, SACK, timestamps, ten segments, quick acknowledgements
    /// at first and then delayed by 40 ms, a timeout of at least 200 ms.
    pub const fn linux() -> Config {
        Config {
            recovery: Recovery::Rack,
            answers_unsent: false,
            tail_probe: true,
            algorithm: Algorithm::LinuxCubic,
            hystart: true,
            delayed_ack: Some(Span::from_nanos(40 * MS)),
            quick_acks: 16,
            prr: true,
            idle_restart: IdleRestart::Decay,
            rtt_each_ack: true,
            forget_backoff: true,
            granularity: Span::from_nanos(200 * MS),
            rto_min: Span::from_nanos(200 * MS),
            rto_max: Span::from_secs(120),
            ..Config::rfc()
        }
    }

    /// ns-3's `TcpSocketBase` with its defaults, but NewReno's growth: SACK, ten segments, PRR,
    /// every second segment or 200 ms, a timeout of at least a second.
    pub const fn ns3() -> Config {
        Config { mss: 536, prr: true, undo: false, rtt_each_ack: true, ..Config::rfc() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(count: u64) -> Span {
        Span::from_nanos(count * MS)
    }

    /// Checks the documented fields of each preset one by one: a field that was lost would have the
    /// base's value.
    #[test]
    fn presets_have_their_documented_values() {
        let rfc = Config::rfc();
        let settings = (rfc.recovery, rfc.growth, rfc.initial_window, rfc.mss);
        assert_eq!(settings, (Recovery::Sack, Growth::Bytes, 10, 1_460));
        assert_eq!((rfc.delayed_ack, rfc.rto_min), (Some(millis(200)), Span::from_secs(1)));
        let switches =
            [rfc.timestamps, rfc.nagle, rfc.is_impatient, rfc.limited_transmit, rfc.undo];
        assert_eq!((switches, rfc.idle_restart), ([true; 5], IdleRestart::Initial));

        let full = Config::fulltcp();
        assert_eq!((full.mss, full.delayed_ack, full.nagle), (536, Some(millis(200)), true));
        assert_eq!((full.recovery, full.timestamps), (Recovery::Reno, false));

        let linux = Config::linux();
        assert_eq!((linux.recovery, linux.algorithm), (Recovery::Rack, Algorithm::LinuxCubic));
        assert_eq!((linux.delayed_ack, linux.quick_acks), (Some(millis(40)), 16));
        assert_eq!((linux.rto_min, linux.rto_max), (millis(200), Span::from_secs(120)));
        assert_eq!((linux.granularity, linux.idle_restart), (millis(200), IdleRestart::Decay));
        let on = [linux.tail_probe, linux.hystart, linux.prr, linux.rtt_each_ack];
        assert_eq!((on, linux.forget_backoff, linux.answers_unsent), ([true; 4], true, false));

        let ns3 = Config::ns3();
        assert_eq!((ns3.mss, ns3.prr, ns3.undo, ns3.rtt_each_ack), (536, true, false, true));
    }

    /// Only HyStart++ needs a round-trip time from each acknowledgement (RFC 9406, 4.2).
    #[test]
    fn each_acknowledgement_is_timed_only_where_it_is_needed() {
        for algorithm in [Algorithm::Reno, Algorithm::Cubic, Algorithm::LinuxCubic, Algorithm::Bbr]
        {
            for (hystart, rtt_each_ack) in
                [(false, false), (true, false), (false, true), (true, true)]
            {
                let config = Config { algorithm, hystart, rtt_each_ack, ..Config::rfc() };
                let is_wanted = hystart && algorithm == Algorithm::Cubic;
                assert_eq!(config.times_each_ack(), rtt_each_ack || is_wanted, "{config:?}");
            }
        }
    }
}

//! The kind of source of a UDP conversation, judged by its flow records.
//!
//! Records hold ports, packets, bytes and times, never content. The three source types of the paper (Harpoon,
//! section 3) are recognised only by shape: a stream at a steady rate, an exchange at fixed intervals, an
//! exchange at random intervals. The four most common kinds in networks today are recognised first, by a port
//! where there is one, and by rate and size:
//!
//! | class | recognised by |
//! |---|---|
//! | DNS-like | a port of a name service (53, 137, 5353, 5355) |
//! | QUIC-like | port 443, 80 or 8443 (RFC 9000 runs over those of HTTP) |
//! | RTP-like | a port of conferencing that was called (STUN's 3478 to 3481 and 19302 to 19309; 50000 to 50059); or at least 10 packets a second for a second, of 60 to 1300 bytes, with anything back |
//! | game-like | 10 to 66 packets a second both ways for a second, of less than 130 bytes on average |
//! | constant rate | at least 5 packets a second for a second and nothing back |
//! | periodic | a port of services that announce or ask by the clock (NTP, DHCP, SSDP, ...), or four or more conversations of one pair that call one port, at mean intervals of 0.1 s or more that vary by less than 30 % |
//! | exchange | everything else: few packets, at random intervals |

use serde::{Deserialize, Serialize};

/// Classes of UDP sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum UdpClass {
    /// The paper's constant packet rate.
    ConstantRate,
    /// The paper's fixed-interval ping-pong, such as NTP.
    Periodic,
    /// The paper's exponentially distributed ping-pong.
    Exchange,
    /// Voice or video with a packet every few milliseconds.
    RtpLike,
    /// QUIC, or traffic on its ports.
    QuicLike,
    /// DNS-like queries and answers.
    DnsLike,
    /// Small packets in both directions, tens per second.
    GameLike,
}

impl UdpClass {
    /// All of them.
    pub const ALL: [UdpClass; 7] = [
        UdpClass::ConstantRate,
        UdpClass::Periodic,
        UdpClass::Exchange,
        UdpClass::RtpLike,
        UdpClass::QuicLike,
        UdpClass::DnsLike,
        UdpClass::GameLike,
    ];

    /// Its name in a model.
    pub fn name(self) -> &'static str {
        match self {
            UdpClass::ConstantRate => "constant-rate",
            UdpClass::Periodic => "periodic",
            UdpClass::Exchange => "exchange",
            UdpClass::RtpLike => "rtp-like",
            UdpClass::QuicLike => "quic-like",
            UdpClass::DnsLike => "dns-like",
            UdpClass::GameLike => "game-like",
        }
    }
}

/// Ports of name services: DNS, NetBIOS names, multicast DNS, LLMNR.
const NAME_PORTS: [u16; 4] = [53, 137, 5_353, 5_355];
/// Ports that QUIC shares with HTTP.
const HTTP_PORTS: [u16; 3] = [443, 80, 8_443];
/// Ports of services that announce or ask periodically: DHCP, NTP, NetBIOS datagrams, DHCPv6, SSDP,
/// WS-Discovery, Dropbox's and Spotify's announcements in a LAN.
const PERIODIC_PORTS: [u16; 11] = [67, 68, 123, 138, 520, 546, 547, 1_900, 3_702, 17_500, 57_621];

/// Packets a second from which on there is a stream, and from which on it may be voice.
const STREAM_MIN_PPS: f64 = 5.0;
const VOICE_MIN_PPS: f64 = 10.0;
/// The most packets a second that games send.
const GAME_MAX_PPS: f64 = 66.0;
/// Mean IP bytes of a packet: games stay below, voice and video lie between.
const GAME_MAX_BYTES: f64 = 130.0;
const VOICE_BYTES: core::ops::Range<f64> = 60.0..1_300.0;
/// The least duration of a stream, seconds.
const STREAM_MIN_S: f64 = 1.0;

/// One direction of a conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DirectionTotals {
    /// Packets.
    pub packets: u64,
    /// IP bytes.
    pub octets: u64,
    /// From the first packet to the last, seconds.
    pub lasts_s: f64,
}

impl DirectionTotals {
    fn packets_per_second(&self) -> f64 {
        match self.lasts_s {
            lasts_s if lasts_s >= STREAM_MIN_S => (self.packets - 1) as f64 / lasts_s,
            _ => 0.0,
        }
    }

    /// Mean IP bytes of a packet; 0 if there are no packets.
    pub fn mean_bytes(&self) -> f64 {
        self.octets as f64 / self.packets.max(1) as f64
    }
}

/// A conversation: what each side sent, the side that sent first coming first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conversation {
    /// Ports of both sides.
    pub ports: [u16; 2],
    /// What each side sent.
    pub ways: [DirectionTotals; 2],
}

/// The class of a conversation; `is_periodic` states that the pair's conversations come at steady intervals.
pub fn classify(conversation: &Conversation, is_periodic: bool) -> UdpClass {
    let Conversation { ports, ways } = conversation;
    let is_of = |list: &[u16]| ports.iter().any(|port| list.contains(port));
    let is_answered = ways[1].packets > 0;
    // Other clients use such ports as their own by chance.
    let of_conferencing = matches!(ports[1], 3_478..=3_481 | 19_302..=19_309 | 50_000..=50_059);
    let rates = ways.map(|way| way.packets_per_second());
    let [slow, fast] = if rates[0] <= rates[1] { [0, 1] } else { [1, 0] };
    let size = ways[fast].mean_bytes();
    let is_voice = rates[fast] >= VOICE_MIN_PPS && VOICE_BYTES.contains(&size);
    match () {
        () if is_of(&NAME_PORTS) => UdpClass::DnsLike,
        () if is_of(&HTTP_PORTS) => UdpClass::QuicLike,
        () if is_of(&PERIODIC_PORTS) => UdpClass::Periodic,
        () if of_conferencing => UdpClass::RtpLike,
        () if is_answered
            && rates[slow] >= VOICE_MIN_PPS
            && rates[fast] <= GAME_MAX_PPS
            && size < GAME_MAX_BYTES =>
        {
            UdpClass::GameLike
        }
        () if is_voice && is_answered => UdpClass::RtpLike,
        () if rates[fast] >= STREAM_MIN_PPS && !is_answered => UdpClass::ConstantRate,
        () if is_periodic => UdpClass::Periodic,
        () => UdpClass::Exchange,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(packets: u64, bytes: u64, lasts_s: f64) -> DirectionTotals {
        DirectionTotals { packets, octets: packets * bytes, lasts_s }
    }

    #[test]
    fn each_class_is_recognised() {
        let none = DirectionTotals::default();
        for (ports, ways, expected) in [
            ([40_000, 53], [way(1, 70, 0.0), way(1, 200, 0.0)], UdpClass::DnsLike),
            ([5_353, 5_353], [way(9, 100, 30.0), none], UdpClass::DnsLike),
            ([50_000, 443], [way(30, 120, 2.0), way(60, 1_250, 2.0)], UdpClass::QuicLike),
            ([123, 123], [way(1, 76, 0.0), way(1, 76, 0.0)], UdpClass::Periodic),
            ([40_000, 41_000], [way(500, 200, 10.0), way(500, 200, 10.0)], UdpClass::RtpLike),
            ([40_000, 3_478], [way(500, 100, 10.0), way(400, 100, 10.0)], UdpClass::RtpLike),
            ([40_000, 27_960], [way(50, 1_400, 1.5), none], UdpClass::ConstantRate),
            ([40_000, 41_000], [way(300, 80, 10.0), way(300, 110, 10.0)], UdpClass::GameLike),
            ([40_000, 41_000], [way(5, 80, 0.1), way(5, 80, 0.1)], UdpClass::Exchange),
            ([40_000, 41_000], [way(9, 1_185, 197.0), way(9, 500, 197.0)], UdpClass::Exchange),
        ] {
            let conversation = Conversation { ports, ways };
            assert_eq!(classify(&conversation, false), expected, "{conversation:?}");
        }
    }

    #[test]
    fn steady_intervals_are_periodic_unless_another_class_applies() {
        let request = Conversation { ports: [40_000, 9_000], ways: [way(1, 60, 0.0); 2] };
        assert_eq!(classify(&request, true), UdpClass::Periodic);
        let named = Conversation { ports: [40_000, 53], ..request };
        assert_eq!(classify(&named, true), UdpClass::DnsLike);
    }

    #[test]
    fn names_are_those_of_the_json() {
        for class in UdpClass::ALL {
            let written = serde_json::to_string(&class).expect("JSON");
            assert_eq!(written, alloc::format!("\"{}\"", class.name()));
        }
    }
}

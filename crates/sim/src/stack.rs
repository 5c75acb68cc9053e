//! `[[flow]]` of a scenario: a TCP stack by its name, and the scenario's changes to it.
//!
//! The six names of algorithms share one profile, ns-2's as the studies of 2001 used it: packets of
//! 1500 bytes, an initial window of two segments, every segment acknowledged, no options but SACK, a
//! timeout of at least 200 ms. They differ only in the algorithm that they are named after, so that
//! a sweep over them compares algorithms. The other three names are whole stacks with all their
//! habits.

use alloc::format;
use alloc::string::String;

use nilometer_tcp::{Algorithm, Config, Growth, Recovery};
use nilometer_wire::Span;
use serde::Deserialize;

use crate::quantity::seconds;
use crate::refusal::Refusal;

/// The names that `tcp = ` accepts.
pub const NAMES: [&str; 9] =
    ["tahoe", "reno", "newreno", "sack", "cubic", "bbr", "fulltcp", "linux", "ns3"];
/// Bytes of the IPv4 and TCP headers without options.
const HEADERS_BYTES: u32 = 40;
/// Bytes that the timestamp option takes of each segment, with its padding (RFC 7323).
const TIMESTAMPS_BYTES: u32 = 12;

/// TCP from each host of one group to one of another.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowSpec {
    /// The senders' group.
    pub from: String,
    /// The receivers' group.
    pub to: String,
    /// How many flows, dealt to the hosts in turn; the larger group's size where absent.
    pub count: Option<u32>,
    /// One of [`NAMES`].
    #[serde(default = "reno")]
    pub tcp: String,
    /// Payload bytes of each flow; without end where absent.
    pub bytes: Option<u64>,
    /// When it begins, seconds.
    #[serde(default)]
    pub start_s: f64,
    /// It begins up to this much later, drawn uniformly for each flow.
    #[serde(default)]
    pub start_jitter_ms: f64,
    /// Most payload bytes of a segment, before options.
    pub mss: Option<u16>,
    /// Segments that may leave at first.
    pub initial_window: Option<u32>,
    /// Most bytes that wait for the reader, which is also the largest window.
    pub receive_buffer: Option<u32>,
    /// How long an acknowledgement may wait for a second segment; 0 for not at all.
    pub delayed_ack_ms: Option<f64>,
    /// Timestamps (RFC 7323).
    pub timestamps: Option<bool>,
    /// Explicit congestion notification (RFC 3168).
    pub ecn: Option<bool>,
    /// Small segments wait (RFC 896).
    pub nagle: Option<bool>,
    /// Limited transmit (RFC 3042).
    pub limited_transmit: Option<bool>,
    /// HyStart++ (RFC 9406), of CUBIC.
    pub hystart: Option<bool>,
    /// Least retransmission timeout.
    pub rto_min_ms: Option<f64>,
    /// Retransmission timeout before the first measurement.
    pub rto_initial_ms: Option<f64>,
}

pub(crate) fn reno() -> String {
    "reno".into()
}

/// The stack of this name.
pub fn stack(name: &str) -> Option<Config> {
    let old = Config::ns2_reno();
    let with = |recovery, algorithm| Config { recovery, algorithm, ..old };
    Some(match name {
        "tahoe" => with(Recovery::Tahoe, Algorithm::Reno),
        "reno" => old,
        "newreno" => with(Recovery::NewReno, Algorithm::Reno),
        "sack" => with(Recovery::Sack, Algorithm::Reno),
        "cubic" => Config {
            growth: Growth::Bytes,
            hystart: true,
            ..with(Recovery::Sack, Algorithm::Cubic)
        },
        "bbr" => Config { growth: Growth::Bytes, ..with(Recovery::Sack, Algorithm::Bbr) },
        "fulltcp" => Config::fulltcp(),
        "linux" => Config::linux(),
        "ns3" => Config::ns3(),
        _ => return None,
    })
}

/// Length of a full packet and the payload in it, bytes.
pub fn packet_bytes(config: &Config) -> (u32, u32) {
    let options = if config.timestamps { TIMESTAMPS_BYTES } else { 0 };
    let mss = u32::from(config.mss);
    (mss + HEADERS_BYTES, mss.saturating_sub(options).max(1))
}

/// The least scale at which a window field can express `bytes` (RFC 7323: at most 14).
fn scale_for(bytes: u32) -> u8 {
    (0..14).find(|shift| bytes >> shift <= 65_535).unwrap_or(14)
}

impl FlowSpec {
    /// The stack of both ends.
    ///
    /// # Errors
    /// An unknown name, a value out of its range.
    pub(crate) fn config(&self, place: &str) -> Result<Config, Refusal> {
        let Some(mut config) = stack(&self.tcp) else {
            return Err(Refusal::unknown(place, &self.tcp, NAMES.into_iter()));
        };
        if let Some(bytes) = self.receive_buffer {
            config.receive_buffer = bytes;
            config.window_scale = Some(scale_for(bytes));
        }
        config.mss = self.mss.unwrap_or(config.mss);
        config.initial_window = self.initial_window.unwrap_or(config.initial_window);
        config.timestamps = self.timestamps.unwrap_or(config.timestamps);
        config.ecn = self.ecn.unwrap_or(config.ecn);
        config.nagle = self.nagle.unwrap_or(config.nagle);
        config.limited_transmit = self.limited_transmit.unwrap_or(config.limited_transmit);
        config.hystart = self.hystart.unwrap_or(config.hystart);
        if let Some(span) = milliseconds(place, "delayed_ack_ms", self.delayed_ack_ms)? {
            config.delayed_ack = (span > Span::ZERO).then_some(span);
        }
        let least = milliseconds(place, "rto_min_ms", self.rto_min_ms)?;
        let first = milliseconds(place, "rto_initial_ms", self.rto_initial_ms)?;
        config.rto_min = least.unwrap_or(config.rto_min);
        config.rto_initial = first.unwrap_or(config.rto_initial).max(config.rto_min);
        check(place, &config)?;
        Ok(config)
    }
}

fn check(place: &str, config: &Config) -> Result<(), Refusal> {
    let refuse = |what: String| Err(Refusal::value(place, what));
    if !(64..=65_000).contains(&config.mss) {
        return refuse(format!("mss is {}; it is between 64 and 65000 bytes", config.mss));
    }
    if !(1..=10_000).contains(&config.initial_window) {
        let window = config.initial_window;
        return refuse(format!("initial_window is {window}; it is 1 to 10000 segments"));
    }
    if config.receive_buffer < 2 * u32::from(config.mss) || config.receive_buffer > 1 << 30 {
        let bytes = config.receive_buffer;
        return refuse(format!("receive_buffer is {bytes}; it is two segments to 1 GiB"));
    }
    if config.rto_min > config.rto_max || config.rto_min == Span::ZERO {
        let most = config.rto_max;
        return refuse(format!("rto_min_ms is above 0 and at most {most}"));
    }
    Ok(())
}

fn milliseconds(place: &str, key: &str, value: Option<f64>) -> Result<Option<Span>, Refusal> {
    let span = |value: f64| seconds(key, value / 1e3).map(Some);
    value.map_or(Ok(None), span).map_err(|what| Refusal::value(place, what))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    fn spec(tcp: &str) -> FlowSpec {
        FlowSpec { tcp: tcp.into(), ..FlowSpec::default() }
    }

    #[test]
    fn every_name_is_a_stack() {
        for name in NAMES {
            let config = spec(name).config("flow").expect(name);
            assert_eq!(Some(config), stack(name), "{name}");
        }
        let (tahoe, sack) = (stack("tahoe").expect("known"), stack("sack").expect("known"));
        assert_eq!(Config { recovery: Recovery::Sack, ..tahoe }, sack, "nothing else differs");
        assert_eq!(packet_bytes(&sack), (1500, 1460));
        assert_eq!(packet_bytes(&stack("linux").expect("known")), (1500, 1448));
    }

    #[test]
    fn given_settings_override_the_stack() {
        let config = FlowSpec {
            mss: Some(536),
            delayed_ack_ms: Some(0.0),
            rto_min_ms: Some(1_500.0),
            receive_buffer: Some(1 << 24),
            ecn: Some(true),
            ..spec("linux")
        };
        let config = config.config("flow").expect("sound");
        assert_eq!((config.mss, config.delayed_ack, config.ecn), (536, None, true));
        assert_eq!(config.rto_min, Span::from_nanos(1_500_000_000));
        assert_eq!(config.rto_initial, config.rto_min, "no first timeout below the least");
        assert_eq!((config.receive_buffer, config.window_scale), (1 << 24, Some(9)));
        assert!([0, 65_535, 65_536, 1 << 30].map(scale_for) == [0, 0, 1, 14]);
    }

    #[test]
    fn wrong_values_are_refused_with_a_reason() {
        let message = |spec: FlowSpec| spec.config("flow").expect_err("refused").to_string();
        assert!(message(spec("new-reno")).contains("did you mean `newreno`?"));
        assert!(message(FlowSpec { mss: Some(1), ..spec("reno") }).contains("mss"));
        assert!(message(FlowSpec { initial_window: Some(0), ..spec("reno") }).contains("window"));
        assert!(message(FlowSpec { receive_buffer: Some(0), ..spec("reno") }).contains("buffer"));
        assert!(
            message(FlowSpec { rto_min_ms: Some(-1.0), ..spec("reno") }).contains("rto_min_ms")
        );
        assert!(message(FlowSpec { rto_min_ms: Some(0.0), ..spec("reno") }).contains("rto_min_ms"));
    }

    /// Each limit of a stack from both sides.
    #[test]
    fn limits_of_a_stack_are_met() {
        let reno = stack("reno").expect("known");
        type Change = fn(&mut Config);
        let sound: [Change; 9] = [
            |it| it.mss = 64,
            |it| (it.mss, it.receive_buffer) = (65_000, 130_000),
            |it| it.initial_window = 1,
            |it| it.initial_window = 10_000,
            |it| it.receive_buffer = 2 * u32::from(it.mss),
            |it| it.receive_buffer = 1 << 30,
            |it| it.rto_min = it.rto_max,
            |it| it.rto_min = Span(1),
            |_| {},
        ];
        let refused: [Change; 8] = [
            |it| it.mss = 63,
            |it| (it.mss, it.receive_buffer) = (65_001, 1 << 20),
            |it| it.initial_window = 0,
            |it| it.initial_window = 10_001,
            |it| it.receive_buffer = 2 * u32::from(it.mss) - 1,
            |it| it.receive_buffer = (1 << 30) + 1,
            |it| it.rto_min = it.rto_max + Span(1),
            |it| it.rto_min = Span::ZERO,
        ];
        let checked = |change: &Change| {
            let mut config = reno;
            change(&mut config);
            check("flow", &config).is_ok()
        };
        assert_eq!(sound.each_ref().map(checked), [true; 9]);
        assert_eq!(refused.each_ref().map(checked), [false; 8]);
    }
}

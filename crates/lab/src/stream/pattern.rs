//! Patterns as they are typed: spacing of frames, a mix of sizes, or both, such as `burst:16+imix`.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use nilometer_files::input::records::read_packets;
use nilometer_profile::stream::capture::{PACKETS_MAX, Recording};
use nilometer_profile::stream::frame::FRAME_BYTES_MAX;
use nilometer_profile::stream::sizes::{IMIX, TRIMODAL};
use nilometer_profile::stream::{Sizes, Spacing};
use nilometer_wire::Span;
use serde::{Deserialize, Serialize};

/// What may be typed.
const FORMS: &str = "constant, poisson, burst:N, on-off:MS:MS, self-similar:H, imix, trimodal, \
                     pcap:FILE, or a spacing and a mix as burst:16+imix";
/// Frames of a burst at most.
const BURST_MAX: u32 = 65_536;

/// A pattern, as it was typed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Pattern {
    spacing: Typed,
    mix: Option<&'static [(u32, u16)]>,
    text: String,
}

#[derive(Clone, Debug, Default, PartialEq)]
enum Typed {
    #[default]
    Constant,
    Poisson,
    Burst(u32),
    OnOff(Span, Span),
    SelfSimilar(f64),
    Capture(PathBuf),
}

impl Pattern {
    /// How the frames of the pattern are spaced; reads its capture if it has one.
    ///
    /// # Errors
    /// When the capture cannot be read or has no two packets at different times.
    pub fn spacing(&self) -> Result<Spacing> {
        Ok(match &self.spacing {
            Typed::Constant => Spacing::Constant,
            Typed::Poisson => Spacing::Poisson,
            Typed::Burst(frames) => Spacing::Bursts(*frames),
            Typed::OnOff(on, off) => Spacing::OnOff { on: *on, off: *off },
            Typed::SelfSimilar(hurst) => Spacing::SelfSimilar(*hurst),
            Typed::Capture(path) => Spacing::Recorded(Arc::new(recording(path)?)),
        })
    }

    /// The sizes of its frames, which are `frame_bytes` long where it has no mix.
    pub fn sizes(&self, frame_bytes: u16) -> Sizes {
        self.mix.map_or(Sizes::Fixed(frame_bytes), Sizes::Mix)
    }

    /// The pattern, its capture seen from a folder.
    #[must_use]
    pub fn seen_from(self, folder: &Path) -> Pattern {
        let Typed::Capture(file) = self.spacing else { return self };
        let file = folder.join(file);
        Pattern { text: format!("pcap:{}", file.display()), spacing: Typed::Capture(file), ..self }
    }

    /// Whether it has sizes of its own.
    pub fn has_sizes(&self) -> bool {
        self.mix.is_some() || matches!(self.spacing, Typed::Capture(_))
    }

    /// Frames that are due at the same time.
    pub fn burst(&self) -> u32 {
        if let Typed::Burst(frames) = self.spacing { frames } else { 1 }
    }
}

impl std::fmt::Display for Pattern {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(if self.text.is_empty() { "constant" } else { &self.text })
    }
}

impl From<Pattern> for String {
    fn from(pattern: Pattern) -> String {
        pattern.to_string()
    }
}

impl TryFrom<String> for Pattern {
    type Error = String;

    fn try_from(text: String) -> Result<Pattern, String> {
        text.parse()
    }
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Pattern, String> {
        if let Some(file) = text.strip_prefix("pcap:") {
            if file.is_empty() {
                return Err("give a capture: pcap:FILE".to_owned());
            }
            let spacing = Typed::Capture(PathBuf::from(file));
            return Ok(Pattern { spacing, mix: None, text: text.to_owned() });
        }
        let (mut spacing, mut mix) = (None, None);
        for part in text.split('+') {
            let twice = match part.trim() {
                "imix" => mix.replace(IMIX).is_some(),
                "trimodal" => mix.replace(TRIMODAL).is_some(),
                part => spacing.replace(typed(part)?).is_some(),
            };
            if twice {
                return Err(format!("{text:?} says one thing twice; the patterns are {FORMS}"));
            }
        }
        Ok(Pattern { spacing: spacing.unwrap_or_default(), mix, text: text.to_owned() })
    }
}

fn typed(part: &str) -> Result<Typed, String> {
    let mut words = part.split(':');
    let (name, rest) = (words.next().unwrap_or_default(), words.collect::<Vec<_>>());
    match (name, &rest[..]) {
        ("constant", []) => Ok(Typed::Constant),
        ("poisson", []) => Ok(Typed::Poisson),
        ("burst", [frames]) => {
            let frames = frames.parse().ok().filter(|frames| (1..=BURST_MAX).contains(frames));
            let frames = frames.ok_or_else(|| format!("a burst has 1 to {BURST_MAX} frames"))?;
            Ok(Typed::Burst(frames))
        }
        ("on-off", [on, off]) => {
            let ms = |text: &str| {
                let ms = text.parse().ok().filter(|ms: &f64| (0.001..=60_000.0).contains(ms));
                let ms = ms.ok_or("give milliseconds from 0.001 to 60000, as on-off:10:90")?;
                Ok::<Span, String>(Span::from_secs_f64(ms / 1e3))
            };
            Ok(Typed::OnOff(ms(on)?, ms(off)?))
        }
        ("self-similar", [hurst]) => {
            let hurst = hurst.parse().ok().filter(|hurst| (0.51..=0.99).contains(hurst));
            Ok(Typed::SelfSimilar(hurst.ok_or("the Hurst parameter is from 0.51 to 0.99")?))
        }
        _ => Err(format!("{part:?} is not a pattern; the patterns are {FORMS}")),
    }
}

fn recording(path: &PathBuf) -> Result<Recording> {
    let mut packets = Vec::new();
    let (mut beyond, mut long, mut longest) = (0u64, 0u64, 0);
    let mut watch = |ns: u64, packet: &nilometer_wire::packet::IpPacket| {
        if packets.len() < PACKETS_MAX {
            // The Ethernet header and the check sequence.
            let bytes = packet.ip_bytes.saturating_add(18);
            long += u64::from(bytes > u32::from(FRAME_BYTES_MAX));
            longest = bytes.max(longest);
            packets.push((ns, bytes));
        } else {
            beyond += 1;
        }
    };
    let inputs = std::slice::from_ref(path);
    read_packets(inputs, false, &mut |_| {}, &mut watch).context("pattern")?;
    if beyond > 0 {
        nilometer_files::say!(
            "{}: of its packets the first {PACKETS_MAX} are played, and {beyond} are left out",
            path.display()
        );
    }
    if long > 0 {
        nilometer_files::say!(
            "{}: {long} of its frames are longer than {FRAME_BYTES_MAX} bytes (up to {longest}: jumbo frames, or segments \
             that a card had still to cut) and are sent as frames of {FRAME_BYTES_MAX}",
            path.display()
        );
    }
    let Some(recording) = Recording::new(&packets) else {
        bail!("{}: has no two IP packets at different times to make a pattern of", path.display());
    };
    Ok(recording)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_read_as_they_are_typed() {
        let read = |text: &str| text.parse::<Pattern>().expect(text);
        assert_eq!(read("constant").spacing().expect("one"), Spacing::Constant);
        assert_eq!(read("poisson").sizes(92), Sizes::Fixed(92));
        assert_eq!(read("imix").sizes(92), Sizes::Mix(IMIX));
        let both = read("burst:16+trimodal");
        assert_eq!((both.sizes(64), both.burst()), (Sizes::Mix(TRIMODAL), 16));
        assert_eq!(both.to_string(), "burst:16+trimodal");
        assert_eq!(read("trimodal+burst:16").spacing().expect("one"), Spacing::Bursts(16));
        assert_eq!(read("self-similar:0.8").spacing().expect("one"), Spacing::SelfSimilar(0.8));
        assert!(read("pcap:a.pcap").has_sizes() && !read("on-off:10:90").has_sizes());
        assert_eq!(Pattern::default().to_string(), "constant");
        let (folder, far) = (Path::new("a/b"), "pcap:/c.pcap");
        assert_eq!(read("pcap:c.pcap").seen_from(folder).to_string(), "pcap:a/b/c.pcap");
        assert_eq!(read(far).seen_from(folder).to_string(), far);
        assert_eq!(read("poisson").seen_from(folder), read("poisson"));
    }

    #[test]
    fn invalid_patterns_are_refused_in_one_line() {
        for (text, words) in [
            ("", "is not a pattern; the patterns are constant"),
            ("burst", "is not a pattern"),
            ("burst:0", "1 to 65536 frames"),
            ("poisson+constant", "says one thing twice"),
            ("imix+trimodal", "says one thing twice"),
            ("self-similar:1.5", "from 0.51 to 0.99"),
            ("on-off:0:5", "give milliseconds"),
            ("pcap:", "give a capture"),
        ] {
            let why = text.parse::<Pattern>().expect_err(text);
            assert!(why.contains(words) && !why.contains('\n'), "{text}: {why}");
        }
        let none = "pcap:no/such.pcap".parse::<Pattern>().expect("a name").spacing();
        assert!(format!("{:#}", none.expect_err("no file")).contains("no/such.pcap"));
    }
}

//! How bursty the packets of the original were on every time scale: Hurst's parameter, beside its
//! log-scale diagram.
//!
//! The bytes and the packets of each bin of time are two series; each goes through the wavelet pyramid of
//! [`nilometer_stat::wavelet`], and the line of [`nilometer_stat::log_scale_diagram`] is fitted to the result. Bins
//! are a millisecond wide, doubled until a bin holds one packet on average (finer ones would only show single
//! packets) and there are at most 2²⁰ of them. Flow records do not hold the times of their packets, so burstiness is
//! known only for captures.
//!
//! One caution applies to every use: intervals state the uncertainty of the slope of *this* series. A capture
//! that was merged from several has artificial pauses among its arrivals.

use alloc::vec::Vec;
use core::fmt;

use nilometer_stat::binned::Bin;
use nilometer_stat::log_scale_diagram::{Diagram, FIRST_OCTAVE, Octave};
use nilometer_stat::{Binned, Pyramid, Scaling};
use serde::{Deserialize, Serialize};

use crate::model_error::{ModelError, positive};

/// The least mean number of packets in a bin.
const PACKETS_MIN: f64 = 1.0;
/// Octaves that a diagram may have: bins are counted in 64 bits.
const OCTAVES_MAX: usize = 64;

/// Burstiness of the original's packets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Hurst {
    /// Width of a bin, seconds.
    pub bin_s: f64,
    /// Number of bins, from that of the first packet to that of the last.
    pub bins: u64,
    /// Estimate for IP bytes per bin; absent if no line fits their log-scale diagram.
    pub bytes: Option<HurstEstimate>,
    /// Estimate for packets per bin, likewise.
    pub packets: Option<HurstEstimate>,
    /// Both log-scale diagrams.
    pub diagram: LogScaleDiagrams,
}

/// Hurst's parameter of one series (Abry & Veitch 1998).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct HurstEstimate {
    /// H: 0.5 without long-range dependence, up to 1 with it. Above 1, the series is not stationary on these scales.
    pub h: f64,
    /// Lower end of the 95 % confidence interval of H.
    pub low: f64,
    /// Upper end of the 95 % confidence interval of H.
    pub high: f64,
    /// Finest octave of the fitted line; octave j is about 2^j bins long.
    pub from_octave: u32,
    /// Coarsest octave of the fitted line.
    pub to_octave: u32,
    /// Goodness of fit: probability of octaves at least this far from the line, 0.05 to 1.
    pub goodness: f64,
}

/// Log-scale diagrams of both series; octaves without energy are left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LogScaleDiagrams {
    /// Diagram of the bytes.
    pub bytes: Vec<DiagramOctave>,
    /// Diagram of the packets.
    pub packets: Vec<DiagramOctave>,
}

/// One time scale of a log-scale diagram.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DiagramOctave {
    /// Octave number j.
    pub octave: u32,
    /// Number of wavelet coefficients.
    pub count: u64,
    /// Base-2 logarithm of their mean square, bias corrected.
    pub log2_energy: f64,
    /// Standard deviation of that logarithm.
    pub deviation: f64,
}

/// Why a model does not state the burstiness of its original.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoHurst {
    /// Flow records were read, or packets without stamps.
    NoPackets,
    /// Some of the input is stamped packets and some is not.
    OnlySome,
    /// The stamps span more than can be counted in bins.
    TooFarApart,
    /// Too few bins for the octaves of a line.
    TooShort,
}

impl fmt::Display for NoHurst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NoHurst::NoPackets => {
                "no packets with timestamps were read, and flow records do not contain them"
            }
            NoHurst::OnlySome => "a part of the input is flow records, or packets without stamps",
            NoHurst::TooFarApart => "the stamps of the packets are more than twelve days apart",
            NoHurst::TooShort => "the capture is too short, or has too few packets",
        })
    }
}

impl HurstEstimate {
    fn of(scaling: Scaling) -> HurstEstimate {
        let ([low, high], [from_octave, to_octave]) = (scaling.interval().ends(), scaling.octaves);
        let Scaling { hurst: h, goodness, .. } = scaling;
        HurstEstimate { h, low, high, from_octave, to_octave, goodness }
    }
}

impl Hurst {
    /// Estimates the parameters from the bins of a capture's packets, with `weight` as IP bytes.
    ///
    /// # Errors
    /// Where there are too few octaves for a line, whether or not one would fit.
    pub fn of(series: Binned) -> Result<Hurst, NoHurst> {
        let series = series.widened(PACKETS_MIN);
        let diagram = |of: fn(&Bin) -> u64| {
            let mut pyramid = Pyramid::new();
            pyramid.extend(series.bins().map(|bin| of(bin) as f64));
            Diagram::from(&pyramid)
        };
        let (bytes, packets) = (diagram(|bin| bin.weight), diagram(|bin| bin.events));
        let is_long = |octave: u32| octave >= FIRST_OCTAVE + 2;
        if !packets.coarsest().is_some_and(is_long) {
            return Err(NoHurst::TooShort);
        }
        let line = |diagram: &Diagram| diagram.choose().map(HurstEstimate::of);
        Ok(Hurst {
            bin_s: series.width_ns() as f64 / 1e9,
            bins: series.bins().len() as u64,
            bytes: line(&bytes),
            packets: line(&packets),
            diagram: LogScaleDiagrams { bytes: octaves(&bytes), packets: octaves(&packets) },
        })
    }

    /// Checks what was read: numbers must be finite, and octaves few enough.
    pub(crate) fn check(&self) -> Result<(), ModelError> {
        positive("hurst.bin_s", self.bin_s)?;
        for octaves in [&self.diagram.bytes, &self.diagram.packets] {
            if octaves.len() > OCTAVES_MAX {
                return Err(ModelError::TooMany("hurst.diagram", OCTAVES_MAX));
            }
        }
        Ok(())
    }
}

fn octaves(diagram: &Diagram) -> Vec<DiagramOctave> {
    let of = |&Octave { octave, count, log2_energy, deviation }: &Octave| {
        log2_energy.is_finite().then_some(DiagramOctave { octave, count, log2_energy, deviation })
    };
    diagram.octaves().iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use nilometer_stat::Rng;

    use super::*;

    #[test]
    fn poisson_packets_have_a_hurst_parameter_of_one_half() {
        let mut rng = Rng::new(8, 0x6275_7273, 0);
        let (mut series, mut at_ns) = (Binned::new(), 1_700_000_000_000_000_000_f64);
        for _ in 0..200_000 {
            // A packet every 3 ms on average: with bins of a millisecond most would be empty.
            at_ns += rng.exponential(3e6);
            series.count(at_ns as u64, 40 + rng.below(1_460)).expect("ten minutes");
        }
        let hurst = Hurst::of(series).expect("it scales");
        assert_eq!(hurst.bin_s, 0.004);
        for one in [hurst.bytes, hurst.packets].map(|one| one.expect("an estimate")) {
            assert!(one.low < one.h && one.h < one.high && one.goodness >= 0.05, "{one:?}");
            assert!((one.h - 0.5).abs() < 0.05, "{one:?}");
        }
        assert_eq!(hurst.check(), Ok(()));
    }

    #[test]
    fn a_short_capture_has_no_hurst_parameter() {
        let mut series = Binned::new();
        assert_eq!(Hurst::of(series.clone()), Err(NoHurst::TooShort));
        for at in 0..500 {
            series.count(at * 1_000_000, 100).expect("half a second");
        }
        assert_eq!(Hurst::of(series), Err(NoHurst::TooShort));
    }

    /// Two octaves beyond the first of a line are enough for an estimate, one is not.
    #[test]
    fn a_line_needs_two_octaves_beyond_its_first() {
        // One packet in each millisecond: bins of 4 ms or more, by PACKETS_MIN of them.
        let of = |packets: u64| {
            let mut series = Binned::new();
            (0..packets).for_each(|at| series.count(at * 1_000_000, 100 + at % 7).expect("near"));
            let mut pyramid = Pyramid::new();
            let bins = series.clone().widened(PACKETS_MIN);
            pyramid.extend(bins.bins().map(|bin| bin.events as f64));
            (Diagram::from(&pyramid).coarsest(), Hurst::of(series))
        };
        let mut seen = [false; 2];
        for packets in (40..4_000).step_by(40) {
            let (coarsest, hurst) = of(packets);
            let is_long = coarsest.is_some_and(|octave| octave >= FIRST_OCTAVE + 2);
            seen[usize::from(is_long)] = true;
            assert_eq!(hurst.is_ok(), is_long, "{packets} packets, {coarsest:?}");
        }
        assert_eq!(seen, [true; 2]);
    }

    #[test]
    fn every_reason_has_a_sentence_of_its_own() {
        let message = |why: NoHurst| alloc::format!("{why}");
        assert!(message(NoHurst::NoPackets).starts_with("no packets with timestamps"));
        assert!(message(NoHurst::OnlySome).starts_with("a part of the input"));
        assert!(message(NoHurst::TooFarApart).contains("twelve days"));
        assert!(message(NoHurst::TooShort).contains("too short"));
    }

    #[test]
    fn a_diagram_with_more_octaves_than_the_limit_is_refused() {
        let octave = DiagramOctave { octave: 1, count: 2, log2_energy: 0.0, deviation: 1.0 };
        let of = |bytes: usize, packets: usize| {
            let series = |count: usize| alloc::vec![octave; count];
            let diagram = LogScaleDiagrams { bytes: series(bytes), packets: series(packets) };
            Hurst { bin_s: 0.001, bins: 9, bytes: None, packets: None, diagram }.check()
        };
        assert_eq!(of(OCTAVES_MAX, OCTAVES_MAX), Ok(()));
        let refused = Err(ModelError::TooMany("hurst.diagram", OCTAVES_MAX));
        assert_eq!(of(OCTAVES_MAX + 1, 0), refused);
        assert_eq!(of(0, OCTAVES_MAX + 1), refused);
    }
}

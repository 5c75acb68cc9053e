//! Information besides flow records that a model needs: burstiness of packets, round trips from openings
//! and time stamps, and counts of repairs before records were passed on.
//!
//! A *part* is a table of flow records with all this among its metadata, so that a model can be made
//! from many parts as from the inputs themselves. Each input is processed by itself, so that the result
//! does not depend on how inputs are grouped into parts: flows that are live when an input ends are cut
//! there, and joined by the repair if another input continues them; an opening across two inputs is not
//! a round trip.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anyhow::{Result, bail};
use nilometer_flow::handshake::RoundTrip;
use nilometer_flow::repair::{Reason, RepairCounts};
use nilometer_traffic::burstiness::{Hurst, NoHurst};
use nilometer_traffic::round_trips::RoundTrips;
use serde::{Deserialize, Serialize};

use super::series::PacketSeries;
use super::source::InputDigest;

/// The format of a part.
const PART: &str = "nilometer-part/1";
/// The most round trips that are kept, those of the first openings, 48 bytes each.
pub(super) const ROUND_TRIPS_MAX: usize = 1 << 22;

/// Information besides flow records.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Supplement {
    /// Packets and bytes in bins of time.
    pub(super) series: PacketSeries,
    /// Round trips by the openings of connections.
    pub(super) openings: Kept,
    /// Round trips by the echoes of time stamps.
    pub(super) echoes: Kept,
    /// How often records were repaired, by reason.
    pub(super) screened: BTreeMap<String, u64>,
}

/// Round trips in the order of their completion, and how many there was no room for.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Kept {
    pub(super) trips: Vec<RoundTrip>,
    pub(super) beyond: u64,
}

impl Kept {
    fn merge(&mut self, more: Kept) {
        let room = ROUND_TRIPS_MAX - self.trips.len().min(ROUND_TRIPS_MAX);
        self.beyond += more.beyond + more.trips.len().saturating_sub(room) as u64;
        self.trips.extend(more.trips.into_iter().take(room));
    }
}

impl From<(Vec<RoundTrip>, u64)> for Kept {
    fn from((trips, beyond): (Vec<RoundTrip>, u64)) -> Kept {
        Kept { trips, beyond }
    }
}

impl Supplement {
    /// Counts repairs of records.
    pub(super) fn note_screened(&mut self, counts: &RepairCounts) {
        for (reason, times) in counts.met() {
            *self.screened.entry(reason.name().to_owned()).or_default() += times;
        }
    }

    /// How often records were repaired, by reason.
    pub fn screened(&self) -> impl Iterator<Item = (Reason, u64)> + '_ {
        let named = |(name, times): (&String, &u64)| Some((Reason::from_name(name)?, *times));
        self.screened.iter().filter_map(named)
    }

    /// How bursty the packets were.
    ///
    /// # Errors
    /// Why that is unknown.
    pub fn hurst(&self) -> Result<Hurst, NoHurst> {
        self.series.clone().hurst()
    }

    /// The law of round trips, if there are any.
    pub fn round_trips(&self) -> Option<RoundTrips> {
        RoundTrips::of_packets(&self.openings.trips, &self.echoes.trips)
    }

    /// Adds the information of another input.
    pub(super) fn merge(&mut self, more: Supplement) {
        self.series.merge(&more.series);
        self.openings.merge(more.openings);
        self.echoes.merge(more.echoes);
        for (reason, times) in more.screened {
            *self.screened.entry(reason).or_default() += times;
        }
    }
}

/// The metadata of a part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartMark {
    format: String,
    /// The inputs that it was made from.
    pub inputs: Vec<InputDigest>,
    /// Warnings about these inputs.
    pub warnings: Vec<String>,
    screened: BTreeMap<String, u64>,
    series: PacketSeries,
    openings: WrittenRoundTrips,
    echoes: WrittenRoundTrips,
}

/// Round trips column by column, the pairs of addresses in a table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRoundTrips {
    /// Client and server.
    pairs: Vec<(IpAddr, IpAddr)>,
    /// The place of each round trip's pair.
    pair: Vec<u32>,
    nanos: Vec<u64>,
    beyond: u64,
}

impl WrittenRoundTrips {
    fn of(kept: &Kept) -> WrittenRoundTrips {
        let mut places = BTreeMap::new();
        let mut written = WrittenRoundTrips { beyond: kept.beyond, ..Default::default() };
        for one in &kept.trips {
            let pair = (one.client, one.server);
            let place = *places.entry(pair).or_insert_with(|| {
                written.pairs.push(pair);
                written.pairs.len() as u32 - 1
            });
            written.pair.push(place);
            written.nanos.push(one.nanos);
        }
        written
    }

    fn is_sound(&self) -> bool {
        self.pair.len() == self.nanos.len()
            && self.pair.len() <= ROUND_TRIPS_MAX
            && self.pair.iter().all(|place| (*place as usize) < self.pairs.len())
    }

    fn kept(&self) -> Kept {
        let one = |(place, nanos): (&u32, &u64)| {
            let (client, server) = self.pairs[*place as usize];
            RoundTrip { client, server, nanos: *nanos }
        };
        Kept { trips: self.pair.iter().zip(&self.nanos).map(one).collect(), beyond: self.beyond }
    }
}

impl PartMark {
    /// The mark of a part that was made from `inputs`.
    pub fn new(inputs: &[InputDigest], warnings: &[String], beside: &Supplement) -> PartMark {
        PartMark {
            format: PART.to_owned(),
            inputs: inputs.to_vec(),
            warnings: warnings.to_vec(),
            screened: beside.screened.clone(),
            series: beside.series.clone(),
            openings: WrittenRoundTrips::of(&beside.openings),
            echoes: WrittenRoundTrips::of(&beside.echoes),
        }
    }

    /// Reads a mark.
    ///
    /// # Errors
    /// Where it is not a mark, or contradicts itself.
    pub fn parse(text: &str) -> Result<PartMark> {
        let mark: PartMark = serde_json::from_str(text)?;
        if mark.format != PART {
            bail!("it says that it is `{}`, and `{PART}` is read here", mark.format);
        }
        if !mark.openings.is_sound() || !mark.echoes.is_sound() {
            bail!("its round trips contradict themselves");
        }
        if mark.inputs.iter().any(|input| input.sha256.is_none()) {
            bail!("it has no digest of what it was made of");
        }
        Ok(mark)
    }

    /// The information besides the records of the part.
    pub(super) fn beside(&self) -> Supplement {
        Supplement {
            series: self.series.clone(),
            openings: self.openings.kept(),
            echoes: self.echoes.kept(),
            screened: self.screened.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(of: u8) -> Supplement {
        let mut beside = Supplement::default();
        beside.openings.beyond = of.into();
        beside.echoes.trips.push(RoundTrip {
            client: [198, 18, 0, of].into(),
            server: [198, 19, 0, of].into(),
            nanos: 77,
        });
        for n in 0..20u64 {
            beside.series.packet(Some(1_700_000_000_000_000_000 + n * 3_000_000), 40 + n as u32);
            let [client, server] = [n as u8 % 3, of].map(|n| IpAddr::from([198, 18, 0, n]));
            beside.openings.trips.push(RoundTrip { client, server, nanos: n * n });
        }
        beside.screened.insert(Reason::CounterWrapped.name().to_owned(), 3);
        beside
    }

    fn input() -> InputDigest {
        InputDigest { name: "a.pcap".to_owned(), sha256: Some("00".repeat(32)), bytes: 7 }
    }

    #[test]
    fn a_mark_is_read_as_it_was_written() {
        let beside = some(1);
        let mark = PartMark::new(&[input()], &["a.pcap: is cut".to_owned()], &beside);
        let text = serde_json::to_string(&mark).expect("it is written");
        let read = PartMark::parse(&text).expect("it is read");
        assert_eq!((&read, read.beside()), (&mark, beside.clone()));
        assert_eq!(beside.screened().collect::<Vec<_>>(), [(Reason::CounterWrapped, 3)]);
        for (from, to, why) in [
            ("nilometer-part/1", "nilometer-part/2", "says that it is"),
            (r#""pair":[0,"#, r#""pair":[9,"#, "contradict"),
            (r#""pair":[0,"#, r#""pair":["#, "contradict"),
            (r#""events":[1,"#, r#""events":["#, "series"),
            (r#""doublings":0"#, r#""doublings":99"#, "series"),
        ] {
            let damaged = text.replace(from, to);
            assert_ne!(damaged, text, "{from}");
            let error = PartMark::parse(&damaged).expect_err("it is damaged").to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn parts_add_up() {
        let (one, other) = (some(1), some(2));
        let mut both = one.clone();
        both.merge(other.clone());
        assert_eq!(both.openings.trips, [one.openings.trips, other.openings.trips].concat());
        assert_eq!(both.echoes.trips, [one.echoes.trips, other.echoes.trips].concat());
        assert_eq!((both.openings.beyond, both.screened["counter_wrapped"]), (3, 6));
        let mut series = one.series.clone();
        series.merge(&other.series);
        assert_eq!(both.series, series);
    }
}

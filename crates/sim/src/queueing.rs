//! `queue = { … }` of a scenario: the discipline before a link, and its settings.
//!
//! A sweep over disciplines reads one table at every point, so that a key that does not concern the
//! point's discipline is ignored there. An absent key has its discipline's default.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};

use nilometer_queue::codel::CoDelOptions;
use nilometer_queue::tdrr::Averaging;
use nilometer_queue::{Any, Capacity, DisciplineKind, End, Hashing, Settings};
use nilometer_wire::{Rate, Span};
use serde::{Deserialize, Serialize};

use crate::packet::Packet;
use crate::quantity::{de_size_if, de_span_if, seconds, ser_span_if};
use crate::refusal::Refusal;

/// Payload of an ATM cell.
const CELL_PAYLOAD_BYTES: u64 = 48;

/// A queue as it stands in a scenario.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueSpec {
    /// A name of [`DisciplineKind`].
    pub discipline: String,
    /// Most packets that wait. One of the three capacities is given.
    pub buffer_packets: Option<u32>,
    /// Most bytes that wait, as a number or as `64 kB`.
    #[serde(default, deserialize_with = "de_size_if")]
    pub buffer_bytes: Option<u32>,
    /// Most ATM cells that wait.
    pub buffer_cells: Option<u32>,
    /// How many queues DRR, TDRR, QSDRR and FQ-CoDel spread the flows over.
    pub queues: Option<u32>,
    /// How they find a flow's queue.
    pub hashing: Option<Spreading>,
    /// Where DRR, TDRR and QSDRR drop.
    pub drop_from: Option<Side>,
    /// Whether packets that are capable of ECN are marked and not dropped.
    #[serde(default)]
    pub ecn: bool,
    /// RED: probability at the maximum threshold.
    pub max_p: Option<f64>,
    /// RED: weight of the newest length.
    pub w_q: Option<f64>,
    /// RED: minimum threshold, percent of the buffer.
    pub min_th_percent: Option<f64>,
    /// RED: maximum threshold, percent of the buffer.
    pub max_th_percent: Option<f64>,
    /// RED: no jump to certain drop at the maximum threshold.
    pub gentle: Option<bool>,
    /// Blue: what a loss adds to the probability.
    pub d1: Option<f64>,
    /// Blue: what an idle link takes off it.
    pub d2: Option<f64>,
    /// Blue: least time between two changes.
    pub freeze_ms: Option<f64>,
    /// Blue: a length that counts as a loss does, percent of the buffer.
    pub threshold_percent: Option<f64>,
    /// TDRR: weight of the newest departure. This or `averaging_ms`.
    pub averaging_weight: Option<f64>,
    /// TDRR: time over which throughput is averaged.
    pub averaging_ms: Option<f64>,
    /// QSDRR: whether the victim is released only when all others are longer.
    pub strictly_smallest: Option<bool>,
    /// QSDRR: percent of the buffer below which the victim is forgotten.
    pub release_below_percent: Option<u8>,
    /// CoDel, FQ-CoDel, PIE: the delay that may stand.
    #[serde(default, deserialize_with = "de_span_if", serialize_with = "ser_span_if")]
    pub target: Option<Span>,
    /// CoDel, FQ-CoDel: how long it must have stood. PIE: time between updates.
    #[serde(default, deserialize_with = "de_span_if", serialize_with = "ser_span_if")]
    pub interval: Option<Span>,
    /// FQ-CoDel: credit of a round, as a number or as `64 kB`.
    #[serde(default, deserialize_with = "de_size_if")]
    pub quantum_bytes: Option<u32>,
}

/// How flows find their queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Spreading {
    /// The flow's number modulo the number of queues.
    Direct,
    /// By a hash that the run's seed decides.
    Mixed,
}

/// An end of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The oldest packet.
    Front,
    /// The newest.
    Tail,
}

/// Where a queue stands.
pub struct Place<'a> {
    /// The link, as refusals call it.
    pub name: &'a str,
    /// The link's rate in this direction.
    pub rate: Rate,
    /// The link's MTU, bytes.
    pub mtu: u32,
    /// The run's seed.
    pub seed: u64,
    /// The link's number.
    pub index: u32,
}

/// Puts a value in its place, if it is given.
fn put<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}

impl QueueSpec {
    /// The discipline that waits at `place`, empty.
    ///
    /// # Errors
    /// An unknown discipline, no capacity or several, a parameter out of its range.
    pub(crate) fn discipline(&self, place: &Place<'_>) -> Result<Any<Packet>, Refusal> {
        let refuse = |what: String| Refusal::value(place.name, what);
        let settings = self.settings(place)?;
        Any::new(&settings).map_err(|error| refuse(error.to_string()))
    }

    /// Most bytes that can wait, in packets of at most `mtu` bytes; 0 without a capacity.
    pub(crate) fn bytes_max(&self, mtu: u32) -> u64 {
        let of = |count: Option<u32>, bytes: u64| u64::from(count.unwrap_or(0)) * bytes;
        let packets = of(self.buffer_packets, u64::from(mtu));
        let cells = of(self.buffer_cells, CELL_PAYLOAD_BYTES);
        packets.max(cells).max(of(self.buffer_bytes, 1))
    }

    /// The settings of the discipline that waits at `place`: the live router's queues are described by
    /// the same table.
    ///
    /// # Errors
    /// An unknown discipline, no capacity or several, a parameter out of its range.
    pub fn settings(&self, place: &Place<'_>) -> Result<Settings, Refusal> {
        let refuse = |what: &str| Refusal::value(place.name, what);
        let Some(kind) = DisciplineKind::from_name(&self.discipline) else {
            let known = DisciplineKind::ALL.iter().map(|kind| kind.name());
            return Err(Refusal::unknown(place.name, &self.discipline, known));
        };
        let capacity = match (self.buffer_packets, self.buffer_bytes, self.buffer_cells) {
            (Some(packets), None, None) => Capacity::Packets(packets),
            (None, Some(bytes), None) => Capacity::Bytes(bytes),
            (None, None, Some(cells)) => Capacity::Cells(cells),
            _ => return Err(refuse("a queue has one of buffer_packets, _bytes and _cells")),
        };
        let mut settings = Settings::new(kind, capacity, place.rate);
        settings.mtu_bytes = place.mtu;
        settings.seed = place.seed;
        settings.index = u64::from(place.index);
        settings.red.typical_bytes = place.mtu;
        self.apply_single_queue_keys(&mut settings, place)?;
        self.apply_multi_queue_keys(&mut settings, place)?;
        Ok(settings)
    }

    /// The table of a discipline with these settings: every key that concerns it, with its value.
    pub fn in_force(settings: &Settings) -> QueueSpec {
        let mut spec =
            QueueSpec { discipline: settings.kind.name().to_owned(), ..QueueSpec::default() };
        match settings.capacity {
            Capacity::Packets(packets) => spec.buffer_packets = Some(packets),
            Capacity::Bytes(bytes) => spec.buffer_bytes = Some(bytes),
            Capacity::Cells(cells) => spec.buffer_cells = Some(cells),
        }
        let many = |spec: &mut QueueSpec, drop_from: End| {
            (spec.queues, spec.hashing) =
                (Some(settings.queues), Some(spreading(settings.hashing)));
            spec.drop_from = Some(match drop_from {
                End::Front => Side::Front,
                End::Tail => Side::Tail,
            });
        };
        let codel = |spec: &mut QueueSpec, codel: &CoDelOptions| {
            (spec.target, spec.interval) = (Some(codel.target), Some(codel.interval));
            spec.ecn = codel.ecn;
        };
        match settings.kind {
            DisciplineKind::TailDrop => {}
            DisciplineKind::Red => {
                let red = &settings.red;
                (spec.max_p, spec.w_q) = (Some(red.max_probability), Some(red.weight));
                spec.min_th_percent = Some(red.min_percent);
                spec.max_th_percent = Some(red.max_percent);
                (spec.gentle, spec.ecn) = (Some(red.gentle), red.ecn);
            }
            DisciplineKind::Blue => {
                let blue = &settings.blue;
                (spec.d1, spec.d2) = (Some(blue.increment), Some(blue.decrement));
                spec.freeze_ms = Some(blue.freeze.as_secs_f64() * 1e3);
                (spec.threshold_percent, spec.ecn) = (blue.threshold_percent, blue.ecn);
            }
            DisciplineKind::Drr => many(&mut spec, settings.drr_drop_from),
            DisciplineKind::Tdrr => {
                many(&mut spec, settings.tdrr.drop_from);
                match settings.tdrr.averaging {
                    Averaging::PerDeparture(weight) => spec.averaging_weight = Some(weight),
                    Averaging::OverTime(span) => {
                        spec.averaging_ms = Some(span.as_secs_f64() * 1e3);
                    }
                }
            }
            DisciplineKind::Qsdrr => {
                many(&mut spec, settings.qsdrr.drop_from);
                spec.strictly_smallest = Some(settings.qsdrr.strictly_smallest);
                spec.release_below_percent = settings.qsdrr.release_below_percent;
            }
            DisciplineKind::CoDel => codel(&mut spec, &settings.codel),
            DisciplineKind::FqCoDel => {
                let own = &settings.fq_codel;
                codel(&mut spec, &own.codel);
                (spec.queues, spec.hashing) = (Some(own.queues), Some(spreading(own.hashing)));
                spec.quantum_bytes = Some(own.quantum_bytes);
            }
            DisciplineKind::Pie => {
                let pie = &settings.pie;
                (spec.target, spec.interval) = (Some(pie.target), Some(pie.update));
                spec.ecn = pie.mark_below.is_some();
            }
        }
        spec
    }

    /// Whether it gives a capacity.
    pub fn has_size(&self) -> bool {
        self.buffer_packets.is_some() || self.buffer_bytes.is_some() || self.buffer_cells.is_some()
    }

    /// Fills in the settings of RED, Blue, CoDel and PIE.
    fn apply_single_queue_keys(
        &self,
        settings: &mut Settings,
        place: &Place<'_>,
    ) -> Result<(), Refusal> {
        let red = &mut settings.red;
        put(&mut red.max_probability, self.max_p);
        put(&mut red.weight, self.w_q);
        put(&mut red.min_percent, self.min_th_percent);
        put(&mut red.max_percent, self.max_th_percent);
        put(&mut red.gentle, self.gentle);
        red.ecn = self.ecn;
        let blue = &mut settings.blue;
        put(&mut blue.increment, self.d1);
        put(&mut blue.decrement, self.d2);
        put(&mut blue.freeze, self.milliseconds(place, "freeze_ms", self.freeze_ms)?);
        blue.threshold_percent = self.threshold_percent;
        blue.ecn = self.ecn;
        for codel in [&mut settings.codel, &mut settings.fq_codel.codel] {
            put(&mut codel.target, self.target);
            put(&mut codel.interval, self.interval);
            codel.ecn = self.ecn;
        }
        put(&mut settings.pie.target, self.target);
        put(&mut settings.pie.update, self.interval);
        settings.pie.mark_below = self.ecn.then_some(0.1);
        Ok(())
    }

    /// Fills in the settings of DRR, TDRR, QSDRR and FQ-CoDel.
    fn apply_multi_queue_keys(
        &self,
        settings: &mut Settings,
        place: &Place<'_>,
    ) -> Result<(), Refusal> {
        let hashing = self.hashing.map(|hashing| match hashing {
            Spreading::Direct => Hashing::Direct,
            Spreading::Mixed => Hashing::Mixed,
        });
        for own in [&mut settings.hashing, &mut settings.fq_codel.hashing] {
            put(own, hashing);
        }
        for own in [&mut settings.queues, &mut settings.fq_codel.queues] {
            put(own, self.queues);
        }
        put(&mut settings.fq_codel.quantum_bytes, self.quantum_bytes);
        let end = self.drop_from.map(|side| match side {
            Side::Front => End::Front,
            Side::Tail => End::Tail,
        });
        let [drr, tdrr, qsdrr] = [
            &mut settings.drr_drop_from,
            &mut settings.tdrr.drop_from,
            &mut settings.qsdrr.drop_from,
        ];
        [drr, tdrr, qsdrr].into_iter().for_each(|own| put(own, end));
        put(&mut settings.qsdrr.strictly_smallest, self.strictly_smallest);
        settings.qsdrr.release_below_percent = self.release_below_percent;
        let over = self.milliseconds(place, "averaging_ms", self.averaging_ms)?;
        settings.tdrr.averaging = match (self.averaging_weight, over) {
            (None, None) => settings.tdrr.averaging,
            (Some(weight), None) => Averaging::PerDeparture(weight),
            (None, Some(span)) => Averaging::OverTime(span),
            (Some(_), Some(_)) => {
                let what = "give averaging_weight or averaging_ms, not both";
                return Err(Refusal::value(place.name, what));
            }
        };
        Ok(())
    }

    fn milliseconds(
        &self,
        place: &Place<'_>,
        key: &str,
        value: Option<f64>,
    ) -> Result<Option<Span>, Refusal> {
        let span = |value: f64| seconds(key, value / 1e3).map(Some);
        value
            .map_or(Ok(None), span)
            .map_err(|what| Refusal::value(place.name, format!("queue: {what}")))
    }
}

fn spreading(hashing: Hashing) -> Spreading {
    match hashing {
        Hashing::Direct => Spreading::Direct,
        Hashing::Mixed => Spreading::Mixed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> Place<'static> {
        Place { name: "link `a`", rate: Rate::from_megabits(10), mtu: 1500, seed: 1, index: 0 }
    }

    fn spec(discipline: &str) -> QueueSpec {
        QueueSpec {
            discipline: discipline.into(),
            buffer_packets: Some(100),
            ..QueueSpec::default()
        }
    }

    #[test]
    fn every_discipline_has_its_defaults() {
        for kind in DisciplineKind::ALL {
            let mut expected = Settings::new(kind, Capacity::Packets(100), Rate::from_megabits(10));
            expected.seed = 1;
            assert_eq!(spec(kind.name()).settings(&place()), Ok(expected), "{}", kind.name());
            let made = spec(kind.name()).discipline(&place()).expect("sound");
            assert_eq!(made.kind(), kind);
        }
    }

    #[test]
    fn given_settings_reach_their_discipline() {
        let settings = |spec: QueueSpec| spec.settings(&place()).expect("sound");
        let red = settings(QueueSpec { max_p: Some(0.2), w_q: Some(0.002), ..spec("red") }).red;
        assert_eq!((red.max_probability, red.weight), (0.2, 0.002));
        let blue = settings(QueueSpec { d1: Some(0.3), freeze_ms: Some(2.5), ..spec("blue") });
        assert_eq!((blue.blue.increment, blue.blue.freeze), (0.3, Span(2_500_000_000)));
        let few = settings(QueueSpec {
            queues: Some(10),
            hashing: Some(Spreading::Mixed),
            drop_from: Some(Side::Tail),
            averaging_ms: Some(100.0),
            ..spec("tdrr")
        });
        assert_eq!((few.queues, few.hashing), (10, Hashing::Mixed));
        assert_eq!((few.drr_drop_from, few.qsdrr.drop_from), (End::Tail, End::Tail));
        assert_eq!(few.tdrr.averaging, Averaging::OverTime(Span::from_nanos(100_000_000)));
        let marks = settings(QueueSpec { ecn: true, ..spec("pie") });
        assert!(marks.red.ecn && marks.codel.ecn && marks.pie.mark_below == Some(0.1));
    }

    #[test]
    fn the_table_in_force_makes_the_same_discipline() {
        let stated = QueueSpec {
            queues: Some(77),
            hashing: Some(Spreading::Mixed),
            drop_from: Some(Side::Tail),
            ecn: true,
            max_p: Some(0.07),
            gentle: Some(true),
            freeze_ms: Some(2.5),
            threshold_percent: Some(40.0),
            averaging_ms: Some(100.0),
            release_below_percent: Some(9),
            target: Some(Span(7_000_000_000)),
            interval: Some(Span(90_000_000_000)),
            quantum_bytes: Some(999),
            ..QueueSpec::default()
        };
        for kind in DisciplineKind::ALL {
            for spec in [QueueSpec::default(), stated.clone()] {
                let size = if spec.ecn { (None, Some(90_000)) } else { (Some(100), None) };
                let (buffer_packets, buffer_bytes) = size;
                let discipline = kind.name().into();
                let spec = QueueSpec { discipline, buffer_packets, buffer_bytes, ..spec };
                let settings = spec.settings(&place()).expect("sound");
                let resolved = QueueSpec::in_force(&settings);
                let again = resolved.settings(&place()).expect("sound");
                assert_eq!(QueueSpec::in_force(&again), resolved);
                // What concerns another kind is not in the table; what concerns this one is the same.
                match kind {
                    DisciplineKind::TailDrop => assert_eq!(again.capacity, settings.capacity),
                    DisciplineKind::Red => assert_eq!(again.red, settings.red),
                    DisciplineKind::Blue => assert_eq!(again.blue, settings.blue),
                    DisciplineKind::Drr => assert_eq!(again.drr_drop_from, settings.drr_drop_from),
                    DisciplineKind::Tdrr => assert_eq!(again.tdrr, settings.tdrr),
                    DisciplineKind::Qsdrr => assert_eq!(again.qsdrr, settings.qsdrr),
                    DisciplineKind::CoDel => assert_eq!(again.codel, settings.codel),
                    DisciplineKind::FqCoDel => assert_eq!(again.fq_codel, settings.fq_codel),
                    DisciplineKind::Pie => assert_eq!(again.pie, settings.pie),
                }
                if matches!(
                    kind,
                    DisciplineKind::Drr | DisciplineKind::Tdrr | DisciplineKind::Qsdrr
                ) {
                    let many = |it: &Settings| (it.queues, it.hashing);
                    assert_eq!(many(&again), many(&settings));
                }
            }
        }
    }

    #[test]
    fn wrong_values_are_refused_with_a_reason() {
        let stated = |spec: QueueSpec| spec.discipline(&place()).expect_err("refused").to_string();
        assert!(stated(spec("qsdr")).contains("did you mean `qsdrr`?"));
        assert!(stated(QueueSpec { buffer_bytes: Some(1), ..spec("red") }).contains("one of"));
        assert!(
            stated(QueueSpec { buffer_packets: Some(0), ..spec("red") }).contains("buffer of 0")
        );
        assert!(stated(QueueSpec { max_p: Some(2.0), ..spec("red") }).contains("red"));
        assert!(stated(QueueSpec { freeze_ms: Some(-1.0), ..spec("blue") }).contains("freeze_ms"));
        let both =
            QueueSpec { averaging_ms: Some(1.0), averaging_weight: Some(0.5), ..spec("tdrr") };
        assert!(stated(both).contains("not both"));
    }
}

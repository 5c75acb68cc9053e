//! What a run changes about its model: its speed, its pacing, its round trips, and its amount.

use anyhow::{Result, bail};
use nilometer_traffic::TrafficModel;
use nilometer_traffic::model::Interval;
use nilometer_traffic::vector_plan;

use super::config::{FIT_S, Keep, LabConfig};
use super::round_trips::PlayRoundTrips;

/// Applies `--speed`, `--unpaced` and `--round-trips` to the model's connection vectors.
///
/// # Errors
/// If one is set and the model has none, or if round trips are demanded and no handshake shows any.
pub(super) fn alter(model: &mut TrafficModel, config: &LabConfig) -> Result<()> {
    let demands_round_trips = config.round_trips == PlayRoundTrips::Always;
    let Some(vectors) = &mut model.vectors else {
        let options = [
            (config.speed != 1.0, "--speed"),
            (config.unpaced, "--unpaced"),
            (demands_round_trips, "--round-trips"),
        ];
        if let Some((_, option)) = options.iter().find(|(is_set, _)| *is_set) {
            bail!(
                "{option} is for captures and flow records whose connections are played as they were; of laws --fit and \
                 --duration say how fast they are"
            );
        }
        return Ok(());
    };
    let tells_any = vectors.sessions.iter().any(|one| !one.round_trip().is_short());
    if demands_round_trips && !tells_any {
        bail!(
            "--round-trips plays round-trip times of handshakes, and in this part none was seen in both directions, or all \
             hosts were microseconds apart (flow records contain none): choose another --part, or leave it out"
        );
    }
    model.generation.round_trips = config.may_play_round_trips() && tells_any;
    if config.unpaced {
        vectors.unpace();
    }
    if config.unpaced || config.speed != 1.0 {
        vectors.speed_up(config.speed);
        model.intervals = vector_plan::intervals(vectors, model.intervals.len());
    }
    Ok(())
}

/// Fits all of the original into [`FIT_S`]; returns a warning to report.
pub(super) fn fit(model: &mut TrafficModel, keep: Keep) -> Option<String> {
    let divisor = model.original_s() / FIT_S;
    match keep {
        Keep::Volume => model.generation.time_divisor = divisor,
        Keep::Bitrate if divisor > 1.0 => {
            for interval in &mut model.intervals {
                interval.start_s /= divisor;
                interval.cut(1.0 / divisor);
            }
            return Some(format!(
                "Gaps and bit rate are the original's (--match bitrate): of each interval the first \
                 1/{divisor:.2} is played, which is 1/{divisor:.2} of the original's time, connections and bytes."
            ));
        }
        // There is no more of it to play.
        Keep::Bitrate => {}
    }
    None
}

/// Keeps the first `duration_s` seconds of a model's intervals, the last of them in part; of whole sessions those
/// that begin in them.
///
/// # Errors
/// When nothing begins by then.
pub fn cut(model: &mut TrafficModel, duration_s: f64) -> Result<()> {
    if let Some(vectors) = &mut model.vectors {
        vectors.cut(duration_s);
        model.intervals = vector_plan::intervals(vectors, model.intervals.len());
        return Ok(());
    }
    let plays = |interval: &&Interval| interval.flows > 0 || interval.sessions > 0.0;
    let first = model.intervals.iter().find(plays);
    if let Some(first) = first.filter(|first| first.start_s >= duration_s) {
        bail!(
            "nothing is to be played in the first {duration_s} s: the first connection comes in the \
             interval that begins at {:.1} s; raise --duration",
            first.start_s
        );
    }
    model.intervals.retain(|interval| interval.start_s < duration_s);
    if let Some(last) = model.intervals.last_mut() {
        last.cut(((duration_s - last.start_s) / last.duration_s).min(1.0));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::source::{self, EstimateRequest};
    use super::*;

    #[test]
    fn a_bit_rate_is_kept_by_playing_a_part_of_the_time() {
        let request = EstimateRequest { interval_s: Some(20.0), ..EstimateRequest::of(Vec::new()) };
        let model = source::model(&request, &mut |_| {}).expect("the embedded records").model;
        let mut long = model.clone();
        for interval in &mut long.intervals {
            (interval.start_s, interval.duration_s) =
                (10.0 * interval.start_s, 10.0 * interval.duration_s);
        }
        let rate = |model: &TrafficModel| -> Vec<f64> {
            let carried = model.intervals.iter().map(|one| (one.to_perform(), one.duration_s));
            carried.map(|(volume, seconds)| volume.bytes as f64 / seconds).collect()
        };
        let before = rate(&long);
        let mut by_volume = long.clone();
        fit(&mut by_volume, Keep::Volume);
        assert!((by_volume.generation.time_divisor - 10.0).abs() < 1e-9);
        assert_eq!(by_volume.bytes(), long.bytes());
        let message = fit(&mut long, Keep::Bitrate).expect("a part of it is played");
        assert!(message.contains("1/10.00"), "{message}");
        long.check().expect("a sound model");
        assert!((long.duration_s() - FIT_S).abs() < 1e-6);
        assert_eq!(long.generation.time_divisor, 1.0);
        for (before, after) in before.iter().zip(rate(&long)) {
            assert!((after / before - 1.0).abs() < 1e-3, "{before} became {after}");
        }
        // An original shorter than a minute is played unchanged.
        let mut short = model.clone();
        cut(&mut short, 30.0).expect("something is played");
        let whole = short.clone();
        assert_eq!(fit(&mut short, Keep::Bitrate), None);
        assert_eq!(short, whole);
    }

    #[test]
    fn a_beginning_without_traffic_is_refused() {
        let mut late =
            source::model(&EstimateRequest::of(Vec::new()), &mut |_| {}).expect("a model").model;
        late.intervals[0].flows = 0;
        late.intervals[0].sessions = 0.0;
        let begins = late.intervals[1].start_s;
        let refused = cut(&mut late.clone(), begins).expect_err("nothing").to_string();
        assert!(refused.contains(&format!("begins at {begins:.1} s")), "{refused}");
        cut(&mut late, begins + 1.0).expect("the second is played");
    }
}

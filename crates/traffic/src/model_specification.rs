//! A model from stated distributions, without measurements.
//!
//! Sizes, gaps and the popularity of addresses are given, and the number of active sessions in each interval. The
//! number of connections follows from a simulation of sessions that begin with a whole gap, as threads of Harpoon do
//! when a run begins. Each connection carries the mean size. A formula is not used: in a time T it would give T/μ and a
//! little more for gaps of mean μ that are all far below T, but stated laws often have tails that reach beyond T.
//!
//! Not every gap needs to be simulated, since T may hold any number of them. Gaps of up to εT are skipped in runs,
//! each with their mean length; their number before a longer gap is geometric. The longer ones are drawn, and no
//! session has room for more than 1/ε of them, so that each session is simulated to its end.
//!
//! That moves the answer by about one part in 1/ε. Cut all gaps at T: nothing before T changes. By Wald's identity a
//! session then has (T + o)/ν gaps on average, including the one that crosses T, where ν is the mean of a cut gap, and
//! o, the distance by which the last one reaches beyond T, is known to within some εT. (o lies between 0 and T: ν
//! alone, without simulation, may give half of the count.) Random error adds a tenth of a per cent for most laws, and
//! three per cent at worst: a million draws are at least a thousand sessions, and the standard deviation of their
//! numbers of connections is at most the mean.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use nilometer_stat::{Empirical, Rng};

use crate::model::{
    Coverage, FORMAT, Generation, Interval, LoadDriver, ModelError, Origin, Ranks, TrafficModel,
};
use crate::pool::Prefix;
use crate::random_streams;

/// ε: a gap that is longer than this share of the interval is simulated by itself.
const LONG: f64 = 1e-3;
/// Long gaps that are simulated, over all sessions; the last session is simulated to its end.
const SIMULATED: u32 = 1_000_000;

/// The stated distributions and volumes.
#[derive(Clone, Debug)]
pub struct ModelSpecification {
    /// Tool and version.
    pub tool: String,
    /// Where the laws come from.
    pub origin: Origin,
    /// Bytes of one file.
    pub file_size: Empirical,
    /// Seconds between connections of a session.
    pub inter_connection: Empirical,
    /// How often each client appears, in any order; zeros are left out.
    pub sources: Vec<u64>,
    /// How often each server appears.
    pub destinations: Vec<u64>,
    /// Active sessions of each interval.
    pub sessions: Vec<f64>,
    /// The length of an interval, seconds.
    pub interval_s: f64,
    /// Client pools.
    pub clients: Vec<Prefix>,
    /// Server pools.
    pub servers: Vec<Prefix>,
}

fn ranks(mut counts: Vec<u64>) -> Ranks {
    counts.retain(|count| *count > 0);
    counts.sort_unstable_by(|a, b| b.cmp(a));
    Ranks { counts, addresses: Vec::new() }
}

/// The share of gaps that are no longer than `bound`, and their mean.
fn short_gaps(gaps: &Empirical, bound: f64) -> (f64, f64) {
    let of_piece = |(share, low, high): (f64, f64, f64)| {
        let within = if high <= bound { 1.0 } else { ((bound - low) / (high - low)).max(0.0) };
        share * within * 0.5 * (low + high.min(bound))
    };
    let share = gaps.cdf(bound);
    let sum: f64 = gaps.pieces().map(of_piece).sum();
    (share, if share > 0.0 { sum / share } else { 0.0 })
}

/// The mean number of connections that a session makes in `seconds`.
fn connections(gaps: &Empirical, seconds: f64) -> f64 {
    let (short, short_mean) = short_gaps(gaps, LONG * seconds);
    if short >= 1.0 {
        return seconds / short_mean;
    }
    let mut rng = Rng::new(1, random_streams::STATED, 0);
    let (mut sessions, mut drawn, mut connections) = (0, 0, 0.0);
    while drawn < SIMULATED {
        let mut clock = 0.0;
        loop {
            let run = libm::floor(rng.exponential(1.0) / -libm::log(short));
            connections += run.min((seconds - clock) / short_mean);
            clock += run * short_mean + gaps.quantile(short + (1.0 - short) * rng.unit());
            drawn += 1;
            if clock >= seconds {
                break;
            }
            connections += 1.0;
        }
        sessions += 1;
    }
    connections / f64::from(sessions)
}

impl ModelSpecification {
    /// The model of this specification.
    ///
    /// # Errors
    /// Where [`TrafficModel::check`] rejects a number or a list.
    pub fn model(self) -> Result<TrafficModel, ModelError> {
        for (what, value) in [
            ("the interval", self.interval_s),
            ("the mean of the inter-connection time", self.inter_connection.mean()),
            ("the mean of the file size", self.file_size.mean()),
        ] {
            if !(value.is_finite() && value > 0.0) {
                return Err(ModelError::NotPositive(what, value));
            }
        }
        if let Some(bad) = self.sessions.iter().find(|s| !(s.is_finite() && **s >= 0.0)) {
            return Err(ModelError::NotPositive("a number of sessions", *bad));
        }
        let each = connections(&self.inter_connection, self.interval_s);
        let interval = |(at, &sessions): (usize, &f64)| {
            let flows = libm::round(sessions * each);
            Interval {
                start_s: at as f64 * self.interval_s,
                duration_s: self.interval_s,
                bytes: libm::round(flows * self.file_size.mean()) as u64,
                flows: flows as u64,
                packets: 0,
                sessions,
                sessions_direct: sessions,
                whole: None,
            }
        };
        let model = TrafficModel {
            format: FORMAT.to_string(),
            intervals: self.sessions.iter().enumerate().map(interval).collect(),
            tool: self.tool,
            origin: self.origin,
            flow_count: None,
            mean_length_packets: None,
            sampling_interval: None,
            flow_lengths: None,
            hurst: None,
            generation: Generation {
                time_divisor: 1.0,
                driver: LoadDriver::Connections,
                round_trips: false,
                inter_connection_bound_s: self.inter_connection.max(),
                ipv6_share: 0.0,
                clients: self.clients,
                servers: self.servers,
            },
            file_size: self.file_size,
            inter_connection: self.inter_connection,
            sampled_gaps: None,
            sources: ranks(self.sources),
            destinations: ranks(self.destinations),
            coverage: Coverage::default(),
            connection_law: None,
            vectors: None,
            round_trips: None,
            udp: Vec::new(),
            unmodelled_bytes_share: None,
            unmodelled_flows_share: None,
        };
        model.check()?;
        if model.flows() == 0 {
            return Err(ModelError::Empty("the plan: no session makes a connection; it"));
        }
        Ok(model)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_stat::{Form, Law, Sampler};

    fn stated(sessions: Vec<f64>) -> ModelSpecification {
        let sizes = Law::Pareto { index: 1.5, minimum: 1_000.0 }.table(Form::Step, None);
        let gaps = Law::Exponential { mean: 0.5 }.table(Form::Linear, None);
        ModelSpecification {
            tool: "test".to_string(),
            origin: Origin { description: "test".to_string(), synthetic: true, inputs: Vec::new() },
            file_size: sizes.expect("a law"),
            inter_connection: gaps.expect("a law"),
            sources: alloc::vec![3, 0, 7],
            destinations: alloc::vec![1],
            sessions,
            interval_s: 60.0,
            clients: alloc::vec!["198.18.0.0/16".parse().expect("a prefix")],
            servers: alloc::vec!["198.19.0.0/17".parse().expect("a prefix")],
        }
    }

    #[test]
    fn sessions_make_connections_of_the_mean_size() {
        let model = stated(alloc::vec![10.0, 0.0, 2.5]).model().expect("a model");
        // Poisson: 120 a minute and session.
        let flows: Vec<u64> = model.intervals.iter().map(|interval| interval.flows).collect();
        assert!(flows[0].abs_diff(1_200) < 5 && flows[1] == 0 && flows[2].abs_diff(300) < 3);
        let mean = model.bytes() as f64 / model.flows() as f64;
        assert!((mean / 3_000.0 - 1.0).abs() < 0.003, "{mean}");
        assert_eq!(model.sources.counts, [7, 3]);
        assert_eq!(model.original_s(), 180.0);
        assert_eq!(model.flow_count, None);
    }

    /// Gaps mostly far longer than the interval.
    #[test]
    fn intervals_shorter_than_most_gaps_have_few_connections() {
        let gaps = Law::Lognormal { mu: 6.0, sigma: 1.6 }.table(Form::Linear, None).expect("a law");
        let short = ModelSpecification { inter_connection: gaps, ..stated(alloc::vec![100.0]) };
        let flows = short.model().expect("a model").flows();
        // F(60 s) is 0.117.
        assert!((11..=14).contains(&flows), "{flows}");
    }

    /// As many as the renewal process makes: with a variance from gaps beyond the interval, a formula gives
    /// 2156 instead of 139.
    #[test]
    fn tails_beyond_the_interval_make_no_connections() {
        for (law, made) in [
            (Law::Pareto { index: 1.2, minimum: 0.1 }, 139.0),
            (Law::Pareto { index: 1.5, minimum: 2.0 }, 12.0),
            (Law::Lognormal { mu: -2.0, sigma: 2.5 }, 37.0),
            (Law::Exponential { mean: 0.5 }, 120.0),
        ] {
            let gaps = law.table(Form::Linear, None).expect("a law");
            let each = connections(&gaps, 60.0);
            assert!((each / made - 1.0).abs() < 0.03, "{law:?}: {each} for {made}");
        }
    }

    /// The naive twin: sessions simulated gap by gap, each of them to its end.
    fn simulated(gaps: &Empirical, seconds: f64, sessions: u32) -> f64 {
        let gaps = Sampler::new(gaps);
        let mut rng = Rng::new(7, 0, 0);
        let mut connections = 0;
        for _ in 0..sessions {
            let mut clock = gaps.draw(&mut rng);
            while clock < seconds {
                connections += 1;
                clock += gaps.draw(&mut rng);
            }
        }
        f64::from(connections) / f64::from(sessions)
    }

    fn within(share: f64, law: Law, seconds: f64, sessions: u32) {
        let gaps = law.table(Form::Linear, None).expect("a law");
        let (each, naive) = (connections(&gaps, seconds), simulated(&gaps, seconds, sessions));
        assert!((each / naive - 1.0).abs() < share, "{law:?}: {each} for {naive}");
    }

    /// Twenty sessions and a part of one were counted as twenty-one.
    #[test]
    fn sessions_of_many_connections_are_whole() {
        let gaps = Law::Exponential { mean: 0.001_212 }.table(Form::Linear, None).expect("a law");
        let each = connections(&gaps, 60.0);
        assert!((each / 49_505.0 - 1.0).abs() < 0.003, "{each}");
        within(0.003, Law::Exponential { mean: 0.001_212 }, 60.0, 20);
        within(0.003, Law::Exponential { mean: 0.01 }, 60.0, 200);
        within(0.01, Law::Lognormal { mu: -8.0, sigma: 1.5 }, 60.0, 100);
    }

    /// The longest gaps have most of the mean, and no interval has room for them.
    #[test]
    fn the_count_does_not_follow_a_mean_of_gaps_beyond_the_interval() {
        within(0.03, Law::Pareto { index: 1.05, minimum: 0.004 }, 3_600.0, 300);
        within(0.03, Law::Pareto { index: 1.2, minimum: 0.002 }, 60.0, 1_000);
        within(0.03, Law::Lognormal { mu: -8.0, sigma: 3.5 }, 10.0, 1_000);
        within(0.03, Law::Weibull { shape: 0.2, scale: 1e-4 }, 5.0, 1_000);
    }

    #[test]
    fn unusable_specifications_are_refused() {
        assert!(matches!(stated(Vec::new()).model(), Err(ModelError::Empty("intervals"))));
        let without_sources =
            ModelSpecification { sources: Vec::new(), ..stated(alloc::vec![1.0]) };
        assert!(matches!(without_sources.model(), Err(ModelError::Empty("sources"))));
        for bad in [f64::NAN, -1.0, f64::INFINITY] {
            let model = stated(alloc::vec![1.0, bad]).model();
            assert!(matches!(model, Err(ModelError::NotPositive("a number of sessions", _))));
        }
        assert!(matches!(stated(alloc::vec![0.0]).model(), Err(ModelError::Empty(_))));
    }

    /// Gaps of up to 4 s, uniformly; and two laws of a single length each.
    #[test]
    fn short_gaps_are_those_within_the_bound() {
        let knots = alloc::vec![(0.0, 0.0), (0.5, 2.0), (1.0, 4.0)];
        let gaps = Empirical::new(Form::Linear, 9, knots).expect("a law");
        assert_eq!(short_gaps(&gaps, 0.0), (0.0, 0.0));
        assert_eq!(short_gaps(&gaps, 1.0), (0.25, 0.5));
        assert_eq!(short_gaps(&gaps, 2.0), (0.5, 1.0));
        assert_eq!(short_gaps(&gaps, 3.0), (0.75, 1.5));
        assert_eq!(short_gaps(&gaps, 4.0), (1.0, 2.0));
        assert_eq!(short_gaps(&gaps, 9.0), (1.0, 2.0));
        // No gap is longer than a thousandth of the interval: the number follows from their mean.
        assert_eq!(connections(&gaps, 4_000.0), 2_000.0);
        let atoms = alloc::vec![(0.5, 1.0), (1.0, 3.0)];
        let gaps = Empirical::new(Form::Step, 9, atoms).expect("a law");
        assert_eq!(short_gaps(&gaps, 0.9), (0.0, 0.0));
        assert_eq!(short_gaps(&gaps, 1.0), (0.5, 1.0));
        assert_eq!(short_gaps(&gaps, 2.9), (0.5, 1.0));
        assert_eq!(short_gaps(&gaps, 3.0), (1.0, 2.0));
    }
}

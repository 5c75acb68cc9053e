//! Section 7.3 of the DER paper, sentence by sentence, at the round-trip time that fits it.
//!
//! The paper draws buffers of 100 to 5,000 packets and says that larger ones behave the same. So
//! "small" (under 500) is 100 and 200 packets, "higher buffer sizes" is 1,000, 2,000 and 5,000, and
//! "overall" is the mean over 100, 200, 500, 1,000, 2,000 and 5,000: each must be measured. Words
//! without a number have one here, in each rule; they were chosen before anything was measured.

use std::cmp::Ordering::{Greater, Less};

use super::{Bench, Cited, Claim, Estimate, Measured, Quantity, Reproduction, compared, within};
use Quantity::{FairSharePercent as Mean, StddevOverFairShare as Deviation};

/// The round-trip time at which the sentences are judged, ms. The paper does not give its own.
pub const RTT_MS: f64 = 100.0;

/// Under 500 packets.
const SMALL: [u64; 2] = [100, 200];
/// "Higher buffer sizes".
const HIGHER: [u64; 3] = [1_000, 2_000, 5_000];
/// All that the paper draws.
const DRAWN: [u64; 6] = [100, 200, 500, 1_000, 2_000, 5_000];
/// What it leaves out.
const BEYOND: [u64; 2] = [10_000, 20_000];
/// Disciplines with a queue for each flow.
const MULTI: [&str; 3] = ["drr", "tdrr", "qsdrr"];
/// Disciplines with one queue.
const SINGLE: [&str; 3] = ["tail_drop", "red", "blue"];

struct Sentence {
    id: &'static str,
    sentence: &'static str,
    paper: &'static str,
    rule: &'static str,
    judge: fn(&mut Bench<'_>) -> Reproduction,
}

/// Every sentence of section 7.3, judged by the points at [`RTT_MS`].
pub fn judge(points: &[Measured]) -> Vec<Claim> {
    let one = |sentence: &Sentence| {
        let mut bench = Bench::new(points);
        let verdict = (sentence.judge)(&mut bench);
        let Sentence { id, sentence, paper, rule, .. } = *sentence;
        Claim { id, sentence, paper, rule, verdict, figures: bench.cited() }
    };
    SENTENCES.iter().map(one).collect()
}

/// At every one of `buffers`, `first` against every one of `others`.
fn each(
    bench: &mut Bench<'_>,
    (first, others): (&'static str, &[&'static str]),
    buffers: &[u64],
    quantity: Quantity,
) -> Vec<(Option<Estimate>, Option<Estimate>)> {
    let mut pairs = Vec::new();
    for &buffer in buffers {
        let own = bench.at(first, buffer, quantity);
        for &other in others {
            pairs.push((own, bench.at(other, buffer, quantity)));
        }
    }
    pairs
}

/// The values of one discipline at `buffers`.
fn values(
    bench: &mut Bench<'_>,
    discipline: &'static str,
    buffers: &[u64],
    quantity: Quantity,
) -> Vec<Option<f64>> {
    let value = |&buffer: &u64| bench.at(discipline, buffer, quantity).map(|one| one.value);
    buffers.iter().map(value).collect()
}

/// How many times the variance of QSDRR and DRR, overall.
fn variance_ratio(bench: &mut Bench<'_>, discipline: &'static str) -> Option<f64> {
    let mut overall = |name| bench.over(name, &DRAWN, Deviation).map(|one| one.value);
    let own = overall(discipline)?;
    let base = (overall("qsdrr")? + overall("drr")?) / 2.0;
    let value = (own / base).powi(2);
    if !value.is_finite() {
        return None;
    }
    let quantity = Quantity::VarianceRatio;
    bench.cite(Cited { discipline, buffer_packets: None, quantity, value, half_width: None });
    Some(value)
}

/// About `times` times the variance: within a factor of two of it; less than once is the reverse.
fn about(bench: &mut Bench<'_>, discipline: &'static str, times: f64) -> Reproduction {
    match variance_ratio(bench, discipline) {
        None => Reproduction::NotMeasured,
        Some(ratio) if ratio < 1.0 => Reproduction::Reversed,
        Some(ratio) => within(&[Some(ratio)], times / 2.0, times * 2.0),
    }
}

/// A single-queue discipline's overall deviation, within a quarter of the paper's.
fn overall_near(bench: &mut Bench<'_>, discipline: &'static str, paper: f64) -> Reproduction {
    let value = bench.over(discipline, &DRAWN, Deviation).map(|one| one.value);
    within(&[value], 0.75 * paper, 1.25 * paper)
}

/// RED is the more variable at 200 packets: at least twice the deviation of QSDRR.
fn considerably_more(bench: &mut Bench<'_>) -> Reproduction {
    let red = bench.at("red", 200, Deviation);
    let qsdrr = bench.at("qsdrr", 200, Deviation);
    let verdict = compared(&[(red, qsdrr)], Greater);
    match (verdict, red, qsdrr) {
        (Reproduction::Reproduced, Some(red), Some(qsdrr)) if red.value < 2.0 * qsdrr.value => {
            Reproduction::NotReproduced
        }
        (verdict, ..) => verdict,
    }
}

fn drr_is_comparable(bench: &mut Bench<'_>) -> Reproduction {
    let mut differences = Vec::new();
    for (drr, red) in each(bench, ("drr", &["red"]), &SMALL, Mean) {
        differences.push(drr.zip(red).map(|(drr, red)| (drr.value - red.value).abs()));
    }
    within(&differences, 0.0, 5.0)
}

fn all_beat_blue(bench: &mut Bench<'_>) -> Reproduction {
    let mut pairs = Vec::new();
    for name in ["tail_drop", "red", "drr", "tdrr", "qsdrr"] {
        pairs.extend(each(bench, (name, &["blue"]), &[5_000], Mean));
    }
    compared(&pairs, Greater)
}

fn multi_are_fairer(bench: &mut Bench<'_>) -> Reproduction {
    let multi = MULTI.map(|name| bench.over(name, &DRAWN, Deviation));
    let single = SINGLE.map(|name| bench.over(name, &DRAWN, Deviation));
    let pairs: Vec<_> = multi.iter().flat_map(|&m| single.map(|s| (m, s))).collect();
    compared(&pairs, Less)
}

fn same_beyond(bench: &mut Bench<'_>) -> Reproduction {
    let mut verdicts = Vec::new();
    for (quantity, near) in [(Mean, 2.0), (Deviation, 0.02)] {
        for name in SINGLE.into_iter().chain(MULTI) {
            let drawn = bench.at(name, 5_000, quantity);
            let mut differences = Vec::new();
            for buffer in BEYOND {
                let beyond = bench.at(name, buffer, quantity);
                differences.push(drawn.zip(beyond).map(|(a, b)| (a.value - b.value).abs()));
            }
            verdicts.push(within(&differences, 0.0, near));
        }
    }
    let worst = [Reproduction::NotMeasured, Reproduction::NotReproduced];
    worst.into_iter().find(|one| verdicts.contains(one)).unwrap_or(Reproduction::Reproduced)
}

const SENTENCES: [Sentence; 19] = [
    Sentence {
        id: "qsdrr_flows_near_mean",
        sentence: "For QSDRR, all TCP flows had goodputs very close to the mean (200 packets)",
        paper: "Figure 15a, no number",
        rule: "standard deviation at most 5 % of the fair share",
        judge: |bench| within(&values(bench, "qsdrr", &[200], Deviation), 0.0, 0.05),
    },
    Sentence {
        id: "qsdrr_mean_near_share",
        sentence: "and the mean goodput is very near the fair-share threshold",
        paper: "Figure 15a, no number",
        rule: "mean goodput at least 95 % of the fair share",
        judge: |bench| within(&values(bench, "qsdrr", &[200], Mean), 95.0, 105.0),
    },
    Sentence {
        id: "red_more_variable",
        sentence: "The RED plot shows considerably more variability",
        paper: "Figure 15b, no number",
        rule: "standard deviation at 200 packets at least twice QSDRR’s, intervals apart",
        judge: considerably_more,
    },
    Sentence {
        id: "small_tdrr_over_red",
        sentence: "For small buffer sizes (under 500 packets), TDRR … outperform[s] RED \
                   significantly",
        paper: "Figure 16",
        rule: "mean goodput above RED’s at 100 and 200 packets, intervals apart",
        judge: |bench| compared(&each(bench, ("tdrr", &["red"]), &SMALL, Mean), Greater),
    },
    Sentence {
        id: "small_qsdrr_over_red",
        sentence: "… and QSDRR outperform[s] RED significantly",
        paper: "Figure 16",
        rule: "mean goodput above RED’s at 100 and 200 packets, intervals apart",
        judge: |bench| compared(&each(bench, ("qsdrr", &["red"]), &SMALL, Mean), Greater),
    },
    Sentence {
        id: "small_drr_like_red",
        sentence: "and DRR is comparable to RED",
        paper: "Figure 16",
        rule: "mean goodputs less than 5 points apart at 100 and 200 packets",
        judge: drr_is_comparable,
    },
    Sentence {
        id: "large_all_over_blue",
        sentence: "even for a large buffer size (5000 packets), all policies significantly \
                   outperform Blue including Tail Drop",
        paper: "Figure 16",
        rule: "mean goodput of each above Blue’s at 5,000 packets, intervals apart",
        judge: all_beat_blue,
    },
    Sentence {
        id: "higher_drr_below_0025",
        sentence: "Even at higher buffer sizes, the standard deviations for DRR … are very small, \
                   and the ratio to the fair share bandwidth is less than 0.025",
        paper: "< 0.025",
        rule: "below 0.025 at 1,000, 2,000 and 5,000 packets",
        judge: |bench| within(&values(bench, "drr", &HIGHER, Deviation), 0.0, 0.025),
    },
    Sentence {
        id: "higher_qsdrr_below_0025",
        sentence: "… and QSDRR …, less than 0.025",
        paper: "< 0.025",
        rule: "below 0.025 at 1,000, 2,000 and 5,000 packets",
        judge: |bench| within(&values(bench, "qsdrr", &HIGHER, Deviation), 0.0, 0.025),
    },
    Sentence {
        id: "tdrr_higher",
        sentence: "TDRR exhibits a higher goodput standard deviation",
        paper: "Figure 17",
        rule: "above DRR’s and QSDRR’s at 1,000, 2,000 and 5,000 packets, intervals apart",
        judge: |bench| {
            compared(&each(bench, ("tdrr", &["drr", "qsdrr"]), &HIGHER, Deviation), Greater)
        },
    },
    Sentence {
        id: "tdrr_below_single",
        sentence: "but it is still significantly below Blue, RED and Tail Drop",
        paper: "Figure 17",
        rule: "below each of theirs at 1,000, 2,000 and 5,000 packets, intervals apart",
        judge: |bench| compared(&each(bench, ("tdrr", &SINGLE), &HIGHER, Deviation), Less),
    },
    Sentence {
        id: "red_ten_times",
        sentence: "RED exhibits about 10 times the variance compared to QSDRR and DRR",
        paper: "10 ×",
        rule: "squared ratio of overall deviations, RED’s to the mean of QSDRR’s and DRR’s: 5 to 20",
        judge: |bench| about(bench, "red", 10.0),
    },
    Sentence {
        id: "blue_five_times",
        sentence: "while Blue exhibits about 5 times the variance",
        paper: "5 ×",
        rule: "the same for Blue: 2.5 to 10",
        judge: |bench| about(bench, "blue", 5.0),
    },
    Sentence {
        id: "overall_multi",
        sentence: "Overall, the goodput standard deviation is between 2 % – 4 % of the fair share \
                   bandwidth for the multi-queue policies",
        paper: "2–4 %",
        rule: "overall deviation of DRR, TDRR and QSDRR each 2 to 4 % in whole percents",
        judge: |bench| {
            let each = MULTI.map(|name| bench.over(name, &DRAWN, Deviation).map(|one| one.value));
            within(&each, 0.015, 0.045)
        },
    },
    Sentence {
        id: "overall_blue",
        sentence: "compared to 6 % for Blue",
        paper: "6 %",
        rule: "overall deviation within a quarter of the paper’s",
        judge: |bench| overall_near(bench, "blue", 0.06),
    },
    Sentence {
        id: "overall_red",
        sentence: "10 % for RED",
        paper: "10 %",
        rule: "overall deviation within a quarter of the paper’s",
        judge: |bench| overall_near(bench, "red", 0.10),
    },
    Sentence {
        id: "overall_tail_drop",
        sentence: "and 12 % for Tail Drop",
        paper: "12 %",
        rule: "overall deviation within a quarter of the paper’s",
        judge: |bench| overall_near(bench, "tail_drop", 0.12),
    },
    Sentence {
        id: "multi_fairer",
        sentence: "the multi-queue policies offer much better fairness between TCP flows",
        paper: "Figure 17",
        rule: "overall deviation of each below that of every single-queue policy, intervals apart",
        judge: multi_are_fairer,
    },
    Sentence {
        id: "same_beyond_5000",
        sentence: "the behavior with larger buffer sizes is the same for larger sizes",
        paper: "not shown",
        rule: "at 10,000 and 20,000 packets every mean goodput within 2 points, and every deviation \
               within 0.02, of that at 5,000",
        judge: same_beyond,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    type World = fn(&str, u64) -> (f64, f64);

    /// A sweep in which every point has these figures, with intervals of half a point and a
    /// hundredth of the deviation.
    fn points(world: World) -> Vec<Measured> {
        let estimate = |value: f64, half: f64| Some(Estimate { value, half: Some(half) });
        let mut points = Vec::new();
        for name in SINGLE.into_iter().chain(MULTI) {
            for buffer in DRAWN.into_iter().chain(BEYOND) {
                let (mean, deviation) = world(name, buffer);
                points.push(Measured {
                    discipline: name.to_owned(),
                    buffer_packets: buffer,
                    fair_share_percent: estimate(mean, 0.5),
                    stddev_over_fair_share: estimate(deviation, deviation / 100.0),
                });
            }
        }
        points
    }

    /// Values as the paper has them.
    fn paper(name: &str, buffer: u64) -> (f64, f64) {
        let is_small = buffer < 500;
        match name {
            "tail_drop" => (if is_small { 88.0 } else { 96.0 }, 0.12),
            "red" => (if is_small { 91.0 } else { 97.0 }, 0.10),
            "blue" => (80.0, 0.062),
            "drr" => (if is_small { 90.0 } else { 97.0 }, if is_small { 0.05 } else { 0.018 }),
            "tdrr" => (98.0, 0.04),
            _ => (98.0, if is_small { 0.04 } else { 0.021 }),
        }
    }

    /// As it would have to be for every comparison to fail most clearly.
    fn contrary(name: &str, buffer: u64) -> (f64, f64) {
        let drift = if buffer > 5_000 { 3.0 } else { 0.0 };
        match name {
            "tail_drop" => (84.0 + drift, 0.02),
            "red" => (92.0 + drift, 0.03),
            "blue" => (97.0 + drift, 0.025),
            "drr" => (84.0 + drift, 0.4),
            "tdrr" => (85.0 + drift, 0.2),
            _ => (86.0 + drift, 0.3),
        }
    }

    fn verdicts(points: &[Measured]) -> Vec<(&'static str, Reproduction)> {
        judge(points).into_iter().map(|claim| (claim.id, claim.verdict)).collect()
    }

    #[test]
    fn the_paper_reproduces_itself() {
        for claim in judge(&points(paper)) {
            assert_eq!(claim.verdict, Reproduction::Reproduced, "{claim:?}");
            assert!(!claim.figures.is_empty() && !claim.rule.is_empty(), "{}", claim.id);
        }
    }

    #[test]
    fn every_sentence_has_an_opposite_or_a_bound() {
        let reversed = [
            "red_more_variable",
            "small_tdrr_over_red",
            "small_qsdrr_over_red",
            "large_all_over_blue",
            "tdrr_higher",
            "tdrr_below_single",
            "red_ten_times",
            "blue_five_times",
            "multi_fairer",
        ];
        for (id, verdict) in verdicts(&points(contrary)) {
            let expected = match reversed.contains(&id) {
                true => Reproduction::Reversed,
                false => Reproduction::NotReproduced,
            };
            assert_eq!(verdict, expected, "{id}");
        }
    }

    #[test]
    fn one_world_where_nothing_differs() {
        let same: World = |_, _| (90.0, 0.1);
        let reproduced = ["small_drr_like_red", "overall_red", "overall_tail_drop"];
        for (id, verdict) in verdicts(&points(same)) {
            let holds = reproduced.contains(&id) || id == "same_beyond_5000";
            let expected =
                if holds { Reproduction::Reproduced } else { Reproduction::NotReproduced };
            assert_eq!(verdict, expected, "{id}");
        }
    }

    #[test]
    fn each_sentence_needs_its_points() {
        assert!(verdicts(&[]).iter().all(|(_, verdict)| *verdict == Reproduction::NotMeasured));
        let without = |drop: &dyn Fn(&Measured) -> bool| {
            let mut kept = points(paper);
            kept.retain(|point| !drop(point));
            let missing = verdicts(&kept).into_iter();
            missing
                .filter(|(_, v)| *v == Reproduction::NotMeasured)
                .map(|(id, _)| id)
                .collect::<Vec<_>>()
        };
        assert_eq!(without(&|point| point.buffer_packets == 20_000), ["same_beyond_5000"]);
        let small = without(&|point| point.buffer_packets == 100);
        assert!(small.contains(&"small_qsdrr_over_red") && small.contains(&"overall_blue"));
        assert!(!small.contains(&"qsdrr_mean_near_share"));
        let blue = without(&|point| point.discipline == "blue");
        assert!(blue.contains(&"large_all_over_blue") && !blue.contains(&"tdrr_higher"));
    }

    #[test]
    fn a_single_seed_decides_ranges_only() {
        let mut bare = points(paper);
        for point in &mut bare {
            for estimate in [&mut point.fair_share_percent, &mut point.stddev_over_fair_share] {
                *estimate = estimate.map(|one| Estimate { half: None, ..one });
            }
        }
        for (id, verdict) in verdicts(&bare) {
            let range = id.starts_with("overall")
                || id.starts_with("higher")
                || id.contains("near")
                || id.contains("times")
                || ["small_drr_like_red", "same_beyond_5000"].contains(&id);
            let expected = if range { Reproduction::Reproduced } else { Reproduction::NotMeasured };
            assert_eq!(verdict, expected, "{id}");
        }
    }
}

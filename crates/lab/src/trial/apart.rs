//! Inputs far apart in time: whether a model of them would be mostly empty.
//!
//! A model divides the time from the first start to the last end of all inputs into three to twelve
//! intervals. Inputs that follow one another fill them. If inputs that are days or years apart are given
//! together by mistake, the model is one of their distance: everything lies in the first and the last
//! interval, all between is empty, and fitted into a minute each input is a burst. So the time *between*
//! inputs, where none of them has any traffic, is added up and compared with the whole: when it is more
//! than half, most of the model's time is empty, whatever its interval is. A gap no longer than the bound
//! of inter-connection times does not count, because sessions wait that long. Pauses within an input do not
//! count either.

use nilometer_files::input::summary::InputSpan;

use super::input_warning::InputWarning;

/// The share of the whole time that may lie between inputs.
const EMPTY_MAX: f64 = 0.5;
const SECOND_NS: u64 = 1_000_000_000;

/// The widest gap, where more than half of the time lies between inputs. `bound_s` is the longest inter-connection time, seconds.
pub fn warning(spans: &[InputSpan], bound_s: f64) -> Option<InputWarning> {
    let mut spans: Vec<&InputSpan> = spans.iter().collect();
    spans.sort_by_key(|span| (span.first_ns, span.last_ns));
    let (first, rest) = spans.split_first()?;
    let mut latest = *first;
    let mut empty_ns = 0;
    let mut widest: Option<(u64, &InputSpan, &InputSpan)> = None;
    for &next in rest {
        let gap_ns = next.first_ns.saturating_sub(latest.last_ns);
        if gap_ns as f64 > bound_s * SECOND_NS as f64 {
            empty_ns += gap_ns;
            if widest.is_none_or(|(most, ..)| gap_ns > most) {
                widest = Some((gap_ns, latest, next));
            }
        }
        if next.last_ns > latest.last_ns {
            latest = next;
        }
    }
    let (_, before, after) = widest?;
    let empty_share = empty_ns as f64 / (latest.last_ns - first.first_ns) as f64;
    (empty_share > EMPTY_MAX).then(|| InputWarning::FarApart {
        before: (before.name.clone(), before.last_ns),
        after: (after.name.clone(), after.first_ns),
        empty_share,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(of: &[(u64, u64)]) -> Vec<InputSpan> {
        let one = |(at, &(first, last)): (usize, &(u64, u64))| InputSpan {
            name: format!("{at}.pcap"),
            first_ns: first * SECOND_NS,
            last_ns: last * SECOND_NS,
        };
        of.iter().enumerate().map(one).collect()
    }

    fn warned(of: &[(u64, u64)]) -> Option<String> {
        warning(&spans(of), 60.0).map(|warning| warning.to_string())
    }

    #[test]
    fn a_gap_of_years_is_named_from_end_to_start() {
        let line = warned(&[(1_565_000_000, 1_565_000_100), (1_115_000_000, 1_115_000_100)]);
        let line = line.expect("fourteen years");
        assert_eq!(
            line,
            "the inputs are far apart: nothing from 2005-05-02 02:15:00 UTC (1.pcap) to 2019-08-05 \
             10:13:20 UTC (0.pcap), 5208 days; 100 % of the model's time is empty; make a model of \
             each, or give inputs that follow one another"
        );
    }

    #[test]
    fn half_of_the_time_is_the_limit_and_all_gaps_count() {
        assert_eq!(warned(&[(0, 100), (300, 400)]), None, "half, and no more");
        let line = warned(&[(0, 100), (301, 400)]).expect("more than half");
        assert!(line.contains("3 minutes; 50 % of"), "{line}");
        // No gap is half of the whole, but they are together.
        let line = warned(&[(0, 100), (700, 800), (300, 400)]).expect("500 of 800 s");
        assert!(line.contains("(2.pcap) to") && line.contains("5 minutes; 62 %"), "{line}");
    }

    #[test]
    fn inputs_that_overlap_or_follow_closely_cause_no_warning() {
        for fine in [
            &[][..],
            &[(5, 9)],
            &[(0, 0), (60, 60)],
            &[(0, 300), (301, 600), (650, 900)],
            &[(0, 1_000), (100, 200), (700, 900)],
        ] {
            assert_eq!(warned(fine), None, "{fine:?}");
        }
        assert!(warned(&[(0, 0), (61, 61)]).is_some(), "longer than any wait");
    }
}

//! The points of a sweep arranged for plots: an axis, lines for one parameter, facets for the rest.
//!
//! The numeric parameter with the most values becomes x. The discipline, or the first parameter that
//! is no number, or a number with few values, becomes the lines. Other swept parameters become
//! facets: the same plots again, for each combination. A sweep without numbers has no x; each line
//! is then one point.

use toml::Value;

use crate::simulate::result::{PointResult, shown_value};

/// Most facets that a page draws; all points are in its table.
pub const FACETS_MAX: usize = 12;
/// A number with more values than this is no name of lines.
const LINES_FEW: usize = 9;

/// A swept parameter and its values.
pub type Swept = (String, Vec<Value>);

/// A point on a line.
#[derive(Clone, Copy, Debug)]
pub struct Spot<'a> {
    /// The value of the numeric parameter; zero where there is none.
    pub x: f64,
    /// Its number among all points.
    pub index: usize,
    /// The point.
    pub point: &'a PointResult,
}

/// The points that differ in x alone, in its order.
#[derive(Clone, Debug)]
pub struct Line<'a> {
    /// What distinguishes it from the other lines.
    pub name: String,
    /// Its classes of the style sheet, the same on all plots.
    pub tone: String,
    /// Its points.
    pub spots: Vec<Spot<'a>>,
}

/// The lines that are drawn together.
#[derive(Clone, Debug)]
pub struct Facet<'a> {
    /// What distinguishes it from the other facets; empty where it is the only one.
    pub name: String,
    /// Its lines, in the order of the sweep.
    pub lines: Vec<Line<'a>>,
}

/// All points.
#[derive(Clone, Debug)]
pub struct Arrangement<'a> {
    /// The numeric parameter.
    pub x: Option<String>,
    /// At least one where there are points.
    pub facets: Vec<Facet<'a>>,
}

/// A number, if it is one.
pub fn number(value: &Value) -> Option<f64> {
    let whole = value.as_integer().map(|whole| whole as f64);
    value.as_float().or(whole).filter(|number| number.is_finite())
}

/// A parameter in words, and its unit.
pub fn label(key: &str) -> (String, &'static str) {
    const UNITS: [(&str, &str); 7] = [
        ("_packets", "packets"),
        ("_periods", "periods"),
        ("_percent", "%"),
        ("_bytes", "bytes"),
        ("_mbps", "Mb/s"),
        ("_ms", "ms"),
        ("_s", "s"),
    ];
    let unit = UNITS.iter().find(|(ending, _)| key.ends_with(ending) && key.len() > ending.len());
    let (stem, unit) = unit.map_or((key, ""), |(end, unit)| (&key[..key.len() - end.len()], *unit));
    (stem.replace('_', " "), unit)
}

/// A parameter with its value: `rtt 100 ms`.
pub fn label_with_value(key: &str, value: &str) -> String {
    let (stem, unit) = label(key);
    let value = value.replace('_', " ");
    if unit.is_empty() { format!("{stem} {value}") } else { format!("{stem} {value}\u{a0}{unit}") }
}

/// The display name of a discipline; other words unchanged.
pub fn called(word: &str) -> String {
    let known = match word {
        "tail_drop" => "tail drop",
        "red" => "RED",
        "blue" => "Blue",
        "drr" => "DRR",
        "tdrr" => "TDRR",
        "qsdrr" => "QSDRR",
        "codel" => "CoDel",
        "fq_codel" => "FQ-CoDel",
        "pie" => "PIE",
        other => return other.replace('_', " "),
    };
    known.to_owned()
}

/// The classes of a line: a discipline has the same on all pages, one queue dashed; others by rank.
pub fn tone(word: &str, rank: usize) -> String {
    const KNOWN: [(&str, &str); 9] = [
        ("tail_drop", "tone1 dashed"),
        ("red", "tone2 dashed"),
        ("blue", "tone3 dashed"),
        ("drr", "tone4"),
        ("tdrr", "tone5"),
        ("qsdrr", "tone6"),
        ("codel", "tone7 dashed"),
        ("fq_codel", "tone8"),
        ("pie", "tone9 dashed"),
    ];
    const RANKS: [u8; 9] = [3, 2, 6, 4, 5, 7, 9, 8, 1];
    match KNOWN.iter().find(|(known, _)| *known == word) {
        Some((_, tone)) => (*tone).to_owned(),
        None => {
            let dashed = if (rank / RANKS.len()).is_multiple_of(2) { "" } else { " dashed" };
            format!("tone{}{dashed}", RANKS[rank % RANKS.len()])
        }
    }
}

/// Which parameters are x, the lines, and the facets.
fn roles(axes: &[Swept]) -> (Option<&Swept>, Option<&Swept>, Vec<&Swept>) {
    let swept: Vec<&Swept> = axes.iter().filter(|(_, values)| values.len() > 1).collect();
    let numeric = |axis: &&&Swept| axis.1.iter().all(|value| number(value).is_some());
    let x = swept.iter().rev().filter(numeric).max_by_key(|axis| axis.1.len()).copied();
    let rest = || swept.iter().filter(|axis| x.is_none_or(|x| x.0 != axis.0));
    let lines = rest()
        .find(|axis| axis.0 == "discipline")
        .or_else(|| rest().find(|axis| !numeric(axis)))
        .or_else(|| {
            rest().filter(|axis| axis.1.len() <= LINES_FEW).min_by_key(|axis| axis.1.len())
        });
    let lines = lines.copied();
    let facets = rest().filter(|axis| lines.is_none_or(|lines| lines.0 != axis.0)).copied();
    (x, lines, facets.collect())
}

/// Arranges the points.
pub fn arrange<'a>(points: &'a [PointResult], axes: &[Swept]) -> Arrangement<'a> {
    let (x, lines, rest) = roles(axes);
    let mut facets: Vec<Facet<'a>> = Vec::new();
    for (index, point) in points.iter().enumerate() {
        let value = |key: &str| shown_value(&point.parameters, key);
        let parts: Vec<String> =
            rest.iter().map(|(key, _)| label_with_value(key, &called(&value(key)))).collect();
        let facet = place(
            &mut facets,
            &parts.join(", "),
            |facet| &facet.name,
            |name| Facet { name, lines: Vec::new() },
        );
        let (word, name) = match lines {
            None => (value("discipline"), called(&value("discipline"))),
            Some((key, values)) if values.iter().all(|value| number(value).is_some()) => {
                (String::new(), label_with_value(key, &value(key)))
            }
            Some((key, _)) => (value(key), called(&value(key))),
        };
        let rank = facet.lines.len();
        let line = place(
            &mut facet.lines,
            &name,
            |line| &line.name,
            |name| Line { name, tone: tone(&word, rank), spots: Vec::new() },
        );
        let x = x.and_then(|(key, _)| value(key).parse().ok()).unwrap_or(0.0);
        line.spots.push(Spot { x, index, point });
    }
    for line in facets.iter_mut().flat_map(|facet| &mut facet.lines) {
        line.spots.sort_by(|a, b| a.x.total_cmp(&b.x));
    }
    Arrangement { x: x.map(|(key, _)| key.clone()), facets }
}

/// The item of this name, created if there is none.
fn place<'v, T>(
    list: &'v mut Vec<T>,
    name: &str,
    of: impl Fn(&T) -> &String,
    make: impl FnOnce(String) -> T,
) -> &'v mut T {
    let at = list.iter().position(|one| of(one) == name).unwrap_or_else(|| {
        list.push(make(name.to_owned()));
        list.len() - 1
    });
    &mut list[at]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(key: &str, values: &[&str]) -> Swept {
        let value = |text: &&str| text.parse().map_or(Value::String((*text).into()), Value::Float);
        (key.to_owned(), values.iter().map(value).collect())
    }

    fn named(axes: &[Swept]) -> (String, String, Vec<String>) {
        let (x, lines, rest) = roles(axes);
        let name = |axis: Option<&Swept>| axis.map_or(String::new(), |axis| axis.0.clone());
        (name(x), name(lines), rest.iter().map(|axis| axis.0.clone()).collect())
    }

    #[test]
    fn each_parameter_has_a_role() {
        let rtt = axis("rtt_ms", &["50", "100"]);
        let buffer = axis("buffer_packets", &["100", "200", "500"]);
        let discipline = axis("discipline", &["red", "blue"]);
        let tcp = axis("tcp", &["reno", "sack"]);
        let one = axis("queues", &["10"]);
        let own = |text: &str| text.to_owned();
        let all = [tcp.clone(), rtt.clone(), buffer.clone(), discipline.clone(), one.clone()];
        let rest = vec![own("tcp"), own("rtt_ms")];
        assert_eq!(named(&all), (own("buffer_packets"), own("discipline"), rest));
        let two = [rtt.clone(), buffer];
        assert_eq!(named(&two), (own("buffer_packets"), own("rtt_ms"), vec![]));
        assert_eq!(named(std::slice::from_ref(&discipline)), (own(""), own("discipline"), vec![]));
        let words = [tcp, discipline];
        assert_eq!(named(&words), (own(""), own("discipline"), vec![own("tcp")]));
        assert_eq!(named(&[rtt]), (own("rtt_ms"), own(""), vec![]));
        assert_eq!(named(&[one]), (own(""), own(""), vec![]));
    }

    #[test]
    fn parameter_names_are_shown_with_their_units() {
        assert_eq!(label_with_value("rtt_ms", "100"), "rtt 100\u{a0}ms");
        assert_eq!(label_with_value("max_p", "0.01"), "max p 0.01");
        assert_eq!(label("buffer_packets"), ("buffer".to_owned(), "packets"));
        assert_eq!(called("tail_drop"), "tail drop");
        assert_eq!(
            (tone("red", 5), tone("x", 0), tone("y", 9)),
            ("tone2 dashed".to_owned(), "tone3".to_owned(), "tone3 dashed".to_owned())
        );
    }
}

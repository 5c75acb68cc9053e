//! The paper's claims about its own scenario, and whether the whole study was run.

use toml::Value;

use super::claims::section7::{self, RTT_MS};
use super::claims::{Claim, Measured};
use super::result::{PointResult, shown_value};
use super::shipped;
use super::template::Template;

/// The scenario that section 7 of the paper is about.
const OF_PAPER: &str = "qsdrr";

/// The parameters that its sentences distinguish.
const OWN_AXES: [&str; 3] = ["discipline", "buffer_packets", "rtt_ms"];

/// The value that a parameter has in the scenario as it is shipped.
pub(super) fn as_shipped(name: &str, key: &str) -> Option<Value> {
    let shipped = shipped::find(name)?;
    let template = Template::read(shipped.name, shipped.text).ok()?;
    let of = template.parameters.into_iter().find(|(known, _)| known == key);
    of.map(|(_, value)| value)
}

/// The seconds of each run and those of the whole study, where the paper's scenario was shortened.
pub fn shortened(template: &Template) -> Option<[f64; 2]> {
    if template.name() != OF_PAPER {
        return None;
    }
    let shipped = shipped::find(OF_PAPER)?;
    let whole = Template::read(shipped.name, shipped.text).ok()?.duration_s()?;
    template.duration_s().filter(|own| *own < whole).map(|own| [own, whole])
}

/// The sentences of section 7.3, for the paper's scenario; none for any other. They are about the
/// whole study: in a shortened one, most of which is slow start, none is judged. Where other
/// parameters are swept than those they distinguish, they are judged at the shipped value, or at
/// the first where that was not run.
pub fn claims(template: &Template, points: &[PointResult]) -> Vec<Claim> {
    if template.name() != OF_PAPER {
        return Vec::new();
    }
    if shortened(template).is_some() {
        return section7::judge(&[]);
    }
    let others = template.axes.iter().filter(|(key, _)| !OWN_AXES.contains(&key.as_str()));
    let at: Vec<(&str, String)> = others
        .filter_map(|(key, values)| {
            let shipped = as_shipped(OF_PAPER, key).filter(|value| values.contains(value));
            let value = shipped.or_else(|| values.first().cloned())?;
            Some((key.as_str(), value.as_str().map_or_else(|| value.to_string(), str::to_owned)))
        })
        .collect();
    let is_there = |point: &&PointResult| {
        at.iter().all(|(key, value)| shown_value(&point.parameters, key) == *value)
    };
    let measured: Vec<Measured> =
        points.iter().filter(is_there).filter_map(|point| Measured::of(point, RTT_MS)).collect();
    section7::judge(&measured)
}

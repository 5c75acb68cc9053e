//! The points of a sweep: every combination of the axes' values, the last axis the quickest.

use anyhow::{Result, bail};

use super::template::{Parameters, Template};

/// Most points of a sweep.
pub const POINTS_MAX: usize = 100_000;

/// All points of a sweep; one where there is no axis.
///
/// # Errors
/// More than [`POINTS_MAX`].
pub fn points(template: &Template) -> Result<Vec<Parameters>> {
    let count = template.axes.iter().try_fold(1usize, |product, (_, values)| {
        product.checked_mul(values.len()).filter(|count| *count <= POINTS_MAX)
    });
    let Some(count) = count else {
        bail!("{}: the sweep has more than {POINTS_MAX} points", template.label);
    };
    let mut points = Vec::with_capacity(count);
    for number in 0..count {
        let mut parameters = template.parameters.clone();
        let mut rest = number;
        for (name, values) in template.axes.iter().rev() {
            let value = &values[rest % values.len()];
            rest /= values.len();
            let of_axis = parameters.iter_mut().find(|(known, _)| known == name);
            of_axis.expect("an axis is a parameter").1 = value.clone();
        }
        points.push(parameters);
    }
    Ok(points)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_axis_is_the_quickest() {
        let text = "[parameters]\na = 0\nb = 0\nc = 9\n[sweep]\nb = [1, 2]\na = [3, 4]\n";
        let template = Template::read("t", text).expect("sound");
        let shown = points(&template).expect("few");
        let shown: Vec<String> = shown
            .iter()
            .map(|point| point.iter().map(|(name, value)| format!("{name}{value}")).collect())
            .collect();
        assert_eq!(shown, ["a3b1c9", "a4b1c9", "a3b2c9", "a4b2c9"]);
        let single = Template::read("t", "[parameters]\na = 0\n").expect("sound");
        assert_eq!(points(&single).expect("one").len(), 1);
    }

    #[test]
    fn a_sweep_has_an_end() {
        let axis = format!("{:?}", (0..1_000).collect::<Vec<_>>());
        let text = format!("[parameters]\na = 0\nb = 0\n[sweep]\na = {axis}\nb = {axis}\n");
        assert!(points(&Template::read("t", &text).expect("sound")).is_err());
    }
}

//! The HTML report of `nilometer compare`: two inputs, law by law.

use nilometer_likeness::Likeness;

use super::heading::Heading;
use super::likeness::{sentence, table};
use super::plot::svg::escape;
use super::story::Story;
use super::verdict::Span;
use super::{page, tables};

/// What a page is made of.
#[derive(Clone, Copy, Debug)]
pub struct Comparison<'a> {
    /// What the original and the copy are called.
    pub names: [&'a str; 2],
    /// A row a figure of both: its name, the original's, the copy's.
    pub sides: &'a [Vec<String>],
    /// Every law.
    pub likeness: &'a [Likeness],
    /// What the devices of two runs did: a row a figure, its name, the first's, the second's, their difference, the
    /// noise. Empty where that is not known.
    pub devices: &'a [Vec<String>],
    /// Which laws were not measured, and why; empty where all were.
    pub not_measured: &'a str,
    /// What a reader should know.
    pub warnings: &'a [String],
    /// Version of the tool.
    pub tool: &'a str,
}

/// One self-contained HTML page.
pub fn render(comparison: &Comparison<'_>) -> String {
    let [original, copy] = comparison.names;
    let heading = Heading {
        crumb: vec!["nilometer compare".to_owned(), original.to_owned(), copy.to_owned()],
        sentences: vec![vec![Span { text: sentence(comparison.likeness), strong: false }]],
        lede: "Both were read by the same code; floors are the distances of second samples of the \
               original."
            .to_owned(),
        sections: match comparison.devices {
            [] => &[["laws", "Laws"], ["both", "Both sides"]],
            _ => &[["laws", "Laws"], ["devices", "Devices"], ["both", "Both sides"]],
        },
        warnings: comparison.warnings,
    };
    let story = Story { likeness: comparison.likeness.to_vec(), ..Story::default() };
    let sides = tables::table("Both sides", &["", "original", "copy"], comparison.sides);
    let mut body = heading.html();
    body.push_str("<main>\n");
    body.push_str(&page::section("laws", "Law by law", comparison.not_measured, &[table(&story)]));
    if !comparison.devices.is_empty() {
        let head = ["", "first", "second", "difference", "noise"];
        let devices = tables::table("What the devices did", &head, comparison.devices);
        let lede = "Noise is the difference between two runs through one device that chance exceeds in 5 of 100 cases, if \
                    packets and connections were independent; counts have none.";
        body.push_str(&page::section("devices", "What the devices did", lede, &[devices]));
    }
    body.push_str(&page::section("both", "Both sides", "", &[sides]));
    body.push_str("</main>\n");
    body.push_str(&format!("<footer>nilometer {}</footer>\n", escape(comparison.tool)));
    page::document(&format!("{copy} against {original}"), &body)
}

//! Figures: each turns a part of the story into a picture and one line that says what to see.

pub mod coverage;
pub mod delay;
pub mod distribution;
pub mod fidelity;
pub mod lateness;
pub mod queue;
pub mod rank;
pub mod rows;
pub mod size;
pub mod tail;
pub mod trouble;
pub mod volume;

use super::plot::svg::{Svg, escape, px};
use super::plot::{Drawing, WIDTH};

/// A picture with its title and its caption.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Its anchor on the page.
    pub id: String,
    /// Its title, a few words.
    pub title: String,
    /// One line: what to see.
    pub caption: String,
    /// The picture.
    pub svg: String,
}

impl Figure {
    /// A figure of panels, `height` figure units high; none where nothing is drawn on them.
    pub fn new(
        [id, title]: [&str; 2],
        caption: String,
        height: f64,
        panels: &[Drawing],
    ) -> Option<Figure> {
        if panels.iter().all(|panel| panel.marks == 0) {
            return None;
        }
        let mut svg = Svg::default();
        let view = format!("0 0 {} {}", px(WIDTH), px(height));
        let words = format!("{title}. {caption}");
        let attributes = [
            ("viewBox", view.as_str()),
            ("role", "img"),
            ("tabindex", "0"),
            ("aria-label", words.as_str()),
        ];
        svg.begin("svg", &attributes);
        panels.iter().for_each(|panel| svg.raw(&panel.svg));
        svg.end();
        let svg = svg.finish();
        Some(Figure { id: id.to_owned(), title: title.to_owned(), caption, svg })
    }

    /// The figure as HTML.
    pub fn html(&self) -> String {
        format!(
            "<figure id=\"{}\"><figcaption><b>{}.</b> {}</figcaption>{}</figure>\n",
            escape(&self.id),
            escape(&self.title),
            escape(&self.caption),
            self.svg
        )
    }
}

/// A sentence's first letter as a capital.
pub fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

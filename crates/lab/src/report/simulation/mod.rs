//! Pages of `nilometer simulate`: a sweep's figures with their intervals, and the stress test's.

pub mod arrangement;
pub mod course;
pub mod lowest;
pub mod metric;
pub mod shares;
pub mod stages;
pub mod statements;
pub mod stress;
pub mod sweep;

use super::page;
use super::plot::svg::escape;
use super::verdict::Span;

/// The top of a page: what was run, two sentences, how large it was, where to look, what to doubt.
#[derive(Debug)]
pub(super) struct Heading<'a> {
    pub crumb: Vec<String>,
    pub sentences: Vec<Vec<Span>>,
    pub lede: String,
    pub sections: &'a [[&'a str; 2]],
    pub warnings: &'a [String],
}

impl Heading<'_> {
    pub fn html(&self) -> String {
        let crumb: Vec<String> = self.crumb.iter().map(|part| escape(part)).collect();
        let mut out = format!("<header>\n<p class=\"crumb\">{}</p>\n<h1>", crumb.join(" · "));
        self.sentences.iter().for_each(|words| out.push_str(&page::sentence(words)));
        out.push_str(&format!("</h1>\n<p class=\"lede\">{}</p>\n", escape(&self.lede)));
        out.push_str("<nav aria-label=\"Sections\">");
        for [id, title] in self.sections {
            out.push_str(&format!("<a href=\"#{id}\">{title}</a>"));
        }
        out.push_str("</nav>\n");
        out.push_str(&page::warnings(self.warnings));
        out.push_str("</header>\n");
        out
    }
}

/// Words of a sentence, those between stars set apart: `flows get *98 %* of it`.
pub(super) fn words(text: &str) -> Vec<Span> {
    let pieces = text.split('*').enumerate();
    let span = |(i, text): (usize, &str)| Span { text: text.to_owned(), strong: i % 2 == 1 };
    pieces.map(span).filter(|span| !span.text.is_empty()).collect()
}

/// The scenario, word for word, and how to run it again.
fn repeat(text: &str) -> String {
    let again = "<p><code>nilometer simulate scenario.toml</code> in this directory gives the same \
                 figures.</p>";
    page::folded("Repeat it", true, again)
        + &page::folded("Scenario", false, &format!("<pre tabindex=\"0\">{}</pre>", escape(text)))
}

/// The files beside the page.
fn files(files: &[[&str; 2]]) -> String {
    let items: String = files
        .iter()
        .map(|[name, meaning]| format!("<li><a href=\"{name}\">{name}</a>: {meaning}</li>"))
        .collect();
    page::folded("Files", false, &format!("<ul>{items}</ul>"))
}

fn footer(tool: &str, digest: &str) -> String {
    format!("<footer>{} · digest {}</footer>\n", escape(tool), escape(digest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_set_words_apart() {
        let spans = words("*red* is less than *98 %*.");
        let shown: Vec<(&str, bool)> =
            spans.iter().map(|span| (span.text.as_str(), span.strong)).collect();
        let expected = [("red", true), (" is less than ", false), ("98 %", true), (".", false)];
        assert_eq!(shown, expected);
    }
}

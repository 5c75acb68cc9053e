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

use nilometer_report::page;
use nilometer_report::plot::svg::escape;

/// The scenario, verbatim, and how to run it again.
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

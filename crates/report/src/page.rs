//! The page: verdict, warnings, what was requested, sent and seen, what the device did, and the
//! details.

use super::figure::{
    Figure, coverage, delay, distribution, fidelity, lateness, queue, rank, size, tail, trouble,
    volume,
};
use super::format::{self, bytes, count, plural};
use super::plot::svg::escape;
use super::policy::policy;
use super::story::{Header, Paths, Story};
use super::verdict::{Headline, Span};
use super::{likeness, losses, script, style, tables};

/// How our pages begin, and no other pages.
pub const BEGINNING: &str = "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
                             <meta name=\"generator\" content=\"Nilometer\">\n";

/// One self-contained HTML page.
pub fn render(story: &Story) -> String {
    let title = format!("{} through {}", named(&story.header.input), story.header.dut);
    let mut body = header(story);
    body.push_str("<main>\n");
    for section in [requested(story), sent(story), seen(story), device(story), details(story)] {
        body.push_str(&section);
    }
    body.push_str("</main>\n");
    body.push_str(&footer(&story.header));
    document(&title, &body)
}

/// A document with this title and body, its style and script inside.
pub fn document(title: &str, body: &str) -> String {
    format!(
        "{BEGINNING}<meta \
         http-equiv=\"Content-Security-Policy\" content=\"{}\">\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" \
         content=\"light dark\">\n<link rel=\"icon\" href=\"data:,\">\n<title>{} · \
         Nilometer</title>\n<style>{}</style></head>\n<body>\n{body}<script>{}</script>\n\
         </body></html>\n",
        policy(style::SHEET, script::READOUT),
        escape(title),
        style::SHEET,
        script::READOUT
    )
}

fn named(input: &str) -> &str {
    if input.is_empty() { "input" } else { input }
}

fn header(story: &Story) -> String {
    let head = &story.header;
    let synthetic = if head.synthetic { " (synthetic)" } else { "" };
    let mut crumb = vec![
        "nilometer lab run".to_owned(),
        escape(&format!("{}{synthetic}", named(&head.input))),
        escape(&format!("DUT {}", head.dut)),
        format!("seed {}", head.seed),
    ];
    if !head.date.is_empty() {
        crumb.push(escape(&head.date));
    }
    if head.interrupted {
        crumb.push("<b>interrupted</b>".to_owned());
    }
    let mut out = format!("<header>\n<p class=\"crumb\">{}</p>\n<h1>", crumb.join(" · "));
    Headline::of(story).sentences.iter().for_each(|words| out.push_str(&sentence(words)));
    out.push_str("</h1>\n");
    out.push_str(&lede(story));
    out.push_str(
        "<nav aria-label=\"Sections\"><a href=\"#asked\">Planned</a><a href=\"#sent\">Sent</a><a \
         href=\"#seen\">Copy</a><a href=\"#device\">Device</a><a \
         href=\"#details\">Details</a></nav>\n",
    );
    out.push_str(&warnings(&story.warnings));
    out.push_str("</header>\n");
    out
}

/// A sentence of the page's heading.
pub fn sentence(words: &[Span]) -> String {
    let words = words.iter().map(|span| match span.strong {
        true => format!("<b>{}</b>", escape(&span.text)),
        false => escape(&span.text),
    });
    format!("<span>{}</span> ", words.collect::<String>())
}

/// How large the trial was, and whether time was divided.
fn lede(story: &Story) -> String {
    let flows: u64 = story.intervals.iter().map(|i| i.flows_generated).sum();
    let payload: u64 = story.intervals.iter().map(|i| i.bytes_generated).sum();
    let mut parts = Vec::new();
    let mut say = |text: String| parts.push(format!("<b>{}</b>", escape(&text)));
    if flows > 0 {
        say(plural(flows, "connection"));
        say(format!("{} of payload", bytes(payload as f64)));
    }
    if story.packets.entered > 0 {
        say(plural(story.packets.entered, "packet"));
    }
    if story.header.duration_s > 0.0 {
        say(format!("{}\u{a0}s of traffic", format::significant(story.header.duration_s, 3)));
    }
    let k = story.header.time_divisor;
    let divided = match k.is_finite() && k > 0.0 && (k - 1.0).abs() > 1e-9 {
        true => {
            let k = format::significant(k, 3);
            format!(
                " Gaps and intervals were divided by k\u{a0}=\u{a0}{k}, connections and bytes kept: <b>the bit \
                 rate is {k} times the original’s</b>."
            )
        }
        false => String::new(),
    };
    match parts.is_empty() && divided.is_empty() {
        true => String::new(),
        false => format!("<p class=\"lede\">{}.{divided}</p>\n", parts.join(" · ")),
    }
}

/// Warnings as a list; nothing where there are none.
pub fn warnings(warnings: &[String]) -> String {
    if warnings.is_empty() {
        return String::new();
    }
    let item = |warning: &String| match warning.split_once(". ") {
        Some((first, rest)) => format!("<li><b>{}.</b> {}</li>", escape(first), escape(rest)),
        None => format!("<li><b>{}</b></li>", escape(warning)),
    };
    let items: String = warnings.iter().map(item).collect();
    format!("<ul class=\"warnings\" aria-label=\"Warnings\">{items}</ul>\n")
}

/// A section of parts, two beside each other.
pub fn section(id: &str, title: &str, about: &str, parts: &[String]) -> String {
    let pairs: String = parts
        .chunks(2)
        .map(|pair| format!("<div class=\"pair\">\n{}</div>\n", pair.concat()))
        .collect();
    format!("<section id=\"{id}\"><h2>{title}</h2><p>{}</p>\n{pairs}</section>\n", escape(about))
}

fn shown(figures: impl IntoIterator<Item = Option<Figure>>) -> Vec<String> {
    figures.into_iter().flatten().map(|figure| figure.html()).collect()
}

/// A part of the page that could not be drawn, said in words.
fn absent(what: &str) -> String {
    format!("<p class=\"note\">{}: {}.</p>\n", escape(what), format::NOT_MEASURED)
}

fn requested(story: &Story) -> String {
    let planned: u64 = story.intervals.iter().map(|i| i.flows_target).sum();
    let about = format!(
        "Learned from {}: {} planned over {}.",
        named(&story.header.input),
        plural(planned, "connection"),
        plural(story.intervals.len() as u64, "interval")
    );
    let mut parts = shown([tail::figure(story)]);
    if parts.is_empty() {
        parts.push(absent("The model's file sizes"));
    }
    let covered = coverage::figure(&story.coverage)
        .map_or_else(|| absent("What the model covers"), |f| f.html() + &tables::left_out(story));
    parts.push(format!("<div>{covered}</div>\n"));
    section("asked", "What was planned", &about, &parts)
}

fn sent(story: &Story) -> String {
    let run = &story.execution;
    let about = format!(
        "The plan and its execution: {} of {} completed, {} failed.",
        count(run.completed),
        plural(run.planned, "connection"),
        count(run.failed)
    );
    let mut parts = shown([
        volume::bytes(story),
        volume::off_plan(story),
        volume::connections(story),
        volume::packets(story),
        lateness::figure(&story.execution),
    ]);
    parts.push(format!("<div>{}</div>\n", tables::execution(story)));
    section("sent", "What was sent", &about, &parts)
}

fn seen(story: &Story) -> String {
    let about = match story.likeness.is_empty() {
        true => {
            "Packets on the wire as metered, compared with the model. The floor is the median \
             distance of independent samples of the same count drawn from the model itself."
        }
        false => {
            "Packets on the wire as metered. The table compares it with the original, both observed by the same \
             code; the floor is the median distance of two second samples of the original. The figures compare \
             it with the model: they show whether the plan was carried out."
        }
    };
    let mut parts = shown([fidelity::figure(&story.fidelity)]);
    parts.push(format!("<div>{}{}</div>\n", likeness::table(story), tables::fidelity(story)));
    let figures = [
        (distribution::file_size(story), "File sizes"),
        (distribution::inter_connection(story), "Inter-connection times"),
        (rank::sources(story), "Sources by rank"),
        (rank::destinations(story), "Destinations by rank"),
    ];
    parts.extend(
        figures.into_iter().map(|(figure, what)| figure.map_or_else(|| absent(what), |f| f.html())),
    );
    section("seen", "How closely the copy resembles the original", about, &parts)
}

fn device(story: &Story) -> String {
    let stamps = match story.header.stamps.as_str() {
        "" => "Every packet is stamped on both sides of the device.".to_owned(),
        stamps => format!("Stamps: {stamps}."),
    };
    let about = format!("{stamps} Grey is the bare wire, measured in the same way.");
    let curves = delay::distributions(story);
    let courses = delay::courses(story);
    let mut parts = Vec::new();
    if curves.is_empty() && courses.is_empty() {
        parts.push(absent("Delay through the device"));
    }
    parts.extend(curves.iter().chain(&courses).map(Figure::html));
    parts.extend(queue::figures(story).iter().map(Figure::html));
    parts.extend(shown([size::figure(&story.size_classes)]));
    let mut words = tables::packets(story);
    words.push_str(
        "<p class=\"note\">in + originated + duplicated = out + consumed + lost, by matching both \
         sides packet by packet.</p>\n",
    );
    words.push_str(&paths(story));
    match trouble::figure(story) {
        Some(figure) => parts.push(figure.html()),
        None => words.push_str(&format!("<p class=\"note\">{}</p>\n", trouble::none(story))),
    }
    words.push_str(&losses::table(story));
    parts.push(format!("<div>{words}</div>\n"));
    section("device", "What the device did", &about, &parts)
}

/// Which ways packets took through our router, where it was the device.
fn paths(story: &Story) -> String {
    let Some(Paths { shortcut, pipeline, slow_path }) = story.paths else { return String::new() };
    let all = (shortcut + pipeline + slow_path).max(1) as f64;
    let with_share = |packets: u64| format!("{packets} ({:.1} %)", 100.0 * packets as f64 / all);
    let ways = story.delay_by_path.iter();
    let delays: Vec<String> = ways
        .map(|way| {
            let delay = &way.delay_ns;
            format!(
                "{} {} (p99 {})",
                way.path,
                format::time_ns(delay.p50),
                format::time_ns(delay.p99)
            )
        })
        .collect();
    let delays = match delays.len() {
        0 | 1 => String::new(),
        _ => format!(" Median delays: {}.", delays.join(", ")),
    };
    format!(
        "<p class=\"note\">Of the packets received by the router, {} went through its pipeline, {} \
         through the slow path, and {} took a shortcut in the kernel, bypassing the fabric and the disciplines.{delays}</p>\n",
        with_share(pipeline),
        with_share(slow_path),
        with_share(shortcut)
    )
}

fn details(story: &Story) -> String {
    let head = &story.header;
    let mut parts = String::from("<section id=\"details\"><h2>Details</h2><p>");
    parts.push_str("Every number, the exact configuration, and how to repeat the run.</p>\n");
    if !story.not_measured.is_empty() {
        let items: String =
            story.not_measured.iter().map(|text| format!("<li>{}</li>", escape(text))).collect();
        parts.push_str(&folded("Not measured", true, &format!("<ul>{items}</ul>")));
    }
    let mut again = format!("<p><code>{}</code></p>", escape(&head.command));
    let facts = [
        ("commit", &head.commit),
        ("model digest", &head.model_digest),
        ("plan digest", &head.plan_digest),
    ];
    let rows: Vec<Vec<String>> = facts
        .iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| vec![(*name).to_owned(), (*value).clone()])
        .collect();
    again.push_str(&tables::words("Identity", &rows));
    parts.push_str(&folded("Repeat it", true, &again));
    let numbers = [
        tables::intervals(story),
        tables::samples(story),
        tables::delay(story),
        losses::queues(story),
        losses::filters(story),
        tables::sizes(story),
        tables::seconds(story),
    ];
    parts.push_str(&folded("Every number", false, &numbers.concat()));
    let config = format!("<pre tabindex=\"0\">{}</pre>", escape(&story.configuration));
    parts.push_str(&folded("Configuration", false, &config));
    let machine: Vec<Vec<String>> = [vec!["machine".to_owned(), head.machine.clone()]]
        .into_iter()
        .chain(story.machine.iter().map(|fact| vec![fact.name.clone(), fact.value.clone()]))
        .collect();
    parts.push_str(&folded("Machine", false, &tables::words("Machine", &machine)));
    parts.push_str(&folded("Files", false, &files(story)));
    parts.push_str("</section>\n");
    parts
}

/// Details that fold away.
pub fn folded(title: &str, open: bool, content: &str) -> String {
    let open = if open { " open" } else { "" };
    format!("<details{open}><summary>{}</summary>{content}</details>\n", escape(title))
}

/// The files beside the page, linked by plain relative names only.
fn files(story: &Story) -> String {
    let plain = |name: &str| {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/');
        name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(fits)
    };
    let item = |file: &super::story::FileNote| {
        let name = escape(&file.name);
        let name = match plain(&file.name) {
            true => format!("<a href=\"{name}\">{name}</a>"),
            false => name,
        };
        format!("<li>{name}: {}</li>", escape(&file.meaning))
    };
    format!("<ul>{}</ul>", story.files.iter().map(item).collect::<String>())
}

fn footer(head: &Header) -> String {
    let parts = [&head.version, &head.commit, &head.date, &head.machine];
    let words: Vec<String> =
        parts.into_iter().filter(|part| !part.is_empty()).map(|part| escape(part)).collect();
    format!("<footer>nilometer {}</footer>\n", words.join(" · "))
}

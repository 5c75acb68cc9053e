//! The page, whatever its story: whole, well-formed, self-contained, escaped, and drawn by Chromium.

#[path = "report/browser.rs"]
mod browser;
#[path = "report/check.rs"]
mod check;
#[path = "report/sample.rs"]
mod sample;

use std::path::{Path, PathBuf};
use std::process::Command;

use nilometer_files::document::results::Directory;
use nilometer_report as report;
use nilometer_report::story::{
    Comparison, Curve, DelaySecond, Direction, Header, Interval, LatenessBin, LossRow, LossTable,
    PacketCounts, Paths, Percentiles, Queue, QueueStep, Ranks, Second, SizeClass, Waiting,
};
use nilometer_report::{self, Story, render};

/// What holds of every page.
fn hold(story: &Story) -> String {
    let page = render(story);
    check::hold(&page);
    assert_eq!(page, render(story), "the same story gives the same page");
    page
}

#[test]
fn the_page_shows_the_paths_of_packets_through_our_router() {
    let paths = Paths { shortcut: 30, pipeline: 960, slow_path: 10 };
    let page = hold(&Story { paths: Some(paths), ..sample::story() });
    for part in
        ["960 (96.0 %) went through its pipeline", "10 (1.0 %)", "30 (3.0 %) took a shortcut"]
    {
        assert!(page.contains(part), "{part}");
    }
    assert!(!hold(&Story { paths: None, ..sample::story() }).contains("shortcut"));
}

fn ids(page: &str) -> Vec<&str> {
    page.split("<figure id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect()
}

#[test]
fn a_good_run_has_every_figure() {
    let page = hold(&sample::story());
    let expected = [
        "tail",
        "coverage",
        "volume",
        "off-plan",
        "connections",
        "packets",
        "lateness",
        "fidelity",
        "file-size",
        "inter-connection",
        "source-rank",
        "destination-rank",
        "delay-0",
        "delay-1",
        "course-0",
        "course-1",
        "by-size",
    ];
    assert_eq!(ids(&page), expected);
    assert!(page.len() < 600_000, "the page has {} bytes", page.len());
    assert!(page.contains("No packet was lost"));
    let order = ["<h1>", "class=\"warnings\"", "id=\"asked\"", "id=\"sent\"", "id=\"seen\""];
    let order = order.into_iter().chain(["id=\"device\"", "id=\"details\""]);
    let places: Vec<usize> = order.filter_map(|mark| page.find(mark)).collect();
    assert_eq!(places.len(), 7);
    assert!(places.is_sorted(), "verdict, warnings, asked, sent, seen, device, details");
}

/// A story with our router's own data, with more lost than its counters explain.
fn with_a_router() -> Story {
    let step = |at: u32, packets: u32| QueueStep {
        start_s: f64::from(at),
        length_s: 1.0,
        mean_packets: f64::from(packets) / 2.0,
        max_packets: packets.into(),
    };
    let queue = |port: &str, discipline: &str, link: &str, most: u32| Queue {
        port: port.to_owned(),
        discipline: discipline.to_owned(),
        link: link.to_owned(),
        output: Waiting {
            mean_packets: 0.5 * f64::from(most),
            max_packets: most.into(),
            mean_bytes: 750.0 * f64::from(most),
            max_bytes: 1_500 * u64::from(most),
        },
        input: Waiting::default(),
        steps: (0..60).map(|at| step(at, if at % 7 == 0 { most } else { most / 3 })).collect(),
    };
    let row = |what: &str, packets| LossRow { what: what.to_owned(), packets };
    Story {
        queues: vec![
            queue("client", "red", "20 Mb/s, 5.00 ms longer", 180),
            queue("server", "tail_drop", "", 0),
        ],
        losses: Some(LossTable {
            rows: vec![
                row("client output queue: early", [0, 1_234]),
                row("client filter: denied", [56, 0]),
            ],
            unexplained: [7, -8],
            filters: vec![("0 (deny)".to_owned(), 56, 3_360)],
        }),
        ..sample::story()
    }
}

#[test]
fn queues_and_losses_of_our_router_are_drawn_and_described() {
    let page = hold(&with_a_router());
    let ids = ids(&page);
    let at = |id: &str| ids.iter().position(|it| *it == id).unwrap_or_else(|| panic!("{ids:?}"));
    assert_eq!((at("queue-0"), at("queue-1")), (at("course-1") + 1, at("course-1") + 2));
    for words in [
        "Queue at port client: red",
        "Its link: 20 Mb/s, 5.00 ms longer; 90 packets were queued on average, 180 at most.",
        "Its link has no rate limit; its queue was always empty.",
        "<th scope=\"row\">client output queue: early</th><td>0</td><td>1,234</td><td>1,234</td>",
        "<th scope=\"row\">not explained</th><td>7</td><td>−8</td><td>−1</td>",
        "<th scope=\"row\">0 (deny)</th><td>56</td>",
        "Queues of the router",
    ] {
        assert!(page.contains(words), "the page does not say: {words}");
    }
    let other = hold(&sample::story());
    for words in ["not explained", "Queues of the router", "queue-0"] {
        assert!(!other.contains(words), "no router is known there: {words}");
    }
}

/// The page in the repository is what this version draws of a run with defaults.
#[test]
fn the_example_is_a_page_of_this_version() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/example/report.html");
    let example = std::fs::read_to_string(file).expect("the example");
    check::hold(&example);
    let page = render(&with_a_router());
    assert_eq!(ids(&example), ids(&page), "its figures");
    for name in ["style", "script"] {
        let (open, close) = (format!("<{name}>"), format!("</{name}>"));
        let text = |page: &str| {
            let rest = page.split_once(&open).expect("one is there").1;
            rest.split_once(&close).expect("it closes").0.to_owned()
        };
        assert_eq!(text(&example), text(&page), "its {name}");
    }
}

#[test]
fn trouble_is_drawn_and_described() {
    let page = hold(&sample::troubled());
    assert!(ids(&page).contains(&"trouble"));
    for words in [
        "Interrupted after 41.5",
        "differs from the model",
        "the bit rate is 5.02 times the original",
        "the bare wire was not measured",
        "1,290 of 1,204,112",
        "the meter itself missed 5",
        "composite_&lt;a&gt;&amp;.pcap.gz",
    ] {
        assert!(page.contains(words), "the page does not say: {words}");
    }
    assert!(!page.contains("composite_<a>"));
}

#[test]
fn text_from_outside_is_escaped_everywhere() {
    let mut story = sample::story();
    let evil = "</script><script>alert(1)</script><img \"'&\u{1}";
    let (header, one, file) = (&mut story.header, &mut story.machine[0], &mut story.files[0]);
    for text in [
        &mut header.input,
        &mut header.dut,
        &mut header.version,
        &mut header.commit,
        &mut header.date,
        &mut header.machine,
        &mut header.command,
        &mut header.model_digest,
        &mut header.plan_digest,
        &mut header.stamps,
        &mut story.configuration,
        &mut story.warnings[0],
        &mut story.not_measured[0],
        &mut story.coverage.left_out[0].reason,
        &mut story.source_rank.counted,
        &mut story.directions[0].name,
        &mut story.size_classes[0].label,
        &mut one.name,
        &mut one.value,
        &mut file.name,
        &mut file.meaning,
    ] {
        evil.clone_into(text);
    }
    story.files[1].name = "javascript:alert(1)".into();
    let page = hold(&story);
    assert_eq!(page.matches("<script>").count(), 1, "only our own script");
    assert!(!page.contains("<img") && !page.contains('\u{1}'));
    assert!(!page.contains("href=\"javascript"));
}

#[test]
fn an_empty_story_is_a_page_all_the_same() {
    let page = hold(&Story::default());
    assert!(ids(&page).is_empty());
    assert!(page.matches("not measured").count() >= 6);
}

/// A story whose every list has one entry made of one number.
fn made_of(value: f64) -> Story {
    let whole = value as u64;
    let curve: Curve = vec![[value, value]];
    let numbers = Percentiles { p5: value, mean: value, p50: value, p95: value, p99: value };
    let pair = Comparison { model: curve.clone(), measured: curve.clone(), band: vec![[value; 3]] };
    let ranks = Ranks { model: curve.clone(), measured: curve.clone(), counted: String::new() };
    let mut story = sample::story();
    for fidelity in &mut story.fidelity {
        (fidelity.distance, fidelity.floor, fidelity.ratio) = (value, 0.0, Some(value));
        (fidelity.floor_p5, fidelity.floor_p95) = (Some(value), Some(value));
    }
    let direction = Direction {
        name: "to servers".into(),
        packets: PacketCounts { entered: whole, lost: whole, ..PacketCounts::default() },
        ip_bytes: whole / 2,
        delay_ns: Some(numbers),
        wire_delay_ns: Some(numbers),
        delay_cdf: curve.clone(),
        wire_delay_cdf: curve,
        seconds: vec![DelaySecond {
            start_s: value,
            length_s: value,
            p50_ns: Some(value),
            p99_ns: Some(value),
            packets: whole,
            lost: whole / 2,
            reordered: whole / 2,
        }],
    };
    Story {
        header: Header { duration_s: value, time_divisor: value, ..story.header },
        intervals: vec![Interval { start_s: 0.0, end_s: value, ..Interval::default() }],
        seconds: vec![Second {
            start_s: value,
            payload_bytes: whole,
            packets: whole,
            flows: whole,
        }],
        execution: nilometer_report::story::Execution {
            lateness_histogram: vec![LatenessBin { low_ns: 0.0, high_ns: value, count: whole }],
            ..story.execution
        },
        file_size: pair.clone(),
        inter_connection: pair,
        source_rank: ranks.clone(),
        destination_rank: ranks,
        delay_ns: Some(numbers),
        wire_delay_ns: Some(numbers),
        directions: vec![direction],
        size_classes: vec![SizeClass {
            label: "one".into(),
            p50_ns: Some(value),
            p99_ns: Some(value),
            wire_p50_ns: Some(value),
            ..SizeClass::default()
        }],
        ..story
    }
}

#[test]
fn strange_numbers_never_break_a_page() {
    let finite = [0.0, -1.0, 1.0, 0.5, 1e-300, 1e9, 1e18, 1e300, f64::MAX];
    for value in finite.into_iter().chain([f64::NAN, f64::INFINITY, f64::NEG_INFINITY]) {
        hold(&made_of(value));
    }
}

#[test]
fn a_story_survives_its_file() {
    let dir = scratch("survives");
    let mut story = sample::story();
    story.header.duration_s = f64::NAN;
    story.file_size.band.push([1e9, f64::NAN, 1.0]);
    let dir = saved(&dir, &story);
    let read = report::load(&dir).expect("what was saved can be read");
    assert!(read.header.duration_s.is_nan());
    assert_eq!(read.file_size.band.len() + 1, story.file_size.band.len());
    let page = dir.join(report::PAGE_FILE);
    assert_eq!(std::fs::read_to_string(page).expect("the page is there"), render(&story));
    let names = std::fs::read_dir(&dir).expect("the directory is there").count();
    assert_eq!(names, 3, "the page, its story, and the list of both");
}

/// A directory of results in `dir` with the page of a story.
fn saved(dir: &Path, story: &Story) -> PathBuf {
    let directory = Directory::create(&dir.join("run"), false).expect("a scratch directory");
    report::save(&directory, story).expect("the scratch directory can be written");
    directory.finish().expect("the results have their name")
}

fn nilometer(args: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_nilometer")).args(args).output();
    let output = output.expect("the binary runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

#[test]
fn the_command_draws_the_page_again() {
    let dir = scratch("again");
    let dir = saved(&dir, &sample::story());
    let page = dir.join("report.html");
    std::fs::remove_file(&page).expect("the page was there");
    let shown = dir.display().to_string();
    let (status, out, _) = nilometer(&["report", &shown]);
    assert_eq!((status, Path::new(out.trim())), (0, page.as_path()));
    assert_eq!(std::fs::read_to_string(&page).expect("it is back"), render(&sample::story()));
    let other = dir.join("other.html").display().to_string();
    let (status, out, _) = nilometer(&["report", &shown, "--out", &other, "--json"]);
    assert_eq!(status, 0);
    let out: serde_json::Value = serde_json::from_str(&out).expect("one JSON object");
    assert_eq!(out["report"], other.as_str());
    assert!(out["verdict"].as_str().is_some_and(|words| words.contains("Through linux")));
}

#[test]
fn invalid_reports_are_refused_in_one_line() {
    let dir = scratch("refused");
    let shown = dir.display().to_string();
    let refused = |why: &str| {
        let (status, out, err) = nilometer(&["report", &shown]);
        assert_eq!((status, out.as_str(), err.lines().count()), (2, "", 1), "{err}");
        assert!(err.contains(why), "{err}");
    };
    refused("report.json");
    let story = dir.join("report.json");
    for (text, why) in [
        ("", "not the report of a run"),
        ("[]", "not the report of a run"),
        ("{}", "names no format"),
        ("{\"format\":\"nilometer-report 99\"}", "nilometer-report 99"),
        ("{\"format\":\"nilometer-report 1\",\"seconds\":7}", "not the report of a run"),
        ("{\"format\":\"nilometer-report 1\",\"file_size\":{\"model\":[[1]]}}", "a pair"),
    ] {
        std::fs::write(&story, text).expect("the scratch directory can be written");
        refused(why);
    }
    std::fs::remove_file(&story).expect("it was there");
    std::fs::create_dir(&story).expect("the scratch directory can be written");
    refused("is not a file");
    let (status, _, err) = nilometer(&["report", &format!("{shown}/none")]);
    assert_eq!((status, err.lines().count()), (2, 1));
    assert_eq!(std::fs::read_dir(&dir).expect("it is there").count(), 1, "nothing half-written");
}

/// An empty directory of its own for a test.
fn scratch(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("report-{name}"));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).expect("the target directory can be written");
    dir.canonicalize().expect("it was just made")
}

/// Counts, in the browser, the figures that are drawn and lie inside their page.
const PROBE: &str = "const read=()=>{const f=document.querySelector('#volume svg');\
    f.dispatchEvent(new KeyboardEvent('keydown',{key:'ArrowRight'}));\
    return f.parentNode.querySelector('.read').textContent;};addEventListener('load',()=>{let drawn=0,out=[];\
    for(const f of document.querySelectorAll('figure')){const b=f.querySelector('svg').getBBox();\
    if(b.width>100&&b.height>50&&f.querySelector('svg').querySelectorAll('path,rect,circle').length>3)\
    drawn++;for(const t of f.querySelectorAll('text')){const r=t.getBoundingClientRect();\
    if(r.left<-1||r.right>innerWidth+1)out.push(f.id+': '+t.textContent);}\
    const all=[...f.querySelectorAll('svg text')].map(t=>[t.getBoundingClientRect(),t.textContent]);\
    all.forEach(([a,x],i)=>all.slice(0,i).forEach(([b,y])=>{if(Math.min(a.right,b.right)-Math.max(a.left,b.left)>1\
    &&Math.min(a.bottom,b.bottom)-Math.max(a.top,b.top)>4)out.push(f.id+': '+y+' over '+x);}));}\
    document.title='drawn '+drawn+' wide '+document.documentElement.scrollWidth+' of '\
    +document.documentElement.clientWidth\
    +' cut '+out.join('; ')+' read '+read()+' page '+getComputedStyle(document.body).backgroundColor;});";

/// Guides that stand in one place, and ticks of many letters close to each other.
fn crowded() -> Story {
    let mut story = sample::story();
    let late = story.execution.lateness.as_mut().expect("starts were late");
    late.p99_ns = late.p50_ns * 1.01;
    let narrow =
        |curve: &Curve| curve.iter().map(|[x, y]| [0.31 + 0.01 * x.min(19.0), *y]).collect();
    let gaps = &story.inter_connection;
    let [model, measured] = [&gaps.model, &gaps.measured].map(narrow);
    story.inter_connection = Comparison { model, measured, band: Vec::new() };
    story
}

#[test]
fn chromium_draws_it_in_light_and_dark() {
    let Some(browser) = browser::find() else {
        return println!("skipped: no Chromium here to draw the report");
    };
    let dir = scratch("chromium");
    draw(browser, &dir, &sample::story(), ("good", 0, "1200,2400"));
    draw(browser, &dir, &sample::troubled(), ("troubled", 1, "500,2400"));
    draw(browser, &dir, &crowded(), ("crowded", 0, "1200,2400"));
    draw(browser, &dir, &crowded(), ("narrow", 1, "500,2400"));
}

/// Takes everything off the page.
const BLANK: &str = "document.body.replaceChildren();document.title='blank'";

#[test]
fn chromium_runs_no_script_but_the_pages_own() {
    let Some(browser) = browser::find() else {
        return println!("skipped: no Chromium here to refuse a script");
    };
    let dir = scratch("stranger");
    let page = render(&sample::story());
    let draw = |name, page: &str| browser::titled(browser, &dir, [name, page], 1, "1200,2400");
    let (title, complaint) = draw("stranger", &check::with_stranger(&page, BLANK));
    assert!(title.ends_with(" · Nilometer"), "{title}");
    assert!(complaint.is_some_and(|line| line.contains("Content Security Policy")));
    let (title, complaint) = draw("probe", &check::with_probe(&page, BLANK));
    assert_eq!((title.as_str(), complaint), ("blank", None), "such a script would have run");
}

/// As a server of artifacts may deliver it: the page looks as it does with its script.
#[test]
fn chromium_shows_every_figure_where_scripts_are_forbidden() {
    let Some(browser) = browser::find() else {
        return println!("skipped: no Chromium here to draw the report");
    };
    let dir = scratch("without");
    let page = render(&sample::story());
    let picture = |page: &str, header| browser::picture(browser, &dir, page, header);
    let whole = picture(&page, "");
    let forbidden = "Content-Security-Policy: script-src 'none'\r\n";
    let would_blank = check::with_probe(&page, BLANK);
    assert!(picture(&would_blank, "") != whole, "the script would have run");
    assert!(picture(&would_blank, forbidden) == whole, "all is there without any script");
    let without = page.replace("<svg ", "<svg visibility=\"hidden\" ");
    assert!(picture(&without, forbidden) != whole, "figures make the difference");
}

/// Draws a page in a window and a colour scheme (0 dark, 1 light), and checks it for errors.
fn draw(browser: &str, dir: &Path, story: &Story, (name, scheme, size): (&str, u8, &str)) {
    let page = render(story);
    let figures = ids(&page).len();
    let page = check::with_probe(&page, PROBE);
    let title = browser::title(browser, dir, [name, &page], scheme, size);
    assert!(title.starts_with(&format!("drawn {figures} ")), "{figures} figures: {title}");
    let read = " cut  read at 30 s: measured, each second ";
    assert!(title.contains(read), "text is cut or not read out at {size}: {title}");
    let words: Vec<&str> = title.split(' ').collect();
    assert_eq!(words[3], words[5], "the page is wider than its window: {title}");
    assert_eq!(title.contains("rgb(20, 22, 26)"), scheme == 0, "{title}");
}

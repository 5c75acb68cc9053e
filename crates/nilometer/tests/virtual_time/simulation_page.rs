//! The pages of `nilometer simulate`: every figure, every number finite, drawn by Chromium.

#[path = "../report/browser.rs"]
mod browser;
#[path = "../report/check.rs"]
mod check;

use std::path::{Path, PathBuf};
use std::process::Command;

use nilometer_lab::simulate::claims::section7;
use nilometer_lab::simulate::claims::{Measured, Reproduction};
use nilometer_lab::simulate::delays::{DelayCourse, DelayInterval};
use nilometer_lab::simulate::page::arrangement::Swept;
use nilometer_lab::simulate::page::course;
use nilometer_lab::simulate::page::shares::Shares;
use nilometer_lab::simulate::page::stress::{StressPage, ideal, render as render_stress};
use nilometer_lab::simulate::page::sweep::{SweepPage, render};
use nilometer_lab::simulate::result::{Drops, FORMAT, Keys, PointResult, SimulationResult};
use nilometer_lab::simulate::shipped::find;
use nilometer_lab::simulate::stress::stress;
use nilometer_lab::simulate::template::Template;
use nilometer_sim::speedup::{SpeedupPlan, sweep};
use nilometer_sim::stress::run;
use toml::Value;

const DISCIPLINES: [&str; 6] = ["tail_drop", "red", "blue", "drr", "tdrr", "qsdrr"];
const BUFFERS: [i64; 8] = [100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000];

/// A point in which everything is `value`, or follows from it.
fn point(parameters: Vec<(String, Value)>, value: f64) -> PointResult {
    PointResult {
        parameters: Keys(parameters),
        runs: 10,
        fair_share_percent: Some(100.0 * value),
        fair_share_percent_ci: Some(value),
        stddev_over_fair_share: Some(value / 10.0),
        stddev_over_fair_share_ci: Some(value / 100.0),
        loss_ratio: value / 1e3,
        loss_ratio_ci: Some(value / 1e4),
        utilisation: value,
        mean_queue_packets: 1e3 * value,
        mean_queue_packets_ci: None,
        drops: Drops(Default::default()),
        timeouts: value,
        retransmits: value,
        datagram_delay_ms: None,
        datagram_delay_ms_ci: None,
        datagram_delays: Vec::new(),
        routers: Vec::new(),
        packet_hops: 1,
        by_seed: Vec::new(),
    }
}

fn result(points: Vec<PointResult>) -> SimulationResult {
    let measured: Vec<Measured> = points.iter().filter_map(|p| Measured::of(p, 100.0)).collect();
    SimulationResult {
        format: FORMAT,
        scenario: "qsdrr".into(),
        about: "<b>made up</b>".into(),
        tool: "nilometer 0".into(),
        seed: 1,
        seeds: 10,
        duration_s: 100.0,
        threads: 2,
        runs: 10 * points.len(),
        interrupted: false,
        plans: Vec::new(),
        digest: "00".into(),
        packet_hops: 1_234_567,
        cpu_seconds: 1.5,
        wall_seconds: 1.0,
        peak_rss_bytes: 1,
        claims: section7::judge(&measured),
        points,
        warnings: vec!["too <little> was run".into()],
    }
}

/// Disciplines by buffers by round-trip times; the values wander between 0.7 and 1.
fn study(rtts: &[i64]) -> (SimulationResult, Vec<Swept>, Vec<Shares>) {
    let words = |list: &[&str]| list.iter().map(|w| Value::String((*w).into())).collect();
    let whole = |list: &[i64]| list.iter().map(|w| Value::Integer(*w)).collect();
    let axes: Vec<Swept> = vec![
        ("rtt_ms".into(), whole(rtts)),
        ("discipline".into(), words(&DISCIPLINES)),
        ("buffer_packets".into(), whole(&BUFFERS)),
    ];
    let (mut points, mut shares) = (Vec::new(), Vec::new());
    for (a, rtt) in rtts.iter().enumerate() {
        for (b, discipline) in DISCIPLINES.into_iter().enumerate() {
            for (c, buffer) in BUFFERS.into_iter().enumerate() {
                let value = 0.7 + 0.3 * (((a + 7 * b + 3 * c) * 37 % 100) as f64 / 100.0);
                let parameters = vec![
                    ("rtt_ms".to_owned(), Value::Integer(*rtt)),
                    ("discipline".to_owned(), Value::String(discipline.into())),
                    ("buffer_packets".to_owned(), Value::Integer(buffer)),
                ];
                points.push(point(parameters, value));
                let flows = |seed: usize| {
                    let wander = |flow: usize| ((flow * 61 + seed * 17) % 100) as f64 / 500.0;
                    (0..100).map(|flow| value + wander(flow)).collect::<Vec<f64>>()
                };
                shares.push(Shares::of(&[flows(1), flows(2)]));
            }
        }
    }
    (result(points), axes, shares)
}

fn page(result: &SimulationResult, axes: &[Swept], shares: &[Shares]) -> String {
    let scenario = "# a <scenario>\n";
    let sweep = SweepPage { result, axes, shares, reference: Some(200.0), scenario };
    let page = render(&sweep);
    check::hold(&page);
    assert_eq!(page, render(&sweep), "the same results give the same page");
    page
}

fn ids(page: &str) -> Vec<&str> {
    page.split("<figure id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect()
}

#[test]
fn a_sweep_has_every_figure_and_every_sentence() {
    let (result, axes, shares) = study(&[100]);
    let page = page(&result, &axes, &shares);
    assert_eq!(ids(&page), ["flows", "mean", "deviation", "loss", "queue", "timeouts"]);
    assert!(page.len() < 400_000, "{} bytes", page.len());
    assert_eq!(page.matches("<tr id=\"claim-").count(), result.claims.len());
    assert!(result.claims.iter().all(|claim| claim.verdict != Reproduction::NotMeasured));
    for words in ["Figure 15", "Figure 16", "Figure 17", "not reproduced", "too &lt;little&gt;"] {
        assert!(page.contains(words), "the page does not say: {words}");
    }
    assert!(!page.contains("<b>made up</b>") && !page.contains("# a <scenario>"));
    let mean = page.split("<figure id=\"mean\"").nth(1).and_then(|s| s.split("</figure>").next());
    let mean = mean.expect("the figure of means");
    for name in ["tail drop", "RED", "Blue", "DRR", "TDRR", "QSDRR"] {
        assert!(mean.contains(&format!("data-name=\"{name}\"")), "no line for {name}");
        assert!(mean.contains(&format!(">{name}</text>")), "{name} has no direct label");
    }
    assert_eq!(mean.matches("class=\"band").count(), DISCIPLINES.len(), "a band for each line");
}

#[test]
fn other_parameters_become_facets() {
    let (result, axes, shares) = study(&[50, 100, 200]);
    let page = page(&result, &axes, &shares);
    assert_eq!(ids(&page).len(), 18);
    assert!(page.len() < 600_000, "{} bytes", page.len());
    assert!(page.contains("<h2>rtt 50\u{a0}ms</h2>") && page.contains("At rtt 100\u{a0}ms, flows"));
}

#[test]
fn without_numbers_there_are_rows() {
    let words = ["reno", "cubic"].map(|word| Value::String(word.into()));
    let points = words.iter().map(|w| point(vec![("tcp".into(), w.clone())], 0.9)).collect();
    let page = page(&result(points), &[("tcp".into(), words.to_vec())], &[]);
    assert_eq!(ids(&page), ["mean", "deviation", "loss", "queue", "timeouts"]);
    assert!(page.contains(">cubic</text>") && page.contains("they are most alike"));
}

#[test]
fn a_single_flow_is_not_called_fair() {
    let at = |word: &str, value| point(vec![("tcp".into(), Value::String(word.into()))], value);
    let mut points = vec![at("reno", 0.8), at("cubic", 0.9)];
    points.iter_mut().for_each(|point| point.stddev_over_fair_share = Some(0.0));
    let words = ["reno", "cubic"].map(|word| Value::String(word.into()));
    let page = page(&result(points), &[("tcp".into(), words.to_vec())], &[]);
    assert!(page.contains("under <b>cubic</b> (90\u{a0}% of it)"));
    assert!(!page.contains("alike") && !ids(&page).contains(&"deviation"));
}

#[test]
fn strange_numbers_never_break_a_page() {
    let finite = [0.0, -1.0, 1e-300, 1e18, 1e300, f64::MAX];
    for value in finite.into_iter().chain([f64::NAN, f64::INFINITY, f64::NEG_INFINITY]) {
        let axes: Vec<Swept> =
            vec![("x".into(), [1, 2].map(Value::Integer).to_vec()), ("y".into(), vec![])];
        let at = |x| point(vec![("x".into(), Value::Integer(x))], value);
        page(&result(vec![at(1), at(2)]), &axes, &[Shares::of(&[vec![value, value]])]);
        page(&result(vec![at(1)]), &[], &[]);
    }
    page(&result(Vec::new()), &[], &[]);
}

/// The page of the shipped stress test, its speed-ups few.
fn stress_page() -> String {
    let shipped = find("distributed-queueing").expect("it is shipped");
    let template = Template::read(shipped.name, shipped.text).expect("sound");
    let (report, points) = stress(&template).expect("it runs");
    let plan = points[0].plan;
    assert_eq!(ideal(&plan), [400.0, 600.0, 700.0, 750.0]);
    let runs = plan.variants().map(|variant| run(&plan, variant).expect("it runs"));
    let few = SpeedupPlan { speedups: vec![1.0, 1.6, 2.0], hostile_loads: 1, ..Default::default() };
    let speedups = sweep(&few).expect("it runs");
    let stress = StressPage {
        report: &report,
        points: &points,
        plan: &plan,
        runs: &runs,
        speedups: &speedups,
        scenario: &template.text,
    };
    let page = render_stress(&stress);
    assert_eq!(page, render_stress(&stress));
    page
}

#[test]
fn the_stress_test_has_every_figure() {
    let page = stress_page();
    check::hold(&page);
    let expected = [
        "load",
        "backlog-original",
        "rates-original",
        "minimum-original",
        "backlog-reserved",
        "rates-reserved",
        "minimum-reserved",
        "backlog-dq_plus",
        "rates-dq_plus",
        "minimum-dq_plus",
        "broken-stress",
        "missed-stress",
        "broken-hostile",
        "missed-hostile",
    ];
    assert_eq!(ids(&page), expected);
    assert!(page.len() < 400_000, "{} bytes", page.len());
    assert!(page.contains("<b>400, 600, 700, 750</b> periods, as an ideal fluid’s would"));
    assert!(
        page.contains("kept from a speed-up of <b>1.6</b> with equations 1–4"),
        "how low S can go"
    );
}

/// An empty directory of its own for a test.
fn scratch(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("simulation-{name}"));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).expect("the target directory can be written");
    dir.canonicalize().expect("it was just made")
}

/// Runs the paper's study with these changes into `dir`; returns the output on standard error.
fn simulated(dir: &Path, sets: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_nilometer"))
        .args(["simulate", "qsdrr", "--seeds", "2", "--out"])
        .arg(dir)
        .args(sets.iter().flat_map(|set| ["--set", set]))
        .output()
        .expect("the binary runs");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{stderr}");
    stderr
}

/// A study of one second is slow start; it is not compared with the paper's hundred.
#[test]
fn a_shortened_study_is_not_judged() {
    let dir = scratch("shortened").join("results");
    let sets = ["duration_s=1", "flows=4", "discipline=red,qsdrr", "buffer_packets=20,200"];
    let stderr = simulated(&dir, &sets);
    let reported = "the study was shortened, to 1 s of 100 s";
    assert!(stderr.contains(reported), "{stderr}");
    let page = std::fs::read_to_string(dir.join("report.html")).expect("the page is there");
    check::hold(&page);
    assert!(page.contains(reported));
    let text = std::fs::read_to_string(dir.join("result.json")).expect("the result is there");
    let result: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    let claims = result["claims"].as_array().expect("a list");
    assert_eq!(claims.len(), section7::judge(&[]).len());
    assert!(claims.iter().all(|claim| claim["verdict"] == "not_measured"));
    assert!(claims.iter().all(|claim| claim["figures"] == serde_json::json!([])));
}

#[test]
fn the_command_writes_the_page_and_the_claims() {
    let dir = scratch("command").join("results");
    simulated(&dir, &["flows=4", "discipline=red,qsdrr", "buffer_packets=20,200"]);
    let page = std::fs::read_to_string(dir.join("report.html")).expect("the page is there");
    check::hold(&page);
    assert_eq!(ids(&page).first(), Some(&"flows"));
    assert!(page.contains("At buffer 200\u{a0}packets"));
    let text = std::fs::read_to_string(dir.join("result.json")).expect("the result is there");
    let result: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    let claims = result["claims"].as_array().expect("a list");
    assert_eq!(claims.len(), section7::judge(&[]).len());
    assert!(claims.iter().all(|claim| claim["sentence"].is_string()));
    assert!(claims.iter().any(|claim| claim["verdict"] == "not_measured"));
    let near = claims.iter().find(|claim| claim["id"] == "qsdrr_mean_near_share").expect("it");
    assert_eq!(near["figures"][0]["quantity"], "fair_share_percent");
}

/// A course of made-up delays, with one interval in which nothing arrived.
fn made_up(value: f64) -> DelayCourse {
    let interval = |number: u32| {
        let ms = (number != 3).then_some(value * f64::from(number + 1));
        let arrived = if ms.is_some() { 50 } else { 0 };
        let start_s = f64::from(number);
        let [p95_ms, p99_ms] = [2.0, 9.0].map(|more| ms.map(|ms| more * ms));
        DelayInterval { start_s, arrived, p50_ms: ms, p95_ms, p99_ms }
    };
    let intervals = (0..20).map(interval).collect();
    DelayCourse { datagrams: 1, from: "<a>".into(), to: "b".into(), every_s: 1.0, intervals }
}

#[test]
fn delays_over_time_are_drawn_where_there_are_any() {
    let (mut result, axes, shares) = study(&[100]);
    assert!(!page(&result, &axes, &shares).contains("id=\"course\""));
    for (number, point) in result.points.iter_mut().enumerate() {
        point.datagram_delays = vec![made_up(1.0 + number as f64)];
    }
    let drawn = page(&result, &axes, &shares);
    let courses: Vec<_> = ids(&drawn).into_iter().filter(|id| id.starts_with("course-")).collect();
    assert_eq!(courses.len(), course::FIGURES_MAX);
    let left = result.points.len() - course::FIGURES_MAX;
    assert!(drawn.contains(&format!("{left} more courses are in result.json")));
    for word in ["&lt;a&gt; to b", "data-name=\"p95\"", "the worst p99, 180\u{a0}ms,"] {
        assert!(drawn.contains(word), "{word}");
    }
    for value in [0.0, 1e-300, f64::MAX, f64::NAN, f64::INFINITY] {
        result.points[0].datagram_delays = vec![made_up(value)];
        page(&result, &axes, &shares);
    }
}

/// Counts, in the browser, the figures that are drawn, and looks for text that is cut off.
const PROBE: &str = "addEventListener('load',()=>{let drawn=0,out=[];\
    for(const f of document.querySelectorAll('figure')){const b=f.querySelector('svg').getBBox();\
    if(b.width>100&&b.height>50)drawn++;for(const t of f.querySelectorAll('text')){\
    const r=t.getBoundingClientRect();\
    if(r.left<-1||r.right>innerWidth+1)out.push(f.id+': '+t.textContent);}}\
    document.title='drawn '+drawn+' cut '+out.join('; ')+' wide '\
    +(document.documentElement.scrollWidth-document.documentElement.clientWidth)\
    +' page '+getComputedStyle(document.body).backgroundColor;});";

#[test]
fn chromium_draws_them_in_light_and_dark() {
    let Some(browser) = browser::find() else {
        return println!("skipped: no Chromium here to draw the pages");
    };
    let dir = scratch("chromium");
    let (result, axes, shares) = study(&[100]);
    let pages = [page(&result, &axes, &shares), stress_page()];
    for (page, name, scheme, size, shade) in [
        (&pages[0], "sweep", 1, "1200,2400", "rgb(255, 255, 255)"),
        (&pages[1], "stress", 0, "500,2400", "rgb(20, 22, 26)"),
    ] {
        let probed = check::with_probe(page, PROBE);
        let title = browser::title(browser, &dir, [name, &probed], scheme, size);
        let figures = ids(page).len();
        assert_eq!(title, format!("drawn {figures} cut  wide 0 page {shade}"));
    }
}

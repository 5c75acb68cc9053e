//! The page of the experiment: PSNR over time, sub-bands as in the paper's figure 8, and a frame side by side.

use nilometer_report::figure::Figure;
use nilometer_report::format::{count, significant};
use nilometer_report::heading::{Heading, words};
use nilometer_report::page;
use nilometer_report::picture::Picture;
use nilometer_report::plot::axis::{Axis, Unit};
use nilometer_report::plot::cells::Cell;
use nilometer_report::plot::scale::ScaleKind;
use nilometer_report::plot::svg::escape;
use nilometer_report::plot::{Area, Mark, Panel};
use nilometer_report::tables::table;
use nilometer_video::Frame;

use super::clip::Clip;
use super::result::{FRAMES_A_ROW, ReceiverResult, VideoComparison};
use super::{Contender, RECEIVERS, RunOutcome, VideoPlan};
use crate::trial::config::Clock;

/// Where a frame is drawn that is the original.
const IDENTICAL_DB: f64 = 60.0;
/// How wide a picture is at least.
const PICTURE_WIDTH: u32 = 352;

/// What a page is made of.
#[derive(Clone, Copy, Debug)]
pub struct VideoPage<'a> {
    /// What was played.
    pub clip: &'a Clip,
    /// How.
    pub plan: &'a VideoPlan,
    /// What came of it.
    pub runs: &'a [RunOutcome],
    /// The result in figures.
    pub result: &'a VideoComparison,
    /// The program's version.
    pub version: &'a str,
}

/// A contender in a sentence.
fn called(contender: Contender) -> &'static str {
    match contender {
        Contender::Plain => "plain queueing",
        Contender::Active => "active dropping",
        Contender::Layered => "layered multicast",
    }
}

fn class(contender: Contender) -> &'static str {
    match contender {
        Contender::Plain => "tone2 fine",
        Contender::Active => "tone3",
        Contender::Layered => "tone6 dashed",
    }
}

/// One self-contained HTML page.
pub fn render(of: &VideoPage<'_>) -> String {
    let result = of.result;
    let warnings: Vec<String> =
        result.why.iter().map(|why| format!("The run is not valid: {why}.")).collect();
    let heading = Heading {
        crumb: vec![
            "nilometer video compare".to_owned(),
            result.clip.clone(),
            format!("seed {}", result.seed),
            clock(result).to_owned(),
        ],
        sentences: vec![words(&sentence(of, 2)), words(&sentence(of, 1))],
        lede: lede(result),
        sections: &[
            ["psnr", "PSNR"],
            ["subbands", "Sub-bands"],
            ["picture", "One frame"],
            ["numbers", "Numbers"],
        ],
        warnings: &warnings,
    };
    let mut body = heading.html();
    body.push_str("<main>\n");
    let about = "Of luma, frame by frame, at each receiver. A frame identical to the original is shown at 60 dB. \
                 Shading marks cross traffic.";
    let figures = (0..RECEIVERS).filter_map(|at| psnr(of, at)).map(|figure| figure.html());
    body.push_str(&page::section(
        "psnr",
        "How good the picture is",
        about,
        &figures.collect::<Vec<_>>(),
    ));
    let about = "The paper's figure 8: of eight consecutive frames, how many had each sub-band complete. The \
                 lowest frequency is at the bottom; blank sub-bands never arrived.";
    body.push_str(&page::section("subbands", "Which sub-bands came", about, &all_subbands(of)));
    let number = of.plan.pictured;
    let about = format!("Frame {number} as it was sent, and as D3 showed it; below, as D2 did.");
    body.push_str(&page::section("picture", "One frame", &about, &pictures(of)));
    let about = "Frames that were sent in the burst. One is disturbed where it misses more than its highest sub-bands.";
    // Too wide for a place beside another element.
    body.push_str(&format!(
        "<section id=\"numbers\"><h2>Numbers</h2><p>{about}</p>\n{}{}</section>\n",
        numbers(result),
        threads(result)
    ));
    body.push_str("</main>\n");
    body.push_str(&format!("<footer>nilometer {}</footer>\n", escape(of.version)));
    page::document(&format!("{} through three routers", result.clip), &body)
}

fn decibels(psnr_db: Option<f64>) -> String {
    psnr_db.map_or("without a loss".to_owned(), |db| format!("{}\u{a0}dB", significant(db, 3)))
}

/// The outcome at a receiver; words between stars are emphasised.
fn sentence(of: &VideoPage<'_>, receiver: usize) -> String {
    let psnr = |contender: Contender| {
        let seen = &of.result.contenders[contender as usize].receivers[receiver];
        format!("{} with {}", decibels(seen.burst.psnr_db), called(contender))
    };
    let reaction = of.result.contenders[Contender::Active as usize].receivers[receiver]
        .burst
        .reaction_ms
        .map_or("never settles".to_owned(), |ms| match ms.round() {
            0.0 => "disturbs no frame".to_owned(),
            ms => format!("settles within {ms} ms"),
        });
    let streams = match receiver {
        1 => "one stream".to_owned(),
        streams => format!("{} streams", ["no", "one", "two"][streams.min(2)]),
    };
    format!(
        "At D{}, beside {streams} of cross traffic, the video has *{}*, {} and {}; active dropping *{reaction}*.",
        receiver + 1,
        psnr(Contender::Active),
        psnr(Contender::Plain),
        psnr(Contender::Layered)
    )
}

fn megabits(bits_per_second: f64) -> String {
    format!("{}\u{a0}Mb/s", significant(bits_per_second / 1e6, 3))
}

fn clock(result: &VideoComparison) -> &'static str {
    match result.clock {
        Clock::Real => "real clock",
        Clock::Virtual => "virtual time",
    }
}

/// Where it was played.
fn played(result: &VideoComparison) -> String {
    if result.clock == Clock::Virtual {
        return "It was played in virtual time.".to_owned();
    }
    let threads = result.contenders.iter().flat_map(|contender| &contender.threads);
    let latest = threads.map(|thread| thread.latest_ms).fold(0.0, f64::max);
    format!(
        "It was played by the real clock, through three routers that ran in network namespaces; no thread was late by more \
         than {}\u{a0}ms.",
        significant(latest, 2)
    )
}

fn lede(result: &VideoComparison) -> String {
    let share = |streams: u64| megabits((result.link_bits_per_second / (streams + 1)) as f64);
    format!(
        "{} of {} at {} frames/s need {} and were played for {} frames. The receivers' links carry {}: a share of {} \
         beside one stream of cross traffic and of {} beside two. {}",
        result.clip,
        result.size,
        significant(result.frames_per_second, 4),
        megabits(result.clip_bits_per_second as f64),
        count(result.frames.into()),
        megabits(result.link_bits_per_second as f64),
        share(1),
        share(2),
        played(result)
    )
}

fn time_axis(result: &VideoComparison) -> Axis {
    let end = f64::from(result.frames) / result.frames_per_second;
    Axis::new(ScaleKind::Linear, [0.0, end], Unit::Seconds, "seconds").ticks(6)
}

fn psnr(of: &VideoPage<'_>, receiver: usize) -> Option<Figure> {
    let result = of.result;
    let seen = |contender: Contender| &result.contenders[contender as usize].receivers[receiver];
    let shown = |db: &Option<f64>| db.unwrap_or(IDENTICAL_DB).min(IDENTICAL_DB);
    let all = Contender::ALL.into_iter().flat_map(|it| &seen(it).psnr_db_by_frame);
    let least = all.map(shown).fold(IDENTICAL_DB - 20.0, f64::min);
    let y = [(least / 10.0).floor() * 10.0, IDENTICAL_DB];
    let y = Axis::new(ScaleKind::Linear, y, Unit::Times, "PSNR of luma, dB").ticks(6);
    let mut panel = Panel::new(Area::between(28.0, 228.0), time_axis(result), y);
    let [from, to] = result.burst_s;
    panel.column(from, to, Mark { class: "wire", name: "" });
    for contender in [Contender::Plain, Contender::Layered, Contender::Active] {
        let frames = seen(contender).psnr_db_by_frame.iter().enumerate();
        let line: Vec<[f64; 2]> = frames
            .map(|(number, db)| [number as f64 / result.frames_per_second, shown(db)])
            .collect();
        panel.line(&line, Mark { class: class(contender), name: called(contender) });
    }
    let name = format!("D{}", receiver + 1);
    let caption = match receiver {
        0 => "Nothing shares its link".to_owned(),
        _ => format!(
            "A share of {} in the burst: {} active, {} plain, {} layered",
            megabits(seen(Contender::Plain).share_bits_per_second as f64),
            decibels(seen(Contender::Active).burst.psnr_db),
            decibels(seen(Contender::Plain).burst.psnr_db),
            decibels(seen(Contender::Layered).burst.psnr_db)
        ),
    };
    let id = format!("psnr-{name}");
    Figure::new([&id, &name], caption + ".", 270.0, &[panel.finish(true)])
}

/// Figure 8 of D2 and D3, a contender below the other.
fn all_subbands(of: &VideoPage<'_>) -> Vec<String> {
    let each = Contender::ALL.into_iter().flat_map(|it| (1..RECEIVERS).map(move |at| (it, at)));
    each.filter_map(|(contender, receiver)| subbands(of, contender, receiver))
        .map(|figure| figure.html())
        .collect()
}

fn subbands(of: &VideoPage<'_>, contender: Contender, receiver: usize) -> Option<Figure> {
    let result = of.result;
    let seen: &ReceiverResult = &result.contenders[contender as usize].receivers[receiver];
    let bands = of.clip.subbands() as f64;
    let y = Axis::new(ScaleKind::Linear, [0.0, bands], Unit::Times, "sub-band").ticks(5);
    let mut panel = Panel::new(Area::between(28.0, 194.0), time_axis(result), y);
    let row_s = FRAMES_A_ROW as f64 / result.frames_per_second;
    let end_s = f64::from(result.frames) / result.frames_per_second;
    let rows = seen.subbands_by_8_frames.iter().enumerate();
    let cells = rows.flat_map(|(row, times)| {
        let from = row as f64 * row_s;
        let to = (from + row_s).min(end_s);
        let frames = ((to - from) / row_s * FRAMES_A_ROW as f64).round().max(1.0);
        times.iter().enumerate().map(move |(subband, times)| Cell {
            x: [from, to],
            y: [subband as f64, subband as f64 + 1.0],
            strength: f64::from(*times) / frames,
        })
    });
    panel.cells(&cells.collect::<Vec<_>>(), Mark { class: class(contender), name: "" });
    let [from, to] = result.burst_s;
    panel.upright(from, Mark { class: "guide", name: "cross traffic" });
    panel.upright(to, Mark { class: "guide", name: "" });
    let title = format!("{}, {}", seen.receiver, called(contender));
    let burst = &seen.burst;
    let caption = match (burst.disturbed_frames, burst.reaction_ms) {
        (0, _) => "In the burst every frame misses its highest sub-bands at the most.".to_owned(),
        (some, Some(ms)) => format!(
            "{some} of {} frames of the burst are disturbed, the last before {} ms of it.",
            burst.frames,
            ms.round()
        ),
        (some, None) => format!("{some} of {} frames of the burst are disturbed.", burst.frames),
    };
    let id = format!("subbands-{}-{}", contender.name(), seen.receiver);
    Figure::new([&id, &title], caption, 236.0, &[panel.finish(true)])
}

/// The original and what D3 and D2 showed, two beside each other.
fn pictures(of: &VideoPage<'_>) -> Vec<String> {
    let original = of.clip.frame(of.plan.pictured);
    let times = (PICTURE_WIDTH / u32::from(original.size().width())).max(1);
    let one = |title: &str, caption: &str, frame: &Frame| {
        picture_of(frame).figure([title, caption], times)
    };
    let mut all = vec![one("Original", "As it was sent.", original)];
    for receiver in (1..RECEIVERS).rev() {
        for contender in [Contender::Plain, Contender::Active, Contender::Layered] {
            let seen = &of.runs[contender as usize].viewers[receiver];
            let shown = seen.frames.get(of.plan.pictured as usize);
            let (Some(frame), Some(picture)) = (shown, &seen.picture) else { continue };
            let whole = frame.whole.iter().filter(|whole| **whole).count();
            let caption = format!(
                "{}; {whole} of {} sub-bands complete.",
                decibels(frame.psnr_db),
                frame.whole.len()
            );
            let title = format!("D{}, {}", receiver + 1, called(contender));
            all.push(one(&title, &caption, picture));
        }
    }
    all
}

/// Samples of red, green and blue (ITU-R BT.601, 16 is black and 235 white).
fn picture_of(frame: &Frame) -> Picture {
    let (width, height) = frame.size().plane(0);
    let (chroma_width, _) = frame.size().plane(1);
    let planes = [0, 1, 2].map(|plane| frame.plane(plane));
    let mut samples = Vec::with_capacity(width * height * 3);
    for at in 0..width * height {
        let chroma = at / width / 2 * chroma_width + at % width / 2;
        let luma = 298 * (i32::from(planes[0][at]) - 16);
        let [u, v] = [planes[1][chroma], planes[2][chroma]].map(|sample| i32::from(sample) - 128);
        let colour = |sum: i32| ((sum + 128) >> 8).clamp(0, 255) as u8;
        samples.push(colour(luma + 409 * v));
        samples.push(colour(luma - 100 * u - 208 * v));
        samples.push(colour(luma + 516 * u));
    }
    Picture::new(width as u32, samples)
}

fn numbers(result: &VideoComparison) -> String {
    let mut rows = Vec::new();
    for contender in &result.contenders {
        for seen in &contender.receivers {
            let burst = &seen.burst;
            let mut row = vec![format!("{} {}", seen.receiver, contender.contender)];
            row.push(megabits(seen.share_bits_per_second as f64));
            row.push(megabits(seen.late_burst_bits_per_second));
            row.push(decibels(burst.psnr_db));
            row.push(format!("{} of {}", burst.disturbed_frames, burst.frames));
            row.push(burst.reaction_ms.map_or("–".to_owned(), |ms| format!("{} ms", ms.round())));
            let counts = [seen.packets, seen.dropped_by_queues, seen.dropped_by_plugin];
            row.extend(counts.map(count));
            rows.push(row);
        }
    }
    let head = [
        "",
        "share",
        "late in the burst",
        "PSNR",
        "disturbed",
        "settled after",
        "packets",
        "dropped by queues",
        "by the plugin",
    ];
    table("In the burst", &head, &rows)
}

/// How punctual the threads of a run by the real clock were.
fn threads(result: &VideoComparison) -> String {
    let of = result.contenders.iter().flat_map(|it| it.threads.iter().map(move |one| (it, one)));
    let rows: Vec<Vec<String>> = of
        .map(|(contender, thread)| {
            vec![
                format!("{} {}", thread.thread, contender.contender),
                count(thread.moments),
                format!("{} ({} ms)", count(thread.late), significant(thread.late_ms, 2)),
                format!("{} ms", significant(thread.latest_ms, 2)),
                count(thread.lost_frames),
            ]
        })
        .collect();
    match rows.is_empty() {
        true => String::new(),
        false => table(
            "How late threads were",
            &["", "moments", "late (by more than)", "the latest by", "frames the kernel lost"],
            &rows,
        ),
    }
}

#[cfg(test)]
mod tests {
    use nilometer_video::FrameSize;

    use super::*;

    #[test]
    fn grey_is_grey_and_colours_are_theirs() {
        let size = FrameSize::new(3, 3).expect("a size");
        let grey = picture_of(&Frame::flat(size, 128));
        assert_eq!(grey, Picture::new(3, vec![130; 27]));
        // Red of full strength: Y 81, U 90, V 240.
        let mut red = Frame::flat(size, 81);
        red.plane_mut(1).fill(90);
        red.plane_mut(2).fill(240);
        assert_eq!(picture_of(&red), Picture::new(3, [255, 0, 0].repeat(9)));
    }
}

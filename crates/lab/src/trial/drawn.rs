//! Observes a sample of the original's sessions: from all of it (`--spread`), or from a part that has more
//! connections than a model holds.
//!
//! The packets of such an original are read twice more. First its connections are followed, only what is needed to
//! group them into sessions is kept, and sessions are drawn (`conversation::drawn`). Then the packets of these are
//! observed, by the time at which they are played: the result is the original from which the copy is made, and
//! against which it is judged.

use anyhow::{Result, bail};
use nilometer_conversation::drawn::{Amount, DrawLimits};
use nilometer_conversation::sessions::Brief;
use nilometer_conversation::{Connection, Drawn, Follower, Limits};
use nilometer_likeness::observed::{Bin, CONNECTIONS_MAX};
use nilometer_likeness::{Observed, Observer};
use nilometer_traffic::vectors::STEPS_MAX;
use nilometer_wire::packet::{IpPacket, Transport};

use super::clock::Clock;
use super::input_warning::InputWarning;
use super::part::{Chosen, Spread};
use super::source::{BOUND_S, EstimateRequest};
use super::stamps::Stamps;
use nilometer_files::input::observe::hold;
use nilometer_files::input::records::{Progress, read_packets};

/// Connections that are drawn from at most, some 400 bytes each.
const SURVEYED_MAX: usize = 1 << 22;
/// The most packets of a draw that are put in order, some 120 bytes each.
const SPREAD_PACKETS_MAX: usize = 1 << 23;

/// Reads packets by the clock of the original.
pub struct Reader<'a> {
    /// The inputs.
    pub request: &'a EstimateRequest,
    /// The original's own clock.
    pub clock: &'a Clock,
}

/// What was observed.
pub struct Draw {
    /// By the times at which it is played.
    pub observed: Observed,
    /// All of the part, where no more than a draw of it could be kept.
    pub whole: Option<Amount>,
    /// A warning about it.
    pub warning: Option<InputWarning>,
}

impl Reader<'_> {
    fn each(
        &self,
        progress: &mut dyn FnMut(&Progress<'_>),
        mut take: impl FnMut(u64, &IpPacket),
    ) -> Result<()> {
        let mut stamps = Stamps::of(self.request.rate);
        let watch = &mut |ns, packet: &IpPacket| take(self.clock.at(stamps.next(ns)), packet);
        read_packets(&self.request.inputs, false, progress, watch)?;
        Ok(())
    }
}

/// What a table holds at most.
fn limits() -> DrawLimits {
    DrawLimits { connections: CONNECTIONS_MAX as u64, steps: STEPS_MAX as u64 }
}

/// Observes the chosen part.
///
/// # Errors
/// Where an input cannot be read, or there is too much to draw from.
pub fn observe(
    reader: &Reader<'_>,
    chosen: &Chosen,
    progress: &mut dyn FnMut(&Progress<'_>),
) -> Result<Draw> {
    observe_within(limits(), reader, chosen, progress)
}

fn observe_within(
    limits: DrawLimits,
    reader: &Reader<'_>,
    chosen: &Chosen,
    progress: &mut dyn FnMut(&Progress<'_>),
) -> Result<Draw> {
    let between_ns = chosen.between_ns();
    if let Some(Spread { share, lead_ns }) = chosen.spread() {
        let all = survey(reader, [0, u64::MAX], progress)?;
        let begins_ns = [between_ns[0], lead_ns];
        let drawn = Drawn::spread(&all, bound_ns(reader.request), begins_ns, share);
        if drawn.drawn.connections > limits.connections || drawn.drawn.steps > limits.steps {
            bail!(
                "--spread draws {} connections with {} steps, and a model holds {} and {}: give a shorter --duration",
                drawn.drawn.connections,
                drawn.drawn.steps,
                limits.connections,
                limits.steps
            );
        }
        let observed = observe_moved(reader, &drawn, between_ns, progress)?;
        hold(&observed)?;
        let warning = Some(sessions_drawn(&drawn, observed.tcp, chosen));
        return Ok(Draw { observed, whole: None, warning });
    }
    let mut observer = Observer::between(Limits::default(), between_ns[0], between_ns[1]);
    reader.each(progress, |ns, packet| observer.observe(ns, packet))?;
    let observed = observer.finish();
    let steps: u64 = observed.connections.iter().map(|one| one.steps.len() as u64).sum();
    if observed.counts.connections <= limits.connections && steps <= limits.steps {
        return Ok(Draw { observed, whole: None, warning: None });
    }
    drop(observed);
    let all = survey(reader, between_ns, progress)?;
    let drawn = Drawn::within(&all, bound_ns(reader.request), limits);
    if drawn.drawn.sessions == 0 {
        bail!(
            "each session of the part has more than {} connections or {} steps, which is what a model holds: give a \
             shorter part (--part START+LENGTH)",
            limits.connections,
            limits.steps
        );
    }
    let mut observer = Observer::between(Limits::default(), between_ns[0], between_ns[1]);
    reader.each(progress, |ns, packet| match packet.transport {
        Transport::Tcp(_) if drawn.packet(ns, packet).is_none() => {}
        _ => observer.observe(ns, packet),
    })?;
    let mut observed = observer.finish();
    scale_beside(&mut observed, &drawn);
    let (all, kept) = (drawn.all, drawn.drawn);
    let warning = InputWarning::SessionsKept {
        all: [all.connections, all.sessions],
        played: [kept.connections, kept.sessions],
    };
    Ok(Draw { observed, whole: Some(all), warning: Some(warning) })
}

/// Scales the traffic other than TCP by the observed share of TCP.
pub fn scale_beside(observed: &mut Observed, drawn: &Drawn) {
    let share = observed.tcp.octets as f64 / drawn.all.octets.max(1) as f64;
    for bin in [&mut observed.udp, &mut observed.others, &mut observed.headless] {
        bin.packets = (bin.packets as f64 * share) as u64;
        bin.octets = (bin.octets as f64 * share) as u64;
    }
}

/// Connections of flow records, in the order of their starts; where they are drawn from all, the draw of them.
pub fn of_connections(
    all: Vec<Connection>,
    request: &EstimateRequest,
    chosen: &Chosen,
) -> (Vec<Connection>, Option<Drawn>) {
    let Some(Spread { share, lead_ns }) = chosen.spread() else { return (all, None) };
    let briefs: Vec<Brief> = all.iter().map(Brief::from).collect();
    let begins_ns = [chosen.between_ns()[0], lead_ns];
    let drawn = Drawn::spread(&briefs, bound_ns(request), begins_ns, share);
    let mut moved: Vec<Connection> =
        all.into_iter().filter_map(|one| drawn.connection(one)).collect();
    moved.sort_by_key(|one| (one.start_ns, one.client, one.server));
    (moved, Some(drawn))
}

fn bound_ns(request: &EstimateRequest) -> u64 {
    (request.bound_s.unwrap_or(BOUND_S) * 1e9) as u64
}

/// The connections that form sessions, from one moment on and before another, ns since 1970.
fn survey(
    reader: &Reader<'_>,
    [begins_ns, ends_ns]: [u64; 2],
    progress: &mut dyn FnMut(&Progress<'_>),
) -> Result<Vec<Brief>> {
    let mut all = Vec::new();
    let mut is_too_many = false;
    let mut keep = |one: Connection| {
        is_too_many |= all.len() >= SURVEYED_MAX;
        if !is_too_many {
            all.push(Brief::from(&one));
        }
    };
    let mut follower = Follower::new(Limits::default());
    reader.each(progress, |ns, packet| {
        if (begins_ns..ends_ns).contains(&ns) {
            follower.observe(ns, packet, &mut keep);
        }
    })?;
    follower.flush(&mut keep);
    if is_too_many {
        bail!(
            "more than {SURVEYED_MAX} TCP connections are too many to draw from; give a shorter part (--part \
             START+LENGTH)"
        );
    }
    all.sort_by_key(|one| (one.start_ns, one.client, one.server));
    Ok(all)
}

/// Observes the packets of sessions that are moved, in the order in which they are played.
fn observe_moved(
    reader: &Reader<'_>,
    drawn: &Drawn,
    [begins_ns, ends_ns]: [u64; 2],
    progress: &mut dyn FnMut(&Progress<'_>),
) -> Result<Observed> {
    let mut moved: Vec<(u64, IpPacket)> = Vec::new();
    let mut beside = Observer::new(Limits::default());
    let mut is_too_many = false;
    reader.each(progress, |ns, packet| match packet.transport {
        Transport::Tcp(_) => {
            let played =
                drawn.packet(ns, packet).filter(|(at_ns, _)| (begins_ns..ends_ns).contains(at_ns));
            is_too_many |= moved.len() >= SPREAD_PACKETS_MAX;
            if !is_too_many {
                moved.extend(played);
            }
        }
        _ => beside.observe(ns, packet),
    })?;
    if is_too_many {
        bail!(
            "--spread puts no more than {SPREAD_PACKETS_MAX} packets in order, and the sessions drawn have more: \
             give a shorter --duration"
        );
    }
    moved.sort_by_key(|(at_ns, _)| *at_ns);
    let mut observer = Observer::between(Limits::default(), begins_ns, ends_ns);
    moved.iter().for_each(|(at_ns, packet)| observer.observe(*at_ns, packet));
    let (mut observed, beside) = (observer.finish(), beside.finish());
    (observed.udp, observed.others) = (beside.udp, beside.others);
    observed.headless = beside.headless;
    scale_beside(&mut observed, drawn);
    Ok(observed)
}

/// A warning about a draw from all sessions; `within` is the part inside the run.
pub fn sessions_drawn(drawn: &Drawn, within: Bin, chosen: &Chosen) -> InputWarning {
    let (all, took) = (drawn.all, drawn.drawn);
    let rate = within.octets as f64 / chosen.part.seconds;
    let mean_rate = all.octets.max(1) as f64 / chosen.whole_s;
    InputWarning::SessionsDrawn {
        whole_s: chosen.whole_s,
        drawn: took.sessions,
        sessions: all.sessions,
        run_s: chosen.part.seconds,
        rate: rate / mean_rate,
        joined: took.sessions.saturating_sub(drawn.sessions_played),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::part::{Volume, Wanted};
    use nilometer_conversation::Opening;
    use nilometer_files::input::source::EMBEDDED;

    fn volume(reader: &Reader<'_>) -> Volume {
        let mut volume = Volume::default();
        let take = |ns, packet: &IpPacket| {
            if matches!(packet.transport, Transport::Tcp(_)) {
                volume.add(ns, packet.ip_bytes.into());
            }
        };
        reader.each(&mut |_| {}, take).expect("read");
        volume
    }

    fn drawn_of(limits: DrawLimits, wanted: &Wanted) -> (Draw, Chosen) {
        let (request, clock) = (EstimateRequest::of(vec![EMBEDDED.into()]), Clock::default());
        let reader = Reader { request: &request, clock: &clock };
        let chosen = volume(&reader).choose(wanted);
        let draw = observe_within(limits, &reader, &chosen, &mut |_| {}).expect("observed");
        (draw, chosen)
    }

    #[test]
    fn a_spread_is_of_the_whole_and_as_busy_as_it() {
        let (whole, chosen) = drawn_of(limits(), &Wanted::default());
        assert!(chosen.whole_s > 50.0 && whole.warning.is_none());
        // Means over draws of different lengths: a single draw of a hundred sessions varies by chance.
        let mut means = [0.0; 2];
        let lengths = [5.0, 8.0, 12.0, 16.0, 20.0, 25.0, 30.0, 40.0];
        for seconds in lengths {
            let wanted = Wanted { duration_s: Some(seconds), spread: true, ..Wanted::default() };
            let (draw, chosen) = drawn_of(limits(), &wanted);
            let ratio = |of: fn(&Observed) -> f64| {
                of(&draw.observed) / of(&whole.observed) * chosen.whole_s / seconds
            };
            means[0] += ratio(|observed| observed.connections.len() as f64) / lengths.len() as f64;
            means[1] += ratio(|observed| observed.tcp.octets as f64) / lengths.len() as f64;
        }
        let [connections, octets] = means;
        assert!((0.85..1.1).contains(&connections), "{connections} of the connections a second");
        assert!((0.75..1.1).contains(&octets), "{octets} of the bytes a second");
        let wanted = Wanted { duration_s: Some(12.0), spread: true, ..Wanted::default() };
        let (draw, chosen) = drawn_of(limits(), &wanted);
        let since_s = |one: &Connection| (one.start_ns - chosen.between_ns()[0]) as f64 / 1e9;
        let late = draw.observed.connections.iter().filter(|one| since_s(one) > 9.0).count();
        assert!(late > draw.observed.connections.len() / 8, "{late} begin in the last quarter");
        let message = draw.warning.expect("a draw says so").to_string();
        assert!(message.contains("sessions are drawn for a run of 12.0 s"), "{message}");
    }

    #[test]
    fn connections_of_records_are_drawn_as_those_of_packets() {
        let (whole, _) = drawn_of(limits(), &Wanted::default());
        let wanted = Wanted { duration_s: Some(12.0), spread: true, ..Wanted::default() };
        let (draw, chosen) = drawn_of(limits(), &wanted);
        let request = EstimateRequest::of(Vec::new());
        let (moved, drawn) = of_connections(whole.observed.connections.clone(), &request, &chosen);
        assert!(moved.is_sorted_by_key(|one| one.start_ns));
        let [begins_ns, ends_ns] = chosen.between_ns();
        let of = |list: &[Connection]| -> Vec<_> {
            let is_seen = |one: &Connection| matches!(one.opening, Opening::Seen);
            let begun = list
                .iter()
                .filter(|one| is_seen(one) && (begins_ns..ends_ns).contains(&one.start_ns));
            begun.map(|one| (one.start_ns, one.client, one.server)).collect()
        };
        assert_eq!(of(&moved), of(&draw.observed.connections));
        assert_eq!(drawn.expect("a draw").drawn.connections, moved.len() as u64);
        let (_, whole_is_played) = drawn_of(limits(), &Wanted::default());
        let (same, drawn) =
            of_connections(whole.observed.connections.clone(), &request, &whole_is_played);
        assert!(drawn.is_none() && same.len() == whole.observed.connections.len());
    }

    #[test]
    fn traffic_beside_tcp_is_scaled_by_the_observed_share_of_tcp() {
        let bin = |packets, octets| Bin { packets, octets };
        let mut observed = Observed { tcp: bin(1, 250), ..Observed::default() };
        (observed.udp, observed.others) = (bin(40, 4_000), bin(8, 80));
        let mut drawn = Drawn::default();
        // (The amount drawn does not matter: some of it falls beyond the end.)
        (drawn.all.octets, drawn.drawn.octets) = (1_000, 900);
        scale_beside(&mut observed, &drawn);
        assert_eq!([observed.udp, observed.others], [bin(10, 1_000), bin(2, 20)]);
    }

    #[test]
    fn a_spread_that_no_model_holds_is_refused() {
        let (request, clock) = (EstimateRequest::of(vec![EMBEDDED.into()]), Clock::default());
        let reader = Reader { request: &request, clock: &clock };
        let wanted = Wanted { duration_s: Some(12.0), spread: true, ..Wanted::default() };
        let chosen = volume(&reader).choose(&wanted);
        let few = DrawLimits { connections: 10, steps: 1 << 40 };
        let refused = observe_within(few, &reader, &chosen, &mut |_| {}).err().expect("too many");
        assert!(refused.to_string().contains("give a shorter --duration"), "{refused}");
        let none = DrawLimits { connections: 0, steps: 1 << 40 };
        let whole = volume(&reader).choose(&Wanted::default());
        let refused = observe_within(none, &reader, &whole, &mut |_| {}).err().expect("too large");
        assert!(
            refused.to_string().contains("each session of the part has more than"),
            "{refused}"
        );
    }

    #[test]
    fn an_input_larger_than_the_table_is_sampled_with_a_warning() {
        let (whole, _) = drawn_of(limits(), &Wanted::default());
        let all = whole.observed.connections.len() as u64;
        let few = DrawLimits { connections: all / 3, steps: 1 << 40 };
        let (draw, _) = drawn_of(few, &Wanted::default());
        let kept = draw.observed.connections.len() as u64;
        assert!(kept <= all / 3 && kept > all / 4, "{kept} of {all}");
        assert_eq!(draw.whole.expect("of all").connections, all);
        assert!(matches!(draw.warning, Some(InputWarning::SessionsKept { .. })));
        let largest = |observed: &Observed| {
            observed.connections.iter().map(|one| Brief::from(one).payload_bytes).max()
        };
        assert_eq!(largest(&draw.observed), largest(&whole.observed));
        let steps = DrawLimits { connections: 1 << 40, steps: 2_000 };
        let (draw, _) = drawn_of(steps, &Wanted::default());
        let kept: usize = draw.observed.connections.iter().map(|one| one.steps.len()).sum();
        assert!((1_500..=2_000).contains(&kept), "{kept} steps");
    }
}

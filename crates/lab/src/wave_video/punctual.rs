//! Whether a run by the real clock is valid: how late its threads were, and how many of its frames the kernel lost.
//!
//! In virtual time everything happens at its moment. By the real clock a thread that has to wait for a processor sends, forwards and
//! shows late, and a socket that is not read overflows. Neither is a contender's doing, so a run in which it happened
//! proves nothing, and says so. The limits:
//!
//! * a moment of the source, of cross traffic or of a router that is met by more than [`LATE`] is late. So is a router's by
//!   more than what its narrow link makes up for, if that is less: the link then stood idle while packets waited;
//! * of a thread's moments [`LATE_MOST`] may be late, and none by more than [`LATEST`], in which the plugin would have asked the
//!   scheduler once more;
//! * receivers decide after whole seconds. They are late by ten times as much;
//! * no frame may be lost in the kernel.

use nilometer_routerd::driver::TimerLateness;
use nilometer_wire::{Node, Port, Span, Time};
use serde::Serialize;

use super::Contender;

/// A timed thread's moment that is met by more than this is late.
pub(super) const LATE: Span = Span::from_nanos(5_000_000);
/// By how much a moment of a timed thread may be late at most.
pub(super) const LATEST: Span = Span::from_nanos(50_000_000);
/// The factor by which these limits are larger for receivers.
pub(super) const RECEIVERS_TIMES: u64 = 10;
/// Of a thread's moments, the share that may be late.
const LATE_MOST: f64 = 0.01;
/// How often an idle thread looks at the clock, to show that it could run.
const BEAT: Span = Span::from_nanos(10_000_000);

/// How punctual a thread of a run by the real clock was.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ThreadPunctuality {
    /// `source`, `X2` and `X3` (cross traffic), `R1` to `R3`, `D1` to `D3`.
    pub thread: String,
    /// Moments that it met.
    pub moments: u64,
    /// By how much one is late, milliseconds.
    pub late_ms: f64,
    /// Those that were late.
    pub late: u64,
    /// By how much the latest was, milliseconds.
    pub latest_ms: f64,
    /// By how much it may be, milliseconds.
    pub latest_most_ms: f64,
    /// Frames that the kernel lost before the thread had them, or that never left its port.
    pub lost_frames: u64,
}

impl ThreadPunctuality {
    /// The punctuality of a thread from the lateness that it found; its latest timer may be late by `most`, and the
    /// kernel lost `lost_frames` of its frames.
    pub(super) fn new(
        thread: String,
        found: TimerLateness,
        most: Span,
        lost_frames: u64,
    ) -> ThreadPunctuality {
        let ms = |span: Span| span.as_secs_f64() * 1e3;
        ThreadPunctuality {
            thread,
            moments: found.timers,
            late_ms: ms(found.bound),
            late: found.late,
            latest_ms: ms(found.latest),
            latest_most_ms: ms(most),
            lost_frames,
        }
    }

    /// Why a run with this thread proves nothing, if so.
    fn complaint(&self, contender: Contender) -> Option<String> {
        let who = format!("{} ({})", self.thread, contender.name());
        let share = self.late as f64 / self.moments.max(1) as f64;
        if self.lost_frames > 0 {
            let frames = if self.lost_frames == 1 { "frame" } else { "frames" };
            return Some(format!("the kernel lost {} {frames} of {who}", self.lost_frames));
        }
        if self.latest_ms > self.latest_most_ms {
            return Some(format!(
                "{who} was late by {:.0} ms, the limit is {:.0} ms",
                self.latest_ms, self.latest_most_ms
            ));
        }
        (share > LATE_MOST).then(|| {
            format!(
                "{who} handled {:.1} % of its {} events more than {:.1} ms late, the limit is {:.0} %",
                100.0 * share,
                self.moments,
                self.late_ms,
                100.0 * LATE_MOST
            )
        })
    }
}

/// Why a comparison proves nothing: a line for each thread of each contender that was not punctual; none where it is valid.
pub(super) fn complaints<'a>(
    runs: impl Iterator<Item = (Contender, &'a [ThreadPunctuality])>,
) -> Vec<String> {
    let all = runs.flat_map(|(of, threads)| threads.iter().map(move |thread| (of, thread)));
    all.filter_map(|(of, thread)| thread.complaint(of)).collect()
}

/// Wraps a node and records how late its timers fire. A timer of its own fires every [`BEAT`], so that an idle thread is
/// checked as well.
pub(super) struct Punctual<N> {
    node: N,
    beat: Time,
    pub(super) found: TimerLateness,
}

impl<N> Punctual<N> {
    pub(super) fn new(node: N, late: Span) -> Punctual<N> {
        Punctual { node, beat: Time::ZERO + BEAT, found: TimerLateness::new(late) }
    }
}

impl<F, M, N: Node<F, M>> Node<F, M> for Punctual<N> {
    fn receive(&mut self, now: Time, port: Port, frame: &F, memory: &mut M) {
        self.node.receive(now, port, frame, memory);
    }

    fn receive_batch(&mut self, now: Time, port: Port, frames: &[F], memory: &mut M) {
        self.node.receive_batch(now, port, frames, memory);
    }

    fn handle_timeout(&mut self, now: Time, memory: &mut M) {
        if let Some(due) = self.node.poll_timeout().filter(|due| *due <= now) {
            self.found.record(now.since(due));
            self.node.handle_timeout(now, memory);
        }
        if self.beat <= now {
            self.found.record(now.since(self.beat));
            self.beat = now + BEAT;
        }
    }

    fn poll_transmit(&mut self, now: Time, frame: &mut F, memory: &mut M) -> Option<Port> {
        self.node.poll_transmit(now, frame, memory)
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.node.poll_timeout().into_iter().chain([self.beat]).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(late: u64, latest_ms: f64, lost_frames: u64) -> ThreadPunctuality {
        ThreadPunctuality {
            thread: "R2".to_owned(),
            moments: 1_000,
            late_ms: 5.0,
            late,
            latest_ms,
            latest_most_ms: 50.0,
            lost_frames,
        }
    }

    #[test]
    fn a_run_that_was_late_or_lost_frames_is_invalid_with_a_reason() {
        let found = |thread| complaints([(Contender::Active, &[thread][..])].into_iter());
        assert!(found(thread(10, 50.0, 0)).is_empty());
        for (thread, words) in [
            (
                thread(11, 6.0, 0),
                "R2 (active) handled 1.1 % of its 1000 events more than 5.0 ms late",
            ),
            (thread(1, 50.1, 0), "R2 (active) was late by 50 ms, the limit is 50 ms"),
            (thread(0, 0.1, 1), "the kernel lost 1 frame of R2 (active)"),
        ] {
            let why = found(thread);
            assert!(why.len() == 1 && why[0].contains(words), "{why:?}");
        }
        let both = [thread(500, 20.0, 0), thread(0, 0.1, 0), thread(0, 60.0, 0)];
        assert_eq!(complaints([(Contender::Plain, &both[..])].into_iter()).len(), 2);
    }

    /// Wants the time at two moments.
    struct Twice(Vec<Time>);

    impl Node<u8> for Twice {
        fn receive(&mut self, _: Time, _: Port, _: &u8, _: &mut ()) {}
        fn handle_timeout(&mut self, now: Time, _: &mut ()) {
            self.0.retain(|due| *due > now);
        }
        fn poll_transmit(&mut self, _: Time, _: &mut u8, _: &mut ()) -> Option<Port> {
            None
        }
        fn poll_timeout(&self) -> Option<Time> {
            self.0.first().copied()
        }
    }

    #[test]
    fn a_thread_that_is_kept_waiting_is_late_whether_its_node_wanted_the_time_or_not() {
        let ms = |ms: u64| Time::from_nanos(ms * 1_000_000);
        let mut node = Punctual::new(Twice(vec![ms(4), ms(12)]), LATE);
        for (due, now) in [(4, 4), (10, 11), (12, 12), (21, 81), (91, 91)] {
            let next = Node::<u8, ()>::poll_timeout(&node);
            assert_eq!(next, Some(ms(due)));
            Node::<u8, ()>::handle_timeout(&mut node, ms(now), &mut ());
        }
        let found = node.found;
        assert_eq!((found.timers, found.late), (5, 1));
        assert_eq!(found.latest, Span::from_nanos(60_000_000));
    }
}

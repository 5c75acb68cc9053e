//! RACK (RFC 8985, section 6): a segment is lost when one sent later was delivered long enough ago.
//!
//! Counting duplicate acknowledgements considers how *many* segments came after; RACK, how much
//! *later*. Each segment under way has a record with the time at which it was last sent. Of the
//! segments that are delivered, the one sent last is remembered. A segment that was sent before it
//! and is not delivered within the newest round-trip time and a reordering window is lost. So a
//! lost retransmission is found like any other loss, and segments that overtake each other are
//! waited for, a quarter of the least round-trip time, once the path was seen to reorder.
//!
//! A segment counts as delivered only as a whole: a block that ends within one says nothing of it.
//! Records are kept in the order of their offsets and leave at the front, so that an
//! acknowledgement costs what it delivers; a block is looked up by bisection. Beside them stands
//! the order in which segments were sent. Detection takes from its front what was sent before the
//! newest delivery: what was delivered, found lost or sent again meanwhile is dropped for good, and
//! only what is still waited for, a reordering window at most, is looked at twice.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use nilometer_wire::{Span, Time};

use crate::scoreboard::DUPLICATE_THRESHOLD;

/// A segment under way: `[left, right)`.
#[derive(Clone, Copy, Debug)]
struct Sent {
    left: u64,
    right: u64,
    /// When it was last sent.
    at: Time,
    is_sacked: bool,
    is_lost: bool,
    /// Whether it was ever sent again.
    was_repeated: bool,
    /// Whether it was sent again, and is known neither to have arrived nor to be lost again.
    is_repeat_out: bool,
}

/// How much is in which state, in bytes or in segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Sent and not acknowledged cumulatively.
    pub outstanding: u64,
    /// Of those, acknowledged selectively.
    pub sacked: u64,
    /// Found lost, sent again or not.
    pub lost: u64,
    /// Sent again and not known to have arrived.
    pub repeated: u64,
    /// Found lost and not sent again since.
    pub waiting: u64,
}

impl Sums {
    /// What is in the network.
    pub const fn in_flight(&self) -> u64 {
        (self.outstanding + self.repeated).saturating_sub(self.sacked + self.lost)
    }

    fn add(&mut self, record: &Sent, amount: u64) {
        let sums = self.each(record);
        sums.into_iter().flatten().for_each(|sum| *sum += amount);
    }

    fn subtract(&mut self, record: &Sent, amount: u64) {
        let sums = self.each(record);
        sums.into_iter().flatten().for_each(|sum| *sum -= amount);
    }

    /// The sums that a record counts in.
    fn each(&mut self, record: &Sent) -> [Option<&mut u64>; 5] {
        [
            Some(&mut self.outstanding),
            record.is_sacked.then_some(&mut self.sacked),
            record.is_lost.then_some(&mut self.lost),
            record.is_repeat_out.then_some(&mut self.repeated),
            (record.is_lost && !record.is_repeat_out).then_some(&mut self.waiting),
        ]
    }
}

/// What an acknowledgement delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Delivered {
    /// Bytes that are news, whichever way they were acknowledged.
    pub bytes: u64,
    /// Round-trip time of the segment sent first among those that are news, and of the one sent
    /// last; nothing if one of them was sent twice (Karn and Partridge 1987).
    pub rtt: Option<(Span, Span)>,
}

/// The records of all segments under way.
#[derive(Clone, Debug)]
pub(crate) struct Rack {
    records: VecDeque<Sent>,
    /// When segments that may be under way were sent, and the last of their offsets, in that order.
    order: VecDeque<(Time, u64)>,
    /// Entries of `order` that [`Rack::detect`] puts back; kept for its memory.
    waited: Vec<(Time, u64)>,
    /// No segment below this offset is lost and waits to be sent again.
    hint: u64,
    bytes: Sums,
    segments: Sums,
    /// When the segment sent last of those delivered was sent, and where it ends.
    newest: Option<(Time, u64)>,
    /// The round-trip time of the segment found delivered last.
    rtt: Span,
    /// The least round-trip time seen.
    least_rtt: Option<Span>,
    /// The highest offset delivered.
    highest: u64,
    /// By how many segments one was overtaken at most; the threshold before any was.
    reordering: u64,
    /// Acknowledgements that showed reordering.
    reorderings: u64,
    mss: u64,
}

impl Rack {
    /// No segments yet.
    pub fn new(mss: u32) -> Rack {
        Rack {
            records: VecDeque::new(),
            order: VecDeque::new(),
            waited: Vec::new(),
            hint: 0,
            bytes: Sums::default(),
            segments: Sums::default(),
            newest: None,
            rtt: Span::ZERO,
            least_rtt: None,
            highest: 0,
            reordering: u64::from(DUPLICATE_THRESHOLD),
            reorderings: 0,
            mss: u64::from(mss.max(1)),
        }
    }

    /// Bytes in each state.
    pub const fn bytes(&self) -> &Sums {
        &self.bytes
    }

    /// Segments in each state.
    pub const fn segments(&self) -> &Sums {
        &self.segments
    }

    /// By how many segments one was overtaken at most, and how often that was seen.
    pub const fn reordering(&self) -> (u64, u64) {
        (self.reordering, self.reorderings)
    }

    /// What the handshake measured.
    pub fn know_rtt(&mut self, handshake: Option<Span>) {
        self.least_rtt = self.least_rtt.or(handshake);
    }

    /// When the first segment that is not acknowledged was last sent.
    pub fn first_sent(&self) -> Option<Time> {
        self.records.front().map(|record| record.at)
    }

    /// The segment with the highest offsets, `[left, right)`.
    pub fn last(&self) -> Option<(u64, u64)> {
        self.records.back().map(|record| (record.left, record.right))
    }

    /// Changes a record and the sums with it.
    fn change(&mut self, at: usize, change: impl FnOnce(&mut Sent)) {
        let record = &mut self.records[at];
        self.bytes.subtract(record, record.right - record.left);
        self.segments.subtract(record, 1);
        change(record);
        self.bytes.add(record, record.right - record.left);
        self.segments.add(record, 1);
    }

    /// `[left, right)` was sent for the first time.
    pub fn on_sent(&mut self, left: u64, right: u64, now: Time) {
        let record = Sent {
            left,
            right,
            at: now,
            is_sacked: false,
            is_lost: false,
            was_repeated: false,
            is_repeat_out: false,
        };
        self.bytes.add(&record, right - left);
        self.segments.add(&record, 1);
        self.records.push_back(record);
        self.order.push_back((now, right - 1));
    }

    /// The segment that begins at `left` was sent again.
    pub fn on_repeated(&mut self, left: u64, now: Time) {
        let at = self.records.partition_point(|record| record.left < left);
        if at < self.records.len() {
            self.order.push_back((now, self.records[at].right - 1));
            self.change(at, |record| {
                record.at = now;
                record.was_repeated = true;
                record.is_repeat_out = !record.is_sacked;
            });
        }
    }

    /// Everything below `una` was acknowledged, and `blocks` selectively.
    pub fn on_ack(
        &mut self,
        una: u64,
        blocks: impl Iterator<Item = (u64, u64)>,
        now: Time,
    ) -> Delivered {
        let mut news = News { now, highest: self.highest, ..News::default() };
        for (left, right) in blocks {
            let mut at = self.records.partition_point(|record| record.left < left);
            while self.records.get(at).is_some_and(|record| record.right <= right) {
                self.take_selectively(at, &mut news);
                at += 1;
            }
        }
        while self.records.front().is_some_and(|record| record.right <= una) {
            let Some(record) = self.records.pop_front() else { break };
            self.bytes.subtract(&record, record.right - record.left);
            self.segments.subtract(&record, 1);
            if !record.is_sacked {
                self.deliver(&record, &mut news);
            }
        }
        if self.records.front().is_some_and(|record| record.left < una) {
            self.change(0, |record| record.left = una);
        }
        self.reorderings += u64::from(news.is_reordered);
        let rtt = news.sent.filter(|_| !news.has_repeat);
        let rtt = rtt.map(|(first, last)| (now.since(first), now.since(last)));
        if let Some((_, last)) = rtt {
            self.least_rtt = Some(self.least_rtt.map_or(last, |least| least.min(last)));
        }
        Delivered { bytes: news.bytes, rtt }
    }

    fn take_selectively(&mut self, at: usize, news: &mut News) {
        let record = self.records[at];
        if record.is_sacked {
            return;
        }
        self.deliver(&record, news);
        self.change(at, |record| {
            record.is_sacked = true;
            record.is_lost = false;
            record.is_repeat_out = false;
        });
    }

    /// A segment is found delivered: RACK_update and RACK_detect_reordering.
    fn deliver(&mut self, record: &Sent, news: &mut News) {
        news.bytes += record.right - record.left;
        self.highest = self.highest.max(record.right);
        if record.was_repeated {
            news.has_repeat = true;
        } else {
            let (first, last) = news.sent.unwrap_or((record.at, record.at));
            news.sent = Some((first.min(record.at), last.max(record.at)));
            if record.left < news.highest {
                let distance = (news.highest - record.left).div_ceil(self.mss);
                self.reordering = self.reordering.max(distance);
                news.is_reordered = true;
            }
        }
        let rtt = news.now.since(record.at);
        // So soon after a retransmission it is the original that arrived.
        if record.was_repeated && self.least_rtt.is_some_and(|least| rtt < least) {
            return;
        }
        self.rtt = rtt;
        let key = (record.at, record.right);
        if self.newest.is_none_or(|newest| newest < key) {
            self.newest = Some(key);
        }
    }

    /// How long a segment may be overtaken before it is lost (RACK_update_reo_wnd).
    fn window(&self, is_repairing: bool, smoothed: Option<Span>) -> Span {
        let threshold = u64::from(DUPLICATE_THRESHOLD);
        if self.reorderings == 0 && (is_repairing || self.segments.sacked >= threshold) {
            return Span::ZERO;
        }
        let quarter = self.least_rtt.map_or(Span::ZERO, |least| least / 4);
        smoothed.map_or(quarter, |smoothed| quarter.min(smoothed))
    }

    /// RACK_detect_loss: marks what is lost by now. Returns the bytes found, and how long to wait
    /// for what may yet come. `is_repairing`: losses are being repaired already.
    pub fn detect(
        &mut self,
        now: Time,
        is_repairing: bool,
        smoothed: Option<Span>,
    ) -> (u64, Option<Span>) {
        let Some(newest) = self.newest else { return (0, None) };
        let patience = self.rtt + self.window(is_repairing, smoothed);
        let (mut found, mut wait) = (0, None::<Span>);
        while let Some(&(sent, last)) = self.order.front().filter(|(sent, _)| *sent <= newest.0) {
            self.order.pop_front();
            if self.records.front().is_none_or(|front| last < front.left) {
                continue;
            }
            let at = self.records.partition_point(|record| record.right <= last);
            let Some(record) = self.records.get(at).copied().filter(|it| it.at == sent) else {
                continue;
            };
            if record.is_sacked || (record.is_lost && !record.is_repeat_out) {
                continue;
            }
            let due = record.at + patience;
            if (record.at, record.right) >= newest {
                self.waited.push((sent, last));
                break; // what follows was sent later still, or in the same moment after it
            }
            if due <= now {
                found += record.right - record.left;
                self.lose(at);
            } else {
                wait = Some(wait.unwrap_or(Span::ZERO).max(due.since(now)));
                self.waited.push((sent, last));
            }
        }
        while let Some(entry) = self.waited.pop() {
            self.order.push_front(entry);
        }
        (found, wait)
    }

    fn lose(&mut self, at: usize) {
        self.hint = self.hint.min(self.records[at].left);
        self.change(at, |record| {
            record.is_lost = true;
            record.is_repeat_out = false;
        });
    }

    /// The retransmission timer ran out: the first segment is lost, and of the others those that
    /// were sent long enough ago. A peer that acknowledged the first one selectively and not
    /// cumulatively gave up what it held (RFC 2018, section 8): nothing of it is believed, and all
    /// is lost.
    pub fn on_timeout(&mut self, now: Time) {
        let has_reneged = self.records.front().is_some_and(|record| record.is_sacked);
        for at in 0..self.records.len() {
            if has_reneged {
                self.change(at, |record| record.is_sacked = false);
            }
            let record = self.records[at];
            let is_old = at == 0 || has_reneged || record.at + self.rtt <= now;
            if !record.is_sacked && is_old {
                self.lose(at);
            }
        }
    }

    /// Where the segments end that are lost and were not sent again since.
    pub fn lost(&self) -> impl Iterator<Item = u64> + '_ {
        let waiting = self.records.iter().filter(|record| record.is_lost && !record.is_repeat_out);
        waiting.map(|record| record.right)
    }

    /// The first segment that is lost and was not sent again since, `[left, right)`.
    pub fn next_lost(&mut self) -> Option<(u64, u64)> {
        if self.segments.waiting == 0 {
            self.hint = u64::MAX;
            return None;
        }
        let from = self.records.partition_point(|record| record.right <= self.hint);
        let waits = |record: &&Sent| record.is_lost && !record.is_repeat_out;
        let record = self.records.range(from..).find(waits)?;
        self.hint = record.left;
        Some((record.left, record.right))
    }
}

/// What is gathered from one acknowledgement.
#[derive(Clone, Copy, Debug, Default)]
struct News {
    now: Time,
    bytes: u64,
    /// When the first and the last of the segments were sent, without those sent twice.
    sent: Option<(Time, Time)>,
    has_repeat: bool,
    is_reordered: bool,
    /// The highest offset delivered before.
    highest: u64,
}

#[cfg(test)]
mod tests;

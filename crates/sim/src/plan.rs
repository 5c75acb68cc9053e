//! A network that stands still: links, paths, members, and what follows from the paths.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::calendar::{GROUPS_LIMIT, Group};
use crate::hop::{LinkFacts, Turns};
use crate::link::Link;

pub use crate::hop::Hop;

/// The parts of a network.
#[derive(Debug)]
pub struct Plan<M> {
    /// The links.
    pub links: Vec<Link>,
    /// By route, the links and members that its packets pass, the receiver last. The sender is not
    /// in its own path.
    pub paths: Vec<Vec<Hop>>,
    /// The members, and the links at their ports.
    pub members: Vec<(M, Vec<u32>)>,
    /// The link whose queue is observed while the network runs, if any: no packet joins it before its
    /// time, as packets may join other queues where their fate is known.
    pub watched: Option<u32>,
}

/// Where a link ends.
#[derive(Clone, Debug, Default)]
enum End {
    /// No path leads over it.
    #[default]
    Unused,
    /// All packets continue alike.
    Alike(Hop),
    /// By route.
    ByRoute(Box<[Option<Hop>]>),
}

impl<M> Plan<M> {
    /// The way of each link, and how many groups of lanes they share. With `fuses` false no link is fused.
    pub(crate) fn ways(&self, fuses: bool) -> (Vec<(LinkFacts, Turns)>, usize) {
        let ends = self.ends();
        let feeders = self.feeders();
        let fused: Vec<bool> = ends
            .iter()
            .enumerate()
            .map(|(link, end)| fuses && self.is_fusible(link, end, &feeders))
            .collect();
        let eager: Vec<bool> =
            self.eager(&ends, &fused).into_iter().map(|is_eager| fuses && is_eager).collect();
        let writes = |link: usize| !fused[link] && !eager[link];
        let (chosen, count) = self.groups(&ends, &feeders, writes);
        let mut alarms = 0;
        let mut ways = Vec::with_capacity(ends.len());
        for (link, end) in ends.into_iter().enumerate() {
            let decides = fused[link] && !self.links[link].is_fifo();
            alarms += u32::from(decides);
            let alarm = if decides { alarms } else { 0 };
            let is_plain = self.links[link].is_fifo() && writes(link);
            let (onward, by_route) = match end {
                End::Unused => (None, Box::default()),
                End::Alike(hop) => (Some(hop), Box::default()),
                End::ByRoute(table) => (None, table),
            };
            let (is_fused, is_eager, group) = (fused[link], eager[link], chosen[link]);
            let way = LinkFacts { onward, is_fused, is_eager, is_plain, group };
            ways.push((way, Turns { by_route, alarm }));
        }
        (ways, count)
    }

    /// Where each link ends, from the paths that lead over it.
    fn ends(&self) -> Vec<End> {
        let mut ends = vec![End::Unused; self.links.len()];
        for path in &self.paths {
            for pair in path.windows(2) {
                let (Hop::Link(link), hop) = (pair[0], pair[1]) else { continue };
                let end = &mut ends[link as usize];
                match end {
                    End::Unused => *end = End::Alike(hop),
                    End::Alike(known) if *known != hop => {
                        *end = End::ByRoute(vec![None; self.paths.len()].into());
                    }
                    _ => {}
                }
            }
        }
        for (route, path) in self.paths.iter().enumerate() {
            for pair in path.windows(2) {
                if let (Hop::Link(link), hop) = (pair[0], pair[1])
                    && let End::ByRoute(table) = &mut ends[link as usize]
                {
                    table[route] = Some(hop);
                }
            }
        }
        ends
    }

    /// The one link that feeds each link, or `None` (senders feed it, or several links).
    fn feeders(&self) -> Vec<Option<u32>> {
        let mut feeders: Vec<Option<Option<u32>>> = vec![None; self.links.len()];
        for path in &self.paths {
            let mut before = None;
            for hop in path {
                let Hop::Link(link) = *hop else {
                    before = None;
                    continue;
                };
                let feeder = &mut feeders[link as usize];
                *feeder = match *feeder {
                    None => Some(before),
                    Some(known) if known == before => Some(known),
                    Some(_) => Some(None),
                };
                before = Some(link);
            }
        }
        feeders.into_iter().map(Option::flatten).collect()
    }

    /// Whether a link may pass what leaves it straight into the next link's flight: when it is
    /// followed only by FIFOs that nothing else feeds and that are not watched.
    fn is_fusible(&self, link: usize, end: &End, feeders: &[Option<u32>]) -> bool {
        let follows = |hop: &Hop| match hop {
            Hop::Link(next) => {
                feeders[*next as usize] == Some(link as u32)
                    && self.links[*next as usize].is_fifo()
                    && self.watched != Some(*next)
            }
            Hop::Member(..) => false,
        };
        match end {
            End::Unused => false,
            End::Alike(hop) => follows(hop),
            End::ByRoute(table) => table.iter().flatten().all(follows),
        }
    }

    /// Which links may deliver in advance to the member at their end: FIFOs, because other disciplines
    /// decide when they are touched, and landings touch them; to a member that nothing else reaches,
    /// and whose one port leads to a FIFO that nothing else feeds, that is not watched and that ends
    /// at another link's queue.
    fn eager(&self, ends: &[End], fused: &[bool]) -> Vec<bool> {
        let mut into = vec![0u32; self.members.len()];
        for end in ends {
            if let End::Alike(Hop::Member(member, _)) = end {
                into[*member as usize] += 1;
            }
            if let End::ByRoute(table) = end {
                for hop in table.iter().flatten() {
                    if let Hop::Member(member, _) = hop {
                        // Two, so that it is never one.
                        into[*member as usize] += 2;
                    }
                }
            }
        }
        let mut feeds = vec![0u32; self.links.len()];
        for &port in self.members.iter().flat_map(|(_, ports)| ports) {
            feeds[port as usize] += 1;
        }
        for path in &self.paths {
            for pair in path.windows(2) {
                if let (Hop::Link(_), Hop::Link(next)) = (pair[0], pair[1]) {
                    feeds[next as usize] += 1;
                }
            }
        }
        let is_eager = |(link, end): (&Link, &End)| {
            let End::Alike(Hop::Member(member, _)) = end else { return false };
            let [port] = self.members[*member as usize].1[..] else { return false };
            let port = port as usize;
            link.is_fifo()
                && into[*member as usize] == 1
                && feeds[port] == 1
                && self.links[port].is_fifo()
                && !fused[port]
                && self.watched != Some(port as u32)
                && matches!(ends[port], End::Alike(Hop::Link(_)))
        };
        self.links.iter().zip(ends).map(is_eager).collect()
    }

    /// The largest groups of links that are alike: of one rate and one delay, behind the same fused
    /// link or behind none, and before the same link. And how many groups there are. Of links that
    /// deliver in advance only the last packets of a run are written to the calendar: these go into
    /// the heap, so that the lanes of others meet in fewer matches.
    fn groups(
        &self,
        ends: &[End],
        feeders: &[Option<u32>],
        writes: impl Fn(usize) -> bool,
    ) -> (Vec<Group>, usize) {
        let mut groups: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        for (link, made) in self.links.iter().enumerate() {
            if writes(link) {
                // A feeder that does not write is fused, because no eager link feeds another.
                let behind = feeders[link].filter(|&feeder| !writes(feeder as usize));
                let onward = match ends[link] {
                    End::Alike(Hop::Link(onward)) => Some(onward),
                    _ => None,
                };
                groups.entry((behind, onward, made.kind())).or_default().push(link);
            }
        }
        let mut largest: Vec<Vec<usize>> = groups.into_values().collect();
        largest.sort_by_key(|group| Reverse(group.len()));
        largest.truncate(GROUPS_LIMIT);
        let count = largest.len();
        let mut chosen = vec![Group(u8::MAX); self.links.len()];
        for (group, links) in largest.into_iter().enumerate() {
            for link in links {
                chosen[link] = Group(group as u8);
            }
        }
        (chosen, count)
    }
}

//! Packets that wait for a link-layer address (RFC 1122, 2.3.2.2; RFC 4861, 7.2.2): many short
//! queues in one array of fixed size.

use alloc::vec::Vec;

const END: u32 = u32::MAX;

/// One neighbour's packets, oldest first. An empty queue owns nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    first: u32,
    last: u32,
    packets: u32,
}

impl Queue {
    /// Without packets.
    pub(super) const EMPTY: Queue = Queue { first: END, last: END, packets: 0 };

    /// How many packets wait in it.
    pub(super) fn len(self) -> usize {
        self.packets as usize
    }
}

/// The array that holds all queues of a table.
#[derive(Debug)]
pub(super) struct Room<B> {
    seats: Vec<(B, u32)>,
    free: u32,
    taken: usize,
    seats_max: usize,
}

impl<B: Copy> Room<B> {
    /// For at most `seats_max` packets; memory is taken as they come.
    pub(super) fn new(seats_max: usize) -> Room<B> {
        Room { seats: Vec::new(), free: END, taken: 0, seats_max }
    }

    /// How many packets wait in all queues.
    pub(super) fn taken(&self) -> usize {
        self.taken
    }

    /// Puts `packet` at the end of `queue`; whether there was room.
    pub(super) fn push(&mut self, queue: &mut Queue, packet: B) -> bool {
        let seat = match self.free {
            END if self.seats.len() == self.seats_max => return false,
            END => {
                self.seats.push((packet, END));
                self.seats.len() as u32 - 1
            }
            free => {
                self.free = self.seats[free as usize].1;
                self.seats[free as usize] = (packet, END);
                free
            }
        };
        match queue.last {
            END => queue.first = seat,
            last => self.seats[last as usize].1 = seat,
        }
        queue.last = seat;
        queue.packets += 1;
        self.taken += 1;
        true
    }

    /// Takes the oldest packet of `queue`.
    pub(super) fn pop(&mut self, queue: &mut Queue) -> Option<B> {
        let seat = Some(queue.first).filter(|&seat| seat != END)?;
        let (packet, next) = self.seats[seat as usize];
        queue.first = next;
        queue.packets -= 1;
        if next == END {
            queue.last = END;
        }
        self.seats[seat as usize].1 = self.free;
        self.free = seat;
        self.taken -= 1;
        Some(packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::VecDeque;
    use alloc::vec;
    use nilometer_stat::Rng;

    #[test]
    fn agrees_with_a_queue_for_each() {
        let mut rng = Rng::new(3, 1, 0);
        let mut room = Room::new(40);
        let mut queues = [Queue::EMPTY; 12];
        let mut twins: Vec<VecDeque<u64>> = vec![VecDeque::new(); 12];
        for step in 0..100_000 {
            let at = rng.below(12) as usize;
            if rng.below(2) == 0 {
                let has_room = twins.iter().map(VecDeque::len).sum::<usize>() < 40;
                assert_eq!(room.push(&mut queues[at], step), has_room);
                if has_room {
                    twins[at].push_back(step);
                }
            } else {
                assert_eq!(room.pop(&mut queues[at]), twins[at].pop_front());
            }
            assert_eq!(queues[at].len(), twins[at].len());
            assert_eq!(room.taken(), twins.iter().map(VecDeque::len).sum::<usize>());
        }
    }
}

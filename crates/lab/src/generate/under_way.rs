//! Bytes under way over all connections: handed to TCP and not yet acknowledged.
//!
//! Each place has a reserve, so that a served connection can always have some bytes on their way,
//! whatever all others hold: half of the bound, in equal parts. The other half is shared, and a
//! connection may continue while its part of it is smaller than an eighth of what is free: the
//! dynamic threshold of shared-memory switches (Choudhury and Hahne 1998), which leaves room for
//! newcomers without looking at any connection's queue. One connection alone may thus hold a ninth
//! of the shared half. What is held never exceeds the bound: a reserve is a place's own, and an
//! eighth of what is free is free.
//!
//! An account is what was handed over, less what the kernel reported as acknowledged at the last
//! query. It errs upwards, so the bound holds without queries; the server queries when an account
//! leaves no room, once a second for each that is beyond its reserve, and at the connection's end.

/// The smallest reserve of a place, in bytes.
pub const RESERVE_MIN_BYTES: u64 = 4_096;
/// The part of the free bytes that one connection may hold: an eighth.
const FREE_SHARE: u64 = 8;

/// The sum of all accounts, as far as it concerns others.
#[derive(Debug)]
pub struct UnderWay {
    reserve: u64,
    shared: u64,
    shared_used: u64,
}

impl UnderWay {
    /// Nothing under way, of at most `bound` bytes over `places` connections.
    pub fn new(bound: u64, places: usize) -> UnderWay {
        let reserve = bound / 2 / places as u64;
        UnderWay { reserve, shared: bound - reserve * places as u64, shared_used: 0 }
    }

    /// What each place may hold whatever the others do, in bytes.
    pub fn reserve(&self) -> u64 {
        self.reserve
    }

    /// How many bytes a connection with this account may hand over now.
    pub fn room(&self, account: u64) -> u64 {
        let share = (self.shared - self.shared_used) / FREE_SHARE;
        (self.reserve + share).saturating_sub(account)
    }

    /// An account of `before` bytes is one of `after`.
    pub fn change(&mut self, before: u64, after: u64) {
        let beyond = |account: u64| account.saturating_sub(self.reserve);
        self.shared_used = self.shared_used + beyond(after) - beyond(before);
        assert!(self.shared_used <= self.shared, "more bytes under way than were allowed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_stat::Rng;

    /// Connections that never have anything acknowledged, some that do, and one that comes last.
    #[test]
    fn the_bound_holds_and_the_last_connection_has_a_reserve() {
        const PLACES: usize = 100;
        const BOUND: u64 = 2_000_000;
        let mut under_way = UnderWay::new(BOUND, PLACES);
        let mut accounts = [0u64; PLACES];
        let mut rng = Rng::new(5, 0, 0);
        for _ in 0..50_000 {
            let chance = rng.next_u64();
            let index = (chance >> 33) as usize % (PLACES - 1);
            let before = accounts[index];
            let room = under_way.room(before);
            let wanted = (chance >> 40) % 200_000;
            accounts[index] = if index > 50 && wanted.is_multiple_of(3) {
                before - before.min(wanted) // acknowledged
            } else {
                before + room.min(wanted)
            };
            under_way.change(before, accounts[index]);
            let held: u64 = accounts.iter().sum();
            assert!(held <= BOUND, "{held}");
            let beyond = |&held: &u64| held.saturating_sub(under_way.reserve());
            assert_eq!(under_way.shared_used, accounts.iter().map(beyond).sum::<u64>());
        }
        let last = under_way.room(accounts[PLACES - 1]);
        assert!(last >= BOUND / 2 / PLACES as u64, "{last}");
        let full: u64 = accounts.iter().sum();
        assert!(full > BOUND / 2, "the test must fill it: {full}");
    }

    #[test]
    fn one_connection_may_hold_a_ninth_of_the_shared_bytes() {
        let mut under_way = UnderWay::new(1 << 28, 16_384);
        assert_eq!(under_way.reserve(), 8_192);
        let mut account = 0;
        while under_way.room(account) > 0 {
            let more = under_way.room(account).min(65_536);
            under_way.change(account, account + more);
            account += more;
        }
        let ninth = (1 << 27) / 9;
        assert!((ninth..ninth + 70_000).contains(&account), "{account}");
    }
}

//! Shares of a group: which member each of its buckets belongs to.
//!
//! A group of weighted members is a table of 2^k buckets, and a flow's hash chooses the bucket. Seats in
//! a parliament are shared out by the same arithmetic: the next bucket goes to the member whose weight
//! divided by (2 c + 1) is greatest, c being how many it has (Sainte-Laguë 1910). That is proportional, and
//! dealing bucket by bucket also interleaves the members.
//!
//! What matters is which flows move. Each bucket has a *home*, dealt once. While its home lives, a
//! bucket is there; if not, it stays wherever it was lodged as long as that member lives; else it is
//! dealt anew among the living. So a member that fails moves its own flows and no others, and takes
//! back those same flows when it returns.

use alloc::vec;
use alloc::vec::Vec;

/// Buckets for each member, at least; a share is off by less than half a bucket.
const BUCKETS_PER_MEMBER: usize = 16;

/// How many buckets a group of `members` members has.
pub(super) fn count(members: usize) -> usize {
    if members == 1 { 1 } else { (members * BUCKETS_PER_MEMBER).next_power_of_two() }
}

/// The member that gets the next bucket, of those that `may`.
fn next(weights: &[u16], had: &[u32], may: impl Fn(usize) -> bool) -> Option<usize> {
    let score = |member: usize| (u64::from(weights[member]), u64::from(2 * had[member] + 1));
    (0..weights.len()).filter(|&member| may(member)).reduce(|best, member| {
        let ((weight, divisor), (best_weight, best_divisor)) = (score(member), score(best));
        if weight * best_divisor > best_weight * divisor { member } else { best }
    })
}

/// Deals `count` buckets to members by their weights, at least one to each if there are enough.
/// Where a bucket's home was (`before`) it stays, as far as its member's share allows.
pub(super) fn deal(weights: &[u16], count: usize, before: &[Option<usize>]) -> Vec<usize> {
    let mut shares = vec![u32::from(count >= weights.len()); weights.len()];
    let mut homes = Vec::with_capacity(count);
    if count >= weights.len() {
        homes.extend(0..weights.len());
    }
    while homes.len() < count {
        let member = next(weights, &shares, |_| true).expect("a group has members");
        shares[member] += 1;
        homes.push(member);
    }
    if before.len() != count {
        return homes;
    }
    let mut settled: Vec<Option<usize>> = before.to_vec();
    for home in &mut settled {
        *home = home.filter(|&member| shares[member] > 0);
        if let Some(member) = *home {
            shares[member] -= 1;
        }
    }
    let open =
        (0..weights.len()).flat_map(|member| core::iter::repeat_n(member, shares[member] as usize));
    let mut open = open.collect::<Vec<_>>().into_iter();
    settled.into_iter().map(|home| home.or_else(|| open.next()).expect("shares add up")).collect()
}

/// Where each bucket is now: at home while that lives, else where it was lodged while that lives, else
/// dealt among the living; nowhere when none lives. `lodged` is the previous result.
pub(super) fn lodge(
    weights: &[u16],
    homes: &[usize],
    alive: &[bool],
    lodged: &mut [Option<usize>],
) {
    let mut had = vec![0; weights.len()];
    for (home, lodged) in homes.iter().zip(lodged.iter_mut()) {
        let stays = if alive[*home] { Some(*home) } else { lodged.filter(|&member| alive[member]) };
        *lodged = stays;
        if let Some(member) = stays {
            had[member] += 1;
        }
    }
    for lodged in lodged.iter_mut().filter(|lodged| lodged.is_none()) {
        let Some(member) = next(weights, &had, |member| alive[member]) else { return };
        had[member] += 1;
        *lodged = Some(member);
    }
}

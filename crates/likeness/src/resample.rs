//! Second samples of a set of packets: whole sessions drawn again, within strata.
//!
//! A session is drawn as a whole, so that its gaps, sizes and hosts stay correlated in the sample. Services are
//! strata, each with as many sessions as it had: a sample with twice the mail and half the web is one of another
//! network, not the result of chance. Small services are one stratum together. The sessions that have the most
//! of all bytes, or of all connections, are kept and not drawn: whether the one download of the day, or the one
//! scan, is in a sample or not decides whole laws, and no good copy leaves it out.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use nilometer_stat::Rng;

use nilometer_conversation::Session;

/// Services with fewer sessions are drawn together.
const STRATUM_MIN: usize = 10;
/// A session with more than this share of all bytes, or of all connections, is kept, if that is ten times a
/// session's share as well: of few sessions each has a large one.
const KEPT_SHARE: f64 = 0.01;
const KEPT_TIMES: f64 = 10.0;

/// Sessions by stratum.
#[derive(Clone, Debug)]
pub(crate) struct Strata {
    sessions: usize,
    drawn: Vec<Vec<u32>>,
    kept: Vec<u32>,
}

impl Strata {
    pub fn of(sessions: &[Session]) -> Strata {
        let has = |session: &Session| [session.octets, session.connections.len() as u64];
        let all =
            sessions.iter().map(has).fold([0, 0], |sum, one| [sum[0] + one[0], sum[1] + one[1]]);
        let mut by_service: BTreeMap<u16, Vec<u32>> = BTreeMap::new();
        let mut kept = Vec::new();
        let least = KEPT_SHARE.max(KEPT_TIMES / sessions.len().max(1) as f64);
        for (at, session) in (0..).zip(sessions) {
            let mut shares = has(session).into_iter().zip(all);
            if shares.any(|(one, all)| one as f64 > least * all as f64) {
                kept.push(at);
            } else {
                by_service.entry(session.service).or_default().push(at);
            }
        }
        let (large, small): (Vec<_>, Vec<_>) =
            by_service.into_values().partition(|one| one.len() >= STRATUM_MIN);
        let small: Vec<u32> = small.into_iter().flatten().collect();
        let drawn = large.into_iter().chain((!small.is_empty()).then_some(small)).collect();
        Strata { sessions: sessions.len(), drawn, kept }
    }

    /// How often each session is in a sample of about `of_all` sessions.
    pub fn draw(&self, of_all: usize, rng: &mut Rng) -> Vec<u32> {
        let mut weights = vec![0; self.sessions];
        let share = of_all as f64 / self.sessions.max(1) as f64;
        // Fractions of sessions are carried from stratum to stratum, beginning with a random one.
        let mut owed = rng.unit();
        let mut whole = |wanted: f64| {
            owed += wanted;
            let count = owed as usize;
            owed -= count as f64;
            count
        };
        for &at in &self.kept {
            weights[at as usize] += whole(share) as u32;
        }
        for stratum in &self.drawn {
            for _ in 0..whole(share * stratum.len() as f64) {
                let at = stratum[rng.below(stratum.len() as u64) as usize];
                weights[at as usize] += 1;
            }
        }
        weights
    }
}

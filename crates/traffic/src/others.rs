//! What is to be known of all records without flags, and of all sampled ones, before any of them is told.
//!
//! Their lots are gone through twice before they are measured. The first time gaps are looked at, to know
//! which records without flags are pieces of one flow, and for records whose stamps cannot be, those
//! that come before them are looked up. The second time pieces are joined, evidence is weighed, and sampled
//! records are counted by what they say. What is kept of each lot has a bound, or one number for each host.

use alloc::string::String;
use alloc::vec::Vec;

use nilometer_flow::FlowRecord;
use nilometer_flow::repair::{RepairCounts, settle_all};

use crate::ambiguous::Seen;
use crate::aside::Aside;
use crate::estimate_error::EstimateError;
use crate::lengths::is_sampled;
use crate::limits::Limits;
use crate::runner::Runner;
use crate::sampled_records::Kinds;
use crate::store::{Part, Store};
use crate::unflagged::befores::Befores;
use crate::unflagged::evidence::{Evidence, Weighed};
use crate::unflagged::gaps::Gaps;
use crate::unflagged::{self, Marked};

/// What is known of all of them.
pub(crate) struct Others {
    pub seen: Seen,
    /// The gap beyond which two records without flags were two flows, ns.
    pub threshold_ns: u64,
    befores: Befores,
    evidence: Evidence,
    /// Sampled flows, by what their records say.
    pub kinds: Kinds,
}

/// What is made of the others of one part.
pub(crate) struct Told {
    /// Flows whose starts and ends were inferred.
    pub marked: Marked,
    /// Flows that were sampled, joined.
    pub sampled: Vec<FlowRecord>,
}

/// What the second time through a lot comes to.
#[derive(Default)]
struct SecondLook {
    weighed: Weighed,
    kinds: Kinds,
}

impl Others {
    /// What is known when all lots were gone through.
    ///
    /// # Errors
    /// When a lot that was set aside cannot be had, and where there is more of something than is kept.
    pub fn of<A: Aside>(
        store: &Store<'_, A>,
        mut seen: Seen,
        span_ns: (u64, u64),
        limits: &Limits,
        runner: &impl Runner,
    ) -> Result<Others, EstimateError> {
        let (threshold_ns, befores) = first_look(store, &mut seen, runner)?;
        let mut others = Others {
            threshold_ns,
            befores,
            evidence: Evidence::default(),
            kinds: Kinds::default(),
            seen,
        };
        if others.seen.unflagged + others.seen.sampled > 0 {
            let look = |_: &SecondLook, part: &Part| Ok(others.second_look(store.others(part)?));
            let add = |sum: &mut SecondLook, _: &Part, more: SecondLook| {
                sum.kinds.merge(more.kinds);
                sum.weighed.merge(more.weighed, limits.host_times)
            };
            let SecondLook { weighed, kinds } =
                store.sum(store.parts(), SecondLook::default(), runner, (look, add))?;
            let weighed = weighed.settled(limits.host_times)?;
            others.kinds = kinds;
            others.evidence = Evidence::of(weighed, others.seen.tells_ends, span_ns);
        }
        Ok(others)
    }

    fn second_look(&self, records: Vec<FlowRecord>) -> SecondLook {
        let (sampled, bare) = apart(records);
        let (flows, _) = unflagged::join(bare, self.threshold_ns, &self.befores);
        let mut counts = RepairCounts::default();
        let sampled = settle_all(sampled, self.seen.waits.gap_ns(), &mut counts);
        SecondLook {
            weighed: Weighed::of(&flows, self.threshold_ns),
            kinds: Kinds::of(&sampled, counts.joined(), &self.seen.services),
        }
    }

    /// The flows of the others of a part, of which there may be none.
    pub fn tell<A: Aside>(&self, store: &Store<'_, A>, part: &Part) -> Result<Told, String> {
        let (sampled, bare) = apart(store.others(part)?);
        let (flows, joined) = unflagged::join(bare, self.threshold_ns, &self.befores);
        let sampled = settle_all(sampled, self.seen.waits.gap_ns(), &mut RepairCounts::default());
        let marked = unflagged::mark(flows, joined, self.threshold_ns, &self.evidence);
        Ok(Told { marked, sampled })
    }
}

/// Sampled records and others.
fn apart(records: Vec<FlowRecord>) -> (Vec<FlowRecord>, Vec<FlowRecord>) {
    records.into_iter().partition(is_sampled)
}

/// What the first time through a lot comes to.
struct FirstLook {
    gaps: Gaps,
    befores: Befores,
}

/// The threshold of gaps, and what comes before doubtful records.
fn first_look<A: Aside>(
    store: &Store<'_, A>,
    seen: &mut Seen,
    runner: &impl Runner,
) -> Result<(u64, Befores), EstimateError> {
    let sum = FirstLook { gaps: Gaps::default(), befores: seen.doubtful.take_sorted()? };
    if seen.unflagged == 0 {
        return Ok((sum.gaps.threshold_ns(), sum.befores));
    }
    let look = |sum: &FirstLook, part: &Part| {
        let mut records = store.others(part)?;
        records.retain(|record| !is_sampled(record));
        Ok((sum.befores.found(&records), Gaps::of(records, sum.gaps.last())))
    };
    let add = |sum: &mut FirstLook, _: &Part, (found, gaps)| {
        sum.gaps.merge(gaps);
        sum.befores.add(found);
        Ok(())
    };
    let mut sum = store.sum(store.parts(), sum, runner, (look, add))?;
    sum.befores.settle();
    Ok((sum.gaps.threshold_ns(), sum.befores))
}

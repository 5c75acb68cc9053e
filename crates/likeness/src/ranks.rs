//! Popularity: how often each of the hosts (or pairs) is used, from the most used on.

use alloc::vec;
use alloc::vec::Vec;

use nilometer_stat::jsd;

/// Uses of members by units, and how much each use counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Uses {
    pub members: usize,
    /// Member, unit, count.
    pub uses: Vec<(u32, u32, f64)>,
}

impl Uses {
    /// Shares of the members under a weighting, the most used first; unused ones are left out.
    pub fn ranked(&self, weights: &[u32]) -> Vec<f64> {
        let mut counts = self.counted(weights);
        counts.retain(|count| *count > 0.0);
        counts.sort_unstable_by(|one, other| other.total_cmp(one));
        counts
    }

    /// How often each member is used under a weighting.
    pub fn counted(&self, weights: &[u32]) -> Vec<f64> {
        let mut counts = vec![0.0; self.members];
        for &(member, unit, count) in &self.uses {
            counts[member as usize] += f64::from(weights[unit as usize]) * count;
        }
        counts
    }
}

/// Divergence of two popularities, rank by rank; bits, 0 to 1.
pub(crate) fn apart(one: &[f64], other: &[f64]) -> f64 {
    jsd(one, other)
}

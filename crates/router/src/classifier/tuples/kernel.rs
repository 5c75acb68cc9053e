//! The search of hash tables with the best instructions that this processor has.

use super::ClassifierTuples;
use crate::classifier::instructions::Instructions;
use crate::classifier::kernel::Classified;
use crate::classifier::rule::RuleId;
use crate::header::Key;

impl Instructions {
    /// The first rule of `classifier` for each of `keys`.
    #[inline]
    pub fn search_all<A: Classified>(
        self,
        classifier: &ClassifierTuples<A>,
        keys: &[Key<A>],
        found: &mut [Option<RuleId>],
    ) {
        match self {
            Instructions::Common => classifier.search_all::<false>(keys, found),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `best` has checked that the processor has each of these instructions.
            Instructions::Wide | Instructions::Gathering => unsafe {
                search_all_wide(classifier, keys, found);
            },
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
#[inline]
fn search_all_wide<A: Classified>(
    classifier: &ClassifierTuples<A>,
    keys: &[Key<A>],
    found: &mut [Option<RuleId>],
) {
    classifier.search_all::<true>(keys, found);
}

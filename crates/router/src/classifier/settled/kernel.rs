//! The search of settled rules with the best instructions that this processor has.

use super::ClassifierVectors;
#[cfg(target_arch = "x86_64")]
use crate::classifier::gathered::{self, GATHERED};
use crate::classifier::instructions::Instructions;
use crate::classifier::kernel::Classified;
use crate::classifier::rule::RuleId;
use crate::header::Key;

impl Instructions {
    /// The first settled rule of `classifier` for each of `keys`.
    #[inline]
    pub fn search_settled<A: Classified>(
        self,
        classifier: &ClassifierVectors<A>,
        keys: &[Key<A>],
        found: &mut [Option<RuleId>],
    ) {
        match self {
            Instructions::Common => classifier.search_all(keys, found),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `best` has checked that the processor has each of these instructions.
            Instructions::Wide => unsafe { search_settled_wide(classifier, keys, found) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `best` has checked that the processor has each of these instructions.
            Instructions::Gathering => unsafe {
                search_settled_gathering(classifier, keys, found);
            },
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
fn search_settled_wide<A: Classified>(
    classifier: &ClassifierVectors<A>,
    keys: &[Key<A>],
    found: &mut [Option<RuleId>],
) {
    classifier.search_all(keys, found);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512cd,avx512bw,avx512dq,avx512vl,bmi1,bmi2,popcnt,lzcnt")]
fn search_settled_gathering<A: Classified>(
    classifier: &ClassifierVectors<A>,
    keys: &[Key<A>],
    found: &mut [Option<RuleId>],
) {
    /// Fewer headers than this are searched faster one by one.
    const FEW: usize = 4;
    for (keys, found) in keys.chunks(GATHERED).zip(found.chunks_mut(GATHERED)) {
        if keys.len() < FEW {
            classifier.search_all(keys, found);
            continue;
        }
        let mut sixteen = [keys[0]; GATHERED];
        sixteen[..keys.len()].copy_from_slice(keys);
        let places = gathered::search(classifier.vectors(), &sixteen);
        for (found, place) in found.iter_mut().zip(places) {
            *found = classifier.id_of(place);
        }
    }
}

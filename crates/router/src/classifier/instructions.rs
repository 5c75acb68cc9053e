//! Which instructions this processor has for the searches of classifiers.

/// Which instructions searches may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Instructions {
    /// Those that every processor of its kind has.
    Common,
    /// Those on 256 bits at once.
    #[cfg(target_arch = "x86_64")]
    Wide,
    /// Those, and gathers of sixteen words that are fast (`gathered.rs`).
    #[cfg(target_arch = "x86_64")]
    Gathering,
}

impl Instructions {
    /// The best that this processor has.
    pub fn best() -> Instructions {
        Instructions::all().last().unwrap_or(Instructions::Common)
    }

    /// All that this processor has, the best at last.
    pub fn all() -> impl Iterator<Item = Instructions> {
        #[cfg(target_arch = "x86_64")]
        let more = {
            let is_wide = has_avx2();
            let wide = is_wide.then_some(Instructions::Wide);
            let gathering = (is_wide && gathers_fast()).then_some(Instructions::Gathering);
            wide.into_iter().chain(gathering)
        };
        #[cfg(not(target_arch = "x86_64"))]
        let more = core::iter::empty();
        core::iter::once(Instructions::Common).chain(more)
    }
}

/// Whether the processor has AVX2, BMI1, BMI2, POPCNT and LZCNT, and the system keeps the wide
/// registers (Intel's manual, volume 1, 14.7.1).
#[cfg(target_arch = "x86_64")]
pub(super) fn has_avx2() -> bool {
    const KEPT: u64 = 6;
    let is_known = processor(0)[0] >= 7 && processor(0x8000_0000)[0] >= 0x8000_0001;
    let has = |register: u32, bits: u32| register & bits == bits;
    is_known
        && has(processor(1)[2], 1 << 23 | 1 << 27)
        && has(processor(0x8000_0001)[2], 1 << 5)
        && has(processor(7)[1], 1 << 3 | 1 << 5 | 1 << 8)
        && kept_registers() & KEPT == KEPT
}

/// Whether a processor with AVX2 has AVX-512 F, CD, BW, DQ and VL, and the system keeps its registers
/// (Intel's manual, volume 1, 15.2 to 15.4).
#[cfg(target_arch = "x86_64")]
pub(super) fn gathers() -> bool {
    const KEPT: u64 = 0xe6;
    const FOUNDATIONS: u32 = 1 << 16 | 1 << 17 | 1 << 28 | 1 << 30 | 1 << 31;
    processor(7)[1] & FOUNDATIONS == FOUNDATIONS && kept_registers() & KEPT == KEPT
}

/// Whether it gathers, and has FP16.
#[cfg(target_arch = "x86_64")]
fn gathers_fast() -> bool {
    gathers() && processor(7)[3] >> 23 & 1 == 1
}

/// The processor's answer to CPUID for `leaf`, which it must support: EAX, EBX, ECX, EDX.
#[cfg(target_arch = "x86_64")]
fn processor(leaf: u32) -> [u32; 4] {
    // SAFETY: every x86-64 processor has CPUID.
    #[allow(unused_unsafe, reason = "safe in newer compilers")]
    let registers = unsafe { core::arch::x86_64::__cpuid_count(leaf, 0) };
    [registers.eax, registers.ebx, registers.ecx, registers.edx]
}

/// Which registers the system saves for every thread; none where that cannot be queried.
#[cfg(target_arch = "x86_64")]
fn kept_registers() -> u64 {
    #[target_feature(enable = "xsave")]
    fn ask() -> u64 {
        // SAFETY: register 0 is there wherever XGETBV is.
        #[allow(unused_unsafe, reason = "safe in newer compilers")]
        unsafe {
            core::arch::x86_64::_xgetbv(0)
        }
    }
    if processor(1)[2] >> 27 & 1 == 0 {
        return 0;
    }
    // SAFETY: bit 27 (OSXSAVE) says that XGETBV may be used.
    unsafe { ask() }
}

#[cfg(test)]
mod tests {
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn processor_features_agree_with_the_standard_library() {
        use super::{gathers, gathers_fast, has_avx2};
        extern crate std;
        use std::is_x86_feature_detected as has;
        let bits = has!("bmi1") && has!("bmi2") && has!("popcnt") && has!("lzcnt");
        assert_eq!(has_avx2(), has!("avx2") && bits);
        let foundations = has!("avx512f") && has!("avx512cd") && has!("avx512bw");
        assert_eq!(gathers(), foundations && has!("avx512dq") && has!("avx512vl"));
        assert_eq!(gathers_fast(), gathers() && has!("avx512fp16"));
    }
}

//! The wavelet transform of a plane: LeGall's 5/3 filter by lifting, in integers, without loss.
//!
//! One level splits a line x of samples into its approximation s, the even places, and its details d, the odd ones
//! (ISO/IEC 15444-1, annex F; Calderbank, Daubechies, Sweldens and Yeo 1998):
//!
//! ```text
//!   d[n] = x[2n+1] − ⌊(x[2n] + x[2n+2]) / 2⌋        how far it is from the mean of its neighbours
//!   s[n] = x[2n]   + ⌊(d[n−1] + d[n] + 2) / 4⌋      corrected so that the mean of the line is kept
//! ```
//!
//! **Why nothing is lost.** Each step adds to the places of one parity something that depends on the other parity
//! alone. The inverse can compute from the result what was added, rounding and all, and subtracts it in the reverse
//! order. At its ends a line is mirrored.
//!
//! A plane is split along its rows and then along its columns; the quarter that is an approximation in both
//! directions is split again, `levels` times (Mallat's pyramid). The result takes the place of the plane, the
//! approximation top left. `stat::wavelet` is another thing: one direction, real numbers, energies only.
//!
//! **How large it becomes.** Of lines within ±m, details are within ±2m and approximations within ±1.5m, rounding
//! apart; after six levels in two directions samples of eight bits stay within fifteen ([`LARGEST`]).
//! Backwards, a level adds at most 5.25 times the largest detail, so that any coefficients within
//! ±[`LARGEST`] stay within twenty-one bits: nothing overflows, even with forged ones.

use alloc::vec;
use alloc::vec::Vec;

/// Levels at most.
pub const LEVELS_MAX: u8 = 6;
/// The largest magnitude of a coefficient.
pub const LARGEST: i32 = (1 << 15) - 1;

/// A plane of samples or of coefficients, row by row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plane {
    width: usize,
    height: usize,
    values: Vec<i32>,
    /// Room for the plane on its side, and for two lines.
    turned: Vec<i32>,
    line: Vec<i32>,
    split: Vec<i32>,
}

impl Plane {
    /// A plane of zeros with this many columns and rows.
    pub fn new((width, height): (usize, usize)) -> Plane {
        let longest = width.max(height);
        Plane {
            width,
            height,
            values: vec![0; width * height],
            turned: vec![0; width * height],
            line: vec![0; longest],
            split: vec![0; longest],
        }
    }

    /// Values in a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// All values, row by row.
    pub fn values(&self) -> &[i32] {
        &self.values
    }

    /// All values, to be changed.
    pub fn values_mut(&mut self) -> &mut [i32] {
        &mut self.values
    }

    /// Splits the plane `levels` times.
    pub fn forward(&mut self, levels: u8) {
        for level in 0..levels {
            let (width, height) = (side(self.width, level), side(self.height, level));
            for y in 0..height {
                let row = &self.values[y * self.width..][..width];
                split(row, &mut self.split[..width]);
                for x in 0..width {
                    self.turned[x * height + y] = self.split[x];
                }
            }
            for x in 0..width {
                let column = &self.turned[x * height..][..height];
                split(column, &mut self.split[..height]);
                for y in 0..height {
                    self.values[y * self.width + x] = self.split[y];
                }
            }
        }
    }

    /// Puts together what [`Plane::forward`] has split: the same steps backwards, columns first.
    pub fn inverse(&mut self, levels: u8) {
        for level in (0..levels).rev() {
            let (width, height) = (side(self.width, level), side(self.height, level));
            for x in 0..width {
                for y in 0..height {
                    self.line[y] = self.values[y * self.width + x];
                }
                join(&self.line[..height], &mut self.turned[x * height..][..height]);
            }
            for y in 0..height {
                for x in 0..width {
                    self.line[x] = self.turned[x * height + y];
                }
                join(&self.line[..width], &mut self.values[y * self.width..][..width]);
            }
        }
    }
}

/// The length of an approximation after this many levels: halved and rounded up each time.
pub const fn side(length: usize, levels: u8) -> usize {
    length.div_ceil(1 << levels)
}

/// A line into its approximation and, behind it, its details.
fn split(line: &[i32], out: &mut [i32]) {
    let (low, high) = out.split_at_mut(line.len().div_ceil(2));
    let Some(last) = high.len().checked_sub(1) else {
        return low.copy_from_slice(line);
    };
    for (n, detail) in high.iter_mut().enumerate() {
        let next = line.get(2 * n + 2).copied().unwrap_or(line[2 * n]);
        *detail = line[2 * n + 1] - ((line[2 * n] + next) >> 1);
    }
    for (n, mean) in low.iter_mut().enumerate() {
        *mean = line[2 * n] + update(high[n.saturating_sub(1)], high[n.min(last)]);
    }
}

/// The line that [`split`] made this of.
fn join(halves: &[i32], line: &mut [i32]) {
    let (low, high) = halves.split_at(halves.len().div_ceil(2));
    let Some(last) = high.len().checked_sub(1) else {
        return line.copy_from_slice(low);
    };
    for (n, mean) in low.iter().enumerate() {
        line[2 * n] = mean - update(high[n.saturating_sub(1)], high[n.min(last)]);
    }
    for (n, detail) in high.iter().enumerate() {
        let next = line.get(2 * n + 2).copied().unwrap_or(line[2 * n]);
        line[2 * n + 1] = detail + ((line[2 * n] + next) >> 1);
    }
}

/// What two neighbouring details add to the sample between them.
fn update(before: i32, after: i32) -> i32 {
    (before + after + 2) >> 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_stat::Rng;

    /// The sample at any place of a line that is mirrored at both of its ends.
    fn mirrored(line: &[i64], at: i64) -> i64 {
        let last = line.len() as i64 - 1;
        if last == 0 {
            return line[0];
        }
        let at = at.rem_euclid(2 * last);
        line[at.min(2 * last - at) as usize]
    }

    /// One level of one line by the formulas of the essay, with no eye to speed.
    fn naive_split(line: &[i64]) -> Vec<i64> {
        let x = |at: i64| mirrored(line, at);
        let d = |n: i64| x(2 * n + 1) - (x(2 * n) + x(2 * n + 2)).div_euclid(2);
        let s = |n: i64| x(2 * n) + (d(n - 1) + d(n) + 2).div_euclid(4);
        if line.len() == 1 {
            return line.to_vec();
        }
        let length = line.len() as i64;
        let low = (0..(length + 1) / 2).map(s);
        low.chain((0..length / 2).map(d)).collect()
    }

    fn naive_forward(plane: &mut [Vec<i64>], levels: u8) {
        let (mut width, mut height) = (plane[0].len(), plane.len());
        for _ in 0..levels {
            for row in &mut plane[..height] {
                let made = naive_split(&row[..width]);
                row[..width].copy_from_slice(&made);
            }
            for x in 0..width {
                let column: Vec<i64> = plane[..height].iter().map(|row| row[x]).collect();
                for (row, value) in plane.iter_mut().zip(naive_split(&column)) {
                    row[x] = value;
                }
            }
            (width, height) = (width.div_ceil(2), height.div_ceil(2));
        }
    }

    fn random_plane(rng: &mut Rng, size: (usize, usize), most: i32) -> Plane {
        let mut plane = Plane::new(size);
        let range = 2 * most as u64 + 1;
        plane.values.fill_with(|| rng.below(range) as i32 - most);
        plane
    }

    #[test]
    fn forward_agrees_with_the_formulas_and_inverse_takes_it_back() {
        let mut rng = Rng::new(1, 0x71de, 0);
        for _ in 0..400 {
            let size = (1 + rng.below(40) as usize, 1 + rng.below(40) as usize);
            let levels = rng.below(u64::from(LEVELS_MAX) + 1) as u8;
            let original = random_plane(&mut rng, size, 128);
            let mut plane = original.clone();
            plane.forward(levels);
            let rows = original.values.chunks(size.0);
            let mut naive: Vec<Vec<i64>> =
                rows.map(|row| row.iter().map(|value| i64::from(*value)).collect()).collect();
            naive_forward(&mut naive, levels);
            let naive: Vec<i32> = naive.concat().into_iter().map(|value| value as i32).collect();
            assert_eq!(plane.values, naive, "{size:?}, {levels} levels");
            plane.inverse(levels);
            assert_eq!(plane.values, original.values, "{size:?}, {levels} levels");
        }
    }

    /// Random signs, some of which make a sum of the filter as large as it can be.
    #[test]
    fn coefficients_of_bytes_stay_within_fifteen_bits() {
        let mut rng = Rng::new(2, 0x71de, 0);
        for _ in 0..200 {
            let mut plane = Plane::new((70, 66));
            plane.values.fill_with(|| if rng.below(2) == 0 { -128 } else { 127 });
            plane.forward(LEVELS_MAX);
            assert!(plane.values.iter().all(|value| value.abs() <= LARGEST));
        }
    }

    #[test]
    fn coefficients_that_somebody_made_up_do_not_overflow() {
        let mut rng = Rng::new(3, 0x71de, 0);
        for _ in 0..100 {
            let mut plane = Plane::new((67, 64));
            plane.values.fill_with(|| if rng.below(2) == 0 { -LARGEST } else { LARGEST });
            plane.inverse(LEVELS_MAX);
            assert!(plane.values.iter().all(|value| value.abs() < 1 << 21));
        }
    }

    #[test]
    fn a_flat_plane_has_no_details() {
        let mut plane = Plane::new((176, 144));
        plane.values.fill(77);
        plane.forward(4);
        for (at, value) in plane.values.iter().enumerate() {
            let is_approximation = at % 176 < 11 && at / 176 < 9;
            assert_eq!(*value, if is_approximation { 77 } else { 0 });
        }
    }
}

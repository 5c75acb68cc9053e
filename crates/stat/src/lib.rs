//! Statistics: seeded randomness, empirical distributions, distances and their sampling floors.
#![no_std]

extern crate alloc;

pub mod alias;
pub mod binned;
pub mod bottom_k;
mod compact;
pub mod confidence;
pub mod distance;
pub mod empirical;
pub mod floor;
pub mod histogram;
pub mod inversion;
pub mod law;
pub mod log_scale_diagram;
pub mod parametric;
mod residual;
pub mod rng;
pub mod sampler;
pub mod simplex;
pub mod special;
pub mod student;
pub mod summary;
pub mod survival;
pub mod tally;
pub mod trimmed;
mod walk;
pub mod wavelet;

pub use alias::{Alias, AliasError};
pub use binned::{Bin, Binned};
pub use bottom_k::BottomK;
pub use compact::KNOTS_MIN;
pub use confidence::ConfidenceInterval;
pub use distance::{
    jsd, jsd_quarter_octave_models, jsd_quarter_octave_samples, jsd_quarter_octave_to, ks_models,
    ks_of_sorted, ks_samples, ks_to, w1_log2_models, w1_log2_samples, w1_log2_to,
};
pub use empirical::{Empirical, EmpiricalError, Form, KNOTS_LIMIT};
pub use floor::{FLOOR_ROUNDS, Floor, floor, ratio, sorted_uniforms};
pub use histogram::{Bucket, Histogram};
pub use law::{Law, LawError};
pub use log_scale_diagram::{Diagram, Scaling};
pub use parametric::{lognormal, pareto, poisson, zipf_weights};
pub use residual::Residual;
pub use rng::Rng;
pub use sampler::Sampler;
pub use summary::{median, quantile_sorted};
pub use survival::{KaplanMeier, Lifetime};
pub use tally::Tally;
pub use trimmed::Trimmed;
pub use wavelet::Pyramid;

//! What may be wrong with the settings of a discipline.

use crate::limits::{LARGEST_MTU_BYTES, MOST_QUEUES};

/// What is wrong with the settings of a discipline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// A buffer that holds nothing.
    #[error("capacity: a buffer of 0 holds nothing")]
    NoCapacity,
    /// A number of queues out of its range.
    #[error("queues: {0} is not 1 to {MOST_QUEUES}")]
    Queues(u32),
    /// An MTU out of its range.
    #[error("mtu_bytes: {0} is not 1 to {LARGEST_MTU_BYTES}")]
    Mtu(u32),
    /// RED: what is wrong.
    #[error("red: {0}")]
    Red(&'static str),
    /// Blue: what is wrong.
    #[error("blue: {0}")]
    Blue(&'static str),
    /// TDRR: what is wrong.
    #[error("tdrr: {0}")]
    Tdrr(&'static str),
    /// QSDRR: what is wrong.
    #[error("qsdrr: {0}")]
    Qsdrr(&'static str),
    /// CoDel: what is wrong.
    #[error("codel: {0}")]
    CoDel(&'static str),
    /// FQ-CoDel: what is wrong.
    #[error("fq_codel: {0}")]
    FqCoDel(&'static str),
    /// PIE: what is wrong.
    #[error("pie: {0}")]
    Pie(&'static str),
    /// Token bucket: what is wrong.
    #[error("token bucket: {0}")]
    TokenBucket(&'static str),
}

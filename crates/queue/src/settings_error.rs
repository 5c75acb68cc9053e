//! What may be wrong with the settings of a discipline.

use core::fmt;

use crate::limits::{LARGEST_MTU_BYTES, MOST_QUEUES};

/// What is wrong with the settings of a discipline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingsError {
    /// A buffer that holds nothing.
    NoCapacity,
    /// A number of queues out of its range.
    Queues(u32),
    /// An MTU out of its range.
    Mtu(u32),
    /// RED: what is wrong.
    Red(&'static str),
    /// Blue: what is wrong.
    Blue(&'static str),
    /// TDRR: what is wrong.
    Tdrr(&'static str),
    /// QSDRR: what is wrong.
    Qsdrr(&'static str),
    /// CoDel: what is wrong.
    CoDel(&'static str),
    /// FQ-CoDel: what is wrong.
    FqCoDel(&'static str),
    /// PIE: what is wrong.
    Pie(&'static str),
    /// Token bucket: what is wrong.
    TokenBucket(&'static str),
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingsError::NoCapacity => f.write_str("capacity: a buffer of 0 holds nothing"),
            SettingsError::Queues(queues) => {
                write!(f, "queues: {queues} is not 1 to {MOST_QUEUES}")
            }
            SettingsError::Mtu(bytes) => {
                write!(f, "mtu_bytes: {bytes} is not 1 to {LARGEST_MTU_BYTES}")
            }
            SettingsError::Red(wrong) => write!(f, "red: {wrong}"),
            SettingsError::Blue(wrong) => write!(f, "blue: {wrong}"),
            SettingsError::Tdrr(wrong) => write!(f, "tdrr: {wrong}"),
            SettingsError::Qsdrr(wrong) => write!(f, "qsdrr: {wrong}"),
            SettingsError::CoDel(wrong) => write!(f, "codel: {wrong}"),
            SettingsError::FqCoDel(wrong) => write!(f, "fq_codel: {wrong}"),
            SettingsError::Pie(wrong) => write!(f, "pie: {wrong}"),
            SettingsError::TokenBucket(wrong) => write!(f, "token bucket: {wrong}"),
        }
    }
}

impl core::error::Error for SettingsError {}

//! Tables: flow records, packet stamps and queues as Parquet files, flow records as text too.
//!
//! One column is one vector of numbers in memory, handed to the Parquet writer a row group at a
//! time; there is no Arrow in between. Unsigned columns are stored as Parquet stores them, in the
//! signed type of the same width, annotated as unsigned.

pub mod capture;
pub mod columns;
pub mod flows;
mod guarded;
pub mod model;
pub mod packets;
pub mod queues;
mod rows;
pub mod simulated;
pub mod stream_packets;
pub mod text;

//! The router in its shell.

pub mod bench;

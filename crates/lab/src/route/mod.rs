//! The router in its shell.

pub mod bench;
pub mod pages;

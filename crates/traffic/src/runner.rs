//! Work on many things that do not know of each other, by whoever has processors to spare.
//!
//! This crate has no threads. What can be done side by side is handed to a [`Runner`], which may have
//! some; results come in the order of the things, so that nobody can tell who did what.

use alloc::vec::Vec;

/// Applies a function to each of many things.
pub trait Runner {
    /// The results of `work`, in the order of `items`.
    fn map<T: Send, R: Send>(&self, items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R>;
}

/// One thing after another.
#[derive(Clone, Copy, Debug)]
pub struct InTurn;

impl Runner for InTurn {
    fn map<T: Send, R: Send>(&self, items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
        items.into_iter().map(work).collect()
    }
}

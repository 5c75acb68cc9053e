//! Parallel map over independent items.
//!
//! This crate has no threads. Independent work is passed to a [`Runner`], which may have threads; results come in
//! the order of the items, so that they do not depend on the threads.

use alloc::vec::Vec;

/// Applies a function to each of many items.
pub trait Runner {
    /// The results of `work`, in the order of `items`.
    fn map<T: Send, R: Send>(&self, items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R>;
}

/// One item after another, in the calling thread.
#[derive(Clone, Copy, Debug)]
pub struct Sequential;

impl Runner for Sequential {
    fn map<T: Send, R: Send>(&self, items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
        items.into_iter().map(work).collect()
    }
}

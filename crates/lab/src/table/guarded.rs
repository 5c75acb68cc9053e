//! A fence around the Parquet decoder, which panics on some damaged files where it should fail.
//!
//! A table is an input like any other: damage must end in one line and never in a backtrace. So the
//! decoder runs where a panic is caught, kept off standard error, and turned into its own error.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

use parquet::errors::{ParquetError, Result};

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Runs the decoder. What `work` was changing when it panicked must not be used again.
///
/// # Errors
/// Those of `work`, and one of their kind when it panics.
pub fn decode<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |about| {
            if !INSIDE.get() {
                usual(about);
            }
        }));
    });
    INSIDE.set(true);
    let outcome = panic::catch_unwind(AssertUnwindSafe(work));
    INSIDE.set(false);
    outcome.unwrap_or_else(|_| Err(ParquetError::General("the decoder gave up on it".into())))
}

//! Threads for the parallel parts of an estimate.

use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use nilometer_traffic::runner::Runner;

/// As many threads as there are processors to run on.
#[derive(Clone, Copy, Debug)]
pub struct Threads(usize);

impl Threads {
    /// One for each processor that this process may use.
    pub fn new() -> Threads {
        Threads(thread::available_parallelism().map_or(1, NonZero::get))
    }
}

impl Default for Threads {
    fn default() -> Threads {
        Threads::new()
    }
}

impl Runner for Threads {
    fn map<T: Send, R: Send>(&self, items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
        let items: Vec<_> = items.into_iter().map(|item| Mutex::new(Some(item))).collect();
        let results: Vec<Mutex<Option<R>>> = items.iter().map(|_| Mutex::new(None)).collect();
        let next = AtomicUsize::new(0);
        let run = || {
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(place) = items.get(at) else { break };
                let item = place.lock().expect("no holder panics").take();
                let result = work(item.expect("each number is drawn once"));
                *results[at].lock().expect("no holder panics") = Some(result);
            }
        };
        thread::scope(|scope| {
            for _ in 1..self.0.min(items.len()) {
                scope.spawn(run);
            }
            run();
        });
        let done = |result: Mutex<Option<R>>| result.into_inner().expect("no holder panics");
        results.into_iter().map(|result| done(result).expect("all work was done")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_traffic::runner::Sequential;

    #[test]
    fn results_come_in_the_order_of_the_things() {
        let items: Vec<u64> = (0..1_000).collect();
        let work = |n: u64| (0..n % 97).fold(n, |sum, more| sum.wrapping_mul(31) + more);
        let in_turn = Sequential.map(items.clone(), work);
        for threads in [1, 2, 7] {
            assert_eq!(Threads(threads).map(items.clone(), work), in_turn);
        }
        assert!(Threads(2).map(Vec::new(), work).is_empty());
    }
}

//! The threads that batches are spread over.

use std::num::NonZero;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

/// The pool, and the process that started its threads: a fork copies the pool but not the threads.
static POOL: Mutex<Option<(u32, Arc<ThreadPool>)>> = Mutex::new(None);

/// How many threads batches are spread over: one for each core. Looked up once: the standard library reads files of the
/// control groups, which takes as long as the verification of a message.
pub fn threads() -> usize {
    static THREADS: LazyLock<usize> = LazyLock::new(|| std::thread::available_parallelism().map_or(1, NonZero::get));
    *THREADS
}

/// Runs `work` where rayon's iterators find this process's own threads; on this thread alone if none can be started.
pub fn run<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    match pool() {
        Some(pool) => pool.install(work),
        None => work(),
    }
}

fn pool() -> Option<Arc<ThreadPool>> {
    let mut current = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    if let Some((owner, pool)) = current.take() {
        if owner == process {
            *current = Some((owner, Arc::clone(&pool)));
            return Some(pool);
        }
        // Dropping a pool waits for its threads, which this process does not have.
        std::mem::forget(pool);
    }
    let name = |index| format!("gossiplog-{index}");
    let pool = Arc::new(ThreadPoolBuilder::new().num_threads(threads()).thread_name(name).build().ok()?);
    *current = Some((process, Arc::clone(&pool)));
    Some(pool)
}

/// Fewer items than this are not worth another thread.
pub const SMALLEST_SHARE: usize = 64;

/// `work` on each item, on all cores where there are items enough.
pub fn map<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync + Send) -> Vec<R> {
    if items.len() <= SMALLEST_SHARE {
        return items.iter().map(work).collect();
    }
    run(|| items.par_iter().with_min_len(SMALLEST_SHARE).map(work).collect())
}

/// `work` on consecutive shares of the items, about as many as there are cores; on one share, perhaps an empty one, where there are few items.
pub fn shares<T: Sync, R: Send>(items: &[T], work: impl Fn(&[T]) -> R + Sync + Send) -> Vec<R> {
    let share = items.len().div_ceil(threads()).max(SMALLEST_SHARE);
    if items.len() <= share {
        return vec![work(items)];
    }
    run(|| items.par_chunks(share).map(work).collect())
}

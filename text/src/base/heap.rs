//! Counts the bytes that the crate's threads take from the allocator: the work of a compile, also where third-party code
//! looks at no limit. Gives the bytes that were freed, and that the allocator still has, back to the system.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicI32, Ordering};

/// Bounds of one compile, in all and at once: 13 times as much as the largest honest grammars take
/// (docs/develop/structured-outputs.md).
const MOST_TAKEN: u64 = 3 << 29;
const MOST_ALIVE: u64 = 256 << 20;
/// The bound of what a compile leaves.
pub const MOST_KEPT: u64 = 32 << 20;
/// What a compile that took so much at once has given back, the allocator should give back too.
pub const WORTH_TRIMMING: u64 = 32 << 20;

/// The counts of one thread, since it began.
struct Counts {
    taken: Cell<u64>,
    freed: Cell<u64>,
    /// The most of taken - freed since `measure` began.
    peak: Cell<u64>,
    /// Beyond these a compile has cost too much.
    most_taken: Cell<u64>,
    most_alive: Cell<u64>,
}

thread_local! {
    static COUNTS: Counts = const {
        Counts {
            taken: Cell::new(0),
            freed: Cell::new(0),
            peak: Cell::new(0),
            most_taken: Cell::new(u64::MAX),
            most_alive: Cell::new(u64::MAX),
        }
    };
}

/// 0: a process that a compile may not end.
static EXIT_CODE: AtomicI32 = AtomicI32::new(0);

pub fn may_end_process(exit_code: i32) {
    EXIT_CODE.store(exit_code, Ordering::Relaxed);
}

#[cold]
fn exceeded(c: &Counts) {
    let code = EXIT_CODE.load(Ordering::Relaxed);
    if code != 0 {
        // SAFETY: callable anywhere; nothing of this process is wanted any more
        unsafe { libc::_exit(code) };
    }
    // no unwinding out of an allocator: whoever measures is told in the end
    c.most_taken.set(u64::MAX);
    c.most_alive.set(u64::MAX);
}

#[inline(always)]
fn count(taken: usize, freed: usize) {
    // a thread that ends may free what it has behind its own counts
    let _ = COUNTS.try_with(|c| {
        c.taken.set(c.taken.get() + taken as u64);
        c.freed.set(c.freed.get() + freed as u64);
        let alive = c.taken.get().saturating_sub(c.freed.get());
        if alive > c.peak.get() {
            c.peak.set(alive);
        }
        if c.taken.get() > c.most_taken.get() || alive > c.most_alive.get() {
            exceeded(c);
        }
    });
}

struct Counted;

// SAFETY: the system's allocator, asked for the same
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        System.alloc(layout)
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        System.alloc_zeroed(layout)
    }

    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        count(0, layout.size());
        System.dealloc(p, layout);
    }

    unsafe fn realloc(&self, p: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size, layout.size());
        System.realloc(p, layout, size)
    }
}

#[global_allocator]
static HEAP: Counted = Counted;

/// The bytes that a piece of work has taken: in all, the most that it had at once, and what its result has.
#[derive(Clone, Copy, Default)]
pub struct Taken {
    pub bytes: u64,
    pub peak: u64,
    pub kept: u64,
}

fn alive() -> i64 {
    COUNTS.try_with(|c| c.taken.get().wrapping_sub(c.freed.get()) as i64).unwrap_or(0)
}

/// Runs f, and says how many bytes more (below 0: less) this thread has behind it.
pub fn growth<T>(f: impl FnOnce() -> T) -> (i64, T) {
    let before = alive();
    let made = f();
    (alive().wrapping_sub(before), made)
}

/// Runs f under the limits of one compile, on a thread that has measured nothing else. None: f went beyond them,
/// and its result is dropped.
pub fn measure<T>(f: impl FnOnce() -> T) -> (Taken, Option<T>) {
    let (taken, alive) = COUNTS.with(|c| {
        let taken = c.taken.get();
        let alive = taken.saturating_sub(c.freed.get());
        c.peak.set(alive);
        c.most_taken.set(taken + MOST_TAKEN);
        c.most_alive.set(alive + MOST_ALIVE);
        (taken, alive)
    });
    let made = f();
    COUNTS.with(|c| {
        let kept = c.taken.get().saturating_sub(c.freed.get()).saturating_sub(alive);
        let cost = Taken { bytes: c.taken.get() - taken, peak: c.peak.get() - alive, kept };
        c.most_taken.set(u64::MAX);
        c.most_alive.set(u64::MAX);
        let is_within = cost.bytes <= MOST_TAKEN && cost.peak <= MOST_ALIVE && kept <= MOST_KEPT;
        (cost, is_within.then_some(made))
    })
}

/// A vocabulary and the tries of it are made of millions of small pieces, most of them gone when it is done or freed: pages that
/// nobody has go back to the system.
pub fn trim() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: callable by any thread at any time
    unsafe {
        libc::malloc_trim(0);
    }
}

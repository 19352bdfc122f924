//! Counts the bytes that each thread takes from the allocator. This measures and bounds the work of a grammar compile,
//! even in third-party code that has no limits of its own. `trim` returns freed memory to the system.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicI32, Ordering};

/// Limits of one compile: bytes allocated in all, and bytes allocated at one time. They are 13 times the bytes of the
/// largest legitimate grammars (docs/develop/structured-outputs.md).
const MOST_TAKEN: u64 = 3 << 29;
const MOST_ALIVE: u64 = 256 << 20;
/// Limit of the bytes that a compile may keep when it is done.
pub const MOST_KEPT: u64 = 32 << 20;
/// After a compile with a higher peak than this, the freed memory is returned to the system (`trim`).
pub const WORTH_TRIMMING: u64 = 32 << 20;

/// Counts the bytes of one thread since the thread began.
struct Counts {
    taken: Cell<u64>,
    freed: Cell<u64>,
    /// Highest value of taken - freed since `measure` began.
    peak: Cell<u64>,
    /// Limits of the running compile; u64::MAX = no limit.
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

/// Exit code of a process whose compile exceeds its limits; 0 = the process continues.
static EXIT_CODE: AtomicI32 = AtomicI32::new(0);

pub fn may_end_process(exit_code: i32) {
    EXIT_CODE.store(exit_code, Ordering::Relaxed);
}

#[cold]
fn exceeded(c: &Counts) {
    let code = EXIT_CODE.load(Ordering::Relaxed);
    if code != 0 {
        // SAFETY: _exit may be called anywhere; nothing in this process is needed any more.
        unsafe { libc::_exit(code) };
    }
    // An allocator must not unwind, so `measure` reports the excess when the compile is done.
    c.most_taken.set(u64::MAX);
    c.most_alive.set(u64::MAX);
}

#[inline(always)]
fn count(taken: usize, freed: usize) {
    // A thread that is ending may free memory when its own counts no longer exist.
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

// SAFETY: forwards each call to the system's allocator unchanged.
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

/// Holds the bytes that a compile has allocated: in total, at its peak, and in its result.
#[derive(Clone, Copy, Default)]
pub struct Taken {
    pub bytes: u64,
    pub peak: u64,
    pub kept: u64,
}

fn alive() -> i64 {
    COUNTS.try_with(|c| c.taken.get().wrapping_sub(c.freed.get()) as i64).unwrap_or(0)
}

/// Runs `f` and returns the change of this thread's allocated bytes (negative when memory was freed), with the result.
pub fn growth<T>(f: impl FnOnce() -> T) -> (i64, T) {
    let before = alive();
    let made = f();
    (alive().wrapping_sub(before), made)
}

/// Runs `f` under the limits of one compile. A thread may call it only once. Returns None for the result when `f`
/// exceeded the limits; the result is then dropped.
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

/// Returns freed pages to the system. A vocabulary and its tries consist of millions of small pieces, and most of them
/// are free once the vocabulary has been built or dropped.
pub fn trim() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: any thread may call malloc_trim at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}

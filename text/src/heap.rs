//! What was freed and the allocator still has.

/// A vocabulary and the tries of it are made of millions of small pieces, most of them gone when it is done or freed: pages that
/// nobody has go back to the system.
pub fn trim() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: callable by any thread at any time
    unsafe {
        libc::malloc_trim(0);
    }
}

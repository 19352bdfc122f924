//! What one rendering may use: steps of work and bytes of memory. Templates and contexts come from
//! models and clients, so each thing that grows asks here first. One thread renders one template at a
//! time; the counters are that thread's.

use super::value::{Fail, R};
use std::cell::Cell;

/// Texts and lists that are alive at one time.
const MAX_LIVE: i64 = 256 << 20;

thread_local! {
    static FUEL: Cell<u64> = const { Cell::new(0) };
    static LIVE: Cell<i64> = const { Cell::new(0) };
}

pub fn start(fuel: u64) {
    FUEL.set(fuel);
    LIVE.set(0);
}

/// Takes n steps off.
pub fn spend(n: usize) -> R<()> {
    let left = FUEL.get();
    if left < n as u64 {
        FUEL.set(0);
        return Err(Fail::Limit("the template does too much work".to_owned()));
    }
    FUEL.set(left - n as u64);
    Ok(())
}

/// Whether a text or a list of so many bytes may be there besides what is.
pub fn fits(bytes: usize) -> R<()> {
    match i64::try_from(bytes) {
        Ok(n) if LIVE.get().saturating_add(n) <= MAX_LIVE => Ok(()),
        _ => Err(Fail::Limit(format!("a text or a list of {bytes} bytes is too large"))),
    }
}

/// Asked before a text or a list of so many bytes is made; its making is work as well.
pub fn room(bytes: usize) -> R<()> {
    fits(bytes)?;
    spend(bytes / 64)
}

/// Told when a text or a list is made (positive) and dropped (negative).
pub fn count(bytes: i64) {
    LIVE.set(LIVE.get() + bytes);
}

//! What one rendering may use: steps of work and bytes of memory. Templates and contexts come from
//! models and clients, so each thing that grows asks here first. One thread renders one template at a
//! time; the counters are that thread's.

use super::fail::{Fail, R};
use std::cell::Cell;

/// Texts and lists that are alive at one time: so many bytes, and so many for each byte of the context.
const MAX_LIVE: i64 = 128 << 20;
const LIVE_PER_BYTE: i64 = 8;
/// What a text or a list takes besides its bytes or items.
pub const OVERHEAD: usize = 64;

thread_local! {
    static FUEL: Cell<u64> = const { Cell::new(0) };
    static LIVE: Cell<i64> = const { Cell::new(0) };
    static MOST: Cell<i64> = const { Cell::new(MAX_LIVE) };
}

/// context: of how many bytes it is
pub fn start(fuel: u64, context: usize) {
    FUEL.set(fuel);
    LIVE.set(0);
    let more = i64::try_from(context).unwrap_or(i64::MAX).saturating_mul(LIVE_PER_BYTE);
    MOST.set(MAX_LIVE.saturating_add(more));
}

/// Takes n steps off.
pub fn spend(n: usize) -> R<()> {
    let left = FUEL.get();
    if left < n as u64 {
        FUEL.set(0);
        return Err(Fail::Limit("the template takes too many steps to render".to_owned()));
    }
    FUEL.set(left - n as u64);
    Ok(())
}

/// Whether a text or a list of so many bytes may be there besides what is.
pub fn fits(bytes: usize) -> R<()> {
    match i64::try_from(bytes) {
        Ok(n) if LIVE.get().saturating_add(n) <= MOST.get() => Ok(()),
        _ => Err(Fail::Limit(format!("a string or a list of {bytes} bytes is too large"))),
    }
}

/// Before bytes are compared or counted, many at once.
pub fn glance(bytes: usize) -> R<()> {
    spend(bytes / 128)
}

/// Before bytes are searched, hashed or read one by one.
pub fn scan(bytes: usize) -> R<()> {
    spend(bytes / 16)
}

/// Before each character of a text is looked up: those of ASCII are found at once, others in tables.
pub fn letters(text: &str) -> R<()> {
    scan(text.len())?;
    spend(if text.is_ascii() { text.len() / 8 } else { text.len() })
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

//! Limits one rendering: its steps of work and its bytes of memory. Templates and contexts are not trusted, so every
//! operation whose result grows checks the limits first. A thread renders one template at a time, and the counters belong
//! to the thread.

use super::fail::{Fail, R};
use std::cell::Cell;

/// Limit of texts and lists that exist at one time: MAX_LIVE bytes, plus LIVE_PER_BYTE for each byte of the context.
const MAX_LIVE: i64 = 128 << 20;
const LIVE_PER_BYTE: i64 = 8;
/// Bytes that a text or a list uses in addition to its own bytes or items.
pub const OVERHEAD: usize = 64;

thread_local! {
    static FUEL: Cell<u64> = const { Cell::new(0) };
    static LIVE: Cell<i64> = const { Cell::new(0) };
    static MOST: Cell<i64> = const { Cell::new(MAX_LIVE) };
}

/// Starts a rendering; `context` is the size of its context in bytes.
pub fn start(fuel: u64, context: usize) {
    FUEL.set(fuel);
    LIVE.set(0);
    let more = i64::try_from(context).unwrap_or(i64::MAX).saturating_mul(LIVE_PER_BYTE);
    MOST.set(MAX_LIVE.saturating_add(more));
}

/// Uses up n steps. Fails when fewer than n steps are left.
pub fn spend(n: usize) -> R<()> {
    let left = FUEL.get();
    if left < n as u64 {
        FUEL.set(0);
        return Err(Fail::Limit("the template takes too many steps to render".to_owned()));
    }
    FUEL.set(left - n as u64);
    Ok(())
}

/// Fails when a text or a list of this size would exceed the memory limit.
pub fn fits(bytes: usize) -> R<()> {
    match i64::try_from(bytes) {
        Ok(n) if LIVE.get().saturating_add(n) <= MOST.get() => Ok(()),
        _ => Err(Fail::Limit(format!("a string or a list of {bytes} bytes is too large"))),
    }
}

/// Uses up the steps for comparing or counting bytes. The processor handles many such bytes at once.
pub fn glance(bytes: usize) -> R<()> {
    spend(bytes / 128)
}

/// Uses up the steps for searching, hashing or reading bytes one by one.
pub fn scan(bytes: usize) -> R<()> {
    spend(bytes / 16)
}

/// Uses up the steps for a table look-up of each character of a text. ASCII characters need no look-up.
pub fn letters(text: &str) -> R<()> {
    scan(text.len())?;
    spend(if text.is_ascii() { text.len() / 8 } else { text.len() })
}

/// Checks the memory limit and uses up the steps for making a text or a list of this size. It is called before the text
/// or list is made.
pub fn room(bytes: usize) -> R<()> {
    fits(bytes)?;
    spend(bytes / 64)
}

/// Adds the bytes of a text or a list when it is made, and subtracts them (negative) when it is dropped.
pub fn count(bytes: i64) {
    LIVE.set(LIVE.get() + bytes);
}

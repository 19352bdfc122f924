//! Limits the memory of a matcher, as the crate's allocator counts it. The result of the check follows from the grammar
//! and the text, and is the same on every machine.
//!
//! A matcher begins as a clone of its grammar's first state. The clone grows: the lexer gets the states that masks visit,
//! and the parser gets rows and items of the text. A replay makes no more states, rows or items than the original did,
//! since it has the same text and computes fewer masks.
//!
//! The capacity of a vector depends on the steps in which the vector grew, and it is less than twice its length. A
//! matcher that accepted tokens without masks (a replay, or draft tokens) may therefore have twice as much memory, so
//! that no replay fails where the original passed.

use crate::base::heap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::Arc;

/// A matcher may use TIMES_FIRST times its first size, plus AHEAD bytes, plus OF_EACH bytes for each token of its text.
/// docs/develop/structured-outputs.md lists the memory of legitimate matchers.
const TIMES_FIRST: u64 = 4;
const AHEAD: u64 = 24 << 20;
const OF_EACH: u64 = 2 << 10;

pub struct Memory {
    /// Size in bytes of the grammar's first state.
    first: u64,
    /// Bytes that the matcher's own calls have allocated. A copy starts with its original's value.
    own: i64,
    /// Bytes that destroyed copies have left in the lexer, which all copies share.
    by_copies: Arc<AtomicI64>,
    /// Set in a copy: the bytes that were allocated to make the copy, and `own` at that time.
    copied: Option<(i64, i64)>,
    n_taken: u64,
    is_without_masks: bool,
}

impl Memory {
    pub fn new(first: u64, own: i64) -> Memory {
        let by_copies = Arc::new(AtomicI64::new(0));
        Memory { first, own, by_copies, copied: None, n_taken: 0, is_without_masks: false }
    }

    /// Returns the memory of a copy. `taken` is the number of bytes that were allocated to make the copy.
    pub fn copy(&self, taken: i64) -> Memory {
        let own = self.now();
        Memory { own, by_copies: self.by_copies.clone(), copied: Some((taken, own)), ..*self }
    }

    fn now(&self) -> i64 {
        match self.copied {
            Some(_) => self.own,
            None => self.own + self.by_copies.load(Ordering::Relaxed),
        }
    }

    /// Returns the matcher's bytes now. A copy's bytes are counted separately.
    pub fn bytes(&self) -> u64 {
        self.now().max(0) as u64
    }

    pub fn grew(&mut self, bytes: i64) {
        self.own += bytes;
    }

    /// Counts one token. `n_behind_mask` is the number of tokens since the last mask, this token included.
    pub fn took_token(&mut self, n_behind_mask: u32) {
        self.n_taken += 1;
        self.is_without_masks |= n_behind_mask > 1;
    }

    pub fn is_beyond(&self) -> bool {
        let most = TIMES_FIRST * self.first + AHEAD + OF_EACH * self.n_taken;
        self.bytes() > if self.is_without_masks { 2 * most } else { most }
    }
}

/// Drops `it`, to which `memory` belongs. The bytes that a copy does not free are in the shared lexer.
pub fn free<T>(it: T, memory: impl FnOnce(&T) -> &Memory) {
    let m = memory(&it);
    let left = m.copied.map(|(taken, own)| (taken + m.own - own, m.by_copies.clone()));
    let (freed, ()) = heap::growth(|| drop(it));
    if let Some((left, by_copies)) = left {
        by_copies.fetch_add(left + freed, Ordering::Relaxed);
    }
}

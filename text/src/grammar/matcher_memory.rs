//! The memory of a matcher, counted by the crate's allocator, and its limit. The verdict follows from
//! the grammar and the text, and is the same on every machine.
//!
//! A matcher begins as a clone of its grammar's first state, which fills up: the lexer with the states that masks look
//! at, the parser with rows and items of the text. Both only grow, and a replay makes no more of either than the original did, since
//! it has the same text in front of it and looked at fewer masks. A vector's room depends on the steps in which it grew, though, and
//! is less than twice its length: a matcher that took tokens without masks (a replay, or draft tokens) may have twice as much, so
//! that no replay fails where the original passed.

use crate::base::heap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::Arc;

/// A matcher may use TIMES_FIRST times its first size, plus AHEAD bytes, plus OF_EACH bytes for each token of its text.
/// docs/develop/structured-outputs.md lists what honest matchers use.
const TIMES_FIRST: u64 = 4;
const AHEAD: u64 = 24 << 20;
const OF_EACH: u64 = 2 << 10;

pub struct Memory {
    /// Bytes of the grammar's first state.
    first: u64,
    /// Bytes that the matcher's own calls have taken. A copy starts with its original's value.
    own: i64,
    /// Bytes that destroyed copies have left in the lexer, which all copies share.
    by_copies: Arc<AtomicI64>,
    /// Set in a copy: the bytes that making it took, and `own` at that time.
    copied: Option<(i64, i64)>,
    n_taken: u64,
    is_without_masks: bool,
}

impl Memory {
    pub fn new(first: u64, own: i64) -> Memory {
        let by_copies = Arc::new(AtomicI64::new(0));
        Memory { first, own, by_copies, copied: None, n_taken: 0, is_without_masks: false }
    }

    /// The memory of a copy; making the copy took `taken` bytes.
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

    /// The matcher's bytes now. A copy's bytes are counted apart.
    pub fn bytes(&self) -> u64 {
        self.now().max(0) as u64
    }

    pub fn grew(&mut self, bytes: i64) {
        self.own += bytes;
    }

    /// Counts one token. n_behind_mask: tokens since the last mask, with this one.
    pub fn took_token(&mut self, n_behind_mask: u32) {
        self.n_taken += 1;
        self.is_without_masks |= n_behind_mask > 1;
    }

    pub fn is_beyond(&self) -> bool {
        let most = TIMES_FIRST * self.first + AHEAD + OF_EACH * self.n_taken;
        self.bytes() > if self.is_without_masks { 2 * most } else { most }
    }
}

/// Drops `it`, to which `memory` belongs. The bytes that a copy leaves behind are in the shared lexer.
pub fn free<T>(it: T, memory: impl FnOnce(&T) -> &Memory) {
    let m = memory(&it);
    let left = m.copied.map(|(taken, own)| (taken + m.own - own, m.by_copies.clone()));
    let (freed, ()) = heap::growth(|| drop(it));
    if let Some((left, by_copies)) = left {
        by_copies.fetch_add(left + freed, Ordering::Relaxed);
    }
}

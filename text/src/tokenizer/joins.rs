//! Finds places where BPE without a pre-tokenizer cannot merge. When two characters are adjacent in no token's text, no
//! token ever covers both, whatever the merges are. A text may be cut between two such characters, and each piece encoded
//! alone.

use super::compiled::Compiled;

/// Size of the table for pairs beyond ASCII, with one bit for each hash. When two pairs have the same hash, only a cut is
/// missed.
const BITS_LOG2: u32 = 21;

pub struct Joins {
    ascii: [u128; 128],
    others: Vec<u64>,
}

fn slot(x: char, y: char) -> usize {
    let pair = u64::from(u32::from(x)) << 32 | u64::from(u32::from(y));
    (pair.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - BITS_LOG2)) as usize
}

impl Joins {
    /// Makes the table of pairs. Returns None when a character may become an unknown token, or when bytes may be merged.
    pub fn of(c: &Compiled) -> Option<Joins> {
        let bytes: Option<Vec<u32>> = (0..=255).map(|b| c.byte_id(b)).collect();
        let bytes = bytes.filter(|_| c.byte_fallback)?;
        if c.merges_any_of(&bytes) {
            return None;
        }
        let mut j = Joins { ascii: [0; 128], others: vec![0; 1 << (BITS_LOG2 - 6)] };
        for text in (0..c.n_ids()).filter_map(|id| c.text(id)) {
            text.chars().zip(text.chars().skip(1)).for_each(|(x, y)| j.join(x, y));
        }
        Some(j)
    }

    fn join(&mut self, x: char, y: char) {
        if x.is_ascii() && y.is_ascii() {
            self.ascii[x as usize] |= 1 << y as u32;
        } else {
            let at = slot(x, y);
            self.others[at / 64] |= 1 << (at % 64);
        }
    }

    fn joined(&self, x: char, y: char) -> bool {
        if x.is_ascii() && y.is_ascii() {
            return self.ascii[x as usize] >> y as u32 & 1 != 0;
        }
        let at = slot(x, y);
        self.others[at / 64] >> (at % 64) & 1 != 0
    }

    /// Passes the pieces of a text to `give` in order. Stops and returns false when `give` returns false.
    pub fn pieces<'t>(&self, text: &'t str, mut give: impl FnMut(&'t str) -> bool) -> bool {
        let mut chars = text.char_indices();
        let Some((mut begin, mut before)) = chars.next() else { return true };
        for (at, c) in chars {
            if !self.joined(before, c) {
                if !give(&text[begin..at]) {
                    return false;
                }
                begin = at;
            }
            before = c;
        }
        give(&text[begin..])
    }
}

//! Finds places where a long text may be cut without a change of its ids, and a lower bound for the number of its ids.
//! With both results, a text that is far too long is refused after only its beginning is encoded.
//!
//! A token covers characters that are adjacent in its text. When no token contains the neighbours x and y, no token
//! covers the border between them. BPE merges nothing across that border, and the ids before the border depend only on
//! the text before it. A hash table with one bit for each pair records which characters are adjacent in some token. When
//! two pairs share a bit, a border may be missed, which does no harm.

use super::compiled::Compiled;
use crate::spm::Spm;
use crate::vocab::pieces::Pieces;
use serde_json::Value;
use tokenizers::AddedToken;

const BITS: usize = 1 << 20;
const LOOK_BACK: usize = 1 << 16; // most bytes in which a border is searched for

pub struct Borders {
    joined: Vec<u64>,
    by_bytes: bool,
    /// A normalizer of Unicode forms runs first, so only characters that no form changes may be at a border.
    stable_only: bool,
    /// Length of the longest token in characters (byte-level: bytes); None when normalization may shorten a text.
    longest: Option<usize>,
}

fn slot(x: u32, y: u32) -> usize {
    ((u64::from(x) << 32 | u64::from(y)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 44) as usize
}

/// Returns whether the normalizer changes Unicode forms. Returns None when the normalizer could move a border in another
/// way.
fn needs_stable(normalizer: &Value) -> Option<bool> {
    match normalizer["type"].as_str() {
        None => normalizer.is_null().then_some(false),
        Some("Prepend") => Some(false),
        Some("Replace") => {
            (normalizer["pattern"]["String"] == " " && normalizer["content"] == "▁").then_some(false)
        }
        Some("NFC" | "NFKC") => Some(true),
        Some("Sequence") => normalizer["normalizers"]
            .as_array()?
            .iter()
            .try_fold(false, |any, n| Some(any | needs_stable(n)?)),
        Some(_) => None,
    }
}

/// Returns true for a character that no Unicode form changes or joins with the character before it.
fn is_stable(c: char) -> bool {
    matches!(c, '\0'..='\x7f' | 'А'..='я' | 'ぁ'..='ゖ' | 'ァ'..='ヺ' | '一'..='\u{9fff}' | '가'..='힣')
}

impl Borders {
    /// Makes the table for a BPE model. Returns None when no cut can be known to be safe (another kind of model or
    /// normalizer).
    pub fn new(model: &Compiled, pieces: &Pieces, added: &[AddedToken]) -> Option<Borders> {
        let config: Value = serde_json::from_str(model.config()).ok()?;
        let stable_only = needs_stable(&config["normalizer"])?;
        if matches!(pieces, Pieces::Other) || !model.prefix().is_empty() || !model.suffix().is_empty() {
            return None;
        }
        let by_bytes = matches!(pieces, Pieces::ByteLevel);
        let b = Borders { joined: vec![0; BITS / 64], by_bytes, stable_only, longest: None };
        let tokens = (0..model.n_ids()).filter_map(|id| model.bytes(id));
        Some(b.with(tokens, added, !stable_only))
    }

    /// Makes the table for a tokenizer.model. Returns None for a model that replaces characters. Both SentencePiece
    /// algorithms end a token at a border. They split the text before the border as if the text ended there.
    pub fn of_spm(spm: &Spm, added: &[AddedToken]) -> Option<Borders> {
        if !spm.keeps_characters() {
            return None;
        }
        let b = Borders { joined: vec![0; BITS / 64], by_bytes: false, stable_only: false, longest: None };
        Some(b.with(spm.texts().map(|(text, _)| text.as_bytes()), added, spm.keeps_length()))
    }

    /// Adds the tokens to the table. `keeps_length` means that no character is removed and that each character gets at
    /// least one id.
    fn with<'t>(
        mut self,
        tokens: impl Iterator<Item = &'t [u8]>,
        added: &'t [AddedToken],
        keeps_length: bool,
    ) -> Borders {
        let added_texts = added.iter().map(|a| a.content.as_bytes());
        let longest = tokens.chain(added_texts).map(|t| self.add(t)).max().unwrap_or(1).max(1);
        let eats_blanks = added.iter().any(|a| a.lstrip || a.rstrip);
        self.longest = (keeps_length && !eats_blanks).then_some(longest);
        self
    }

    /// Records the adjacent characters of a token, and returns its length.
    fn add(&mut self, token: &[u8]) -> usize {
        let (mut before, mut n) = (None, 0);
        let mut next = |unit: u32| {
            if let Some(x) = before.replace(unit) {
                let at = slot(x, unit);
                self.joined[at / 64] |= 1 << (at % 64);
            }
            n += 1;
        };
        if self.by_bytes {
            token.iter().for_each(|&u| next(u32::from(u)));
        } else {
            String::from_utf8_lossy(token).chars().for_each(|c| next(c as u32));
        }
        n
    }

    fn may_cut(&self, x: char, y: char) -> bool {
        // No border is next to these characters. The ids of white space depend on the text that follows, digits are
        // grouped, and a "▁" may have been a space.
        if x.is_whitespace() || x.is_numeric() || x == '▁' || y == '▁' {
            return false;
        }
        if self.stable_only && !(is_stable(x) && is_stable(y)) {
            return false;
        }
        let (mut left, mut right) = (x as u32, y as u32);
        if self.by_bytes {
            let mut buf = [0; 4];
            left = x.encode_utf8(&mut buf).bytes().next_back().map_or(0, u32::from);
            right = y.encode_utf8(&mut buf).bytes().next().map_or(0, u32::from);
        }
        let at = slot(left, right);
        self.joined[at / 64] >> (at % 64) & 1 == 0
    }

    /// Returns the last safe border at or before `at`, within LOOK_BACK bytes.
    pub fn before(&self, text: &str, at: usize) -> Option<usize> {
        let mut end = at.min(text.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let mut y = text[end..].chars().next();
        for (i, x) in text[..end].char_indices().rev() {
            if y.is_some_and(|y| self.may_cut(x, y)) {
                return Some(i + x.len_utf8());
            }
            if at - i > LOOK_BACK {
                break;
            }
            y = Some(x);
        }
        None
    }

    /// Returns the least number of ids, because no token covers more than the longest token.
    pub fn least_ids(&self, text: &str) -> usize {
        let units = if self.by_bytes { text.len() } else { text.chars().count() };
        self.longest.map_or(0, |longest| units / longest)
    }
}

//! Where a long text may be cut without changing how it is tokenized, and how many ids it has at
//! least: what it takes to refuse a text that is far too long after a look at its beginning.
//!
//! A token covers characters that stand side by side in its text. Where two neighbours x and y stand
//! so in no token, none covers the border between them: BPE merges nothing across it, and the ids
//! before it are those of the beginning alone. "Side by side in some token" is kept as one bit by
//! hash; two pairs with one hash only make us miss a border.

use super::compiled::Compiled;
use crate::spm::Spm;
use crate::vocab::pieces::Pieces;
use serde_json::Value;
use tokenizers::AddedToken;

const BITS: usize = 1 << 20;
const LOOK_BACK: usize = 1 << 16; // bytes searched for a border

pub struct Borders {
    joined: Vec<u64>,
    by_bytes: bool,
    /// A normalizer of Unicode forms runs first: only characters that no form changes count.
    stable_only: bool,
    /// Characters (byte-level: bytes) of the longest token; None where a text may shrink.
    longest: Option<usize>,
}

fn slot(x: u32, y: u32) -> usize {
    ((u64::from(x) << 32 | u64::from(y)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 44) as usize
}

/// Which normalizers are here: None when there is one that could move a border.
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

/// Neither changed by a Unicode form nor joined with what stands before it.
fn is_stable(c: char) -> bool {
    matches!(c, '\0'..='\x7f' | 'А'..='я' | 'ぁ'..='ゖ' | 'ァ'..='ヺ' | '一'..='\u{9fff}' | '가'..='힣')
}

impl Borders {
    /// None when a cut can never be told to be safe (another kind of model or normalizer).
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

    /// None for a model that replaces characters. Both of its algorithms end a token at a border; what
    /// stands before it is cut as if nothing followed.
    pub fn of_spm(spm: &Spm, added: &[AddedToken]) -> Option<Borders> {
        if !spm.keeps_characters() {
            return None;
        }
        let b = Borders { joined: vec![0; BITS / 64], by_bytes: false, stable_only: false, longest: None };
        Some(b.with(spm.texts().map(|(text, _)| text.as_bytes()), added, spm.keeps_length()))
    }

    /// keeps_length: no character vanishes, and none is without an id.
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

    /// Joins the neighbours in a token; its length.
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
        // What a tokenizer does with blanks depends on what follows; digits come in groups; the sign
        // for a space may have been one.
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

    /// The last safe border at or before `at`, not too far before it.
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

    /// No token covers more than the longest: at least so many ids.
    pub fn least_ids(&self, text: &str) -> usize {
        let units = if self.by_bytes { text.len() } else { text.chars().count() };
        self.longest.map_or(0, |longest| units / longest)
    }
}

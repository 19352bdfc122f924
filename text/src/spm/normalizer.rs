//! Implements SentencePiece's normalizer. The longest matching rule of the model's charsmap (such as nmt_nfkc; empty =
//! identity) replaces characters. Spaces are merged and escaped, and a dummy space is put before the text. User-defined
//! symbols stay unchanged.
//!
//! A charsmap consists of the size of a double array (Darts), the array, and the replacements, each ended by a zero byte.
//! The value of a rule is the position of its replacement.

use super::proto::NormalizerSpec;
use super::trie::Trie;
use crate::base::error::{fail, invalid, Code, Result};

/// Longest replacement in bytes; no rule of a real charsmap gives more than 33.
const MAX_REPLACEMENT: usize = 256;
/// Growth limits: each byte of a text may become MAX_GROWTH bytes, plus GROWTH_SLACK bytes for a short text. Real rules
/// make at most 13 bytes from one byte (with escaped spaces). The limit keeps a malicious model from expanding a prompt
/// to gigabytes.
const MAX_GROWTH: usize = 32;
const GROWTH_SLACK: usize = 64;
/// Longest key in bytes that is looked up.
const MAX_KEY: usize = 256;
const MAX_NORMALIZED: usize = 1 << 30;
const BLANK: &str = "▁";

pub struct Normalizer {
    units: Vec<u32>,
    replacements: String,
    pub add_dummy_prefix: bool,
    pub remove_extra_whitespaces: bool,
    escape_whitespaces: bool,
}

/// Returns a field of a unit of the array, as Darts-clone packs it.
fn offset(unit: u32) -> usize {
    ((unit >> 10) << ((unit & 1 << 9) >> 6)) as usize
}

fn label(unit: u32) -> u32 {
    unit & (1 << 31 | 0xff)
}

fn has_leaf(unit: u32) -> bool {
    unit >> 8 & 1 != 0
}

fn value(unit: u32) -> usize {
    (unit & !(1 << 31)) as usize
}

impl Normalizer {
    pub fn new(spec: &NormalizerSpec) -> Result<Normalizer> {
        let (units, replacements) = match spec.charsmap.is_empty() {
            true => (vec![], ""),
            false => split_charsmap(spec.charsmap)?,
        };
        Ok(Normalizer {
            units,
            replacements: replacements.to_owned(),
            add_dummy_prefix: spec.add_dummy_prefix,
            remove_extra_whitespaces: spec.remove_extra_whitespaces,
            escape_whitespaces: spec.escape_whitespaces,
        })
    }

    pub fn is_identity(&self) -> bool {
        self.units.is_empty()
    }

    /// Normalizes the beginning of the text. Returns the replacement and the number of bytes that it replaces. `text`
    /// must not be empty.
    fn prefix<'t>(&'t self, text: &'t str, user_defined: &Trie) -> (&'t str, usize) {
        if let Some(n) = user_defined.longest(text.as_bytes()) {
            return (&text[..n], n);
        }
        if let Some((replacement, n)) = self.longest_rule(text) {
            return (replacement, n);
        }
        let n = text.chars().next().map_or(1, char::len_utf8);
        (&text[..n], n)
    }

    fn longest_rule(&self, text: &str) -> Option<(&str, usize)> {
        let mut unit = *self.units.first()?;
        let (mut at, mut longest) = (offset(unit), None);
        for (i, &byte) in text.as_bytes().iter().take(MAX_KEY).enumerate() {
            at ^= usize::from(byte);
            unit = match self.units.get(at) {
                Some(&u) if label(u) == u32::from(byte) => u,
                _ => break,
            };
            at ^= offset(unit);
            if has_leaf(unit) {
                longest = self.units.get(at).map(|&u| (value(u), i + 1));
            }
        }
        let (from, n) = longest?;
        // A rule that ends inside a character or points outside the replacements is ignored, because the file is
        // damaged.
        let replacement = self.replacements.get(from..).filter(|_| text.is_char_boundary(n))?;
        Some((replacement.split('\0').next().unwrap_or(""), n))
    }

    /// Normalizes a text. `add_dummy_prefix` is the model's setting, or false when the caller adds the space itself.
    pub fn normalize(&self, text: &str, user_defined: &Trie, add_dummy_prefix: bool) -> Result<String> {
        let blank = if self.escape_whitespaces { BLANK } else { " " };
        let mut left = text;
        while self.remove_extra_whitespaces && !left.is_empty() {
            let (p, n) = self.prefix(left, user_defined);
            if p != " " {
                break;
            }
            left = &left[n..];
        }
        let mut out = String::new();
        if left.is_empty() {
            return Ok(out);
        }
        let most = text.len().saturating_mul(MAX_GROWTH).saturating_add(GROWTH_SLACK).min(MAX_NORMALIZED);
        out.reserve(left.len() + left.len() / 4);
        if add_dummy_prefix {
            out.push_str(blank);
        }
        let mut after_blank = self.remove_extra_whitespaces;
        while !left.is_empty() {
            let (mut p, n) = self.prefix(left, user_defined);
            if after_blank {
                p = p.trim_start_matches(' ');
            }
            if !p.is_empty() {
                p.split_inclusive(' ').for_each(|part| match part.strip_suffix(' ') {
                    Some(before) => {
                        out.push_str(before);
                        out.push_str(blank);
                    }
                    None => out.push_str(part),
                });
                after_blank = self.remove_extra_whitespaces && p.ends_with(' ');
            }
            if out.len() > most {
                let n = text.len();
                return fail(
                    Code::Limit,
                    format!("tokenizer.model: precompiled_charsmap turns {n} bytes into more than {most}"),
                );
            }
            left = &left[n..];
        }
        while self.remove_extra_whitespaces && out.ends_with(blank) {
            out.truncate(out.len() - blank.len());
        }
        Ok(out)
    }
}

fn split_charsmap(blob: &[u8]) -> Result<(Vec<u32>, &str)> {
    let bad = |what: &str| invalid(format!("tokenizer.model: precompiled_charsmap is damaged: {what}"));
    let (size, rest) = blob.split_first_chunk::<4>().ok_or_else(|| bad("it is too short"))?;
    let size = u32::from_le_bytes(*size) as usize;
    if size > rest.len() || size % 4 != 0 || size == 0 {
        return Err(bad("its array ends after the end of the map"));
    }
    let (array, replacements) = rest.split_at(size);
    let units = array.chunks_exact(4).map(|c| u32::from_le_bytes(c.try_into().unwrap_or_default())).collect();
    let replacements = std::str::from_utf8(replacements).map_err(|_| bad("a replacement is not UTF-8"))?;
    if replacements.split('\0').any(|r| r.len() > MAX_REPLACEMENT) {
        return Err(bad(&format!("a replacement is longer than {MAX_REPLACEMENT} bytes")));
    }
    Ok((units, replacements))
}

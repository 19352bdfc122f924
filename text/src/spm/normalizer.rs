//! SentencePiece's normalizer: characters are replaced by the longest rule of the model's charsmap
//! (nmt_nfkc and the like; none: identity), blanks are counted and escaped, a dummy blank stands before
//! the text. User-defined symbols go through it unchanged.
//!
//! A charsmap is the size of a double array (Darts), the array, and the replacements, each ended by a
//! zero byte; a rule's value is the place of its replacement.

use super::proto::NormalizerSpec;
use super::trie::Trie;
use crate::base::error::{fail, invalid, Code, Result};

/// No rule of a real charsmap gives more than 33 bytes.
const MAX_REPLACEMENT: usize = 256;
/// How much longer a text may become: a byte so many bytes, and a few for a short text. Real rules make
/// at most 13 of one (with its blanks escaped); a hostile model must not turn a prompt into gigabytes.
const MAX_GROWTH: usize = 32;
const GROWTH_SLACK: usize = 64;
/// Longest key that is looked for.
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

/// The array's fields, as Darts-clone packs them.
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

    /// What the text begins with, normalized, and how many bytes of it that is. `text` is not empty.
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
        // A rule that ends within a character or points nowhere is a damaged file's: no rule.
        let replacement = self.replacements.get(from..).filter(|_| text.is_char_boundary(n))?;
        Some((replacement.split('\0').next().unwrap_or(""), n))
    }

    /// add_dummy_prefix: as the model says, unless the caller puts the blank there itself.
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

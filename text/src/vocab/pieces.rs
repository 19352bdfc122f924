//! Converts a token's text to the bytes that the text stands for. This is the part of a tokenizer's decoder that needs
//! only a single token. It undoes byte-level alphabets, "▁" for a space, and "<0xNN>". The space that is dropped at the
//! start of a text depends on the position, so it has its own rule, `Start`.

use crate::base::error::{not_valid, Result};
use serde_json::Value;
use std::sync::atomic::{AtomicU64, Ordering};

/// Describes the rule for the first token that has any bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    Keep,
    /// up to this many leading spaces of the text are dropped
    Strip(usize),
    /// Metaspace: all replacement characters of the first token are dropped
    DropAll,
}

#[derive(Clone, Debug)]
pub enum Pieces {
    ByteLevel,
    /// literal replacements, followed by "<0xNN>" with byte_fallback
    Replace {
        from_to: Vec<(String, String)>,
        byte_fallback: bool,
        start: Start,
    },
    /// a decoder that needs a token's neighbours (WordPiece, CTC, …): the bytes are the text itself
    Other,
}

pub fn unique() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Returns the byte of a character in GPT-2's byte-level alphabet, or None when the character is not in the alphabet.
pub fn byte_of_char(c: char) -> Option<u8> {
    let printable = |b: u32| matches!(b, 33..=126 | 161..=172 | 174..=255);
    let c = c as u32;
    if c < 256 {
        return printable(c).then_some(c as u8);
    }
    // The n-th byte that is not printable is U+0100 + n.
    (0..256u32).filter(|&b| !printable(b)).nth(c.checked_sub(256)? as usize).map(|b| b as u8)
}

pub fn char_of_byte(b: u8) -> char {
    let printable = |b: u8| matches!(b, 33..=126 | 161..=172 | 174..=255);
    if printable(b) {
        return char::from(b);
    }
    let before = (0..b).filter(|&b| !printable(b)).count() as u32;
    char::from_u32(256 + before).unwrap_or('\0')
}

/// Reads "<0xNN>" as the tokenizers crate's ByteFallback does.
pub fn byte_of_fallback(text: &str) -> Option<u8> {
    if text.len() != 6 || !text.starts_with("<0x") || !text.ends_with('>') {
        return None;
    }
    u8::from_str_radix(text.get(3..5)?, 16).ok()
}

impl Pieces {
    pub fn of_config(config: &str) -> Result<Pieces> {
        let v: Value =
            serde_json::from_str(config).map_err(|e| not_valid("the tokenizer configuration", e))?;
        Ok(Self::of_decoder(&v["decoder"]))
    }

    pub fn of_decoder(decoder: &Value) -> Pieces {
        let kind = |d: &Value| d["type"].as_str().unwrap_or("").to_owned();
        let list: Vec<&Value> = match (kind(decoder).as_str(), decoder["decoders"].as_array()) {
            ("Sequence", Some(list)) => list.iter().collect(),
            ("", _) => return Pieces::Other,
            _ => vec![decoder],
        };
        if list.len() == 1 && kind(list[0]) == "ByteLevel" {
            return Pieces::ByteLevel;
        }
        let (mut from_to, mut byte_fallback, mut start, mut fused) = (vec![], false, Start::Keep, false);
        for d in &list {
            match kind(d).as_str() {
                "Replace" if !byte_fallback && !fused => match d["pattern"]["String"].as_str() {
                    Some(from) => {
                        from_to.push((from.to_owned(), d["content"].as_str().unwrap_or("").to_owned()))
                    }
                    None => return Pieces::Other,
                },
                "ByteFallback" if !fused => byte_fallback = true,
                "Fuse" => fused = true,
                "Strip" if fused && start == Start::Keep => {
                    if d["content"].as_str() != Some(" ") || d["stop"].as_u64() != Some(0) {
                        return Pieces::Other;
                    }
                    start = Start::Strip(d["start"].as_u64().unwrap_or(0) as usize);
                }
                "Metaspace" if list.len() == 1 => {
                    let from = d["replacement"].as_str().unwrap_or("▁").to_owned();
                    from_to.push((from, " ".to_owned()));
                    let never = d["prepend_scheme"].as_str() == Some("never")
                        || d["add_prefix_space"].as_bool() == Some(false);
                    start = if never { Start::Keep } else { Start::DropAll };
                    fused = true;
                }
                _ => return Pieces::Other,
            }
        }
        if !byte_fallback && !fused {
            return Pieces::Other;
        }
        Pieces::Replace { from_to, byte_fallback, start }
    }

    pub fn start(&self) -> Start {
        match self {
            Pieces::Replace { start, .. } => *start,
            _ => Start::Keep,
        }
    }

    pub fn append_bytes(&self, text: &str, out: &mut Vec<u8>) {
        match self {
            Pieces::ByteLevel => {
                let base = out.len();
                for c in text.chars() {
                    match byte_of_char(c) {
                        Some(b) => out.push(b),
                        None => {
                            // A character outside the alphabet makes the whole token plain text.
                            out.truncate(base);
                            out.extend_from_slice(text.as_bytes());
                            return;
                        }
                    }
                }
            }
            Pieces::Replace { from_to, byte_fallback, .. } => {
                let mut changed: Option<String> = None;
                for (from, to) in from_to {
                    let now = changed.as_deref().unwrap_or(text);
                    if !from.is_empty() && now.contains(from.as_str()) {
                        changed = Some(now.replace(from.as_str(), to));
                    }
                }
                let now = changed.as_deref().unwrap_or(text);
                match byte_of_fallback(now).filter(|_| *byte_fallback) {
                    Some(b) => out.push(b),
                    None => out.extend_from_slice(now.as_bytes()),
                }
            }
            Pieces::Other => out.extend_from_slice(text.as_bytes()),
        }
    }
}

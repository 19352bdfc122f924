//! Implements the fast path from a text to ids. It handles byte-level BPE with a pattern that `splits` implements. It
//! also handles BPE over "▁" without a pattern, where the text is cut at places without merges (`joins`). It is fast
//! because it makes no copy with offsets, uses no regular expressions, and caches the ids of pieces. Its ids equal those
//! of the pipeline. When it cannot guarantee that, it returns nothing and the caller uses the pipeline.

use super::bpe;
use super::compiled::Compiled;
use super::joins::Joins;
use super::pipeline::Pipeline;
use super::splits::Split;
use crate::vocab::pieces::{char_of_byte, unique};
use serde_json::Value;
use std::cell::RefCell;
use std::collections::HashMap;
use tokenizers::AddedToken;

/// Size of the cache of pieces in each thread: 2^CACHE_BITS slots, each for a piece of at most PIECE_BYTES bytes and
/// PIECE_IDS ids.
const CACHE_BITS: u32 = 14;
const PIECE_WORDS: usize = 5;
const PIECE_BYTES: usize = PIECE_WORDS * 8;
const PIECE_IDS: usize = 5;

#[derive(Clone, Copy, Default)]
struct Known {
    words: [u64; PIECE_WORDS],
    n_bytes: u8, // length of the piece in bytes; 0 = empty slot
    n_ids: u8,
    ids: [u32; PIECE_IDS],
}

#[derive(Default)]
struct Cache {
    of: u64,
    slots: Vec<Known>,
    piece: String,
    marked: String,
    ids: Vec<u32>,
}

thread_local! {
    static CACHE: RefCell<Cache> = RefCell::new(Cache::default());
}

impl Cache {
    fn begin(&mut self, of: u64) {
        if self.of != of {
            self.of = of;
            self.slots.clear();
            self.slots.resize(1 << CACHE_BITS, Known::default());
        }
    }

    fn append(&mut self, c: &Compiled, alphabet: Option<&[char; 256]>, piece: &str, out: &mut Vec<u32>) {
        let bytes = piece.as_bytes();
        if bytes.len() > PIECE_BYTES {
            self.make(c, alphabet, piece);
            out.extend_from_slice(&self.ids);
            return;
        }
        let mut padded = [0; PIECE_BYTES];
        padded[..bytes.len()].copy_from_slice(bytes);
        let mut words = [0; PIECE_WORDS];
        for (word, eight) in words.iter_mut().zip(padded.chunks_exact(8)) {
            *word = u64::from_le_bytes(eight.try_into().unwrap_or_default());
        }
        let mixed = words
            .iter()
            .fold(bytes.len() as u64, |h, w| (h.rotate_left(29) ^ w).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let slot = (mixed >> (64 - CACHE_BITS)) as usize;
        let k = &self.slots[slot];
        if k.words == words && usize::from(k.n_bytes) == bytes.len() {
            out.extend_from_slice(&k.ids[..usize::from(k.n_ids)]);
            return;
        }
        self.make(c, alphabet, piece);
        out.extend_from_slice(&self.ids);
        if self.ids.len() <= PIECE_IDS {
            let mut ids = [0; PIECE_IDS];
            ids[..self.ids.len()].copy_from_slice(&self.ids);
            let (n_bytes, n_ids) = (bytes.len() as u8, self.ids.len() as u8);
            self.slots[slot] = Known { words, n_bytes, n_ids, ids };
        }
    }

    /// Computes the ids of one piece as the pipeline's model does.
    fn make(&mut self, c: &Compiled, alphabet: Option<&[char; 256]>, piece: &str) {
        self.ids.clear();
        let Some(alphabet) = alphabet else {
            bpe::append_ids(c, piece, &mut self.ids);
            return;
        };
        self.piece.clear();
        self.piece.extend(piece.bytes().map(|b| alphabet[usize::from(b)]));
        bpe::append_ids(c, &self.piece, &mut self.ids);
        if self.piece.capacity() > 1 << 20 {
            self.piece = String::new(); // a new String frees the memory after a huge piece
        }
    }
}

/// Holds the added tokens of one kind. A search needs a few look-ups at each place where an added token may begin,
/// whatever the number of added tokens is.
struct Added {
    ids: HashMap<Box<[u8]>, u32>,
    /// for each first byte, the lengths of the tokens that begin with it, longest first
    lengths: Vec<Vec<usize>>,
    /// one bit for the first two bytes of each token
    pairs: Vec<u64>,
}

impl Added {
    fn of(tokens: impl Iterator<Item = (u32, AddedToken)>) -> Added {
        let mut a = Added { ids: HashMap::new(), lengths: vec![Vec::new(); 256], pairs: vec![0; 1024] };
        for (id, t) in tokens.filter(|(_, t)| !t.content.is_empty()) {
            let bytes = t.content.as_bytes();
            let first = usize::from(bytes[0]);
            match bytes.get(1) {
                Some(&second) => a.pairs[first * 4 + usize::from(second >> 6)] |= 1 << (second & 63),
                None => a.pairs[first * 4..first * 4 + 4].fill(u64::MAX),
            }
            a.lengths[first].push(bytes.len());
            a.ids.insert(bytes.into(), id);
        }
        for lengths in &mut a.lengths {
            lengths.sort_unstable_by(|x, y| y.cmp(x));
            lengths.dedup();
        }
        a
    }

    /// Finds the leftmost added token, and the longest one if several begin there. Returns its position, length and id.
    fn find(&self, bytes: &[u8]) -> Option<(usize, usize, u32)> {
        if self.ids.is_empty() {
            return None;
        }
        (0..bytes.len()).find_map(|at| {
            let (first, second) = (usize::from(bytes[at]), bytes.get(at + 1).copied().unwrap_or(0));
            if self.pairs[first * 4 + usize::from(second >> 6)] >> (second & 63) & 1 == 0 {
                return None;
            }
            let of_length = |&n: &usize| Some((at, n, *self.ids.get(bytes.get(at..at + n)?)?));
            self.lengths[first].iter().find_map(of_length)
        })
    }
}

/// Describes how the text between added tokens is split into pieces.
enum Cut {
    /// the bytes of a piece are written in the byte alphabet
    Pattern { split: Split, alphabet: [char; 256], nfc: bool },
    /// every space becomes "▁"; with `prepend`, one more "▁" is put before the text
    Marks { joins: Joins, prepend: bool },
}

pub struct Fast {
    id: u64,
    cut: Cut,
    /// tokens [0] are searched first; tokens [1] are searched in the text between matches of [0]
    added: [Added; 2],
    before: Vec<u32>,
    behind: Vec<u32>,
}

/// Returns true when NFC does not change the character, even next to another such character. Such a character is its own
/// NFC form, has no combining class, and is the second character of no composition.
fn is_nfc(c: char) -> bool {
    matches!(c, '\0'..='\u{2ff}' | '\u{391}'..='\u{3c9}' | '\u{400}'..='\u{482}' | '\u{48a}'..='\u{52f}'
        | '\u{1e00}'..='\u{1eff}' | '\u{2002}'..='\u{205e}' | '\u{2070}'..='\u{20cf}' | '\u{2190}'..='\u{22ff}'
        | '\u{2500}'..='\u{27bf}' | '\u{3000}'..='\u{3029}' | '\u{3041}'..='\u{3096}' | '\u{30a1}'..='\u{30ff}'
        | '\u{4e00}'..='\u{9fff}' | '\u{ac00}'..='\u{d7a3}' | '\u{ff01}'..='\u{ff5e}' | '\u{1f300}'..='\u{1faff}')
}

fn is_plain_frame(post: &Value) -> bool {
    match post["type"].as_str() {
        None => post.is_null(),
        Some("ByteLevel" | "TemplateProcessing") => true,
        Some("Sequence") => post["processors"].as_array().is_some_and(|all| all.iter().all(is_plain_frame)),
        Some(_) => false,
    }
}

/// Returns whether NFC runs; None when the file has another normalizer.
fn normalizer_of(v: &Value) -> Option<bool> {
    match v["type"].as_str() {
        None => v.is_null().then_some(false),
        Some("NFC") => Some(true),
        Some("Sequence") => match v["normalizers"].as_array()?.as_slice() {
            [] => Some(false),
            [one] => normalizer_of(one),
            _ => None,
        },
        Some(_) => None,
    }
}

/// Returns whether the normalizer puts "▁" before the text, in addition to replacing each space; None for any other
/// normalizer.
fn marks_of(v: &Value) -> Option<bool> {
    let is_replace =
        |v: &Value| v["type"] == "Replace" && v["pattern"]["String"] == " " && v["content"] == "▁";
    match v["normalizers"].as_array().filter(|_| v["type"] == "Sequence") {
        None => is_replace(v).then_some(false),
        Some(all) => match all.as_slice() {
            [one] => is_replace(one).then_some(false),
            [first, then] => {
                (first["type"] == "Prepend" && first["prepend"] == "▁" && is_replace(then)).then_some(true)
            }
            _ => None,
        },
    }
}

/// Returns true when the pre-tokenizer splits only at spaces, which the normalizer has all replaced.
fn cuts_nothing(pre: &Value) -> bool {
    pre.is_null() || (pre["type"] == "Split" && pre["pattern"]["String"] == " " && pre["invert"] == false)
}

fn cut_of(config: &Value, c: &Compiled) -> Option<Cut> {
    if let Some(split) = Split::of_config(&config["pre_tokenizer"]) {
        let mut alphabet = ['\0'; 256];
        (0..=255u8).for_each(|b| alphabet[usize::from(b)] = char_of_byte(b));
        return Some(Cut::Pattern { split, alphabet, nfc: normalizer_of(&config["normalizer"])? });
    }
    let prepend = marks_of(&config["normalizer"])?;
    // ignore_merges looks up the whole text as one token
    if !cuts_nothing(&config["pre_tokenizer"]) || c.ignore_merges {
        return None;
    }
    Some(Cut::Marks { joins: Joins::of(c)?, prepend })
}

impl Fast {
    /// Returns None when the fast path does not support something in this tokenizer.
    pub fn new(c: &Compiled, p: &Pipeline) -> Option<Fast> {
        let config: Value = serde_json::from_str(c.config()).ok()?;
        if !is_plain_frame(&config["post_processor"]) || !c.prefix().is_empty() || !c.suffix().is_empty() {
            return None;
        }
        let cut = cut_of(&config, c)?;
        let added: Vec<_> = p.get_added_vocabulary().get_added_tokens_decoder().iter().collect();
        // true for tokens whose text the normalizer would change
        let changed = |t: &AddedToken| match &cut {
            Cut::Pattern { nfc, .. } => *nfc && !t.content.chars().all(is_nfc),
            Cut::Marks { .. } => t.normalized,
        };
        let odd = |t: &AddedToken| t.single_word || t.lstrip || t.rstrip || changed(t);
        if added.iter().any(|(_, t)| odd(t)) {
            return None;
        }
        let of = |normalized: bool| {
            let those = added.iter().filter(|(_, t)| t.normalized == normalized);
            Added::of(those.map(|(id, t)| (**id, (*t).clone())))
        };
        let ids = |special| Some(p.encode_fast("a", special).ok()?.get_ids().to_vec());
        let (bare, framed) = (ids(false)?, ids(true)?);
        let at = framed.windows(bare.len().max(1)).position(|w| w == bare)?;
        Some(Fast {
            id: unique() + 1,
            added: [of(false), of(true)],
            before: framed[..at].to_vec(),
            behind: framed[at + bare.len()..].to_vec(),
            cut,
        })
    }

    /// Returns the ids, or Some(None) when there are more than max_ids. Returns None when the pipeline must encode the
    /// text.
    pub fn encode(
        &self,
        c: &Compiled,
        text: &str,
        special: bool,
        max_ids: usize,
    ) -> Option<Option<Vec<u32>>> {
        let nfc = matches!(self.cut, Cut::Pattern { nfc: true, .. });
        if text.is_empty() || (nfc && !text.is_ascii() && !text.chars().all(is_nfc)) {
            return None;
        }
        let (before, behind): (&[u32], &[u32]) =
            if special { (&self.before, &self.behind) } else { (&[], &[]) };
        let mut out = Vec::with_capacity((text.len() / 3).min(max_ids) + before.len() + behind.len());
        out.extend_from_slice(before);
        let fits = CACHE.with(|cache| {
            let cache = &mut cache.borrow_mut();
            cache.begin(self.id);
            self.between(c, cache, text, 0, max_ids, &mut out)
        });
        out.extend_from_slice(behind);
        Some((fits && out.len() <= max_ids).then_some(out))
    }

    /// Appends the ids of added tokens of this kind. The text between these tokens is searched for the next kind, and
    /// finally split into pieces.
    fn between(
        &self,
        c: &Compiled,
        cache: &mut Cache,
        text: &str,
        kind: usize,
        max: usize,
        out: &mut Vec<u32>,
    ) -> bool {
        let Some(added) = self.added.get(kind) else {
            return self.pieces(c, cache, text, max, out);
        };
        let mut rest = text;
        while let Some((at, n, id)) = added.find(rest.as_bytes()) {
            if !self.between(c, cache, &rest[..at], kind + 1, max, out) {
                return false;
            }
            out.push(id);
            rest = &rest[at + n..];
        }
        self.between(c, cache, rest, kind + 1, max, out)
    }

    fn pieces(&self, c: &Compiled, cache: &mut Cache, text: &str, max: usize, out: &mut Vec<u32>) -> bool {
        match &self.cut {
            Cut::Pattern { split, alphabet, .. } => split.pieces(text, |piece| {
                cache.append(c, Some(alphabet), piece, out);
                out.len() <= max
            }),
            Cut::Marks { joins, prepend } => {
                let mut marked = std::mem::take(&mut cache.marked);
                marked.clear();
                if *prepend && !text.is_empty() {
                    marked.push('▁');
                }
                for (i, word) in text.split(' ').enumerate() {
                    marked.push_str(if i > 0 { "▁" } else { "" });
                    marked.push_str(word);
                }
                let fits = joins.pieces(&marked, |piece| {
                    cache.append(c, None, piece, out);
                    out.len() <= max
                });
                if marked.capacity() <= 1 << 20 {
                    cache.marked = marked;
                }
                fits
            }
        }
    }
}

//! Implements BPE over a compiled vocabulary. It uses the same symbols, the same order of merges, and the same rules for
//! unknown characters and byte fallback as `tokenizers::models::bpe`, without that crate's maps of strings. The rest of
//! the pipeline is that crate's own code.

use super::compiled::Compiled;
use crate::spm::Spm;
use std::borrow::Cow;
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokenizers::models::bpe::BpeTrainer;
use tokenizers::{Model, ModelWrapper, Result, Token};

/// Holds the model inside the pipeline of the tokenizers crate.
pub enum AnyModel {
    Compiled(Arc<Compiled>),
    Crate(Box<ModelWrapper>),
    Spm(Box<Spm>),
}

thread_local! {
    /// Number of ids that the running `encode` may still make. The limit applies inside the pipeline, not after it, so
    /// that the work for a malicious input is limited.
    static BUDGET: RefCell<usize> = const { RefCell::new(usize::MAX) };
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch::default());
}

pub const OVER_BUDGET: &str = "over the limit of ids";

pub fn set_budget(ids: usize) {
    BUDGET.with(|b| *b.borrow_mut() = ids);
}

fn spend(ids: usize) -> Result<()> {
    BUDGET.with(|b| {
        let mut left = b.borrow_mut();
        *left = left.checked_sub(ids).ok_or(OVER_BUDGET)?;
        Ok(())
    })
}

#[derive(Clone, Copy)]
struct Symbol {
    id: u32,
    len: u32, // length in bytes; 0 = merged into its left neighbour
    prev: u32,
    next: u32,
}

const END: u32 = u32::MAX;

#[derive(Default)]
struct Scratch {
    symbols: Vec<Symbol>,
    /// (rank << 32 | position, merged id): ordered by rank, then by position
    queue: BinaryHeap<Reverse<(u64, u32)>>,
}

impl Scratch {
    fn add(&mut self, id: u32, len: usize) {
        let at = self.symbols.len() as u32;
        if let Some(last) = self.symbols.last_mut() {
            last.next = at;
        }
        let prev = if at == 0 { END } else { at - 1 };
        self.symbols.push(Symbol { id, len: len as u32, prev, next: END });
    }

    fn offer(&mut self, c: &Compiled, at: u32) {
        let s = self.symbols[at as usize];
        if s.next == END {
            return;
        }
        if let Some((rank, merged)) = c.merge(s.id, self.symbols[s.next as usize].id) {
            self.queue.push(Reverse((u64::from(rank) << 32 | u64::from(at), merged)));
        }
    }

    /// Frees the memory after a huge text.
    fn forget_if_huge(&mut self) {
        if self.symbols.capacity() > 1 << 20 {
            *self = Scratch::default();
        }
    }

    fn merge_all(&mut self, c: &Compiled) {
        self.queue.clear();
        for at in 0..self.symbols.len() as u32 {
            self.offer(c, at);
        }
        while let Some(Reverse((key, merged))) = self.queue.pop() {
            let at = key as u32;
            let s = self.symbols[at as usize];
            if s.len == 0 || s.next == END {
                continue;
            }
            let right = self.symbols[s.next as usize];
            // An entry is stale when its position now holds another pair.
            if c.merge(s.id, right.id).is_none_or(|(_, id)| id != merged) {
                continue;
            }
            let here = &mut self.symbols[at as usize];
            here.id = merged;
            here.len += right.len;
            here.next = right.next;
            self.symbols[s.next as usize].len = 0;
            if right.next != END {
                self.symbols[right.next as usize].prev = at;
            }
            if s.prev != END {
                self.offer(c, s.prev);
            }
            self.offer(c, at);
        }
    }
}

fn fill_symbols(c: &Compiled, word: &str, out: &mut Scratch) {
    out.symbols.clear();
    let (prefix, suffix) = (c.prefix(), c.suffix());
    let mut unk: Option<(u32, usize)> = None;
    for (at, ch) in word.char_indices() {
        let end = at + ch.len_utf8();
        let len = end - at;
        let mut s = Cow::Borrowed(&word[at..end]);
        if at > 0 && !prefix.is_empty() {
            s = Cow::Owned(format!("{prefix}{s}"));
        }
        if end == word.len() && !suffix.is_empty() {
            s = Cow::Owned(format!("{s}{suffix}"));
        }
        if let Some(id) = c.id(&s) {
            if let Some((unk_id, unk_len)) = unk.take() {
                out.add(unk_id, unk_len);
            }
            out.add(id, len);
            continue;
        }
        // As in the tokenizers crate, a pending run of unknown characters is appended after the bytes.
        if c.byte_fallback && s.bytes().all(|b| c.byte_id(b).is_some()) {
            s.bytes().for_each(|b| out.add(c.byte_id(b).unwrap_or(0), 1));
            continue;
        }
        if let Some(id) = c.unk {
            unk = match unk {
                Some((unk_id, unk_len)) if c.fuse_unk => Some((unk_id, unk_len + len)),
                Some((unk_id, unk_len)) => {
                    out.add(unk_id, unk_len);
                    Some((id, len))
                }
                None => Some((id, len)),
            };
        }
    }
    if let Some((unk_id, unk_len)) = unk {
        out.add(unk_id, unk_len);
    }
}

/// Appends the ids of a word. The ids equal those of `tokenize`, but no object is made for each token.
pub fn append_ids(c: &Compiled, word: &str, out: &mut Vec<u32>) {
    if c.ignore_merges {
        if let Some(id) = c.id(word) {
            out.push(id);
            return;
        }
    }
    SCRATCH.with(|scratch| {
        let mut s = scratch.borrow_mut();
        fill_symbols(c, word, &mut s);
        s.merge_all(c);
        out.extend(s.symbols.iter().filter(|s| s.len != 0).map(|s| s.id));
        s.forget_if_huge();
    });
}

/// Returns the tokens of a word with empty texts. The pipeline reads only ids and offsets, and a String for each token
/// would take a fifth of the encoding time.
fn tokenize(c: &Compiled, word: &str) -> Result<Vec<Token>> {
    if word.is_empty() {
        return Ok(vec![]);
    }
    if c.ignore_merges {
        if let Some(id) = c.id(word) {
            spend(1)?;
            return Ok(vec![Token::new(id, String::new(), (0, word.len()))]);
        }
    }
    SCRATCH.with(|scratch| {
        let mut s = scratch.borrow_mut();
        fill_symbols(c, word, &mut s);
        s.merge_all(c);
        let n = s.symbols.iter().filter(|s| s.len != 0).count();
        spend(n)?;
        let mut tokens = Vec::with_capacity(n);
        let mut at = 0;
        for sym in s.symbols.iter().filter(|s| s.len != 0) {
            let end = at + sym.len as usize;
            tokens.push(Token::new(sym.id, String::new(), (at, end)));
            at = end;
        }
        s.forget_if_huge();
        Ok(tokens)
    })
}

impl Model for AnyModel {
    type Trainer = BpeTrainer;

    fn tokenize(&self, sequence: &str) -> Result<Vec<Token>> {
        match self {
            AnyModel::Compiled(c) => tokenize(c, sequence),
            AnyModel::Crate(m) => {
                let tokens = m.tokenize(sequence)?;
                spend(tokens.len())?;
                Ok(tokens)
            }
            AnyModel::Spm(m) => {
                let ids = m.encode(sequence).map_err(|e| e.message)?;
                spend(ids.len())?;
                // SentencePiece's normalizer runs inside the model, so there are no offsets into the text.
                Ok(ids.into_iter().map(|id| Token::new(id, String::new(), (0, 0))).collect())
            }
        }
    }

    fn token_to_id(&self, token: &str) -> Option<u32> {
        match self {
            AnyModel::Compiled(c) => c.id(token),
            AnyModel::Crate(m) => m.token_to_id(token),
            AnyModel::Spm(m) => m.id(token),
        }
    }

    fn id_to_token(&self, id: u32) -> Option<String> {
        match self {
            AnyModel::Compiled(c) => c.text(id).map(str::to_owned),
            AnyModel::Crate(m) => m.id_to_token(id),
            AnyModel::Spm(m) => m.text(id).map(str::to_owned),
        }
    }

    fn get_vocab(&self) -> HashMap<String, u32> {
        match self {
            AnyModel::Compiled(c) => {
                (0..c.n_ids()).filter_map(|id| Some((c.text(id)?.to_owned(), id))).collect()
            }
            AnyModel::Crate(m) => m.get_vocab(),
            AnyModel::Spm(m) => m.texts().map(|(t, id)| (t.to_owned(), id)).collect(),
        }
    }

    fn get_vocab_size(&self) -> usize {
        match self {
            AnyModel::Compiled(c) => c.n_tokens() as usize,
            AnyModel::Crate(m) => m.get_vocab_size(),
            AnyModel::Spm(m) => m.n_ids(),
        }
    }

    fn save(&self, _folder: &Path, _prefix: Option<&str>) -> Result<Vec<PathBuf>> {
        Err("a tokenizer is never saved from here".into())
    }

    fn get_trainer(&self) -> BpeTrainer {
        BpeTrainer::default()
    }
}

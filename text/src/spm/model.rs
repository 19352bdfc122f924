//! Splits a text into pieces as SentencePiece does. BPE merges the two neighbours whose joined text is the piece with the
//! best score, leftmost first. Unigram takes the path through the text with the largest sum of scores. Both follow the
//! papers (Sennrich et al. 2016, Kudo 2018). Ties, unknown characters and user-defined symbols follow the library,
//! because the ids must be equal to its ids.

use super::normalizer::Normalizer;
use super::proto::{Algorithm, Kind, ModelProto};
use super::trie::Trie;
use crate::base::error::{invalid, Result};
use crate::vocab::pieces::byte_of_fallback;
use crate::vocab::table::Vocab;
use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};

/// Difference between the score of an unknown character and the worst score of a piece.
const UNKNOWN_PENALTY: f32 = 10.0;

pub struct Model {
    pub normalizer: Normalizer,
    algorithm: Algorithm,
    /// pieces that texts consist of: normal, user-defined and unused pieces
    pieces: Vocab,
    /// control symbols, bytes and the unknown piece
    reserved: Vocab,
    scores: Vec<f32>,
    kinds: Vec<Kind>,
    pub unk: u32,
    bytes: Option<Box<[u32; 256]>>,
    user_defined: Trie,
    /// trie of all `pieces`, for unigram only
    trie: Trie,
    min_score: f32,
    max_score: f32,
}

impl Model {
    pub fn new(m: &ModelProto) -> Result<Model> {
        let (mut pieces, mut reserved, mut unk) = (Vocab::default(), Vocab::default(), None);
        let (mut bytes, mut n_bytes) = (Box::new([u32::MAX; 256]), 0);
        let twice = |text: &str| invalid(format!("tokenizer.model defines the piece '{text}' twice"));
        for (id, p) in m.pieces.iter().enumerate() {
            let table = match p.kind {
                Kind::Normal | Kind::UserDefined | Kind::Unused => &mut pieces,
                _ => &mut reserved,
            };
            if table.id(p.text).is_some() {
                return Err(twice(p.text));
            }
            table.insert(p.text, id as u32)?;
            match p.kind {
                Kind::Unknown if unk.replace(id as u32).is_some() => return Err(twice(p.text)),
                Kind::Byte if !m.byte_fallback => {
                    return Err(invalid(format!(
                        "tokenizer.model has the byte piece '{}' although byte_fallback is off",
                        p.text
                    )))
                }
                Kind::Byte => {
                    let byte = byte_of_fallback(p.text).ok_or_else(|| {
                        invalid(format!(
                            "tokenizer.model: the piece '{}' has the type byte, but is not a byte",
                            p.text
                        ))
                    })?;
                    n_bytes += usize::from(bytes[usize::from(byte)] == u32::MAX);
                    bytes[usize::from(byte)] = id as u32;
                }
                _ => {}
            }
        }
        if m.byte_fallback && n_bytes != 256 {
            return Err(invalid(format!(
                "tokenizer.model: byte_fallback needs 256 byte pieces, but there are {n_bytes}"
            )));
        }
        let of_kind = |kinds: &[Kind]| {
            let all = m.pieces.iter().enumerate().filter(|(_, p)| kinds.contains(&p.kind));
            Trie::new(all.map(|(id, p)| (p.text.as_bytes(), id as u32)).collect())
        };
        let normal = || m.pieces.iter().filter(|p| p.kind == Kind::Normal).map(|p| p.score);
        Ok(Model {
            normalizer: Normalizer::new(&m.normalizer)?,
            algorithm: m.algorithm,
            scores: m.pieces.iter().map(|p| p.score).collect(),
            kinds: m.pieces.iter().map(|p| p.kind).collect(),
            unk: unk.ok_or_else(|| invalid("tokenizer.model has no piece of the type unknown"))?,
            bytes: m.byte_fallback.then_some(bytes),
            user_defined: of_kind(&[Kind::UserDefined]),
            trie: match m.algorithm {
                Algorithm::Unigram => of_kind(&[Kind::Normal, Kind::UserDefined, Kind::Unused]),
                Algorithm::Bpe => Trie::default(),
            },
            // As in SentencePiece, the search for the maximum starts at the smallest positive number.
            min_score: normal().fold(f32::MAX, f32::min),
            max_score: normal().fold(f32::MIN_POSITIVE, f32::max),
            pieces,
            reserved,
        })
    }

    pub fn n_pieces(&self) -> u32 {
        self.scores.len() as u32
    }

    pub fn has_bytes(&self) -> bool {
        self.bytes.is_some()
    }

    pub fn id(&self, text: &str) -> Option<u32> {
        self.reserved.id(text).or_else(|| self.pieces.id(text))
    }

    pub fn is_control(&self, id: u32) -> bool {
        self.kinds.get(id as usize) == Some(&Kind::Control)
    }

    pub fn texts(&self) -> impl Iterator<Item = (&str, u32)> {
        self.pieces.iter().chain(self.reserved.iter())
    }

    /// Appends the ids of a text.
    pub fn encode(&self, text: &str, add_dummy_prefix: bool, out: &mut Vec<u32>) -> Result<()> {
        let text = self.normalizer.normalize(text, &self.user_defined, add_dummy_prefix)?;
        let mut ids = Ids { model: self, out, after_unknown: false };
        match self.algorithm {
            Algorithm::Bpe => self.merge(&text, &mut ids),
            Algorithm::Unigram => self.best_path(&text, &mut ids),
        }
        Ok(())
    }

    fn is_unused(&self, id: u32) -> bool {
        self.kinds[id as usize] == Kind::Unused
    }

    fn merge(&self, text: &str, ids: &mut Ids) {
        let mut m =
            Merger { model: self, text, symbols: vec![], queue: BinaryHeap::new(), unused: HashMap::new() };
        m.cut();
        m.run();
        let mut at = 0;
        while let Some(s) = m.symbols.get(at as usize) {
            m.give_out(&text[s.at..s.at + s.len], ids);
            at = s.next;
        }
    }

    fn best_path(&self, text: &str, ids: &mut Ids) {
        #[derive(Clone, Copy)]
        struct End {
            score: f32,
            from: usize,
            id: u32,
        }
        const NOWHERE: usize = usize::MAX;
        let bytes = text.as_bytes();
        let mut ends = vec![End { score: 0.0, from: NOWHERE, id: 0 }; bytes.len() + 1];
        for (at, c) in text.char_indices() {
            let (here, one, mut alone) = (ends[at].score, c.len_utf8(), false);
            // SentencePiece compares a piece's sum in double precision and stores it in single precision. The sum of an
            // unknown character is always in single precision. These types decide ties.
            let mut offer = |len: usize, id: u32, sum: f64| {
                let end = &mut ends[at + len];
                if end.from == NOWHERE || sum > f64::from(end.score) {
                    *end = End { score: sum as f32, from: at, id };
                }
            };
            self.trie.prefixes(&bytes[at..], |len, id| {
                let score = match self.kinds[id as usize] {
                    Kind::Unused => return,
                    Kind::UserDefined => f64::from(len as f32 * self.max_score) - 0.1,
                    _ => f64::from(self.scores[id as usize]),
                };
                offer(len, id, score + f64::from(here));
                alone |= len == one;
            });
            if !alone {
                offer(one, self.unk, f64::from(self.min_score - UNKNOWN_PENALTY + here));
            }
        }
        let (mut path, mut at) = (vec![], bytes.len());
        while at > 0 {
            path.push((ends[at].from, at, ends[at].id));
            at = ends[at].from;
        }
        path.iter().rev().for_each(|&(from, to, id)| ids.push(&text[from..to], id));
    }
}

/// Converts pieces to ids. An unknown piece becomes its bytes, or one id together with its unknown neighbours.
struct Ids<'a> {
    model: &'a Model,
    out: &'a mut Vec<u32>,
    after_unknown: bool,
}

impl Ids<'_> {
    fn push(&mut self, text: &str, id: u32) {
        let unknown = id == self.model.unk;
        match &self.model.bytes {
            Some(bytes) if unknown => self.out.extend(text.bytes().map(|b| bytes[usize::from(b)])),
            _ if unknown && self.after_unknown => {}
            _ => self.out.push(id),
        }
        self.after_unknown = unknown;
    }
}

#[derive(Clone, Copy)]
struct Symbol {
    at: usize,
    len: usize, // number of bytes; 0 = the symbol was merged into its left neighbour
    prev: u32,
    next: u32,
    frozen: bool,
}

const END: u32 = u32::MAX;

/// Holds a possible merge. The merge with the best score is first. Among equal scores, the leftmost merge is first.
struct Pair {
    score: f32,
    left: u32,
    right: u32,
    len: usize,
}

impl Ord for Pair {
    fn cmp(&self, other: &Pair) -> Ordering {
        self.score.total_cmp(&other.score).then(other.left.cmp(&self.left))
    }
}

impl PartialOrd for Pair {
    fn partial_cmp(&self, other: &Pair) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Pair {
    fn eq(&self, other: &Pair) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Pair {}

struct Merger<'a> {
    model: &'a Model,
    text: &'a str,
    symbols: Vec<Symbol>,
    queue: BinaryHeap<Pair>,
    /// length of the left half of each unused piece, by its text; an unused piece exists only to be merged further
    unused: HashMap<&'a str, usize>,
}

impl<'a> Merger<'a> {
    /// Splits the text into characters and user-defined symbols. User-defined symbols are never merged.
    fn cut(&mut self) {
        let mut at = 0;
        while at < self.text.len() {
            let rest = &self.text[at..];
            let defined = self.model.user_defined.longest(rest.as_bytes());
            let len = defined.or(rest.chars().next().map(char::len_utf8)).unwrap_or(1);
            let i = self.symbols.len() as u32;
            let prev = i.checked_sub(1).unwrap_or(END);
            self.symbols.push(Symbol { at, len, prev, next: i + 1, frozen: defined.is_some() });
            at += len;
        }
        if let Some(last) = self.symbols.last_mut() {
            last.next = END;
        }
        (1..self.symbols.len() as u32).for_each(|i| self.offer(i - 1, i));
    }

    fn offer(&mut self, left: u32, right: u32) {
        if left == END || right == END {
            return;
        }
        let (l, r) = (self.symbols[left as usize], self.symbols[right as usize]);
        if l.frozen || r.frozen {
            return;
        }
        let joined = &self.text[l.at..r.at + r.len];
        let Some(id) = self.model.pieces.id(joined) else { return };
        self.queue.push(Pair { score: self.model.scores[id as usize], left, right, len: joined.len() });
        if self.model.is_unused(id) {
            self.unused.insert(joined, l.len);
        }
    }

    fn run(&mut self) {
        while let Some(pair) = self.queue.pop() {
            let (l, r) = (self.symbols[pair.left as usize], self.symbols[pair.right as usize]);
            if l.len == 0 || r.len == 0 || l.len + r.len != pair.len {
                continue; // the left or the right symbol has become part of another symbol
            }
            self.symbols[pair.left as usize].len += r.len;
            self.symbols[pair.left as usize].next = r.next;
            self.symbols[pair.right as usize].len = 0;
            if r.next != END {
                self.symbols[r.next as usize].prev = pair.left;
            }
            self.offer(l.prev, pair.left);
            self.offer(pair.left, r.next);
        }
    }

    /// Appends the ids of a piece. An unused piece is split again until no part of it is unused.
    fn give_out(&self, piece: &'a str, ids: &mut Ids) {
        let mut stack = vec![piece];
        while let Some(text) = stack.pop() {
            let id = self.model.id(text).unwrap_or(self.model.unk);
            match self.unused.get(text) {
                Some(&left) if self.model.is_unused(id) => {
                    stack.push(&text[left..]);
                    stack.push(&text[..left]);
                }
                _ => ids.push(text, id),
            }
        }
    }
}

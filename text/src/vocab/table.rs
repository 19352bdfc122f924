//! Holds a BPE vocabulary before it is compiled: the texts in one arena, the id of each text, and the merges as ids. It
//! is filled from tokenizer.json or from GGUF metadata. It has no JSON tree and no map of strings, so a vocabulary of
//! 262,000 tokens is read in about 30 MB.

use crate::base::error::{invalid, Result};
use xxhash_rust::xxh3::xxh3_64;

/// Largest id plus 1; larger ids are refused, because tables are indexed by id.
pub const MAX_ID: u32 = 1 << 24;
pub const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Default)]
pub struct BpeFlags {
    pub fuse_unk: bool,
    pub byte_fallback: bool,
    pub ignore_merges: bool,
}

#[derive(Default)]
pub struct Vocab {
    blob: Vec<u8>,
    /// for each entry, its offset and length in the blob, and its id
    entries: Vec<(u32, u32, u32)>,
    /// hash table by text (open addressing): number of the entry + 1; 0 = free
    slots: Vec<u32>,
}

impl Vocab {
    /// Adds a text. Ids must be unique; a text that occurs twice gets the later id, as in a map.
    pub fn insert(&mut self, text: &str, id: u32) -> Result<()> {
        if id >= MAX_ID {
            return Err(invalid(format!("token id {id} is larger than {MAX_ID}")));
        }
        if self.blob.len() + text.len() > u32::MAX as usize {
            return Err(invalid("the token texts of the vocabulary are larger than 4 GiB"));
        }
        if (self.entries.len() + 1) * 2 > self.slots.len() {
            self.grow();
        }
        let slot = self.find_slot(text.as_bytes());
        if self.slots[slot] != 0 {
            self.entries[self.slots[slot] as usize - 1].2 = id;
            return Ok(());
        }
        self.slots[slot] = self.entries.len() as u32 + 1;
        self.entries.push((self.blob.len() as u32, text.len() as u32, id));
        self.blob.extend_from_slice(text.as_bytes());
        Ok(())
    }

    pub fn id(&self, text: &str) -> Option<u32> {
        if self.slots.is_empty() {
            return None;
        }
        match self.slots[self.find_slot(text.as_bytes())] {
            0 => None,
            e => Some(self.entries[e as usize - 1].2),
        }
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, u32)> {
        self.entries.iter().map(|&(at, len, id)| {
            let bytes = &self.blob[at as usize..at as usize + len as usize];
            (std::str::from_utf8(bytes).unwrap_or(""), id)
        })
    }

    /// Returns true when two texts share an id. Such a vocabulary is left to the tokenizers crate's own model.
    pub fn has_shared_ids(&self) -> bool {
        let mut ids: Vec<u32> = self.entries.iter().map(|e| e.2).collect();
        ids.sort_unstable();
        ids.windows(2).any(|w| w[0] == w[1])
    }

    fn text(&self, entry: u32) -> &[u8] {
        let (at, len, _) = self.entries[entry as usize];
        &self.blob[at as usize..at as usize + len as usize]
    }

    fn find_slot(&self, text: &[u8]) -> usize {
        let mask = self.slots.len() - 1;
        let mut i = xxh3_64(text) as usize & mask;
        while self.slots[i] != 0 && self.text(self.slots[i] - 1) != text {
            i = (i + 1) & mask;
        }
        i
    }

    fn grow(&mut self) {
        let n = (self.slots.len() * 2).max(1024);
        self.slots = vec![0; n];
        for e in 0..self.entries.len() as u32 {
            let mask = n - 1;
            let mut i = xxh3_64(self.text(e)) as usize & mask;
            while self.slots[i] != 0 {
                i = (i + 1) & mask;
            }
            self.slots[i] = e + 1;
        }
    }
}

/// Holds the ids (left, right, merged) of a merge; the position in the list is the rank.
pub type Merge = (u32, u32, u32);

/// Holds the content of a compiled tokenizer. `config` has the small parts of tokenizer.json: an object with normalizer,
/// pre_tokenizer, post_processor, decoder and added_tokens.
pub struct Source {
    pub vocab: Vocab,
    pub merges: Vec<Merge>,
    pub flags: BpeFlags,
    pub unk: Option<u32>,
    pub prefix: String,
    pub suffix: String,
    pub config: String,
}

//! Defines the compiled form of a BPE tokenizer: one little-endian file that is memory-mapped and used without decoding.
//! It contains the text and raw bytes of each token, hash tables of ids by text and of merges, and the small parts of
//! tokenizer.json as JSON. `compile` makes the file once for each source file. `Compiled::open` checks all of it (size,
//! checksum, every offset and id), so look-ups need no checks of their own. A file that fails the check is rebuilt.
//!
//! Layout: `HEADER_WORDS` u64 words, then the sections, each aligned to 8 bytes, in the order of `Section`.

use crate::base::error::{invalid, io, Result};
use crate::vocab::pieces::{self, Pieces};
use crate::vocab::table::{Source, NONE};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use xxhash_rust::xxh3::xxh3_64;

const MAGIC: u64 = u64::from_le_bytes(*b"coxtok\0\x02");
const HEADER_WORDS: usize = 32;
const WORD_FIXED: usize = 10; // number of header words before the section table

#[derive(Clone, Copy)]
#[repr(usize)]
enum Section {
    TextAt,  // u32[n_ids + 1]: start of an id's text in Texts
    Texts,   // UTF-8 texts of all ids, one after another
    BytesAt, // u32[n_ids + 1]: start of an id's raw bytes
    Bytes,
    IdSlots, // u32[2^k]: id + 1 by hash of the text; 0 = free slot
    Merges,  // u32[4][2^k]: left, right, rank, merged; left NONE = free
    ByteIds, // u32[256]: the id of "<0xNN>"; NONE = absent
    Prefix,  // text of continuing_subword_prefix
    Suffix,  // text of end_of_word_suffix
    Config,  // small parts of tokenizer.json, as JSON
    Count,
}
const N_SECTIONS: usize = Section::Count as usize;

enum Backing {
    Map(memmap2::Mmap),
    Heap(Vec<u64>),
}

pub struct Compiled {
    backing: Backing,
    sections: [(usize, usize); N_SECTIONS],
    n_ids: u32,
    n_tokens: u32,
    max_text: usize,
    pub unk: Option<u32>,
    pub fuse_unk: bool,
    pub byte_fallback: bool,
    pub ignore_merges: bool,
}

#[cfg(not(target_endian = "little"))]
compile_error!("the compiled tokenizer is mapped as little-endian words");

impl Backing {
    fn bytes(&self) -> &[u8] {
        match self {
            Backing::Map(m) => m,
            // SAFETY: every u64 is eight valid bytes; the length is that of the vector.
            Backing::Heap(v) => unsafe { std::slice::from_raw_parts(v.as_ptr().cast::<u8>(), v.len() * 8) },
        }
    }
}

fn merge_hash(left: u32, right: u32) -> usize {
    let key = (u64::from(left) << 32 | u64::from(right)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (key ^ (key >> 29)) as usize
}

impl Compiled {
    /// Maps and checks a compiled file. On an error the caller rebuilds it.
    pub fn open(path: &Path, source_hash: u128) -> Result<Compiled> {
        let file = File::open(path).map_err(|e| io(path.display(), e))?;
        // SAFETY: files in the cache are replaced by rename and never written in place.
        let map = unsafe { memmap2::Mmap::map(&file) }.map_err(|e| io(path.display(), e))?;
        Self::check(Backing::Map(map), Some(source_hash))
    }

    pub fn from_words(words: Vec<u64>) -> Result<Compiled> {
        Self::check(Backing::Heap(words), None)
    }

    fn check(backing: Backing, source_hash: Option<u128>) -> Result<Compiled> {
        let bad = |what: &str| invalid(format!("the compiled tokenizer cannot be used: {what}"));
        let all = backing.bytes();
        if all.len() < HEADER_WORDS * 8 || all.len() % 8 != 0 {
            return Err(bad("it is too short"));
        }
        let word = |i: usize| u64::from_le_bytes(all[i * 8..i * 8 + 8].try_into().unwrap());
        if word(0) != MAGIC || word(1) != all.len() as u64 {
            return Err(bad("it has another format or is incomplete"));
        }
        if word(2) != xxh3_64(&all[24..]) {
            return Err(bad("its checksum is wrong"));
        }
        if source_hash.is_some_and(|h| h as u64 != word(3) || (h >> 64) as u64 != word(4)) {
            return Err(bad("it was made from another source"));
        }
        let (n_ids, n_tokens, unk, flags) = (word(5) as u32, word(6) as u32, word(7) as u32, word(8));
        let mut sections = [(0usize, 0usize); N_SECTIONS];
        for (i, s) in sections.iter_mut().enumerate() {
            let (at, len) = (word(WORD_FIXED + 2 * i), word(WORD_FIXED + 2 * i + 1));
            if at % 8 != 0 || at.checked_add(len).is_none_or(|end| end > all.len() as u64) {
                return Err(bad("a section is outside the file"));
            }
            *s = (at as usize, len as usize);
        }
        let c = Compiled {
            sections,
            n_ids,
            n_tokens,
            max_text: word(9) as usize,
            unk: (unk != NONE).then_some(unk),
            fuse_unk: flags & 1 != 0,
            byte_fallback: flags & 2 != 0,
            ignore_merges: flags & 4 != 0,
            backing,
        };
        c.check_tables().map_err(bad)?;
        Ok(c)
    }

    fn check_tables(&self) -> std::result::Result<(), &'static str> {
        let ok_id = |id: u32| id == NONE || id < self.n_ids;
        for (at, blob) in [(Section::TextAt, Section::Texts), (Section::BytesAt, Section::Bytes)] {
            let (at, blob) = (self.words(at), self.section(blob));
            if at.len() != self.n_ids as usize + 1
                || at.windows(2).any(|w| w[0] > w[1])
                || at[self.n_ids as usize] as usize > blob.len()
            {
                return Err("token offsets");
            }
        }
        let texts = std::str::from_utf8(self.section(Section::Texts)).map_err(|_| "token texts")?;
        if self.words(Section::TextAt).iter().any(|&at| !texts.is_char_boundary(at as usize)) {
            return Err("token texts");
        }
        let slots = self.words(Section::IdSlots);
        if !slots.len().is_power_of_two() || slots.iter().any(|&s| s > self.n_ids) {
            return Err("id table");
        }
        if !slots.contains(&0) {
            return Err("id table is full");
        }
        let merges = self.merges();
        let in_range = |m: &[u32; 4]| m[0] == NONE || m[..2].iter().chain(&m[3..]).all(|&i| i < self.n_ids);
        if !merges.len().is_power_of_two() || !merges.iter().all(in_range) {
            return Err("merge table");
        }
        if merges.iter().all(|m| m[0] != NONE) {
            return Err("merge table is full");
        }
        let byte_ids = self.words(Section::ByteIds);
        if byte_ids.len() != 256 || !byte_ids.iter().all(|&i| ok_id(i)) {
            return Err("byte table");
        }
        if self.unk.is_some_and(|u| u >= self.n_ids) {
            return Err("unk id");
        }
        for s in [Section::Prefix, Section::Suffix, Section::Config] {
            std::str::from_utf8(self.section(s)).map_err(|_| "a text section")?;
        }
        Ok(())
    }

    fn section(&self, s: Section) -> &[u8] {
        let (at, len) = self.sections[s as usize];
        &self.backing.bytes()[at..at + len]
    }

    fn words(&self, s: Section) -> &[u32] {
        let bytes = self.section(s);
        // SAFETY: sections are 8-aligned in a mapping (page-aligned) or in a vector of u64; every u32 is valid.
        unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast::<u32>(), bytes.len() / 4) }
    }

    fn merges(&self) -> &[[u32; 4]] {
        let words = self.words(Section::Merges);
        // SAFETY: an array of four u32 has the alignment of u32; the length is rounded down.
        unsafe { std::slice::from_raw_parts(words.as_ptr().cast::<[u32; 4]>(), words.len() / 4) }
    }

    fn str_section(&self, s: Section) -> &str {
        // SAFETY: check_tables has checked that the section is UTF-8, and the backing does not change.
        unsafe { std::str::from_utf8_unchecked(self.section(s)) }
    }

    pub fn n_ids(&self) -> u32 {
        self.n_ids
    }

    pub fn n_tokens(&self) -> u32 {
        self.n_tokens
    }

    /// Returns the length of the longest token text in bytes.
    pub fn max_text(&self) -> usize {
        self.max_text
    }

    pub fn prefix(&self) -> &str {
        self.str_section(Section::Prefix)
    }

    pub fn suffix(&self) -> &str {
        self.str_section(Section::Suffix)
    }

    pub fn config(&self) -> &str {
        self.str_section(Section::Config)
    }

    /// Returns the text of an id; None when no token has the id.
    pub fn text(&self, id: u32) -> Option<&str> {
        if id >= self.n_ids {
            return None;
        }
        let at = self.words(Section::TextAt);
        let (from, to) = (at[id as usize] as usize, at[id as usize + 1] as usize);
        // SAFETY: check_tables has checked the UTF-8, and that every offset is a character boundary.
        (from < to).then(|| unsafe { std::str::from_utf8_unchecked(&self.section(Section::Texts)[from..to]) })
    }

    /// Returns the bytes that an id stands for, borrowed from the mapping.
    pub fn bytes(&self, id: u32) -> Option<&[u8]> {
        self.text(id)?;
        let at = self.words(Section::BytesAt);
        Some(&self.section(Section::Bytes)[at[id as usize] as usize..at[id as usize + 1] as usize])
    }

    pub fn id(&self, text: &str) -> Option<u32> {
        let slots = self.words(Section::IdSlots);
        let mask = slots.len() - 1;
        let mut i = xxh3_64(text.as_bytes()) as usize & mask;
        while slots[i] != 0 {
            if self.text(slots[i] - 1) == Some(text) {
                return Some(slots[i] - 1);
            }
            i = (i + 1) & mask;
        }
        None
    }

    /// Returns the rank of a pair's merge and the merged id; None when the pair does not merge.
    pub fn merge(&self, left: u32, right: u32) -> Option<(u32, u32)> {
        let merges = self.merges();
        let mask = merges.len() - 1;
        let mut i = merge_hash(left, right) & mask;
        while merges[i][0] != NONE {
            if merges[i][0] == left && merges[i][1] == right {
                return Some((merges[i][2], merges[i][3]));
            }
            i = (i + 1) & mask;
        }
        None
    }

    pub fn merges_any_of(&self, ids: &[u32]) -> bool {
        let range = ids.iter().min().zip(ids.iter().max());
        let is_one = |id: u32| range.is_some_and(|(&lo, &hi)| lo <= id && id <= hi) && ids.contains(&id);
        self.merges().iter().any(|m| m[0] != NONE && (is_one(m[0]) || is_one(m[1])))
    }

    pub fn byte_id(&self, byte: u8) -> Option<u32> {
        let id = self.words(Section::ByteIds)[byte as usize];
        (id != NONE).then_some(id)
    }
}

fn as_words(bytes: &[u8], out: &mut Vec<u64>) {
    for chunk in bytes.chunks(8) {
        let mut w = [0u8; 8];
        w[..chunk.len()].copy_from_slice(chunk);
        out.push(u64::from_le_bytes(w));
    }
}

fn push_u32s(values: &[u32], out: &mut Vec<u64>) {
    for pair in values.chunks(2) {
        out.push(u64::from(pair[0]) | u64::from(*pair.get(1).unwrap_or(&0)) << 32);
    }
}

/// Returns the compiled form in memory, ready to be written or used.
pub fn compile(mut source: Source, source_hash: u128) -> Result<Vec<u64>> {
    let n_ids = source.vocab.iter().map(|(_, id)| id + 1).max().unwrap_or(0);
    let n_tokens = source.vocab.len() as u32;
    let how = Pieces::of_config(&source.config)?;
    let mut out: Vec<u64> = vec![0; HEADER_WORDS];
    let mut at = [(0u64, 0u64); N_SECTIONS];
    let mut add = |s: Section, len: usize, out: &mut Vec<u64>, put: &mut dyn FnMut(&mut Vec<u64>)| {
        at[s as usize] = (out.len() as u64 * 8, len as u64);
        put(out);
    };

    let mut byte_ids = vec![NONE; 256];
    for (b, id) in byte_ids.iter_mut().enumerate() {
        *id = source.vocab.id(&format!("<0x{b:02X}>")).unwrap_or(NONE);
    }
    let max_text = source.vocab.iter().map(|(t, _)| t.len()).max().unwrap_or(0);
    let (mut text_at, mut texts) = (Vec::with_capacity(n_ids as usize + 1), Vec::new());
    let (mut bytes_at, mut bytes) = (Vec::with_capacity(n_ids as usize + 1), Vec::new());
    let mut slots = vec![0u32; (n_tokens as usize * 2).next_power_of_two().max(16)];
    {
        let mut by_id: Vec<&str> = vec![""; n_ids as usize];
        source.vocab.iter().for_each(|(text, id)| by_id[id as usize] = text);
        for (id, text) in by_id.iter().enumerate() {
            text_at.push(texts.len() as u32);
            bytes_at.push(bytes.len() as u32);
            texts.extend_from_slice(text.as_bytes());
            how.append_bytes(text, &mut bytes);
            if !text.is_empty() {
                let mask = slots.len() - 1;
                let mut i = xxh3_64(text.as_bytes()) as usize & mask;
                while slots[i] != 0 {
                    i = (i + 1) & mask;
                }
                slots[i] = id as u32 + 1;
            }
        }
        text_at.push(texts.len() as u32);
        bytes_at.push(bytes.len() as u32);
    }
    drop(std::mem::take(&mut source.vocab));
    add(Section::TextAt, text_at.len() * 4, &mut out, &mut |o| push_u32s(&text_at, o));
    add(Section::Texts, texts.len(), &mut out, &mut |o| as_words(&texts, o));
    add(Section::BytesAt, bytes_at.len() * 4, &mut out, &mut |o| push_u32s(&bytes_at, o));
    add(Section::Bytes, bytes.len(), &mut out, &mut |o| as_words(&bytes, o));
    add(Section::IdSlots, slots.len() * 4, &mut out, &mut |o| push_u32s(&slots, o));

    let n_slots = (source.merges.len() * 3 / 2 + 1).next_power_of_two().max(16);
    add(Section::Merges, n_slots * 16, &mut out, &mut |o| place_merges(&source.merges, n_slots, o));
    add(Section::ByteIds, 1024, &mut out, &mut |o| push_u32s(&byte_ids, o));
    for (s, text) in [
        (Section::Prefix, &source.prefix),
        (Section::Suffix, &source.suffix),
        (Section::Config, &source.config),
    ] {
        add(s, text.len(), &mut out, &mut |o| as_words(text.as_bytes(), o));
    }

    let f = source.flags;
    let flags = u64::from(f.fuse_unk) | u64::from(f.byte_fallback) << 1 | u64::from(f.ignore_merges) << 2;
    out[0] = MAGIC;
    out[1] = out.len() as u64 * 8;
    out[3] = source_hash as u64;
    out[4] = (source_hash >> 64) as u64;
    out[5] = u64::from(n_ids);
    out[6] = u64::from(n_tokens);
    out[7] = u64::from(source.unk.unwrap_or(NONE));
    out[8] = flags;
    out[9] = max_text as u64;
    for (i, (pos, len)) in at.iter().enumerate() {
        out[WORD_FIXED + 2 * i] = *pos;
        out[WORD_FIXED + 2 * i + 1] = *len;
    }
    out[2] = checksum(&out);
    Ok(out)
}

fn checksum(words: &[u64]) -> u64 {
    // SAFETY: every u64 is eight valid bytes; the length is that of the vector.
    let bytes = unsafe { std::slice::from_raw_parts(words.as_ptr().cast::<u8>(), words.len() * 8) };
    xxh3_64(&bytes[24..])
}

/// Places the merges in the hash table. A pair that occurs twice keeps its last rank, as in the tokenizers crate.
fn place_merges(merges: &[(u32, u32, u32)], n_slots: usize, out: &mut Vec<u64>) {
    let base = out.len();
    let (free, mask) = (u64::from(NONE) | u64::from(NONE) << 32, n_slots - 1);
    out.resize(base + n_slots * 2, free);
    for (rank, &(left, right, merged)) in merges.iter().enumerate() {
        let key = u64::from(left) | u64::from(right) << 32;
        let mut i = merge_hash(left, right) & mask;
        while out[base + 2 * i] != free && out[base + 2 * i] != key {
            i = (i + 1) & mask;
        }
        out[base + 2 * i] = key;
        out[base + 2 * i + 1] = rank as u64 | u64::from(merged) << 32;
    }
}

/// Writes to a temporary file and renames it, so that a reader sees the old file or the complete new file.
pub fn write_atomically(words: &[u64], path: &Path) -> Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(|e| io(folder.display(), e))?;
    let tmp = path.with_extension(format!("tmp{}-{:x}", std::process::id(), pieces::unique()));
    let written = (|| {
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).open(&tmp)?;
        // SAFETY: every u64 is eight valid bytes; the length is that of the vector.
        let bytes = unsafe { std::slice::from_raw_parts(words.as_ptr().cast::<u8>(), words.len() * 8) };
        file.write_all(bytes)?;
        std::fs::rename(&tmp, path)
    })();
    written.map_err(|e| {
        let _ = std::fs::remove_file(&tmp);
        io(path.display(), e)
    })
}

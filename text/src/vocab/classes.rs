//! Holds the character classes of the pre-tokenizers' patterns. The classes of each page of 256 characters are computed
//! once by the regular expression engine, so only its Unicode tables are used.

use std::sync::{LazyLock, OnceLock};
use tokenizers::utils::SysRegex;

pub const LETTER: u8 = 1;
pub const NUMBER: u8 = 2;
pub const SPACE: u8 = 4;
pub const MARK: u8 = 8;
/// UPPER: a word of o200k may begin with the character. LOWER: the word may continue with it.
pub const UPPER: u8 = 16;
pub const LOWER: u8 = 32;
/// SIGN: punctuation and symbols
pub const SIGN: u8 = 64;

pub type Page = [u8; 256];

const PATTERNS: [(&str, u8); 7] = [
    (r"\p{L}+", LETTER),
    (r"\p{N}+", NUMBER),
    (r"\s+", SPACE),
    (r"\p{M}+", MARK),
    (r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+", UPPER),
    (r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]+", LOWER),
    (r"[\p{P}\p{S}]+", SIGN),
];

static REGEXES: LazyLock<Vec<(SysRegex, u8)>> = LazyLock::new(|| {
    PATTERNS.iter().map(|&(p, bit)| (SysRegex::new(p).expect("a constant pattern"), bit)).collect()
});
static PAGES: [OnceLock<Box<Page>>; 0x1100] = [const { OnceLock::new() }; 0x1100];

fn make(i: usize) -> Box<Page> {
    let mut page = Box::new([0; 256]);
    let chars: Vec<char> = (0..256).filter_map(|k| char::from_u32((i << 8 | k) as u32)).collect();
    let text: String = chars.iter().collect();
    for (regex, bit) in REGEXES.iter() {
        for (start, end) in regex.find_iter(&text) {
            text[start..end].chars().for_each(|c| page[c as usize & 255] |= bit);
        }
    }
    page
}

/// Returns the page of the characters i << 8 to i << 8 | 255.
pub fn page(i: usize) -> &'static Page {
    PAGES[i].get_or_init(|| make(i))
}

pub fn class_of(c: char) -> u8 {
    page(c as usize >> 8)[c as usize & 255]
}

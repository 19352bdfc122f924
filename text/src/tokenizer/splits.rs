//! Implements the pre-tokenizer patterns of most models by hand. Each implementation cuts a text exactly where the
//! regular expression does, in a tenth of its time. A pattern with any other spelling is left to the regular expression
//! engine. `text_golden.py fast` compares both.

use super::pre_tokenizers as known;
use crate::vocab::classes::{class_of, page, Page, LETTER, LOWER, MARK, NUMBER, SIGN, SPACE, UPPER};
use serde_json::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// GPT-2's split: `use_regex` of the byte-level step
    Gpt2,
    /// contractions, words with one character before them, and numbers of at most `digits` digits
    Words { digits: usize, with_marks: bool },
    /// words are cut where the case changes, and contractions belong to them
    Cased { digits: usize, contractions: bool },
    /// DeepSeek-V3's split: three patterns, applied one after the other
    DeepseekV3,
}

/// Holds one text. A pattern never reads beyond the end of the text.
#[derive(Clone, Copy)]
struct Text<'t> {
    text: &'t str,
    ascii: &'static Page,
}

fn is_newline(b: u8) -> bool {
    b == b'\r' || b == b'\n'
}

impl<'t> Text<'t> {
    fn len(&self) -> usize {
        self.text.len()
    }

    fn byte(&self, at: usize) -> u8 {
        self.text.as_bytes().get(at).copied().unwrap_or(0)
    }

    fn char(&self, at: usize) -> char {
        self.text[at..].chars().next().unwrap_or('\0')
    }

    /// Returns the class and the number of bytes of the character at `at`; (0, 0) at the end.
    fn class(&self, at: usize) -> (u8, usize) {
        match self.text.as_bytes().get(at) {
            Some(&b) if b < 128 => (self.ascii[b as usize], 1),
            Some(_) => {
                let c = self.char(at);
                (class_of(c), c.len_utf8())
            }
            None => (0, 0),
        }
    }

    /// Returns the position behind all characters that have a bit of `want`.
    fn run(&self, mut at: usize, want: u8) -> usize {
        loop {
            let (class, n) = self.class(at);
            if class & want == 0 {
                return at;
            }
            at += n;
        }
    }

    fn run_of_none(&self, mut at: usize, unwanted: u8) -> usize {
        while at < self.len() {
            let (class, n) = self.class(at);
            if class & unwanted != 0 {
                break;
            }
            at += n;
        }
        at
    }

    fn at_most(&self, mut at: usize, want: u8, most: usize) -> usize {
        for _ in 0..most {
            let (class, n) = self.class(at);
            if class & want == 0 {
                break;
            }
            at += n;
        }
        at
    }

    fn newlines(&self, mut at: usize, slash: bool) -> usize {
        while is_newline(self.byte(at)) || (slash && self.byte(at) == b'/') {
            at += 1;
        }
        at
    }

    /// Returns the number of bytes of 's, 't, 're, 've, 'm, 'll or 'd at `at`; 0 = none. any_case also accepts the long
    /// s, which folds to an s.
    fn contraction(&self, at: usize, any_case: bool) -> usize {
        let rest = &self.text.as_bytes()[at.min(self.len())..];
        let letter = |i: usize| match rest.get(i) {
            Some(b) if any_case => b.to_ascii_lowercase(),
            Some(&b) => b,
            None => 0,
        };
        if letter(0) != b'\'' {
            return 0;
        }
        match (letter(1), letter(2)) {
            (b's' | b't' | b'm' | b'd', _) => 2,
            (b'r' | b'v', b'e') | (b'l', b'l') => 3,
            _ if any_case && rest[1..].starts_with("ſ".as_bytes()) => 3,
            _ => 0,
        }
    }

    /// Matches ` ?[…]+` for characters with none of these bits. Returns the end, or None.
    fn others(&self, at: usize, unwanted: u8) -> Option<usize> {
        let from = at + usize::from(self.byte(at) == b' ');
        let end = self.run_of_none(from, unwanted);
        (end > from).then_some(end)
    }

    /// Matches `\s+(?!\S)|\s+`; with `lines`, `\s*[\r\n]+` is tried first.
    fn spaces(&self, at: usize, lines: bool) -> usize {
        let (mut end, mut last, mut line_end) = (at, at, at);
        loop {
            let (class, n) = self.class(end);
            if class & SPACE == 0 {
                break;
            }
            last = end;
            end += n;
            if is_newline(self.byte(last)) {
                line_end = end;
            }
        }
        if lines && line_end > at {
            line_end
        } else if end == self.len() || last == at {
            end
        } else {
            last
        }
    }

    fn gpt2(&self, at: usize) -> usize {
        let short = self.contraction(at, false);
        if short > 0 {
            return at + short;
        }
        let from = at + usize::from(self.byte(at) == b' ');
        let (class, n) = self.class(from);
        if class & LETTER != 0 {
            self.run(from, LETTER)
        } else if class & NUMBER != 0 {
            self.run(from, NUMBER)
        } else if n > 0 && class & SPACE == 0 {
            self.run_of_none(from, SPACE | LETTER | NUMBER)
        } else {
            self.spaces(at, false)
        }
    }

    fn words(&self, at: usize, digits: usize, with_marks: bool) -> usize {
        let short = self.contraction(at, true);
        if short > 0 {
            return at + short;
        }
        let letters = if with_marks { LETTER | MARK } else { LETTER };
        let (class, n) = self.class(at);
        if class & letters != 0 {
            return self.run(at, letters);
        }
        if class & NUMBER != 0 {
            return self.at_most(at, NUMBER, digits);
        }
        if !is_newline(self.byte(at)) && self.class(at + n).0 & letters != 0 {
            return self.run(at + n, letters);
        }
        match self.others(at, SPACE | NUMBER | letters) {
            Some(end) => self.newlines(end, false),
            None => self.spaces(at, true),
        }
    }

    /// Matches `U*l+`: takes all upper-case characters. When no lower-case character follows, it steps back to the last
    /// character that counts as both.
    fn ends_lower(&self, at: usize) -> Option<usize> {
        let (mut upper, mut both) = (at, None);
        loop {
            let (class, n) = self.class(upper);
            if class & UPPER == 0 {
                return if class & LOWER != 0 { Some(self.run(upper, LOWER)) } else { both };
            }
            upper += n;
            if class & LOWER != 0 {
                both = Some(upper);
            }
        }
    }

    fn cased(&self, at: usize, digits: usize, contractions: bool) -> usize {
        let (class, n) = self.class(at);
        let before = !is_newline(self.byte(at)) && class & (LETTER | NUMBER) == 0;
        let behind = |at: usize| before.then_some(at + n);
        let upper = |from: usize| Some(self.run(from, UPPER)).filter(|&end| end > from);
        let word = behind(at)
            .and_then(|from| self.ends_lower(from))
            .or_else(|| self.ends_lower(at))
            .or_else(|| behind(at).and_then(upper))
            .or_else(|| upper(at));
        if let Some(end) = word {
            return end + if contractions { self.contraction(end, true) } else { 0 };
        }
        if class & NUMBER != 0 {
            return self.at_most(at, NUMBER, digits);
        }
        match self.others(at, SPACE | NUMBER | LETTER) {
            Some(end) => self.newlines(end, true),
            None => self.spaces(at, true),
        }
    }

    /// Matches the last of DeepSeek's patterns. Returns None when the pattern matches nothing.
    fn deepseek(&self, at: usize) -> Option<usize> {
        let is_letter = |at: usize| self.byte(at).is_ascii_alphabetic();
        if self.byte(at).is_ascii_punctuation() && is_letter(at + 1) {
            return Some((at + 1..).find(|&i| !is_letter(i)).unwrap_or(self.len()));
        }
        let (class, n) = self.class(at);
        if class & (LETTER | MARK) != 0 {
            return Some(self.run(at, LETTER | MARK));
        }
        let before = !is_newline(self.byte(at)) && class & SIGN == 0;
        if before && self.class(at + n).0 & (LETTER | MARK) != 0 {
            return Some(self.run(at + n, LETTER | MARK));
        }
        let from = at + usize::from(self.byte(at) == b' ');
        if self.class(from).0 & SIGN != 0 {
            return Some(self.newlines(self.run(from, SIGN), false));
        }
        (class & SPACE != 0).then(|| self.spaces(at, true))
    }
}

fn is_cjk(c: char) -> bool {
    matches!(c, '\u{4e00}'..='\u{9fa5}' | '\u{3040}'..='\u{309f}' | '\u{30a0}'..='\u{30ff}')
}

/// Returns the position behind the characters for which `is` gives the same answer as for the first character.
fn alike(text: &str, is: impl Fn(char) -> bool) -> usize {
    let mut chars = text.char_indices();
    let first = chars.next().is_some_and(|(_, c)| is(c));
    chars.find(|&(_, c)| is(c) != first).map_or(text.len(), |(at, _)| at)
}

fn deepseek_pieces<'t>(all: &'t str, ascii: &'static Page, give: &mut impl FnMut(&'t str) -> bool) -> bool {
    let is_number = |c: char| class_of(c) & NUMBER != 0;
    let mut rest = all;
    while !rest.is_empty() {
        let (part, after) = rest.split_at(alike(rest, is_number));
        rest = after;
        if part.starts_with(is_number) {
            let t = Text { text: part, ascii };
            let mut at = 0;
            while at < part.len() {
                let end = t.at_most(at, NUMBER, 3);
                if !give(&part[at..end]) {
                    return false;
                }
                at = end;
            }
            continue;
        }
        let mut left = part;
        while !left.is_empty() {
            let (piece, after) = left.split_at(alike(left, is_cjk));
            left = after;
            let whole = piece.starts_with(is_cjk);
            if !(if whole { give(piece) } else { deepseek_last(piece, ascii, give) }) {
                return false;
            }
        }
    }
    true
}

/// Applies DeepSeek's last pattern. The text between two matches is a piece as well.
fn deepseek_last<'t>(text: &'t str, ascii: &'static Page, give: &mut impl FnMut(&'t str) -> bool) -> bool {
    let t = Text { text, ascii };
    let (mut begin, mut at) = (0, 0);
    while at < text.len() {
        let Some(end) = t.deepseek(at) else {
            at += t.class(at).1;
            continue;
        };
        if (begin < at && !give(&text[begin..at])) || !give(&text[at..end]) {
            return false;
        }
        (begin, at) = (end, end);
    }
    begin == at || give(&text[begin..])
}

impl Split {
    /// Returns the split of a tokenizer.json's pre_tokenizer, when this file implements that split.
    pub fn of_config(pre: &Value) -> Option<Split> {
        let is_byte_level = |v: &Value, regex: bool| {
            v["type"] == "ByteLevel"
                && v["add_prefix_space"] == false
                && v["use_regex"].as_bool() == Some(regex)
        };
        if is_byte_level(pre, true) {
            return Some(Split::Gpt2);
        }
        let steps = pre["pretokenizers"].as_array().filter(|_| pre["type"] == "Sequence")?;
        let (last, splits) = steps.split_last()?;
        if splits.is_empty() {
            return is_byte_level(last, true).then_some(Split::Gpt2);
        }
        if !is_byte_level(last, false) {
            return None;
        }
        let patterns: Option<Vec<&str>> = splits.iter().map(pattern_of).collect();
        match patterns?.as_slice() {
            [one] => Self::of_pattern(one),
            [known::DIGITS_3, known::CJK_SPLIT, last] if is_deepseek_v3(last) => Some(Split::DeepseekV3),
            _ => None,
        }
    }

    fn of_pattern(pattern: &str) -> Option<Split> {
        match pattern {
            known::LLAMA3_SPLIT => Some(Split::Words { digits: 3, with_marks: false }),
            known::QWEN2_SPLIT => Some(Split::Words { digits: 1, with_marks: false }),
            known::QWEN35_SPLIT => Some(Split::Words { digits: 1, with_marks: true }),
            known::O200K_SPLIT => Some(Split::Cased { digits: 3, contractions: true }),
            known::TEKKEN_SPLIT => Some(Split::Cased { digits: 1, contractions: false }),
            _ => None,
        }
    }

    /// Passes the pieces of a text to `give` in order; no piece is empty. Stops and returns false when `give` returns
    /// false.
    pub fn pieces<'t>(self, text: &'t str, mut give: impl FnMut(&'t str) -> bool) -> bool {
        let t = Text { text, ascii: page(0) };
        if self == Split::DeepseekV3 {
            return deepseek_pieces(text, t.ascii, &mut give);
        }
        let mut at = 0;
        while at < text.len() {
            let end = match self {
                Split::Gpt2 => t.gpt2(at),
                Split::Words { digits, with_marks } => t.words(at, digits, with_marks),
                Split::Cased { digits, contractions } => t.cased(at, digits, contractions),
                Split::DeepseekV3 => unreachable!("above"),
            };
            if !give(&text[at..end]) {
                return false;
            }
            at = end;
        }
        true
    }
}

/// Returns the pattern of a step whose matches are the pieces. These patterns match the whole text, so the removal of
/// text without a match makes no difference. DeepSeek's patterns do not match the whole text, and they use Isolated.
fn pattern_of(step: &Value) -> Option<&str> {
    let isolated = step["behavior"] == "Isolated" && step["invert"] == false;
    let removed = step["behavior"] == "Removed" && step["invert"] == true;
    let pattern = step["pattern"]["Regex"].as_str().filter(|_| step["type"] == "Split")?;
    let of_one = Split::of_pattern(pattern).is_some();
    (isolated || (removed && of_one)).then_some(pattern)
}

/// Returns true for DeepSeek-V3's pattern. DeepSeek's own file has newlines in the pattern where other files have
/// escapes.
fn is_deepseek_v3(pattern: &str) -> bool {
    pattern.replace('\r', r"\r").replace('\n', r"\n") == known::DEEPSEEK_V3_SPLIT
}

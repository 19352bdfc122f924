//! Splits a template's text into tokens, as jinja2's lexer does with trim_blocks and lstrip_blocks.

use super::fail::{wrong, R};
use super::methods::is_space;

#[derive(Clone, PartialEq, Debug)]
pub enum Token {
    Data(String),
    VariableBegin,
    VariableEnd,
    BlockBegin,
    BlockEnd,
    Name(String),
    Str(String),
    Int(i128),
    Float(f64),
    Op(&'static str),
    End,
}

/// Operators of the template language. Longer operators are listed before their prefixes.
const OPERATORS: [&str; 26] = [
    "**", "//", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}", ">", "<",
    "=", ".", ":", "|", ",", ";",
];

pub struct Lexer<'a> {
    source: &'a str,
    at: usize,
    /// true when a line of the template begins at `at`
    line_starting: bool,
    line: u32,
    counted: usize,
    out: Vec<(Token, u32)>,
}

pub fn lex(source: &str) -> R<Vec<(Token, u32)>> {
    let mut source = source.replace("\r\n", "\n").replace('\r', "\n");
    if source.ends_with('\n') {
        source.pop();
    }
    let mut l = Lexer { source: &source, at: 0, line_starting: true, line: 1, counted: 0, out: Vec::new() };
    l.run()?;
    Ok(l.out)
}

impl Lexer<'_> {
    fn rest(&self) -> &str {
        &self.source[self.at..]
    }

    fn push(&mut self, token: Token) {
        self.line += self.source[self.counted..self.at].bytes().filter(|b| *b == b'\n').count() as u32;
        self.counted = self.at;
        self.out.push((token, self.line));
    }

    fn fail<T>(&mut self, what: &str) -> R<T> {
        self.push(Token::End);
        wrong(format!("line {}: {what}", self.line))
    }

    fn run(&mut self) -> R<()> {
        while self.at < self.source.len() {
            let Some((begin, kind)) = self.next_begin() else {
                let data = self.rest().to_owned();
                self.push(Token::Data(data));
                self.at = self.source.len();
                break;
            };
            let data = self.data_before(begin, kind != b'{');
            if !data.is_empty() {
                self.push(Token::Data(data));
            }
            self.at = begin + 2;
            match kind {
                b'#' => self.comment()?,
                b'%' => match self.raw_begin() {
                    Some(end) => self.raw(end)?,
                    None => self.tag(Token::BlockBegin)?,
                },
                _ => self.tag(Token::VariableBegin)?,
            }
        }
        self.push(Token::End);
        Ok(())
    }

    fn next_begin(&self) -> Option<(usize, u8)> {
        let bytes = self.source.as_bytes();
        let is_begin = |i: &usize| bytes[*i] == b'{' && matches!(bytes[i + 1], b'{' | b'%' | b'#');
        (self.at..bytes.len().saturating_sub(1)).find(is_begin).map(|i| (i, bytes[i + 1]))
    }

    /// Returns the text in front of a tag at `begin`, without the white space that the tag removes.
    fn data_before(&self, begin: usize, is_block: bool) -> String {
        let text = &self.source[self.at..begin];
        match self.source.as_bytes().get(begin + 2) {
            Some(b'-') => text.trim_end_matches(is_space).to_owned(),
            Some(b'+') => text.to_owned(),
            _ if is_block => {
                let from = text.rfind('\n').map_or(0, |i| i + 1);
                match (from > 0 || self.line_starting) && text[from..].chars().all(is_space) {
                    true => text[..from].to_owned(),
                    false => text.to_owned(),
                }
            }
            _ => text.to_owned(),
        }
    }

    fn skip_sign(&mut self) {
        if self.rest().starts_with(['-', '+']) {
            self.at += 1;
        }
    }

    /// Moves `at` behind the end of a tag. `close` begins at `end`, and `sign` is a `-` or `+` in front of it.
    fn close(&mut self, end: usize, sign: Option<u8>, close: &str, trims: bool) {
        self.at = end + close.len();
        let rest = &self.source[self.at..];
        self.at += match sign {
            Some(b'-') => rest.len() - rest.trim_start_matches(is_space).len(),
            Some(_) => 0,
            None => usize::from(trims && rest.starts_with('\n')),
        };
        self.line_starting = self.source[..self.at].ends_with('\n');
    }

    fn comment(&mut self) -> R<()> {
        self.skip_sign();
        let Some(n) = self.rest().find("#}") else { return self.fail("Missing end of comment tag") };
        let end = self.at + n;
        let sign = (n > 0).then(|| self.source.as_bytes()[end - 1]).filter(|b| matches!(b, b'-' | b'+'));
        self.close(end, sign, "#}", true);
        Ok(())
    }

    /// Returns the position where the text of `{% raw %}` begins, and whether white space is removed there.
    fn raw_begin(&self) -> Option<(usize, bool)> {
        let rest = self.rest();
        let word = rest.strip_prefix(['-', '+']).unwrap_or(rest).trim_start_matches(is_space);
        let behind = word.strip_prefix("raw")?.trim_start_matches(is_space);
        match behind.strip_prefix("-%}") {
            Some(text) => Some((self.source.len() - text.trim_start_matches(is_space).len(), true)),
            None => Some((self.source.len() - behind.strip_prefix("%}")?.len(), false)),
        }
    }

    fn raw(&mut self, (begin, _): (usize, bool)) -> R<()> {
        self.at = begin;
        self.line_starting = self.source[..begin].ends_with('\n');
        let mut from = begin;
        while let Some(n) = self.source[from..].find("{%") {
            let begin = from + n;
            let rest = &self.source[begin + 2..];
            let word = rest.strip_prefix(['-', '+']).unwrap_or(rest).trim_start_matches(is_space);
            if let Some(behind) = word.strip_prefix("endraw").map(|b| b.trim_start_matches(is_space)) {
                let sign = behind.bytes().next().filter(|b| matches!(b, b'-' | b'+'));
                let end = &behind[usize::from(sign.is_some())..];
                if end.starts_with("%}") {
                    let data = self.data_before(begin, true);
                    self.push(Token::Data(data));
                    self.close(self.source.len() - end.len(), sign, "%}", true);
                    return Ok(());
                }
            }
            from = begin + 2;
        }
        self.fail("Missing end of raw directive")
    }

    /// Returns the sign and the position of the tag's end when the end is at the current position.
    fn end_here(&self, close: &str, plus: bool) -> Option<(usize, Option<u8>)> {
        let rest = self.rest();
        if rest.starts_with(close) {
            return Some((self.at, None));
        }
        let sign = rest.bytes().next().filter(|b| *b == b'-' || plus && *b == b'+')?;
        rest[1..].starts_with(close).then_some((self.at + 1, Some(sign)))
    }

    fn tag(&mut self, begin: Token) -> R<()> {
        let is_block = begin == Token::BlockBegin;
        let (close, end_token) = if is_block { ("%}", Token::BlockEnd) } else { ("}}", Token::VariableEnd) };
        self.push(begin);
        self.skip_sign();
        let mut open = Vec::new();
        while self.at < self.source.len() {
            if open.is_empty() {
                if let Some((end, sign)) = self.end_here(close, is_block) {
                    self.at = end + close.len();
                    self.push(end_token);
                    self.close(end, sign, close, is_block);
                    return Ok(());
                }
            }
            self.token(&mut open)?;
        }
        self.fail("the template ends within a tag")
    }

    fn token(&mut self, open: &mut Vec<&'static str>) -> R<()> {
        let Some(c) = self.rest().chars().next() else { return Ok(()) };
        if is_space(c) {
            self.at += c.len_utf8();
            return Ok(());
        }
        if c.is_ascii_digit() {
            return self.number();
        }
        if c == '_' || c.is_alphanumeric() {
            let n = self.rest().find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(self.rest().len());
            let name = self.rest()[..n].to_owned();
            self.at += n;
            self.push(Token::Name(name));
            return Ok(());
        }
        if c == '"' || c == '\'' {
            return self.text(c);
        }
        let Some(op) = OPERATORS.iter().find(|op| self.rest().starts_with(**op)) else {
            return self.fail(&format!("unexpected char '{c}'"));
        };
        match *op {
            "(" => open.push(")"),
            "[" => open.push("]"),
            "{" => open.push("}"),
            ")" | "]" | "}" if open.pop() != Some(op) => return self.fail(&format!("unexpected '{op}'")),
            _ => {}
        }
        self.at += op.len();
        self.push(Token::Op(op));
        Ok(())
    }

    /// Returns the number of bytes of digits in this base at `at`; single underscores may separate the digits.
    fn digits(&self, at: usize, base: u32) -> usize {
        let bytes = &self.source.as_bytes()[at..];
        let is_digit = |i: usize| bytes.get(i).is_some_and(|b| (*b as char).is_digit(base));
        let mut n = 0;
        while is_digit(n) || n > 0 && bytes.get(n) == Some(&b'_') && is_digit(n + 1) {
            n += 1;
        }
        n
    }

    fn number(&mut self) -> R<()> {
        let (from, lower) = (self.at, self.rest().as_bytes().get(1).map(u8::to_ascii_lowercase));
        let base = match (self.rest().as_bytes()[0], lower) {
            (b'0', Some(b'x')) => 16,
            (b'0', Some(b'o')) => 8,
            (b'0', Some(b'b')) => 2,
            _ => 10,
        };
        let first = from + 2 + usize::from(self.source.as_bytes().get(from + 2) == Some(&b'_'));
        if base != 10 && self.digits(first, base) > 0 {
            self.at = first + self.digits(first, base);
            let text = self.source[from + 2..self.at].replace('_', "");
            return self.integer(&text, base);
        }
        let whole = self.digits(from, 10);
        let mut end = from + whole;
        if !self.source[..from].ends_with('.') {
            if self.source[end..].starts_with('.') && self.digits(end + 1, 10) > 0 {
                end += 1 + self.digits(end + 1, 10);
            }
            if self.source[end..].starts_with(['e', 'E']) {
                let sign = usize::from(self.source[end + 1..].starts_with(['+', '-']));
                let n = self.digits(end + 1 + sign, 10);
                end += if n > 0 { 1 + sign + n } else { 0 };
            }
        }
        self.at = end;
        if end > from + whole {
            let text = self.source[from..end].replace('_', "");
            self.push(Token::Float(text.parse().unwrap_or(f64::INFINITY)));
            return Ok(());
        }
        let text = self.source[from..end].replace('_', "");
        if text.len() > 1 && text.starts_with('0') && text.bytes().any(|b| b != b'0') {
            return self.fail("an integer begins with 0");
        }
        self.integer(&text, 10)
    }

    fn integer(&mut self, digits: &str, base: u32) -> R<()> {
        match i128::from_str_radix(digits, base) {
            Ok(n) => {
                self.push(Token::Int(n));
                Ok(())
            }
            Err(_) => self.fail("integers of more than 128 bits are not supported"),
        }
    }

    fn text(&mut self, quote: char) -> R<()> {
        let inside = &self.rest()[1..];
        let (mut end, mut escaped) = (None, false);
        for (i, c) in inside.char_indices() {
            if !escaped && c == quote {
                end = Some(i);
                break;
            }
            escaped = !escaped && c == '\\';
        }
        let Some(end) = end else { return self.fail("a text has no end") };
        let text = match unescape(&inside[..end]) {
            Ok(text) => text,
            Err(why) => return self.fail(&why),
        };
        self.at += end + 2;
        self.push(Token::Str(text));
        Ok(())
    }
}

/// Decodes a text as Python's "unicode-escape" does. Characters beyond ASCII stand for themselves.
pub fn unescape(text: &str) -> Result<String, String> {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let Some(c) = rest.chars().next() else { return Err("a \\ at the end of a text".to_owned()) };
        rest = &rest[c.len_utf8()..];
        let hex = |n: usize| -> Result<char, String> {
            let code = rest.get(..n).filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
            let code = code.and_then(|d| u32::from_str_radix(d, 16).ok());
            code.and_then(char::from_u32).ok_or_else(|| format!("\\{c} wants {n} digits of a character"))
        };
        match c {
            '\n' => {}
            '\\' | '\'' | '"' => out.push(c),
            'a' => out.push('\u{7}'),
            'b' => out.push('\u{8}'),
            'f' => out.push('\u{c}'),
            'n' => out.push('\n'),
            'r' => out.push('\r'),
            't' => out.push('\t'),
            'v' => out.push('\u{b}'),
            'x' | 'u' | 'U' => {
                let n = [2, 4, 8]["xuU".find(c).unwrap_or(0)];
                out.push(hex(n)?);
                rest = &rest[n..];
            }
            'N' => return Err("\\N{…} is not supported: write the character".to_owned()),
            '0'..='7' => {
                let n = rest.bytes().take(2).take_while(|b| (b'0'..=b'7').contains(b)).count();
                let digits = format!("{c}{}", &rest[..n]);
                out.extend(u32::from_str_radix(&digits, 8).ok().and_then(char::from_u32));
                rest = &rest[n..];
            }
            c if c.is_ascii() => out.extend(['\\', c]),
            // jinja2 first writes a character beyond ASCII as an escape. The backslash before the character then takes
            // the backslash of that escape.
            c => match c as u32 {
                code @ ..=0xFF => out.push_str(&format!("\\x{code:02x}")),
                code @ ..=0xFFFF => out.push_str(&format!("\\u{code:04x}")),
                code => out.push_str(&format!("\\U{code:08x}")),
            },
        }
    }
    out.push_str(rest);
    Ok(out)
}

//! Converts JSON to values and back, for the context of a rendering and for `tojson` as in transformers.

use super::budget;
use super::fail::{wrong, Fail, R};
use super::format::{float, push_big, str_of};
use super::number::as_int;
use super::value::{Args, Dict, Value};
use std::fmt::Write;
use std::rc::Rc;

/// Deepest nesting of brackets in a context, and in the output of tojson.
const MAX_DEPTH: usize = 128;

pub fn read(text: &str) -> R<Value> {
    let mut r = Reader { text, at: 0 };
    let v = r.value(0)?;
    r.space();
    if r.at < text.len() {
        r.fail("there is more text after the end")
    } else {
        Ok(v)
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn fail<T>(&self, what: &str) -> R<T> {
        wrong(format!("not JSON, byte {}: {what}", self.at))
    }

    fn byte(&self) -> u8 {
        self.text.as_bytes().get(self.at).copied().unwrap_or(0)
    }

    fn space(&mut self) {
        while matches!(self.byte(), b' ' | b'\t' | b'\n' | b'\r') {
            self.at += 1;
        }
    }

    fn skip(&mut self, b: u8) -> bool {
        self.space();
        let found = self.byte() == b && self.at < self.text.len();
        self.at += usize::from(found);
        found
    }

    fn word(&mut self, word: &str, v: Value) -> R<Value> {
        if !self.text[self.at..].starts_with(word) {
            return self.fail("a value was expected");
        }
        self.at += word.len();
        Ok(v)
    }

    fn value(&mut self, depth: usize) -> R<Value> {
        if depth > MAX_DEPTH {
            return self.fail("nested too deep");
        }
        self.space();
        match self.byte() {
            b'{' => {
                self.at += 1;
                let mut pairs = Vec::new();
                while !self.skip(b'}') {
                    if !pairs.is_empty() && !self.skip(b',') {
                        return self.fail("a comma was expected");
                    }
                    self.space();
                    let key = Value::from(self.string()?);
                    if !self.skip(b':') {
                        return self.fail("a colon was expected");
                    }
                    pairs.push((key, self.value(depth + 1)?));
                }
                Dict::new(pairs)
            }
            b'[' => {
                self.at += 1;
                let mut items = Vec::new();
                while !self.skip(b']') {
                    if !items.is_empty() && !self.skip(b',') {
                        return self.fail("a comma was expected");
                    }
                    items.push(self.value(depth + 1)?);
                }
                Value::list(items)
            }
            b'"' => self.string().map(Value::from),
            b't' => self.word("true", Value::Bool(true)),
            b'f' => self.word("false", Value::Bool(false)),
            b'n' => self.word("null", Value::None),
            b'-' | b'0'..=b'9' => self.number(),
            _ => self.fail("a value was expected"),
        }
    }

    fn digits(&mut self) -> usize {
        let from = self.at;
        while self.byte().is_ascii_digit() {
            self.at += 1;
        }
        self.at - from
    }

    /// Reads a number. Integers keep all their digits.
    fn number(&mut self) -> R<Value> {
        let from = self.at;
        self.at += usize::from(self.byte() == b'-');
        let zero = self.byte() == b'0';
        match self.digits() {
            0 => return self.fail("a digit was expected"),
            2.. if zero => return self.fail("a number begins with 0"),
            _ => {}
        }
        let mut is_float = false;
        if self.byte() == b'.' {
            self.at += 1;
            is_float = true;
            if self.digits() == 0 {
                return self.fail("a digit was expected");
            }
        }
        if matches!(self.byte(), b'e' | b'E') {
            self.at += 1;
            self.at += usize::from(matches!(self.byte(), b'+' | b'-'));
            is_float = true;
            if self.digits() == 0 {
                return self.fail("a digit was expected");
            }
        }
        let text = &self.text[from..self.at];
        Ok(match (is_float, text.parse::<i128>()) {
            (true, _) => Value::Float(text.parse().unwrap_or(f64::NAN)),
            (false, Ok(i)) => Value::Int(i),
            (false, Err(_)) => Value::Big(Rc::from(text)),
        })
    }

    fn hex(&mut self) -> R<u32> {
        let digits = self.text.get(self.at..self.at + 4).filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
        let Some(digits) = digits else { return self.fail("four digits were expected") };
        self.at += 4;
        Ok(u32::from_str_radix(digits, 16).unwrap_or(0))
    }

    fn string(&mut self) -> R<String> {
        if self.byte() != b'"' {
            return self.fail("a string was expected");
        }
        self.at += 1;
        let mut out = String::new();
        loop {
            let rest = &self.text[self.at..];
            let Some(n) = rest.find(|c: char| c == '"' || c == '\\' || (c as u32) < 0x20) else {
                return self.fail("a string has no end");
            };
            out.push_str(&rest[..n]);
            self.at += n + 1;
            match rest.as_bytes()[n] {
                b'"' => return Ok(out),
                b'\\' => {}
                _ => return self.fail("a control character in a string"),
            }
            let c = self.byte();
            self.at += 1;
            out.push(match c {
                b'"' | b'\\' | b'/' => c as char,
                b'b' => '\u{8}',
                b'f' => '\u{c}',
                b'n' => '\n',
                b'r' => '\r',
                b't' => '\t',
                b'u' => {
                    let mut code = self.hex()?;
                    if (0xD800..0xDC00).contains(&code) && self.text[self.at..].starts_with("\\u") {
                        self.at += 2;
                        let low = self.hex()?;
                        code = match low {
                            0xDC00..0xE000 => 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00),
                            _ => 0xD800,
                        };
                    }
                    match char::from_u32(code) {
                        Some(c) => c,
                        None => return self.fail("half of a surrogate pair"),
                    }
                }
                _ => {
                    self.at = self.at.min(self.text.len()) - 1;
                    return self.fail("no such escape");
                }
            });
        }
    }
}

/// Implements tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False).
pub fn tojson(v: &Value, args: Args) -> R<Value> {
    let names = ["ensure_ascii", "indent", "separators", "sort_keys"];
    let [ensure_ascii, indent, separators, sort_keys] = args.bind("tojson", names, 0)?;
    let set = |v: Option<Value>| v.filter(|v| !v.is_none());
    let indent = match set(indent) {
        None => None,
        Some(v) => Some(match (as_int(&v), v.as_str()) {
            (Some(n), _) => " ".repeat(n.clamp(0, 1000) as usize),
            (None, Some(text)) => text.to_owned(),
            _ => return wrong("tojson: indent must be a number or a text"),
        }),
    };
    let default_item = if indent.is_some() { "," } else { ", " };
    let (mut item, mut key) = (default_item.to_owned(), ": ".to_owned());
    if let Some(s) = set(separators) {
        match s.iterate()?.as_slice() {
            [i, k] if i.as_str().is_some() && k.as_str().is_some() => (item, key) = (str_of(i)?, str_of(k)?),
            _ => return wrong("tojson: separators must be two texts"),
        }
    }
    let is = |v: Option<Value>| v.is_some_and(|v| v.truth());
    let (sort_keys, ensure_ascii) = (is(sort_keys), is(ensure_ascii));
    let mut dump = Dump { out: String::new(), indent, item, key, sort_keys, ensure_ascii };
    dump.value(v, 0)?;
    Ok(Value::from(dump.out))
}

struct Dump {
    out: String,
    indent: Option<String>,
    item: String,
    key: String,
    sort_keys: bool,
    ensure_ascii: bool,
}

impl Dump {
    fn value(&mut self, v: &Value, depth: usize) -> R<()> {
        if depth > 2 * MAX_DEPTH {
            return Err(Fail::Limit("tojson: nested too deep".to_owned()));
        }
        budget::spend(1)?;
        budget::fits(self.out.len())?;
        match v {
            Value::None => self.out.push_str("null"),
            Value::Bool(b) => self.out.push_str(if *b { "true" } else { "false" }),
            Value::Int(i) => drop(write!(self.out, "{i}")),
            Value::Big(digits) => push_big(digits, &mut self.out)?,
            Value::Float(f) => {
                budget::spend(10)?;
                json_float(*f, &mut self.out);
            }
            Value::Str(t) => self.text(&t.0.s)?,
            Value::List(items) | Value::Tuple(items) => {
                self.out.push('[');
                for (i, item) in items.v.iter().enumerate() {
                    self.before(i, depth + 1)?;
                    self.value(item, depth + 1)?;
                }
                self.after(items.v.len(), depth)?;
                self.out.push(']');
            }
            Value::Dict(d) => self.dict(d, depth)?,
            _ => return wrong(format!("Object of type {} is not JSON serializable", v.type_name())),
        }
        Ok(())
    }

    fn dict(&mut self, d: &Dict, depth: usize) -> R<()> {
        let mut entries: Vec<(&Value, &Value)> = d.entries.iter().map(|(k, v)| (k, v)).collect();
        if self.sort_keys {
            let numbers = entries.iter().filter(|(k, _)| k.as_str().is_none()).count();
            if numbers > 0 {
                return wrong("tojson: sort_keys is supported for keys of text alone");
            }
            let bytes: usize = entries.iter().filter_map(|(k, _)| k.as_str()).map(str::len).sum();
            let rounds = entries.len().max(2).ilog2() as usize;
            budget::spend((entries.len() + bytes / 128) * rounds)?;
            entries.sort_by(|a, b| a.0.as_str().cmp(&b.0.as_str()));
        }
        self.out.push('{');
        for (i, (key, v)) in entries.iter().enumerate() {
            let name = match key {
                Value::Bool(b) => String::from(if *b { "true" } else { "false" }),
                Value::None => String::from("null"),
                Value::Float(f) => {
                    budget::spend(10)?;
                    let mut name = String::new();
                    json_float(*f, &mut name);
                    name
                }
                Value::Str(_) | Value::Int(_) | Value::Big(_) => str_of(key)?,
                _ => {
                    let kind = key.type_name();
                    return wrong(format!("keys must be str, int, float, bool or None, not {kind}"));
                }
            };
            self.before(i, depth + 1)?;
            self.text(&name)?;
            budget::fits(self.out.len() + self.key.len())?;
            budget::spend(self.key.len() / 64)?;
            self.out.push_str(&self.key);
            self.value(v, depth + 1)?;
        }
        self.after(entries.len(), depth)?;
        self.out.push('}');
        Ok(())
    }

    fn before(&mut self, n: usize, depth: usize) -> R<()> {
        if n > 0 {
            budget::fits(self.out.len() + self.item.len())?;
            budget::spend(self.item.len() / 64)?;
            self.out.push_str(&self.item);
        }
        self.new_line(depth)
    }

    fn after(&mut self, n: usize, depth: usize) -> R<()> {
        if n > 0 {
            self.new_line(depth)
        } else {
            Ok(())
        }
    }

    fn new_line(&mut self, depth: usize) -> R<()> {
        if let Some(indent) = &self.indent {
            budget::fits(self.out.len() + depth * indent.len())?;
            budget::spend(depth * indent.len() / 64)?;
            self.out.push('\n');
            (0..depth).for_each(|_| self.out.push_str(indent));
        }
        Ok(())
    }

    fn text(&mut self, text: &str) -> R<()> {
        budget::spend(text.len() / 8)?;
        budget::fits(self.out.len() + text.len())?;
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                c if (c as u32) < 0x20 || self.ensure_ascii && !(' '..='~').contains(&c) => self.escape(c)?,
                c => self.out.push(c),
            }
        }
        self.out.push('"');
        Ok(())
    }

    /// Writes an escape: six bytes for each UTF-16 unit. The character itself had one to four bytes.
    fn escape(&mut self, c: char) -> R<()> {
        budget::spend(1)?;
        budget::fits(self.out.len() + 12)?;
        for unit in c.encode_utf16(&mut [0; 2]) {
            self.out.push_str("\\u");
            for shift in [12, 8, 4, 0] {
                self.out.push(char::from(b"0123456789abcdef"[usize::from(*unit >> shift & 15)]));
            }
        }
        Ok(())
    }
}

/// Writes a float as json.dumps does, for keys and values.
fn json_float(f: f64, out: &mut String) {
    match f {
        f if f.is_nan() => out.push_str("NaN"),
        f if f.is_infinite() => out.push_str(if f > 0.0 { "Infinity" } else { "-Infinity" }),
        f => float(f, out),
    }
}

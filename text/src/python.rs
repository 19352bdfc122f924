//! Python's ways of writing values, which templates rely on: str and repr of what `{{ }}` prints,
//! json.dumps for `tojson`, and strftime.

use crate::python_str::{self, is_space};
use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, Output, State, Value};
use std::fmt::Write;

const MAX_DEPTH: usize = 128;

pub fn format(out: &mut Output, _state: &State, value: &Value) -> Result<(), Error> {
    match value.as_str() {
        Some(text) => out.write_str(text)?,
        None => out.write_str(&str_of(value))?,
    }
    Ok(())
}

/// Methods of str as Python has them (python_str.rs); of others, and str.format, as minijinja-contrib
/// has them.
pub fn method(state: &State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    if let Some(answer) = value.as_str().and_then(|text| python_str::method(state, text, name, args)) {
        return answer;
    }
    minijinja_contrib::pycompat::unknown_method_callback(state, value, name, args)
}

pub fn repr_of(value: &Value) -> String {
    let mut out = String::new();
    repr(value, &mut out, 0);
    out
}

/// jinja2's trim: of str(value), whatever it is.
pub fn trim(value: &Value, chars: Option<&str>) -> String {
    let text = str_of(value);
    match chars {
        Some(chars) => text.trim_matches(|c| chars.contains(c)).to_owned(),
        None => text.trim_matches(is_space).to_owned(),
    }
}

/// What a `for` walks: as it is, but none is no empty list.
pub fn iterable_or_error(value: Value) -> Result<Value, Error> {
    match value.is_none() {
        true => Err(Error::new(ErrorKind::InvalidOperation, "'NoneType' object is not iterable")),
        false => Ok(value),
    }
}

pub fn is_iterable(value: &Value) -> bool {
    !value.is_none() && value.try_iter().is_ok()
}

/// jinja2 asks for len() and indexing, which texts, mappings and undefined have too.
pub fn is_sequence(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::String | ValueKind::Map | ValueKind::Undefined)
        || value.kind() == ValueKind::Iterable && value.len().is_some()
}

/// str(value)
pub fn str_of(value: &Value) -> String {
    match value.kind() {
        ValueKind::String => value.as_str().unwrap_or_default().to_owned(),
        ValueKind::Undefined => String::new(),
        _ => {
            let mut out = String::new();
            repr(value, &mut out, 0);
            out
        }
    }
}

fn repr(value: &Value, out: &mut String, depth: usize) {
    if depth > MAX_DEPTH {
        out.push_str("...");
        return;
    }
    match value.kind() {
        ValueKind::Undefined => out.push_str("Undefined"),
        ValueKind::None => out.push_str("None"),
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number => number(value, out),
        ValueKind::String => repr_str(value.as_str().unwrap_or_default(), out),
        ValueKind::Seq | ValueKind::Iterable => {
            out.push('[');
            for (i, item) in value.try_iter().into_iter().flatten().enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                repr(&item, out, depth + 1);
            }
            out.push(']');
        }
        ValueKind::Map => {
            out.push('{');
            for (i, key) in value.try_iter().into_iter().flatten().enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                repr(&key, out, depth + 1);
                out.push_str(": ");
                repr(&value.get_item(&key).unwrap_or_default(), out, depth + 1);
            }
            out.push('}');
        }
        _ => {
            let _ = write!(out, "{value}");
        }
    }
}

fn repr_str(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            c if (c as u32) < 0x20 || (0x7F..0xA1).contains(&(c as u32)) || c == '\u{AD}' => {
                let _ = write!(out, "\\x{:02x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push(quote);
}

fn number(value: &Value, out: &mut String) {
    if value.is_integer() {
        let _ = write!(out, "{value}");
        return;
    }
    match f64::try_from(value.clone()) {
        Ok(f) => float(f, out),
        Err(_) => {
            let _ = write!(out, "{value}");
        }
    }
}

/// repr(float): the shortest digits, an exponent below 1e-4 and from 1e16 on.
fn float(f: f64, out: &mut String) {
    if f.is_nan() {
        return out.push_str("nan");
    }
    if f.is_infinite() {
        return out.push_str(if f > 0.0 { "inf" } else { "-inf" });
    }
    let scientific = format!("{f:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let plain = format!("{f}");
        out.push_str(&plain);
        if !plain.contains('.') {
            out.push_str(".0");
        }
        return;
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    let _ = write!(out, "{digits}e{sign}{:02}", exponent.abs());
}

/// json.dumps(value, ensure_ascii=False, indent=…, separators=…, sort_keys=…) as transformers gives it.
pub fn tojson(value: &Value, options: Kwargs) -> Result<Value, Error> {
    let ensure_ascii: Option<bool> = options.get("ensure_ascii")?;
    let indent: Option<Value> = options.get("indent")?;
    let separators: Option<Value> = options.get("separators")?;
    let sort_keys: Option<bool> = options.get("sort_keys")?;
    options.assert_all_used()?;
    let indent = match indent.filter(|v| !v.is_none() && !v.is_undefined()) {
        None => None,
        Some(v) => match v.as_str() {
            Some(text) => Some(text.to_owned()),
            None => Some(" ".repeat(i64::try_from(v)?.clamp(0, 64) as usize)),
        },
    };
    let default_item = if indent.is_some() { "," } else { ", " };
    let (mut item, mut key) = (default_item.to_owned(), ": ".to_owned());
    if let Some(s) = separators.filter(|v| !v.is_none() && !v.is_undefined()) {
        item = str_of(&s.get_item(&Value::from(0))?);
        key = str_of(&s.get_item(&Value::from(1))?);
    }
    let mut dump = Dump {
        out: String::new(),
        indent,
        item,
        key,
        sort_keys: sort_keys.unwrap_or(false),
        ensure_ascii: ensure_ascii.unwrap_or(false),
    };
    dump.value(value, 0)?;
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
    fn value(&mut self, v: &Value, depth: usize) -> Result<(), Error> {
        let bad = |what: String| Err(Error::new(ErrorKind::BadSerialization, what));
        if depth > MAX_DEPTH {
            return bad("tojson: too deep".to_owned());
        }
        match v.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if v.is_true() { "true" } else { "false" }),
            ValueKind::Number => {
                let mut text = String::new();
                number(v, &mut text);
                self.out.push_str(match text.as_str() {
                    "nan" => "NaN",
                    "inf" => "Infinity",
                    "-inf" => "-Infinity",
                    other => other,
                });
            }
            ValueKind::String => self.text(v.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => self.seq(v, depth)?,
            ValueKind::Map => self.map(v, depth)?,
            kind => return bad(format!("Object of type {kind} is not JSON serializable")),
        }
        Ok(())
    }

    fn seq(&mut self, v: &Value, depth: usize) -> Result<(), Error> {
        let mut n = 0;
        self.out.push('[');
        for item in v.try_iter()? {
            self.before(n, depth + 1);
            self.value(&item, depth + 1)?;
            n += 1;
        }
        self.after(n, depth);
        self.out.push(']');
        Ok(())
    }

    fn map(&mut self, v: &Value, depth: usize) -> Result<(), Error> {
        let mut entries = Vec::new();
        for key in v.try_iter()? {
            let name = match key.kind() {
                ValueKind::Bool => String::from(if key.is_true() { "true" } else { "false" }),
                ValueKind::None => String::from("null"),
                _ => str_of(&key),
            };
            entries.push((name, v.get_item(&key)?));
        }
        if self.sort_keys {
            entries.sort_by(|a, b| a.0.cmp(&b.0));
        }
        self.out.push('{');
        for (n, (name, item)) in entries.iter().enumerate() {
            self.before(n, depth + 1);
            self.text(name);
            let key = std::mem::take(&mut self.key);
            self.out.push_str(&key);
            self.key = key;
            self.value(item, depth + 1)?;
        }
        self.after(entries.len(), depth);
        self.out.push('}');
        Ok(())
    }

    fn before(&mut self, n: usize, depth: usize) {
        if n > 0 {
            self.out.push_str(&self.item);
        }
        self.new_line(depth);
    }

    fn after(&mut self, n: usize, depth: usize) {
        if n > 0 {
            self.new_line(depth);
        }
    }

    fn new_line(&mut self, depth: usize) {
        if let Some(indent) = &self.indent {
            self.out.push('\n');
            (0..depth).for_each(|_| self.out.push_str(indent));
        }
    }

    fn text(&mut self, text: &str) {
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
                c if (c as u32) < 0x20 || self.ensure_ascii && !(' '..='~').contains(&c) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        let _ = write!(self.out, "\\u{unit:04x}");
                    }
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }
}

/// strftime of a time in the server's zone (TZ), as datetime.now() has it, in the C locale.
pub fn strftime(format: &str, unix: i64) -> Option<String> {
    let format = std::ffi::CString::new(format).ok()?;
    let mut out = vec![0u8; 512];
    // SAFETY: localtime_r fills tm or returns null; strftime writes at most out.len() bytes.
    let n = unsafe {
        let mut tm: libc::tm = std::mem::zeroed();
        if libc::localtime_r(&unix, &mut tm).is_null() {
            return None;
        }
        libc::strftime(out.as_mut_ptr().cast(), out.len(), format.as_ptr(), &tm)
    };
    if n == 0 && !format.is_empty() {
        return None;
    }
    out.truncate(n);
    String::from_utf8(out).ok()
}

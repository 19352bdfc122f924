//! Implements Python's str and repr of values, and HTML escapes.

use crate::jinja::budget;
use crate::jinja::fail::{wrong, Fail, R};
use crate::jinja::value::{Kind, Namespace, Value};
use std::fmt::Write;
use std::rc::Rc;

/// Implements Python's str(value).
pub fn str_of(v: &Value) -> R<String> {
    match v {
        Value::Str(t) => {
            budget::room(t.0.s.len())?;
            Ok(t.0.s.clone())
        }
        Value::Undefined(_) => Ok(String::new()),
        _ => repr_of(v),
    }
}

pub fn repr_of(v: &Value) -> R<String> {
    let mut out = String::new();
    repr(v, &mut out, &mut Vec::new())?;
    Ok(out)
}

/// Deepest nesting of values that repr writes.
const MAX_REPR: usize = 700;

/// Writes the contents of one value. A namespace may contain itself, directly or in a list. A value that is already being
/// written appears as `short`, as in Python.
fn repr_within(
    it: *const (),
    short: &str,
    out: &mut String,
    open: &mut Vec<*const ()>,
    write: impl FnOnce(&mut String, &mut Vec<*const ()>) -> R<()>,
) -> R<()> {
    budget::spend(open.len() / 64)?;
    if open.contains(&it) {
        out.push_str(short);
        return Ok(());
    }
    if open.len() >= MAX_REPR {
        return Err(Fail::Limit(format!(
            "a value that is nested deeper than {MAX_REPR} levels cannot be written as text"
        )));
    }
    open.push(it);
    write(out, open)?;
    open.pop();
    Ok(())
}

fn repr_items(items: &[Value], out: &mut String, open: &mut Vec<*const ()>) -> R<()> {
    for (i, item) in items.iter().enumerate() {
        out.push_str(if i > 0 { ", " } else { "" });
        repr(item, out, open)?;
    }
    Ok(())
}

fn repr_namespace(n: &Rc<Namespace>, out: &mut String, open: &mut Vec<*const ()>) -> R<()> {
    out.push_str("<Namespace ");
    repr_within(Rc::as_ptr(n).cast(), "{...}", out, open, |out, open| {
        out.push('{');
        for (i, (k, v)) in n.attrs.borrow().iter().enumerate() {
            out.push_str(if i > 0 { ", " } else { "" });
            budget::fits(out.len() + 4 * k.len())?;
            budget::spend(1)?;
            spend_repr(k)?;
            repr_str(k, out);
            out.push_str(": ");
            repr(v, out, open)?;
        }
        out.push('}');
        Ok(())
    })?;
    out.push('>');
    Ok(())
}

/// Appends the digits of an integer beyond 128 bits. Their number is limited only by the size of the context.
pub fn push_big(digits: &str, out: &mut String) -> R<()> {
    budget::fits(out.len() + digits.len())?;
    budget::spend(digits.len() / 64)?;
    out.push_str(digits);
    Ok(())
}

fn repr(v: &Value, out: &mut String, open: &mut Vec<*const ()>) -> R<()> {
    budget::spend(1)?;
    budget::fits(out.len())?;
    match v {
        Value::Undefined(_) => out.push_str("Undefined"),
        Value::None => out.push_str("None"),
        Value::Bool(b) => out.push_str(if *b { "True" } else { "False" }),
        Value::Int(i) => drop(write!(out, "{i}")),
        Value::Big(digits) => push_big(digits, out)?,
        Value::Float(f) => {
            budget::spend(10)?;
            float(*f, out);
        }
        Value::Str(t) => {
            budget::fits(out.len() + 4 * t.0.s.len())?;
            spend_repr(&t.0.s)?;
            if t.0.markup {
                out.push_str("Markup(");
            }
            repr_str(&t.0.s, out);
            out.push_str(if t.0.markup { ")" } else { "" });
        }
        Value::List(items) => {
            repr_within(Rc::as_ptr(items).cast(), "[...]", out, open, |out, open| {
                out.push('[');
                repr_items(&items.v, out, open)?;
                out.push(']');
                Ok(())
            })?;
        }
        Value::Tuple(items) => {
            repr_within(Rc::as_ptr(items).cast(), "(...)", out, open, |out, open| {
                out.push('(');
                repr_items(&items.v, out, open)?;
                out.push_str(if items.v.len() == 1 { ",)" } else { ")" });
                Ok(())
            })?;
        }
        Value::Dict(d) => {
            repr_within(Rc::as_ptr(d).cast(), "{...}", out, open, |out, open| {
                out.push('{');
                for (i, (k, v)) in d.entries.iter().enumerate() {
                    out.push_str(if i > 0 { ", " } else { "" });
                    repr(k, out, open)?;
                    out.push_str(": ");
                    repr(v, out, open)?;
                }
                out.push('}');
                Ok(())
            })?;
        }
        Value::Range(start, stop, 1) => drop(write!(out, "range({start}, {stop})")),
        Value::Range(start, stop, step) => drop(write!(out, "range({start}, {stop}, {step})")),
        Value::Iter(w) if w.kind != Kind::Generator => {
            repr_within(Rc::as_ptr(&w.items).cast(), "...", out, open, |out, open| {
                out.push_str(v.type_name());
                out.push_str("([");
                repr_items(&w.items.v, out, open)?;
                out.push_str("])");
                Ok(())
            })?;
        }
        Value::Namespace(n) => repr_namespace(n, out, open)?,
        Value::Macro(m) => {
            out.push_str("<Macro ");
            repr_str(&m.def.name, out);
            out.push('>');
        }
        Value::Loop(l) => drop(write!(out, "<LoopContext {}/{}>", l.at.get() + 1, l.items.len())),
        // Python writes the memory address of these values. An address is useless in a text, so this is an error.
        Value::Iter(_) => return wrong("a generator cannot be written as text; add |list or |join to it"),
        Value::Method(m) => return wrong(format!("the method {} is not text; call it with ()", m.name)),
        Value::Func("self") => return wrong("self is not supported"),
        Value::Func(name) => return wrong(format!("the function {name} is not text; call it with ()")),
        _ => return wrong(format!("a {} cannot be written as text", v.type_name())),
    }
    Ok(())
}

/// Implements Python's str.isprintable. It is false for control characters, unassigned characters, and white space other
/// than the space. Rust's escape_debug escapes the same characters, and also a combining character at the start of a
/// text.
pub fn is_printable(c: char) -> bool {
    match c {
        ' '..='~' => true,
        c if c.is_ascii() => false,
        c => {
            let mut text = [b'a'; 5];
            let n = 1 + c.encode_utf8(&mut text[1..]).len();
            let text = std::str::from_utf8(&text[..n]).unwrap_or_default();
            text.escape_debug().nth(1) != Some('\\')
        }
    }
}

/// Writes a character as Python's \x, \u or \U escape.
pub(super) fn push_code(c: char, out: &mut String) {
    let (letter, digits) = match c as u32 {
        ..=0xFF => ('x', 2),
        ..=0xFFFF => ('u', 4),
        _ => ('U', 8),
    };
    out.extend(['\\', letter]);
    for i in (0..digits).rev() {
        out.extend(char::from_digit(c as u32 >> (4 * i) & 15, 16));
    }
}

/// Uses up the steps for looking up each character in the tables of printable characters.
fn spend_repr(text: &str) -> R<()> {
    budget::letters(text)?;
    budget::spend(if text.is_ascii() { text.len() / 8 } else { text.len() })
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
            c if c == quote => out.extend(['\\', c]),
            c if is_printable(c) => out.push(c),
            c => push_code(c, out),
        }
    }
    out.push(quote);
}

/// Writes Python's repr of a float: the shortest digits, with an exponent below 1e-4 and from 1e16 on.
pub fn float(f: f64, out: &mut String) {
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

/// Escapes a text as markupsafe's Markup does.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\'' => out.push_str("&#39;"),
            '"' => out.push_str("&#34;"),
            c => out.push(c),
        }
    }
    out
}

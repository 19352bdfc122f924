//! Implements the methods of str that find, split and replace. Positions and counts are in characters.

use super::letters::is_space;
use crate::jinja::budget;
use crate::jinja::fail::{wrong, R};
use crate::jinja::number::int_arg;
use crate::jinja::value::{Args, Value};

// ---- positions in a text, in characters ----

/// Reads the start or the end of a slice of n items.
pub(super) fn bound(v: Option<Value>, n: usize, default: usize) -> R<usize> {
    match v {
        None | Some(Value::None) => Ok(default),
        Some(v) => {
            let i = int_arg(&v)?;
            let i = if i < 0 { i.saturating_add(n as i128).max(0) } else { i };
            Ok(usize::try_from(i).unwrap_or(usize::MAX))
        }
    }
}

pub(super) fn str_arg<'a>(v: &'a Option<Value>, what: &str) -> R<&'a str> {
    match v {
        Some(Value::Str(t)) => Ok(&t.0.s),
        Some(v) => wrong(format!("{what} must be str, not {}", v.type_name())),
        None => wrong(format!("{what} is missing")),
    }
}

/// Returns the part of the text from start to end, as in a slice, and the number of characters before it. Returns None
/// when the range cannot contain even an empty text.
fn window(text: &str, start: Option<Value>, end: Option<Value>) -> R<Option<(&str, usize)>> {
    if start.is_none() && end.is_none() {
        return Ok(Some((text, 0)));
    }
    budget::scan(text.len())?;
    let n = text.chars().count();
    let (from, to) = (bound(start, n, 0)?, bound(end, n, n)?.min(n));
    if from > to {
        return Ok(None);
    }
    let byte = |i: usize| text.char_indices().nth(i).map_or(text.len(), |(at, _)| at);
    Ok(Some((&text[byte(from)..byte(to)], from)))
}

pub(super) fn find(text: &str, args: Args, name: &str) -> R<Value> {
    let [what, start, end] = args.bind(name, ["", "", ""], 1)?;
    let what = str_arg(&what, "the argument")?;
    budget::scan(what.len())?;
    let found = window(text, start, end)?.and_then(|(part, before)| {
        let at = if name.starts_with('r') { part.rfind(what) } else { part.find(what) };
        at.map(|at| before + part[..at].chars().count())
    });
    match found {
        Some(at) => Ok(Value::from(at)),
        None if name.ends_with("index") => wrong("substring not found"),
        None => Ok(Value::Int(-1)),
    }
}

pub(super) fn count(text: &str, args: Args) -> R<Value> {
    let [what, start, end] = args.bind("count", ["", "", ""], 1)?;
    let what = str_arg(&what, "the argument")?;
    budget::scan(what.len())?;
    budget::spend(text.len() / what.len().max(1) / 4)?;
    let Some((part, _)) = window(text, start, end)? else { return Ok(Value::Int(0)) };
    Ok(Value::from(if what.is_empty() { part.chars().count() + 1 } else { part.matches(what).count() }))
}

/// Implements startswith and endswith, for one text or a tuple of texts.
pub(super) fn has_end(text: &str, args: Args, name: &str) -> R<Value> {
    let [what, start, end] = args.bind(name, ["", "", ""], 1)?;
    let what = what.unwrap_or(Value::None);
    let one = |part: &str, v: &Value| -> R<bool> {
        budget::spend(1)?;
        budget::glance(v.as_str().map_or(0, str::len))?;
        match v.as_str() {
            Some(s) if name == "endswith" => Ok(part.ends_with(s)),
            Some(s) => Ok(part.starts_with(s)),
            None => wrong(format!("{name} first arg must be str or a tuple of str, not {}", v.type_name())),
        }
    };
    let part = window(text, start, end)?;
    let mut found = false;
    match &what {
        Value::Tuple(items) => {
            for v in &items.v {
                found = found || one(part.map_or("", |p| p.0), v)?;
            }
        }
        v => found = one(part.map_or("", |p| p.0), v)?,
    }
    Ok(Value::Bool(found && part.is_some()))
}

// ---- splitting ----

pub(super) fn strip(text: &str, args: Args, name: &str) -> R<Value> {
    let [chars] = args.bind(name, [""], 0)?;
    strip_chars(text, chars, name != "rstrip", name != "lstrip")
}

pub fn strip_chars(text: &str, chars: Option<Value>, left: bool, right: bool) -> R<Value> {
    let chars = match chars {
        None | Some(Value::None) => None,
        v => Some(str_arg(&v, "strip arg")?.chars().collect::<Vec<_>>()),
    };
    if let Some(chars) = &chars {
        budget::spend(chars.len().saturating_mul(text.len()) / 32)?;
        budget::scan(chars.len())?;
    }
    budget::scan(text.len())?;
    let cut = |c: char| chars.as_ref().map_or_else(|| is_space(c), |set| set.contains(&c));
    let text = if left { text.trim_start_matches(cut) } else { text };
    Ok(Value::from(if right { text.trim_end_matches(cut) } else { text }))
}

/// Splits at runs of white space, at most n times. White space at the ends is dropped.
fn split_at_space(text: &str, n: i128, from_right: bool) -> R<Vec<&str>> {
    let (mut out, mut rest) = (Vec::new(), text);
    loop {
        rest = if from_right { rest.trim_end_matches(is_space) } else { rest.trim_start_matches(is_space) };
        if rest.is_empty() {
            break;
        }
        asked(&out)?;
        let at = if from_right { rest.rfind(is_space) } else { rest.find(is_space) };
        let (Some(at), true) = (at, n < 0 || (out.len() as i128) < n) else {
            out.push(rest);
            break;
        };
        let width = rest[at..].chars().next().map_or(0, char::len_utf8);
        if from_right {
            out.push(&rest[at + width..]);
            rest = &rest[..at];
        } else {
            out.push(&rest[..at]);
            rest = &rest[at + width..];
        }
    }
    if from_right {
        out.reverse();
    }
    Ok(out)
}

/// Fails when one more item would exceed the memory limit.
fn asked<T>(out: &[T]) -> R<()> {
    budget::spend(1)?;
    budget::fits(2 * (out.len() + 1) * size_of::<T>())
}

fn gathered<'a>(parts: impl Iterator<Item = &'a str>) -> R<Vec<&'a str>> {
    let mut out = Vec::new();
    for part in parts {
        asked(&out)?;
        out.push(part);
    }
    Ok(out)
}

/// Returns a list of texts. The memory for each text is checked first.
fn texts<'a>(parts: impl IntoIterator<Item = &'a str>) -> R<Value> {
    let mut out = Vec::new();
    for part in parts {
        asked(&out)?;
        budget::spend(1)?;
        budget::room(part.len())?;
        out.push(Value::from(part));
    }
    Value::list(out)
}

pub(super) fn split(text: &str, args: Args, from_right: bool) -> R<Value> {
    let [sep, max] = args.bind("split", ["sep", "maxsplit"], 0)?;
    let n = max.as_ref().map_or(Ok(-1), int_arg)?;
    let sep = match &sep {
        None | Some(Value::None) => return texts(split_at_space(text, n, from_right)?),
        sep => str_arg(sep, "the separator")?,
    };
    if sep.is_empty() {
        return wrong("empty separator");
    }
    budget::scan(sep.len())?;
    let n_parts = usize::try_from(n.saturating_add(1)).unwrap_or(usize::MAX);
    match (n, from_right) {
        (..0, false) => texts(text.split(sep)),
        (_, false) => texts(text.splitn(n_parts, sep)),
        (n, true) => {
            let n_parts = if n < 0 { usize::MAX } else { n_parts };
            let mut parts = gathered(text.rsplitn(n_parts, sep))?;
            parts.reverse();
            texts(parts)
        }
    }
}

pub(super) fn partition(text: &str, args: Args, last: bool) -> R<Value> {
    let [sep] = args.bind("partition", [""], 1)?;
    let sep = str_arg(&sep, "the separator")?;
    if sep.is_empty() {
        return wrong("empty separator");
    }
    let found = if last { text.rsplit_once(sep) } else { text.split_once(sep) };
    let parts = match (found, last) {
        (Some((before, behind)), _) => [before, sep, behind],
        (None, false) => [text, "", ""],
        (None, true) => ["", "", text],
    };
    Value::tuple(parts.into_iter().map(Value::from).collect())
}

/// Returns the lines of a text, each with the number of bytes of its line end.
pub fn lines(text: &str) -> R<impl Iterator<Item = (&str, usize)>> {
    budget::spend(text.len() / 8)?;
    let ends = |c: char| {
        matches!(
            c,
            '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}'
        )
    };
    let mut rest = text;
    Ok(std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let at = rest.find(ends).unwrap_or(rest.len());
        let width = match &rest[at..] {
            end if end.starts_with("\r\n") => 2,
            end => end.chars().next().map_or(0, char::len_utf8),
        };
        let (line, behind) = rest.split_at(at + width);
        rest = behind;
        Some((line, width))
    }))
}

pub(super) fn splitlines(text: &str, args: Args) -> R<Value> {
    let [keep] = args.bind("splitlines", ["keepends"], 0)?;
    let keep = keep.is_some_and(|k| k.truth());
    texts(lines(text)?.map(|(l, n)| if keep { l } else { &l[..l.len() - n] }))
}

pub fn replaced(text: &str, old: &str, new: &str, n: i128) -> R<Value> {
    let most = usize::try_from(n).unwrap_or(usize::MAX);
    budget::scan(text.len() + old.len())?;
    // `old` occurs at most text.len() / old.len() times.
    budget::spend(text.len() / old.len().max(1) / 4)?;
    if new.len() > old.len() {
        let found = if old.is_empty() { text.chars().count() + 1 } else { text.matches(old).count() };
        let more = (new.len() - old.len()).saturating_mul(found.min(most));
        budget::room(text.len().saturating_add(more))?;
    }
    Ok(Value::from(if n < 0 { text.replace(old, new) } else { text.replacen(old, new, most) }))
}

pub(super) fn replace(text: &str, args: Args) -> R<Value> {
    let [old, new, n] = args.bind("replace", ["", "", "count"], 2)?;
    let n = n.as_ref().map_or(Ok(-1), int_arg)?;
    replaced(text, str_arg(&old, "replace() argument 1")?, str_arg(&new, "replace() argument 2")?, n)
}

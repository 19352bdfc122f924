//! Python's methods of str, dict, list and numbers: by characters, whatever their bytes, with the
//! arguments and the errors that Python has. Those that change a value are refused, as the sandbox does.

use super::budget;
use super::format;
use super::ops::{as_int, eq, int_arg};
use super::unicode;
use super::value::{wrong, Args, Dict, Kind, Value, R};
use crate::classes::{class_of, LETTER, NUMBER};

/// str.isspace, which counts four separators that Unicode's White_Space does not.
pub fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1C}'..='\u{1F}').contains(&c)
}

const STR: [&str; 47] = [
    "capitalize",
    "casefold",
    "center",
    "count",
    "encode",
    "endswith",
    "expandtabs",
    "find",
    "format",
    "format_map",
    "index",
    "isalnum",
    "isalpha",
    "isascii",
    "isdecimal",
    "isdigit",
    "isidentifier",
    "islower",
    "isnumeric",
    "isprintable",
    "isspace",
    "istitle",
    "isupper",
    "join",
    "ljust",
    "lower",
    "lstrip",
    "maketrans",
    "partition",
    "removeprefix",
    "removesuffix",
    "replace",
    "rfind",
    "rindex",
    "rjust",
    "rpartition",
    "rsplit",
    "rstrip",
    "split",
    "splitlines",
    "startswith",
    "strip",
    "swapcase",
    "title",
    "translate",
    "upper",
    "zfill",
];
/// Those that look each character up, besides is…().
const LOOKED_UP: [&str; 6] = ["capitalize", "casefold", "lower", "swapcase", "title", "upper"];
const DICT: [&str; 6] = ["copy", "fromkeys", "get", "items", "keys", "values"];
const DICT_CHANGES: [&str; 5] = ["clear", "pop", "popitem", "setdefault", "update"];
const LIST: [&str; 3] = ["copy", "count", "index"];
const LIST_CHANGES: [&str; 8] = ["append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"];
const INT: [&str; 7] =
    ["as_integer_ratio", "bit_count", "bit_length", "conjugate", "from_bytes", "to_bytes", "is_integer"];
const FLOAT: [&str; 5] = ["as_integer_ratio", "conjugate", "fromhex", "hex", "is_integer"];

/// Whether Python has a method of this name, and whether the sandbox lets a template call it.
pub fn has(of: &Value, name: &str) -> Option<bool> {
    let (may, may_not): (&[&str], &[&str]) = match of {
        Value::Str(_) => (&STR, &[]),
        Value::Dict(_) => (&DICT, &DICT_CHANGES),
        Value::List(_) => (&LIST, &LIST_CHANGES),
        Value::Tuple(_) | Value::Range(..) => (&LIST[1..], &[]),
        Value::Int(_) | Value::Bool(_) | Value::Big(_) => (&INT[..6], &[]),
        Value::Float(_) => (&FLOAT, &[]),
        Value::Loop(_) => (&["cycle", "changed"], &[]),
        Value::Cycler(_) => (&["next", "reset"], &[]),
        _ => (&[], &[]),
    };
    match (may.contains(&name), may_not.contains(&name)) {
        (true, _) => Some(true),
        (_, true) => Some(false),
        _ => None,
    }
}

pub fn call(of: &Value, name: &str, args: Args) -> R<Value> {
    match of {
        Value::Str(t) if t.0.markup && ["format", "format_map", "join", "replace"].contains(&name) => {
            wrong(format!("{name}() of escaped text is not supported"))
        }
        Value::Str(t) => {
            budget::room(t.0.s.len())?;
            match name {
                _ if LOOKED_UP.contains(&name) || name.starts_with("is") => budget::letters(&t.0.s)?,
                "startswith" | "endswith" | "removeprefix" | "removesuffix" | "join" => {}
                _ => budget::scan(t.0.s.len())?,
            }
            str_method(&t.0.s, name, args)
        }
        Value::Dict(d) => dict_method(of, d, name, args),
        Value::List(_) | Value::Tuple(_) | Value::Range(..) => list_method(of, name, args),
        Value::Loop(l) => {
            let n = args.pos.len();
            match name {
                "cycle" if n == 0 => wrong("no items for cycling given"),
                "cycle" => Ok(args.pos[l.at.get() % n].clone()),
                _ => loop_changed(l, args.pos),
            }
        }
        Value::Cycler(c) => {
            args.none(name)?;
            let at = c.at.get();
            c.at.set(if name == "next" { (at + 1) % c.items.len() } else { 0 });
            Ok(if name == "next" { c.items[at].clone() } else { Value::None })
        }
        _ => number_method(of, name, args),
    }
}

fn loop_changed(l: &super::value::Loop, now: Vec<Value>) -> R<Value> {
    let mut before = l.changed.borrow_mut();
    let same = match before.as_ref() {
        Some(before) if before.len() == now.len() => {
            let mut same = true;
            for (a, b) in before.iter().zip(&now) {
                same = same && eq(a, b)?;
            }
            same
        }
        _ => false,
    };
    *before = Some(now);
    Ok(Value::Bool(!same))
}

fn number_method(of: &Value, name: &str, args: Args) -> R<Value> {
    args.none(name)?;
    match (name, as_int(of), of) {
        ("conjugate", Some(i), _) => Ok(Value::Int(i)),
        ("conjugate", _, Value::Float(f)) => Ok(Value::Float(*f)),
        ("is_integer", _, Value::Float(f)) => Ok(Value::Bool(f.is_finite() && f.fract() == 0.0)),
        ("bit_length", Some(i), _) => Ok(Value::Int((128 - i.unsigned_abs().leading_zeros()).into())),
        ("bit_count", Some(i), _) => Ok(Value::Int(i.unsigned_abs().count_ones().into())),
        _ => wrong(format!("{}.{name} is not supported", of.type_name())),
    }
}

fn dict_method(of: &Value, d: &std::rc::Rc<Dict>, name: &str, args: Args) -> R<Value> {
    if name == "get" {
        let [key, default] = args.bind("get", ["", ""], 1)?;
        let found = d.get(&key.unwrap_or(Value::None))?.cloned();
        return Ok(found.or(default).unwrap_or(Value::None));
    }
    if name == "fromkeys" {
        return wrong("dict.fromkeys is not supported");
    }
    args.none(name)?;
    budget::spend(d.entries.len())?;
    budget::room(2 * d.entries.len() * size_of::<Value>())?;
    match name {
        "copy" => Ok(of.clone()),
        "keys" => Value::walk(d.entries.iter().map(|(k, _)| k.clone()).collect(), Kind::Keys),
        "values" => Value::walk(d.entries.iter().map(|(_, v)| v.clone()).collect(), Kind::Values),
        _ => {
            let pairs = d.entries.iter().map(|(k, v)| Value::tuple(vec![k.clone(), v.clone()]));
            Value::walk(pairs.collect::<R<_>>()?, Kind::Items)
        }
    }
}

fn list_method(of: &Value, name: &str, args: Args) -> R<Value> {
    if name == "copy" {
        args.none(name)?;
        return Ok(of.clone());
    }
    let items = of.iterate()?;
    if name == "count" {
        let [what] = args.bind("count", [""], 1)?;
        let (what, mut n) = (what.unwrap_or(Value::None), 0);
        for item in &items {
            n += i128::from(eq(item, &what)?);
        }
        return Ok(Value::Int(n));
    }
    let [what, start, stop] = args.bind("index", ["", "", ""], 1)?;
    let (what, n) = (what.unwrap_or(Value::None), items.len());
    let (from, to) = (bound(start, n, 0)?, bound(stop, n, n)?.min(n));
    for (i, item) in items.iter().enumerate().take(to).skip(from) {
        if eq(item, &what)? {
            return Ok(Value::from(i));
        }
    }
    wrong("the value is not in the list")
}

// ---- places in a text, by characters ----

/// Where a slice of n things begins or ends.
fn bound(v: Option<Value>, n: usize, default: usize) -> R<usize> {
    match v {
        None | Some(Value::None) => Ok(default),
        Some(v) => {
            let i = int_arg(&v)?;
            let i = if i < 0 { i.saturating_add(n as i128).max(0) } else { i };
            Ok(usize::try_from(i).unwrap_or(usize::MAX))
        }
    }
}

fn str_arg<'a>(v: &'a Option<Value>, what: &str) -> R<&'a str> {
    match v {
        Some(Value::Str(t)) => Ok(&t.0.s),
        Some(v) => wrong(format!("{what} must be str, not {}", v.type_name())),
        None => wrong(format!("{what} is missing")),
    }
}

/// The part of the text from start to end, as slices have it, and how many characters lie before.
/// None: not even an empty text is found there.
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

fn find(text: &str, args: Args, name: &str) -> R<Value> {
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

fn count(text: &str, args: Args) -> R<Value> {
    let [what, start, end] = args.bind("count", ["", "", ""], 1)?;
    let what = str_arg(&what, "the argument")?;
    budget::scan(what.len())?;
    let Some((part, _)) = window(text, start, end)? else { return Ok(Value::Int(0)) };
    Ok(Value::from(if what.is_empty() { part.chars().count() + 1 } else { part.matches(what).count() }))
}

/// startswith, endswith: of a text, or of any of a tuple.
fn has_end(text: &str, args: Args, name: &str) -> R<Value> {
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

// ---- cutting ----

fn strip(text: &str, args: Args, name: &str) -> R<Value> {
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

/// At runs of white space, of which none is at an end; at most n times.
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

/// Whether one more item may be in a list that is being made.
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

/// A list of texts, each of which is asked for.
fn texts<'a>(parts: impl IntoIterator<Item = &'a str>) -> R<Value> {
    let mut out = Vec::new();
    for part in parts {
        asked(&out)?;
        budget::room(part.len())?;
        out.push(Value::from(part));
    }
    Value::list(out)
}

fn split(text: &str, args: Args, from_right: bool) -> R<Value> {
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

fn partition(text: &str, args: Args, last: bool) -> R<Value> {
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

/// The lines of a text, each with how many bytes its end has.
pub fn lines(text: &str) -> R<impl Iterator<Item = (&str, usize)>> {
    budget::spend(text.len() / 8)?;
    let ends = |c: char| "\n\r\u{b}\u{c}\u{1c}\u{1d}\u{1e}\u{85}\u{2028}\u{2029}".contains(c);
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

fn splitlines(text: &str, args: Args) -> R<Value> {
    let [keep] = args.bind("splitlines", ["keepends"], 0)?;
    let keep = keep.is_some_and(|k| k.truth());
    texts(lines(text)?.map(|(l, n)| if keep { l } else { &l[..l.len() - n] }))
}

pub fn replaced(text: &str, old: &str, new: &str, n: i128) -> R<Value> {
    let most = usize::try_from(n).unwrap_or(usize::MAX);
    budget::scan(text.len() + old.len())?;
    if new.len() > old.len() {
        let found = if old.is_empty() { text.chars().count() + 1 } else { text.matches(old).count() };
        let more = (new.len() - old.len()).saturating_mul(found.min(most));
        budget::room(text.len().saturating_add(more))?;
    }
    Ok(Value::from(if n < 0 { text.replace(old, new) } else { text.replacen(old, new, most) }))
}

fn replace(text: &str, args: Args) -> R<Value> {
    let [old, new, n] = args.bind("replace", ["", "", "count"], 2)?;
    let n = n.as_ref().map_or(Ok(-1), int_arg)?;
    replaced(text, str_arg(&old, "replace() argument 1")?, str_arg(&new, "replace() argument 2")?, n)
}

// ---- padding ----

/// A width that is asked for, at least 0 and no more than there is room for.
pub fn width_arg(v: &Value) -> R<usize> {
    let n = usize::try_from(int_arg(v)?.max(0)).unwrap_or(usize::MAX);
    budget::room(n).map(|()| n)
}

pub fn padded(text: &str, width: usize, fill: char, how: &str) -> R<Value> {
    budget::glance(text.len())?;
    let n = text.chars().count();
    let room = width.saturating_sub(n);
    budget::room(text.len() + room * fill.len_utf8())?;
    let left = match how {
        "ljust" => 0,
        "rjust" => room,
        _ => room / 2 + (room & width & 1),
    };
    let run = |n: usize| std::iter::repeat_n(fill, n).collect::<String>();
    Ok(Value::from(format!("{}{text}{}", run(left), run(room - left))))
}

fn pad(text: &str, args: Args, name: &str) -> R<Value> {
    let [width, fill] = args.bind(name, ["", ""], 1)?;
    let width = width_arg(&width.unwrap_or(Value::None))?;
    let fill = fill.unwrap_or_else(|| Value::from(" "));
    let mut chars = fill.as_str().unwrap_or_default().chars();
    match (chars.next(), chars.next()) {
        (Some(c), None) => padded(text, width, c, name),
        _ => wrong("The fill character must be exactly one character long"),
    }
}

fn zfill(text: &str, args: Args) -> R<Value> {
    let [width] = args.bind("zfill", [""], 1)?;
    let width = width_arg(&width.unwrap_or(Value::None))?;
    let sign = usize::from(text.starts_with(['+', '-']));
    let zeros = "0".repeat(width.saturating_sub(text.chars().count()));
    Ok(Value::from(format!("{}{zeros}{}", &text[..sign], &text[sign..])))
}

fn expandtabs(text: &str, args: Args) -> R<Value> {
    let [size] = args.bind("expandtabs", ["tabsize"], 0)?;
    let size = size.as_ref().map_or(Ok(8), width_arg)?;
    budget::room(text.len().saturating_add(text.matches('\t').count().saturating_mul(size)))?;
    let (mut out, mut column) = (String::new(), 0);
    for c in text.chars() {
        match c {
            '\t' if size > 0 => {
                let n = size - column % size;
                out.extend(std::iter::repeat_n(' ', n));
                column += n;
            }
            '\t' => {}
            '\n' | '\r' => {
                out.push(c);
                column = 0;
            }
            c => {
                out.push(c);
                column += 1;
            }
        }
    }
    Ok(Value::from(out))
}

// ---- letters ----

fn within(table: &[(u32, u32)], c: char) -> bool {
    let c = c as u32;
    table.iter().any(|(from, to)| (*from..=*to).contains(&c))
}

fn mapped(table: &[(u32, &'static str)], c: char) -> Option<&'static str> {
    table.iter().find(|(from, _)| *from == c as u32).map(|(_, to)| *to)
}

fn is_decimal(c: char) -> bool {
    c.is_ascii_digit() || !c.is_ascii() && unicode::TENS.iter().any(|t| (*t..*t + 10).contains(&(c as u32)))
}

fn is_digit(c: char) -> bool {
    is_decimal(c) || within(&unicode::DIGITS, c)
}

fn is_numeric(c: char) -> bool {
    class_of(c) & NUMBER != 0 || within(&unicode::NUMERIC, c)
}

fn is_alpha(c: char) -> bool {
    class_of(c) & LETTER != 0
}

fn is_titlecase(c: char) -> bool {
    matches!(c as u32, 0x1C5 | 0x1C8 | 0x1CB | 0x1F2 | 0x1F88..=0x1F8F | 0x1F98..=0x1F9F | 0x1FA8..=0x1FAF
        | 0x1FBC | 0x1FCC | 0x1FFC)
}

fn is_cased(c: char) -> bool {
    c.is_lowercase() || c.is_uppercase() || is_titlecase(c)
}

fn push_title(c: char, out: &mut String) {
    match mapped(&unicode::TITLE, c) {
        Some(title) => out.push_str(title),
        None if within(&unicode::TITLE_SAME, c) => out.push(c),
        None => out.extend(c.to_uppercase()),
    }
}

/// The small form of a part of a text: a sigma at a word's end is another one.
fn lower_of(text: &str, range: std::ops::Range<usize>) -> String {
    let part = &text[range.clone()];
    if !part.contains('Σ') {
        return part.to_lowercase();
    }
    // What is before and behind it decides, so the whole text is looked at.
    fn cased(mut chars: impl Iterator<Item = char>) -> bool {
        chars.find(|c| !is_ignored(*c)).is_some_and(is_cased)
    }
    part.char_indices()
        .flat_map(|(i, c)| {
            let at = range.start + i;
            let is_final =
                c == 'Σ' && cased(text[..at].chars().rev()) && !cased(text[at + c.len_utf8()..].chars());
            if is_final {
                vec!['ς']
            } else {
                c.to_lowercase().collect::<Vec<_>>()
            }
        })
        .collect()
}

/// What stands within words and is no letter of them (Case_Ignorable, its common ones).
fn is_ignored(c: char) -> bool {
    "'.:^`\u{a8}\u{ad}\u{af}\u{b4}\u{b7}\u{b8}\u{2018}\u{2019}\u{2024}\u{2027}\u{200d}".contains(c)
        || class_of(c) & crate::classes::MARK != 0
}

/// Each run of cased letters begins with a capital one.
fn title(text: &str) -> String {
    let (mut out, mut inside) = (String::with_capacity(text.len()), false);
    for (at, c) in text.char_indices() {
        match inside {
            true => out.push_str(&lower_of(text, at..at + c.len_utf8())),
            false => push_title(c, &mut out),
        }
        inside = is_cased(c);
    }
    out
}

pub fn capitalize(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    if let Some(c) = text.chars().next() {
        push_title(c, &mut out);
        out.push_str(&lower_of(text, c.len_utf8()..text.len()));
    }
    out
}

fn casefold(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_ascii() {
            out.push(c.to_ascii_lowercase());
            continue;
        }
        match mapped(&unicode::FOLD, c) {
            Some(folded) => out.push_str(folded),
            None => out.extend(c.to_uppercase().flat_map(char::to_lowercase)),
        }
    }
    out
}

fn swapcase(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        match (c.is_uppercase(), c.is_lowercase()) {
            (true, _) => out.push_str(&lower_of(text, at..at + c.len_utf8())),
            (_, true) => out.extend(c.to_uppercase()),
            _ => out.push(c),
        }
    }
    out
}

/// There is a cased letter, and none is of the other case.
pub fn is_lower(text: &str) -> bool {
    text.chars().any(char::is_lowercase) && !text.chars().any(|c| c.is_uppercase() || is_titlecase(c))
}

pub fn is_upper(text: &str) -> bool {
    text.chars().any(char::is_uppercase) && !text.chars().any(|c| c.is_lowercase() || is_titlecase(c))
}

fn is_title(text: &str) -> bool {
    let (mut cased, mut inside) = (false, false);
    for c in text.chars() {
        let capital = c.is_uppercase() || is_titlecase(c);
        if capital && inside || c.is_lowercase() && !inside {
            return false;
        }
        inside = is_cased(c);
        cased |= inside;
    }
    cased
}

fn is_identifier(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(|c| c == '_' || is_alpha(c) || class_of(c) & NUMBER != 0 && !is_digit(c))
        && chars.all(|c| c == '_' || is_alpha(c) || is_decimal(c) || is_ignored(c) && !c.is_ascii())
}

/// Of what the texts say about their characters: no empty text is any of it.
fn all(text: &str, of: fn(char) -> bool) -> bool {
    !text.is_empty() && text.chars().all(of)
}

/// str.join
pub fn joined(sep: &str, items: &[Value]) -> R<Value> {
    let mut n = 0usize;
    for (i, item) in items.iter().enumerate() {
        let Some(s) = item.as_str() else {
            return wrong(format!("sequence item {i}: expected str instance, {} found", item.type_name()));
        };
        n = n.saturating_add(s.len() + sep.len());
    }
    budget::room(n)?;
    budget::fits(n.saturating_add(items.len() * size_of::<&str>()))?;
    budget::spend(items.len() / 4)?;
    let parts: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
    Ok(Value::from(parts.join(sep)))
}

fn is_what(text: &str, name: &str) -> bool {
    match name {
        "isalnum" => all(text, |c| is_alpha(c) || is_numeric(c)),
        "isalpha" => all(text, is_alpha),
        "isascii" => text.is_ascii(),
        "isdecimal" => all(text, is_decimal),
        "isdigit" => all(text, is_digit),
        "isidentifier" => is_identifier(text),
        "islower" => is_lower(text),
        "isnumeric" => all(text, is_numeric),
        "isprintable" => text.chars().all(format::is_printable),
        "isspace" => all(text, is_space),
        "istitle" => is_title(text),
        _ => is_upper(text),
    }
}

fn str_method(text: &str, name: &str, args: Args) -> R<Value> {
    if name.starts_with("is") {
        return args.none(name).map(|()| Value::Bool(is_what(text, name)));
    }
    match name {
        "center" | "ljust" | "rjust" => pad(text, args, name),
        "count" => count(text, args),
        "endswith" | "startswith" => has_end(text, args, name),
        "expandtabs" => expandtabs(text, args),
        "find" | "rfind" | "index" | "rindex" => find(text, args, name),
        "format" => format::str_format(text, &args).map(Value::from),
        "format_map" => {
            let [map] = args.bind(name, [""], 1)?;
            match map {
                Some(Value::Dict(d)) => {
                    budget::spend(d.entries.len())?;
                    let bytes: usize = d.entries.iter().filter_map(|(k, _)| k.as_str()).map(str::len).sum();
                    budget::room(bytes + d.entries.len() * 2 * size_of::<Value>())?;
                    let kw = d.entries.iter().filter_map(|(k, v)| Some((k.as_str()?.to_owned(), v.clone())));
                    format::str_format(text, &Args { pos: vec![], kw: kw.collect() }).map(Value::from)
                }
                _ => wrong("format_map() wants a dict"),
            }
        }
        "join" => {
            let [items] = args.bind(name, [""], 1)?;
            joined(text, &items.unwrap_or(Value::None).iterate()?)
        }
        "lstrip" | "rstrip" | "strip" => strip(text, args, name),
        "partition" | "rpartition" => partition(text, args, name == "rpartition"),
        "removeprefix" | "removesuffix" => {
            let [what] = args.bind(name, [""], 1)?;
            let what = str_arg(&what, "the argument")?;
            let cut = if name == "removeprefix" { text.strip_prefix(what) } else { text.strip_suffix(what) };
            Ok(Value::from(cut.unwrap_or(text)))
        }
        "replace" => replace(text, args),
        "rsplit" | "split" => split(text, args, name == "rsplit"),
        "splitlines" => splitlines(text, args),
        "zfill" => zfill(text, args),
        "encode" | "maketrans" | "translate" => wrong(format!("str.{name} is not supported")),
        _ => {
            args.none(name)?;
            budget::room(3 * text.len())?;
            Ok(Value::from(match name {
                "capitalize" => capitalize(text),
                "casefold" => casefold(text),
                "lower" => text.to_lowercase(),
                "swapcase" => swapcase(text),
                "title" => title(text),
                _ => text.to_uppercase(),
            }))
        }
    }
}

/// A decimal digit of any script as the one of ASCII, as int() and float() read it.
pub fn ascii_digit(c: char) -> char {
    if c.is_ascii() {
        return c;
    }
    let c32 = c as u32;
    match unicode::TENS.iter().find(|t| (**t..**t + 10).contains(&c32)) {
        Some(t) => char::from_digit(c32 - t, 10).unwrap_or(c),
        _ => c,
    }
}

//! Implements jinja2's filters that lay out text: indent, truncate, wordwrap and title, and the filters for HTML and
//! URLs.

use super::budget;
use super::fail::{wrong, R};
use super::format::{escape, str_of};
use super::methods::{is_space, joined, lines, width_arg};
use super::number::int_arg;
use super::value::{not_str, Args, Value};

/// Makes the first letter of the text a capital, and each letter after white space, `-`, `(`, `{`, `[` or `<`.
pub fn title(text: &str) -> String {
    let (mut out, mut word) = (String::with_capacity(text.len()), String::new());
    let flush = |word: &mut String, out: &mut String| {
        let mut chars = word.chars();
        if let Some(c) = chars.next() {
            out.extend(c.to_uppercase());
            out.push_str(&chars.as_str().to_lowercase());
        }
        word.clear();
    };
    for c in text.chars() {
        if is_space(c) || "-({[<".contains(c) {
            flush(&mut word, &mut out);
            out.push(c);
        } else {
            word.push(c);
        }
    }
    flush(&mut word, &mut out);
    out
}

pub fn indent(text: &str, by: &str, first: bool, blank: bool) -> R<String> {
    budget::room(text.len())?;
    let text = format!("{text}\n");
    let n = lines(&text)?.count();
    budget::spend(2 * n)?;
    budget::room(text.len().saturating_add(n.saturating_mul(by.len() + 1)))?;
    let mut out = String::from(if first { by } else { "" });
    for (i, (line, end)) in lines(&text)?.enumerate() {
        let line = &line[..line.len() - end];
        if i > 0 {
            out.push('\n');
            out.push_str(if blank || !line.is_empty() { by } else { "" });
        }
        out.push_str(line);
    }
    Ok(out)
}

pub fn truncate(v: &Value, args: Args) -> R<Value> {
    let [length, kill, end, leeway] = args.bind("truncate", ["length", "killwords", "end", "leeway"], 0)?;
    let length = length.as_ref().map_or(Ok(255), int_arg)?;
    let leeway = leeway.filter(|l| !l.is_none()).as_ref().map_or(Ok(5), int_arg)?;
    let end = match end {
        Some(e) => str_of(&e)?,
        None => "...".to_owned(),
    };
    let n_end = end.chars().count() as i128;
    if length < n_end || leeway < 0 {
        return wrong(format!("expected length >= {n_end} and leeway >= 0, got {length} and {leeway}"));
    }
    let Some(text) = v.as_str() else {
        return if v.length()? as i128 <= length.saturating_add(leeway) { Ok(v.clone()) } else { not_str(v) };
    };
    budget::scan(2 * text.len())?;
    if text.chars().count() as i128 <= length.saturating_add(leeway) {
        return Ok(v.clone());
    }
    let cut: String = text.chars().take((length - n_end) as usize).collect();
    let kept = match kill.is_some_and(|k| k.truth()) {
        true => cut.as_str(),
        false => cut.rsplit_once(' ').map_or(cut.as_str(), |(before, _)| before),
    };
    let end = if v.is_markup() { escape(&end) } else { end };
    Value::from(format!("{kept}{end}")).marked_as(v)
}

pub fn wordwrap(v: &Value, args: Args) -> R<Value> {
    let names = ["width", "break_long_words", "wrapstring", "break_on_hyphens"];
    let [width, long, with, hyphens] = args.bind("wordwrap", names, 0)?;
    let Some(text) = v.as_str() else { return not_str(v) };
    let width = width.as_ref().map_or(Ok(79), width_arg)?;
    let with = with.filter(|w| !w.is_none());
    let with = with.as_ref().map_or(Ok("\n".to_owned()), str_of)?;
    let (long, hyphens) = (long.is_none_or(|l| l.truth()), hyphens.is_none_or(|h| h.truth()));
    let mut out = Vec::new();
    for (line, end) in lines(text)? {
        if width == 0 {
            return wrong("invalid width 0 (must be > 0)");
        }
        budget::room(line.len() * 8)?;
        budget::spend(line.len() / 2)?;
        let wrapped = wrap(&line[..line.len() - end], width, long, hyphens)?;
        out.push(joined(&with, &wrapped)?);
    }
    joined(&with, &out)
}

/// Returns true for textwrap's white space, which is ASCII only.
fn is_blank(c: char) -> bool {
    "\t\n\u{b}\u{c}\r ".contains(c)
}

/// Splits a line into words and the white space between them. A word with hyphens is split behind each hyphen.
fn pieces(line: &str, hyphens: bool) -> R<Vec<String>> {
    let mut out: Vec<String> = Vec::new();
    let chars: Vec<char> = line.chars().collect();
    let letter = |i: usize| chars.get(i).is_some_and(|c| c.is_alphabetic() || *c == '_');
    let mut i = 0;
    while i < chars.len() {
        let (from, blank) = (i, is_blank(chars[i]));
        while i < chars.len() && is_blank(chars[i]) == blank {
            i += 1;
        }
        let word = &chars[from..i];
        if blank || !hyphens || !word.contains(&'-') {
            out.push(word.iter().collect());
            continue;
        }
        if word.windows(2).any(|w| w == ['-', '-']) || word.iter().any(|c| !c.is_alphanumeric() && *c != '-')
        {
            return wrong("wordwrap: a word with hyphens and other signs is not supported");
        }
        let mut start = from;
        for at in from + 1..i {
            // true when two letters precede the hyphen and two follow it
            let before = at >= start + 2 && letter(at - 1) && letter(at - 2);
            if chars[at] == '-'
                && before
                && letter(at + 1)
                && (letter(at + 2) || chars.get(at + 2) == Some(&'-'))
            {
                out.push(chars[start..=at].iter().collect());
                start = at + 1;
            }
        }
        out.push(chars[start..i].iter().collect());
    }
    Ok(out)
}

fn wrap(line: &str, width: usize, break_long: bool, hyphens: bool) -> R<Vec<Value>> {
    let mut rest: Vec<String> = pieces(line, hyphens)?;
    budget::spend(4 * rest.len())?;
    rest.reverse();
    let is_space = |s: &String| s.chars().all(is_blank);
    let mut out = Vec::new();
    while !rest.is_empty() {
        budget::spend(4)?;
        let (mut now, mut n) = (Vec::<String>::new(), 0);
        if !out.is_empty() && rest.last().is_some_and(is_space) {
            rest.pop();
        }
        while let Some(piece) = rest.pop() {
            let len = piece.chars().count();
            if n + len > width {
                rest.push(piece);
                break;
            }
            n += len;
            now.push(piece);
        }
        let is_long = rest.last().is_some_and(|p| p.chars().count() > width);
        if let (true, Some(long)) = (is_long, if is_long { rest.pop() } else { None }) {
            budget::spend(long.len() / 8)?;
            if break_long {
                let mut room = width - n;
                if hyphens {
                    let head: Vec<char> = long.chars().take(room).collect();
                    let at = head.iter().rposition(|c| *c == '-').filter(|at| *at > 0);
                    if let Some(at) = at.filter(|at| head[..*at].iter().any(|c| *c != '-')) {
                        room = at + 1;
                    }
                }
                now.push(long.chars().take(room).collect());
                let left: String = long.chars().skip(room).collect();
                rest.push(left);
            } else if now.is_empty() {
                now.push(long);
            } else {
                rest.push(long);
            }
        }
        if now.last().is_some_and(is_space) {
            now.pop();
        }
        if !now.is_empty() {
            out.push(Value::from(now.concat()));
        }
    }
    Ok(out)
}

/// Implements Python's urllib.parse.quote. `/` is kept, except in query strings.
fn quoted(text: &str, in_query: bool) -> String {
    let mut out = String::new();
    for b in text.bytes() {
        match b {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'.' | b'-' | b'~' => out.push(b as char),
            b'/' if !in_query => out.push('/'),
            b' ' if in_query => out.push('+'),
            b => out.push_str(&format!("%{b:02X}")),
        }
    }
    out
}

pub fn html(name: &str, v: &Value, args: Args) -> R<Value> {
    if name == "urlencode" {
        args.none(name)?;
        let pairs = match v {
            Value::Dict(_) => super::methods::call(v, "items", Args::default())?.iterate()?,
            Value::List(_) | Value::Tuple(_) => v.iterate()?,
            _ => {
                let text = str_of(v)?;
                budget::room(3 * text.len())?;
                budget::spend(2 * text.len())?;
                return Ok(Value::from(quoted(&text, false)));
            }
        };
        let mut out = Vec::new();
        for pair in pairs {
            match pair.iterate()?.as_slice() {
                [k, v] => {
                    let (k, v) = (str_of(k)?, str_of(v)?);
                    budget::room(3 * (k.len() + v.len()))?;
                    budget::spend(2 * (k.len() + v.len()))?;
                    out.push(Value::from(format!("{}={}", quoted(&k, true), quoted(&v, true))));
                }
                _ => return wrong("urlencode needs a mapping or pairs"),
            }
        }
        return joined("&", &out);
    }
    if name == "striptags" {
        args.none(name)?;
        let text = str_of(v)?;
        budget::room(text.len())?;
        budget::scan(4 * text.len())?;
        let mut plain = String::new();
        let mut rest = text.as_str();
        while let Some(at) = rest.find('<') {
            plain.push_str(&rest[..at]);
            let end = if rest[at..].starts_with("<!--") { "-->" } else { ">" };
            let Some(n) = rest[at..].find(end) else { break };
            rest = &rest[at + n + end.len()..];
        }
        if rest.contains('<') || text.contains('&') {
            return wrong("striptags of & or of tags without an end is not supported");
        }
        plain.push_str(rest);
        return Ok(Value::from(
            plain.split(is_space).filter(|w| !w.is_empty()).collect::<Vec<_>>().join(" "),
        ));
    }
    let [space] = args.bind(name, ["autospace"], 0)?;
    let Value::Dict(d) = v else {
        return wrong(format!("'{}' object has no attribute 'items'", v.type_name()));
    };
    let mut out = Vec::new();
    for (key, v) in d.entries.iter().filter(|(_, v)| !v.is_none() && !v.is_undefined()) {
        if key.as_str().is_none() {
            return wrong(format!("expected string or bytes-like object, got '{}'", key.type_name()));
        }
        budget::spend(10)?;
        let (key, text) = (str_of(key)?, str_of(v)?);
        budget::scan(4 * (key.len() + text.len()))?;
        if key.contains(|c: char| is_blank(c) || "/>=".contains(c)) {
            return wrong(format!("Invalid character in attribute name: '{key}'"));
        }
        budget::room(6 * (key.len() + text.len()))?;
        let text = if v.is_markup() { text } else { escape(&text) };
        out.push(Value::from(format!("{}=\"{text}\"", escape(&key))));
    }
    let text = str_of(&joined(" ", &out)?)?;
    let space = space.is_none_or(|s| s.truth()) && !text.is_empty();
    Ok(Value::from(if space { format!(" {text}") } else { text }))
}

//! Implements the filters on texts.

use super::args::{is_set, text_arg};
use crate::jinja::budget;
use crate::jinja::fail::{wrong, R};
use crate::jinja::format::{self, repr_of, str_of};
use crate::jinja::methods::{self, width_arg};
use crate::jinja::number::int_arg;
use crate::jinja::value::{not_str, Args, Dict, Value};
use crate::jinja::wrap;

pub(super) fn texts(name: &str, v: &Value, args: Args) -> R<Value> {
    match name {
        "string" => {
            args.none(name)?;
            if v.as_str().is_some() {
                Ok(v.clone())
            } else {
                str_of(v).map(Value::from)
            }
        }
        "trim" => {
            let [chars] = args.bind(name, ["chars"], 0)?;
            methods::strip_chars(&str_of(v)?, chars, true, true)?.marked_as(v)
        }
        "upper" | "lower" | "capitalize" | "title" => {
            args.none(name)?;
            let text = str_of(v)?;
            budget::room(3 * text.len())?;
            budget::letters(&text)?;
            let done = Value::from(match name {
                "upper" => text.to_uppercase(),
                "lower" => text.to_lowercase(),
                "capitalize" => methods::capitalize(&text),
                _ => wrap::title(&text),
            });
            if name == "title" {
                Ok(done)
            } else {
                done.marked_as(v)
            }
        }
        "replace" => {
            let [old, new, count] = args.bind(name, ["old", "new", "count"], 2)?;
            let n = count.filter(|c| !c.is_none()).as_ref().map_or(Ok(-1), int_arg)?;
            methods::replaced(&str_of(v)?, &text_arg(old, "")?, &text_arg(new, "")?, n)
        }
        "center" => {
            let [width] = args.bind(name, ["width"], 0)?;
            methods::padded(&str_of(v)?, width.as_ref().map_or(Ok(80), width_arg)?, ' ', "center")?
                .marked_as(v)
        }
        "escape" | "e" | "forceescape" => {
            args.none(name)?;
            let text = str_of(v)?;
            budget::room(6 * text.len())?;
            budget::scan(text.len())?;
            Ok(if v.is_markup() && name != "forceescape" {
                v.clone()
            } else {
                Value::markup(format::escape(&text))
            })
        }
        "safe" => args.none(name).and_then(|()| str_of(v)).map(Value::markup),
        "format" => format_filter(v, args),
        "pprint" => {
            args.none(name)?;
            let text = repr_of(v)?;
            match text.chars().count() <= 80 && !text.contains('{') {
                true => Ok(Value::from(text)),
                false => wrong(
                    "pprint of dictionaries, or of values that do not fit into one line, is not supported",
                ),
            }
        }
        "indent" => indent(v, args),
        "truncate" => wrap::truncate(v, args),
        "wordwrap" => wrap::wordwrap(v, args),
        "wordcount" => {
            args.none(name)?;
            let text = str_of(v)?;
            budget::letters(&text)?;
            let word = |c: char| c == '_' || c.is_alphanumeric();
            Ok(Value::from(text.split(|c| !word(c)).filter(|w| !w.is_empty()).count()))
        }
        "striptags" | "urlencode" | "xmlattr" => wrap::html(name, v, args),
        "random" => wrong("the filter 'random' is not supported, because prompts must not vary"),
        "urlize" => wrong("the filter 'urlize' is not supported, because chat templates are not HTML"),
        _ => wrong(format!("No filter named '{name}'.")),
    }
}

fn format_filter(v: &Value, args: Args) -> R<Value> {
    if !args.kw.is_empty() && !args.pos.is_empty() {
        return wrong("can't handle positional and keyword arguments at the same time");
    }
    let values = match args.kw.is_empty() {
        true => Value::tuple(args.pos)?,
        false => Dict::new(args.kw.into_iter().map(|(k, v)| (Value::from(k), v)).collect())?,
    };
    if v.is_markup() {
        return wrong("the filter 'format' of escaped text is not supported");
    }
    format::percent(&str_of(v)?, &values).map(Value::from)
}

fn indent(v: &Value, args: Args) -> R<Value> {
    let [width, first, blank] = args.bind("indent", ["width", "first", "blank"], 0)?;
    let Some(text) = v.as_str() else { return not_str(v) };
    let width = width.unwrap_or(Value::Int(4));
    let by = match width.as_str() {
        Some(s) => s.to_owned(),
        None => " ".repeat(width_arg(&width)?),
    };
    if v.is_markup() && by.contains(methods::TO_ESCAPE) {
        return wrong("indent of escaped text with characters of HTML is not supported");
    }
    Value::from(wrap::indent(text, &by, is_set(&first), is_set(&blank))?).marked_as(v)
}

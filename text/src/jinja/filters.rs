//! Implements jinja2's filters, with their own names, arguments and defaults.

mod args;
mod numbers;
mod sequences;
mod strings;

use super::budget;
use super::eval::Eval;
use super::fail::{wrong, R};
use super::format::str_of;
use super::json;
use super::methods;
use super::value::{Args, Value};
pub use args::attribute;
use args::{is_set, text_arg};
use numbers::numbers;
use sequences::lists;
use strings::texts;

pub const FILTERS: [&str; 54] = [
    "abs",
    "attr",
    "batch",
    "capitalize",
    "center",
    "count",
    "d",
    "default",
    "dictsort",
    "e",
    "escape",
    "filesizeformat",
    "first",
    "float",
    "forceescape",
    "format",
    "groupby",
    "indent",
    "int",
    "join",
    "last",
    "length",
    "list",
    "lower",
    "items",
    "map",
    "min",
    "max",
    "pprint",
    "random",
    "reject",
    "rejectattr",
    "replace",
    "reverse",
    "round",
    "safe",
    "select",
    "selectattr",
    "slice",
    "sort",
    "string",
    "striptags",
    "sum",
    "title",
    "trim",
    "truncate",
    "unique",
    "upper",
    "urlencode",
    "urlize",
    "wordcount",
    "wordwrap",
    "xmlattr",
    "tojson",
];

impl Eval<'_> {
    pub fn filter(&mut self, name: &str, v: &Value, args: Args) -> R<Value> {
        budget::spend(1)?;
        match name {
            "default" | "d" => {
                let [default, boolean] = args.bind(name, ["default_value", "boolean"], 0)?;
                let gone = v.is_undefined() || is_set(&boolean) && !v.truth();
                Ok(if gone { default.unwrap_or_else(|| Value::from("")) } else { v.clone() })
            }
            "map" => self.map(v, args),
            "select" | "reject" | "selectattr" | "rejectattr" => self.select(name, v, args),
            "attr" => {
                let [attr] = args.bind(name, ["name"], 1)?;
                match attr.as_ref().and_then(Value::as_str) {
                    Some(attr) => super::eval::get_attr_only(v, attr),
                    None => wrong("attribute name must be string"),
                }
            }
            "tojson" => json::tojson(v, args),
            "join" => {
                let [d, attr] = args.bind(name, ["d", "attribute"], 0)?;
                let attr = attr.filter(|a| !a.is_none());
                let mut parts = Vec::new();
                for item in v.iterate()? {
                    let item =
                        attr.as_ref().map_or_else(|| Ok(item.clone()), |a| attribute(&item, a, None))?;
                    budget::spend(if item.as_str().is_some() { 0 } else { 3 })?;
                    parts.push(if item.as_str().is_some() { item } else { Value::from(str_of(&item)?) });
                }
                methods::joined(&text_arg(d, "")?, &parts)
            }
            "batch" | "dictsort" | "first" | "groupby" | "items" | "last" | "length" | "count" | "list"
            | "max" | "min" | "reverse" | "slice" | "sort" | "sum" | "unique" => lists(name, v, args),
            "abs" | "filesizeformat" | "float" | "int" | "round" => numbers(name, v, args),
            _ => texts(name, v, args),
        }
    }

    fn map(&mut self, v: &Value, mut args: Args) -> R<Value> {
        if !v.truth() {
            return Value::generator(vec![]);
        }
        let mut out = Vec::new();
        if args.pos.is_empty() && args.kw.iter().any(|(n, _)| n == "attribute") {
            let [attr, default] = args.bind("map", ["attribute", "default"], 0)?;
            let attr = attr.unwrap_or(Value::None);
            for item in v.iterate()? {
                out.push(attribute(&item, &attr, default.as_ref())?);
            }
            return Value::generator(out);
        }
        if args.pos.is_empty() {
            return wrong("map requires a filter argument");
        }
        let name = args.pos.remove(0);
        let Some(name) = name.as_str() else { return wrong("map requires the name of a filter") };
        for item in v.iterate()? {
            budget::spend(2 + args.pos.len() + 2 * args.kw.len())?;
            out.push(self.filter(name, &item, Args { pos: args.pos.clone(), kw: args.kw.clone() })?);
        }
        Value::generator(out)
    }

    fn select(&mut self, how: &str, v: &Value, mut args: Args) -> R<Value> {
        if !v.truth() {
            return Value::generator(vec![]);
        }
        let attr = match how.ends_with("attr") {
            true if args.pos.is_empty() => return wrong("Missing parameter for attribute name"),
            true => Some(args.pos.remove(0)),
            false => None,
        };
        let test = if args.pos.is_empty() { None } else { Some(args.pos.remove(0)) };
        let wanted = how.starts_with("select");
        let mut out = Vec::new();
        for item in v.iterate()? {
            let of = attr.as_ref().map_or_else(|| Ok(item.clone()), |a| attribute(&item, a, None))?;
            budget::spend(1 + args.pos.len() + 2 * args.kw.len())?;
            let found = match test.as_ref() {
                None => of.truth(),
                Some(Value::Str(t)) => {
                    self.test(&t.0.s, &of, Args { pos: args.pos.clone(), kw: args.kw.clone() })?
                }
                Some(_) => return wrong("the name of a test must be a string"),
            };
            if found == wanted {
                out.push(item);
            }
        }
        Value::generator(out)
    }
}

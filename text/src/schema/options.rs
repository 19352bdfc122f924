//! Rewrites a oneOf whose options exclude each other as anyOf, which llguidance supports. llguidance itself detects such
//! options only when they are written out. This file also follows references, joins allOf and expands nested options.
//! Sometimes a member that is not required distinguishes the options, such as a discriminator with a default. That member
//! becomes required, because a value without it could satisfy two options.

use super::graph::{bit_of, bit_of_value, percent_decoded, ALL, ARRAY, OBJECT};
use super::walk::{also, inner_mut};
use serde_json::{json, Map, Value};
use std::cell::Cell;
use std::collections::HashSet;

type Members = Map<String, Value>;

/// Most options of a oneOf that are distinguished by one constant each.
const MOST_CONSTANTS: usize = 10_000;
/// Most options of a oneOf that are compared pair by pair.
const MOST_PAIRED: usize = 100;
/// Deepest nesting of references, allOf and options.
const MOST_DEEP: usize = 12;
/// Most forms that one schema is expanded into; a schema with more is not expanded.
const MOST_FORMS: usize = 64;
/// Most keywords, names and pairs that are visited for one document. A repeated visit counts again.
const MOST_LOOKS: usize = 500_000;

/// Holds one form of a schema. Each value that satisfies the schema has at least one of its forms. A form contains only
/// certain conditions, and it allows everything that it does not mention.
#[derive(Clone)]
struct Form<'a> {
    types: u8,
    /// Allowed values that are neither objects nor arrays; None = any.
    values: Option<HashSet<String>>,
    /// Names that an object must have.
    required: HashSet<&'a str>,
    /// Members with their schemas. When a member is present, it satisfies all schemas under its name.
    members: Vec<(&'a str, &'a Value)>,
    /// Allowed names of members; None = any.
    names: Option<HashSet<&'a str>>,
}

struct Look<'a> {
    root: &'a Value,
    /// True when references may be followed.
    follows: bool,
    is_old: bool,
    left: Cell<usize>,
}

/// Returns one spelling for each value that is neither an object nor an array. Numbers with the same double have the same
/// spelling.
fn spelling(v: &Value) -> Option<String> {
    let is_whole = v.is_object() || v.is_array();
    (!is_whole).then(|| v.as_f64().map_or_else(|| v.to_string(), |f| format!("{f:e}")))
}

fn texts<'a>(s: &'a Members, key: &str) -> impl Iterator<Item = &'a str> {
    s.get(key).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

impl<'a> Form<'a> {
    fn anything() -> Form<'a> {
        Form { types: ALL, values: None, required: HashSet::new(), members: Vec::new(), names: None }
    }

    /// Returns the form that the schema's own keywords describe.
    fn own(s: &'a Members) -> Form<'a> {
        let mut f = Form::anything();
        f.types = match s.get("type") {
            Some(Value::String(t)) => bit_of(t),
            Some(Value::Array(list)) => {
                list.iter().map(|t| t.as_str().map_or(ALL, bit_of)).fold(0, |a, b| a | b)
            }
            _ => ALL,
        };
        let listed = match (s.get("const"), s.get("enum")) {
            (Some(v), _) => Some(std::slice::from_ref(v)),
            (None, Some(Value::Array(list))) => Some(list.as_slice()),
            _ => None,
        };
        if let Some(list) = listed {
            f.types &= list.iter().map(bit_of_value).fold(0, |a, b| a | b);
            f.values = Some(list.iter().filter_map(spelling).collect());
        }
        f.required = texts(s, "required").collect();
        let properties = s.get("properties").and_then(Value::as_object);
        f.members = properties.into_iter().flatten().map(|(name, v)| (name.as_str(), v)).collect();
        if s.get("additionalProperties") == Some(&Value::Bool(false)) && !s.contains_key("patternProperties")
        {
            f.names = Some(f.members.iter().map(|(name, _)| *name).collect());
        }
        f
    }

    fn size(&self) -> usize {
        1 + self.members.len() + self.required.len() + self.values.as_ref().map_or(0, HashSet::len)
    }

    /// Returns the form of the values that have both forms.
    fn and(&self, other: &Form<'a>) -> Form<'a> {
        fn both<T: Clone + Eq + std::hash::Hash>(
            a: &Option<HashSet<T>>,
            b: &Option<HashSet<T>>,
        ) -> Option<HashSet<T>> {
            match (a, b) {
                (Some(a), Some(b)) => Some(a.intersection(b).cloned().collect()),
                (a, b) => a.clone().or_else(|| b.clone()),
            }
        }
        Form {
            types: self.types & other.types,
            values: both(&self.values, &other.values),
            required: self.required.union(&other.required).copied().collect(),
            members: self.members.iter().chain(&other.members).copied().collect(),
            names: both(&self.names, &other.names),
        }
    }
}

impl<'a> Look<'a> {
    /// Uses up n visits; returns false when fewer than n are left.
    fn spend(&self, n: usize) -> bool {
        let left = self.left.get().checked_sub(n);
        self.left.set(left.unwrap_or(0));
        left.is_some()
    }

    /// Joins each of `forms` with each of `others`. Returns `forms` unchanged when the result would be too large.
    fn each_with(&self, forms: Vec<Form<'a>>, others: &[Form<'a>]) -> Vec<Form<'a>> {
        let sum = |list: &[Form<'a>]| list.iter().map(Form::size).sum::<usize>();
        let size = sum(&forms) * others.len() + sum(others) * forms.len();
        if forms.len() * others.len() > MOST_FORMS || !self.spend(size) {
            return forms;
        }
        forms.iter().flat_map(|f| others.iter().map(|o| f.and(o))).filter(|f| f.types != 0).collect()
    }

    fn target(&self, s: &Members) -> Option<&'a Value> {
        let place = s.get("$ref")?.as_str()?.strip_prefix('#')?;
        let place = (self.follows && (place.is_empty() || place.starts_with('/'))).then_some(place)?;
        self.root.pointer(&percent_decoded(place)?)
    }

    fn forms(&self, v: &'a Value, depth: usize) -> Vec<Form<'a>> {
        let Value::Object(s) = v else {
            return if v == &Value::Bool(false) { Vec::new() } else { vec![Form::anything()] };
        };
        let lengths =
            s.values().map(|v| v.as_array().map_or(1, Vec::len) + v.as_object().map_or(0, Map::len));
        if depth >= MOST_DEEP || !self.spend(1 + lengths.sum::<usize>()) {
            return vec![Form::anything()];
        }
        let target = self.target(s);
        if self.is_old && s.contains_key("$ref") {
            return target.map_or_else(|| vec![Form::anything()], |to| self.forms(to, depth + 1));
        }
        let mut forms = vec![Form::own(s)];
        let all = s.get("allOf").and_then(Value::as_array).into_iter().flatten();
        for part in all.chain(target) {
            forms = self.each_with(forms, &self.forms(part, depth + 1));
        }
        for key in ["anyOf", "oneOf"] {
            let Some(Value::Array(options)) = s.get(key) else { continue };
            if options.len() <= MOST_FORMS {
                let options: Vec<_> = options.iter().flat_map(|v| self.forms(v, depth + 1)).collect();
                forms = self.each_with(forms, &options);
            }
        }
        forms
    }

    /// Returns the forms of a member, when the member is present.
    fn member(&self, f: &Form<'a>, name: &str, depth: usize) -> Vec<Form<'a>> {
        if f.names.as_ref().is_some_and(|names| !names.contains(name)) {
            return Vec::new();
        }
        let own = f.members.iter().filter(|(n, _)| *n == name);
        own.fold(vec![Form::anything()], |forms, (_, v)| self.each_with(forms, &self.forms(v, depth + 1)))
    }

    fn is_apart(&self, a: &Form<'a>, b: &Form<'a>, depth: usize) -> bool {
        let types = a.types & b.types;
        if types == 0 {
            return true;
        }
        if !self.spend(a.size() + b.size()) {
            return false;
        }
        if let (0, Some(a), Some(b)) = (types & (OBJECT | ARRAY), &a.values, &b.values) {
            return a.is_disjoint(b);
        }
        let mut asked = a.required.union(&b.required);
        types == OBJECT
            && depth < MOST_DEEP
            && asked.any(|name| {
                let (a, b) = (self.member(a, name, depth), self.member(b, name, depth));
                self.are_apart(&a, &b, depth + 1)
            })
    }

    fn are_apart(&self, a: &[Form<'a>], b: &[Form<'a>], depth: usize) -> bool {
        a.iter().all(|a| b.iter().all(|b| self.is_apart(a, b, depth)))
    }

    /// Returns the constants that the forms allow; None when some form allows other values.
    fn constants(forms: &[Form<'a>]) -> Option<HashSet<String>> {
        let is_known = |f: &&Form<'a>| f.values.is_some() && f.types & (OBJECT | ARRAY) == 0;
        if !forms.iter().all(|f| is_known(&f)) {
            return None;
        }
        Some(forms.iter().filter_map(|f| f.values.clone()).flatten().collect())
    }

    /// Returns true when no two options share a constant. With `name`, the constants are those of that member.
    fn differ(&self, options: &[Vec<Form<'a>>], name: Option<&str>) -> bool {
        let mut seen = HashSet::new();
        let of = |forms: &Vec<Form<'a>>| match name {
            None => Self::constants(forms),
            Some(_) if forms.iter().any(|f| f.types != OBJECT) => None,
            Some(name) => {
                let members: Vec<_> = forms.iter().flat_map(|f| self.member(f, name, 0)).collect();
                Self::constants(&members)
            }
        };
        options.iter().all(|forms| of(forms).is_some_and(|own| own.into_iter().all(|v| seen.insert(v))))
    }

    fn exclude_each_other(&self, options: &[Vec<Form<'a>>]) -> bool {
        if self.differ(options, None) {
            return true;
        }
        let apart =
            |(i, a): (usize, &Vec<Form<'a>>)| options[i + 1..].iter().all(|b| self.are_apart(a, b, 0));
        options.len() <= MOST_PAIRED && options.iter().enumerate().all(apart)
    }

    /// Finds a member that distinguishes the options by its constants, provided that all options have the member. It
    /// tries the name in the schema's discriminator first, then the names of the first option.
    fn teller(&self, options: &[Vec<Form<'a>>], named: Option<&str>) -> Option<String> {
        let own = options.first()?.first()?;
        let names = named.into_iter().chain(own.members.iter().map(|(name, _)| *name));
        names.take(MOST_PAIRED).find(|name| self.differ(options, Some(name))).map(str::to_owned)
    }

    fn apply(&self, v: &mut Value) {
        let Value::Object(s) = v else { return };
        self.one_of(s);
        let _ = inner_mut(s, &mut |part| {
            self.apply(part);
            Ok(())
        });
    }

    /// Rewrites one oneOf. The options are looked up in the unchanged document.
    fn one_of(&self, s: &mut Members) {
        let Some(Value::Array(list)) = s.get("oneOf") else { return };
        if list.len() > MOST_CONSTANTS || self.is_old && s.contains_key("$ref") {
            return;
        }
        let list = list.clone();
        let look = Look {
            root: self.root,
            follows: self.follows,
            is_old: self.is_old,
            left: Cell::new(self.left.get()),
        };
        let options: Vec<_> = list.iter().map(|v| look.forms(v, 0)).collect();
        let discriminator = s.get("discriminator");
        let named = discriminator.and_then(|d| d.get("propertyName").unwrap_or(d).as_str());
        let asked = match look.exclude_each_other(&options) {
            true => Some(None),
            false => look.teller(&options, named).map(Some),
        };
        self.left.set(look.left.get());
        let Some(asked) = asked else { return };
        let Some(options) = s.shift_remove("oneOf") else { return };
        match s.contains_key("anyOf") {
            true => also(s, json!({ "anyOf": options })),
            false => {
                s.insert("anyOf".to_owned(), options);
            }
        }
        if let Some(name) = asked {
            also(s, json!({ "type": "object", "required": [name] }));
        }
    }
}

/// Rewrites all schemas. `root` is a copy of the unchanged schema.
pub fn apply(schema: &mut Value, root: &Value, follows: bool, is_old: bool) {
    Look { root, follows, is_old, left: Cell::new(MOST_LOOKS) }.apply(schema);
}

//! Builds a graph of all schemas inside a schema, with an edge for each reference and each part. The graph shows which
//! schemas no finite text satisfies, and which schemas llguidance would join wrongly.

use super::walk::{inner, inner_mut, is_anything};
use crate::base::error::{fail, invalid, Code, Result};
use serde_json::{Map, Value};
use std::collections::{HashMap, VecDeque};

/// Types of JSON values, one bit each; integers count as numbers.
const TYPES: [&str; 6] = ["null", "boolean", "number", "string", "array", "object"];
pub const ARRAY: u8 = 1 << 4;
pub const OBJECT: u8 = 1 << 5;
pub const ALL: u8 = (1 << 6) - 1;
/// Bits for the shapes of a schema: it closes the object (additionalProperties), or it has members by pattern
/// (patternProperties).
const CLOSED: u8 = 1;
const PATTERNS: u8 = 2;

/// Most patterns that one text must match. Each pattern doubles llguidance's work to check whether any text matches all
/// of them.
const MOST_PATTERNS: u8 = 8;

type Members = Map<String, Value>;

/// Returns the bit of a type name. Returns ALL for an unknown type name; llguidance refuses the name.
pub fn bit_of(name: &str) -> u8 {
    TYPES.iter().position(|t| *t == name || name == "integer" && *t == "number").map_or(ALL, |i| 1 << i)
}

pub fn bit_of_value(v: &Value) -> u8 {
    match v {
        Value::Null => 1,
        Value::Bool(_) => 1 << 1,
        Value::Number(_) => 1 << 2,
        Value::String(_) => 1 << 3,
        Value::Array(_) => ARRAY,
        Value::Object(_) => OBJECT,
    }
}

/// Holds all schemas of a request.
pub struct Graph<'a> {
    root: &'a Value,
    nodes: Vec<&'a Members>,
    /// Number of each node, by the address of its value.
    index: HashMap<*const Value, usize>,
    anchors: HashMap<&'a str, &'a Value>,
    /// True when an inner schema has a name ($id). The name changes the meaning of references below it, so references are
    /// then not followed.
    has_names: bool,
}

fn collect<'a>(g: &mut Graph<'a>, v: &'a Value) {
    let Value::Object(s) = v else { return };
    let is_root = g.nodes.is_empty();
    g.index.insert(v, g.nodes.len());
    g.nodes.push(s);
    if let Some(name) = s.get("$anchor").and_then(Value::as_str) {
        g.anchors.insert(name, v);
    }
    let is_name = |key: &str| s.get(key).and_then(Value::as_str).is_some();
    g.has_names |= !is_root && (is_name("$id") || is_name("id"));
    inner(s, |part| collect(g, part));
}

pub fn percent_decoded(text: &str) -> Option<String> {
    let mut out = Vec::new();
    let mut bytes = text.bytes();
    while let Some(b) = bytes.next() {
        match b {
            b'%' => {
                let digits = [bytes.next()?, bytes.next()?];
                out.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
            }
            b => out.push(b),
        }
    }
    String::from_utf8(out).ok()
}

impl<'a> Graph<'a> {
    pub fn new(root: &'a Value) -> Graph<'a> {
        let mut g = Graph {
            root,
            nodes: Vec::new(),
            index: HashMap::new(),
            anchors: HashMap::new(),
            has_names: false,
        };
        collect(&mut g, root);
        g
    }

    pub fn schemas(&self) -> &[&'a Members] {
        &self.nodes
    }

    /// Returns the target of this schema's $ref. Returns None when there is no $ref or when its target is not known.
    pub fn target(&self, s: &Members) -> Option<&'a Value> {
        let fragment = s.get("$ref")?.as_str()?.strip_prefix('#')?;
        if self.has_names {
            return None;
        }
        match fragment.is_empty() || fragment.starts_with('/') {
            true => self.root.pointer(&percent_decoded(fragment)?),
            false => self.anchors.get(fragment).copied(),
        }
    }

    fn of(&self, known: &[u8], v: &Value, unknown: u8) -> u8 {
        match v {
            Value::Bool(false) => 0,
            Value::Object(_) => self.index.get(&(v as *const Value)).map_or(unknown, |&i| known[i]),
            _ => unknown,
        }
    }

    /// Computes the least solution: it evaluates each node with the answers of all other nodes until no answer grows. An
    /// answer grows only a few times, and only the nodes that depend on it are evaluated again.
    fn solve(&self, eval: impl Fn(&Self, &[u8], &'a Members) -> u8) -> Vec<u8> {
        let n = self.nodes.len();
        let mut asks: Vec<Vec<usize>> = vec![Vec::new(); n];
        for (i, s) in self.nodes.iter().enumerate() {
            let mut ask = |v: &Value| {
                if let Some(&to) = self.index.get(&(v as *const Value)) {
                    asks[to].push(i);
                }
            };
            inner(s, &mut ask);
            self.target(s).into_iter().for_each(ask);
        }
        let mut known = vec![0; n];
        // Parts are listed after the schema that contains them. The queue starts from the end, so most parts are known
        // when they are needed.
        let mut waiting: VecDeque<usize> = (0..n).rev().collect();
        let mut waits = vec![true; n];
        while let Some(i) = waiting.pop_front() {
            waits[i] = false;
            let now = eval(self, &known, self.nodes[i]);
            if now != known[i] {
                known[i] = now;
                for &j in &asks[i] {
                    if !std::mem::replace(&mut waits[j], true) {
                        waiting.push_back(j);
                    }
                }
            }
        }
        known
    }

    /// Returns the types that may have a finite value that satisfies the schema, as far as the graph shows.
    fn types(&self, known: &[u8], s: &'a Members) -> u8 {
        let mut types = match s.get("type") {
            Some(Value::String(t)) => bit_of(t),
            Some(Value::Array(list)) => {
                list.iter().filter_map(Value::as_str).map(bit_of).fold(0, |a, b| a | b)
            }
            _ => ALL,
        };
        types &= s.get("const").map_or(ALL, bit_of_value);
        if let Some(Value::Array(list)) = s.get("enum") {
            types &= list.iter().map(bit_of_value).fold(0, |a, b| a | b);
        }
        let list = |key: &str| s.get(key).and_then(Value::as_array);
        for v in list("allOf").into_iter().flatten() {
            types &= self.of(known, v, ALL);
        }
        for options in ["anyOf", "oneOf"].into_iter().filter_map(list) {
            types &= options.iter().map(|v| self.of(known, v, ALL)).fold(0, |a, b| a | b);
        }
        types &= self.target(s).map_or(ALL, |v| self.of(known, v, ALL));
        let has = |v: &Value| self.of(known, v, ALL) != 0;
        if !has_members(s, &has) {
            types &= !OBJECT;
        }
        if !has_items(s, &has) {
            types &= !ARRAY;
        }
        types
    }

    fn shapes_of_own(s: &Members) -> u8 {
        let patterns = s.get("patternProperties").and_then(Value::as_object).is_some_and(|p| !p.is_empty());
        let closed = s.get("additionalProperties").is_some_and(|v| !is_anything(v));
        (if patterns { PATTERNS } else { 0 }) | (if closed { CLOSED } else { 0 })
    }

    /// Returns the shapes of each part that applies to the same object: the schema itself, each part of allOf, and the
    /// other joined parts.
    fn shapes(&self, known: &[u8], s: &'a Members) -> Vec<u8> {
        let list = |key: &str| s.get(key).and_then(Value::as_array);
        let mut parts = vec![Self::shapes_of_own(s)];
        parts.extend(list("allOf").into_iter().flatten().map(|v| self.of(known, v, 0)));
        for options in ["anyOf", "oneOf"].into_iter().filter_map(list) {
            parts.push(options.iter().map(|v| self.of(known, v, 0)).fold(0, |a, b| a | b));
        }
        parts.extend(self.target(s).map(|v| self.of(known, v, 0)));
        parts
    }
}

/// Returns true when an object can have all its required members.
fn has_members(s: &Members, has: &dyn Fn(&Value) -> bool) -> bool {
    let map = |key: &str| s.get(key).and_then(Value::as_object);
    let others = s.get("additionalProperties").map_or(true, has) || map("patternProperties").is_some();
    let has_member = |name: &str| map("properties").and_then(|p| p.get(name)).map_or(others, has);
    let required = s.get("required").and_then(Value::as_array);
    if !required.into_iter().flatten().filter_map(Value::as_str).all(has_member) {
        return false;
    }
    let any = || others || map("properties").is_some_and(|p| p.values().any(has));
    s.get("minProperties").and_then(Value::as_f64).map_or(true, |n| n < 1.0) || any()
}

/// Returns true when an array can have all its required items.
fn has_items(s: &Members, has: &dyn Fn(&Value) -> bool) -> bool {
    let least = s.get("minItems").and_then(Value::as_f64).unwrap_or(0.0);
    let (first, rest) = match (s.get("items"), s.get("prefixItems")) {
        (Some(Value::Array(list)), _) => (Some(list), s.get("additionalItems")),
        (items, Some(Value::Array(list))) => (Some(list), items),
        (items, _) => (None, items),
    };
    let n_first = first.map_or(0, Vec::len);
    let mut first = first.into_iter().flatten().enumerate();
    first.all(|(i, v)| i as f64 >= least || has(v)) && (least <= n_first as f64 || rest.map_or(true, has))
}

/// Visits the schemas in the order of Graph's nodes. An unsatisfiable schema becomes `false`. If it has inner schemas, it
/// keeps them and gets an empty enum instead, because references may lead to them.
fn prune(v: &mut Value, types: &[u8], next: &mut usize) {
    let Value::Object(s) = v else { return };
    let own = *next;
    *next += 1;
    let _ = inner_mut(s, &mut |part| {
        prune(part, types, next);
        Ok(())
    });
    if types[own] != 0 {
        return;
    }
    if *next == own + 1 {
        *v = Value::Bool(false);
        return;
    }
    let mut members = std::mem::take(s);
    members.shift_remove("$ref");
    members.shift_remove("enum");
    s.insert("enum".to_owned(), Value::Array(Vec::new()));
    s.extend(members);
}

/// Removes the parts that no finite text satisfies, because an answer could begin such a part and never end. Fails when
/// no finite text satisfies the whole schema.
pub fn keep_finite(root: &mut Value) -> Result<()> {
    let types = {
        let g = Graph::new(root);
        g.solve(|g, known, s| g.types(known, s))
    };
    if root == &Value::Bool(false) || types.first() == Some(&0) {
        return Err(invalid(
            "the schema allows no text: a required $ref refers to itself, or a required part allows no text",
        ));
    }
    if types.contains(&0) {
        prune(root, &types, &mut 0);
    }
    Ok(())
}

/// Refuses joined schemas when one has patternProperties and another has additionalProperties. For a member that matches
/// the pattern, llguidance ignores the additionalProperties of the other schema.
pub fn check_shapes(root: &Value) -> Result<()> {
    let g = Graph::new(root);
    let known = g.solve(|g, known, s| g.shapes(known, s).into_iter().fold(0, |a, b| a | b));
    for s in &g.nodes {
        let parts = g.shapes(&known, s);
        let clash = |i: usize| {
            parts[i] & PATTERNS != 0 && parts.iter().enumerate().any(|(j, p)| i != j && p & CLOSED != 0)
        };
        if (0..parts.len()).any(clash) {
            return Err(invalid(
                "patternProperties combined with the additionalProperties of another schema (by allOf, anyOf, oneOf or \
                 $ref) are not supported. Put both into one schema",
            ));
        }
    }
    Ok(())
}

/// Keywords that do not constrain a value, or whose effect does not depend on the schema beside them.
const SILENT: [&str; 13] = [
    "$schema",
    "$id",
    "id",
    "$anchor",
    "$defs",
    "definitions",
    "x-guidance",
    "default",
    "examples",
    "title",
    "description",
    "$dynamicAnchor",
    "$recursiveAnchor",
];
/// Keywords that join or compare their parts with the schema beside them.
#[rustfmt::skip]
const JOINING: [&str; 17] = [
    "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependentRequired", "dependencies", "contains", "propertyNames",
    "unevaluatedProperties", "unevaluatedItems", "$dynamicRef", "$recursiveRef", "minContains", "maxContains", "const",
];

/// Returns true when this schema may make a value satisfy several schemas at once.
fn joins(s: &Members) -> bool {
    s.keys().any(|key| JOINING.contains(&key.as_str())) || joins_parts(s)
}

/// Returns true when the schema joins parts by allOf, anyOf or $ref.
pub fn joins_parts(s: &Members) -> bool {
    let says = |key: &&String| !SILENT.contains(&key.as_str());
    let is_part = |key: &&String| ["allOf", "anyOf", "$ref"].contains(&key.as_str());
    let many = s.get("allOf").and_then(Value::as_array).is_some_and(|l| l.len() > 1);
    many || s.keys().any(|key| is_part(&key)) && s.keys().filter(says).count() > 1
}

/// Returns for each of Graph's nodes, in order, whether llguidance may join it with another schema.
pub fn joined(root: &Value) -> Vec<bool> {
    let g = Graph::new(root);
    let mut known = vec![false; g.nodes.len()];
    let mut waiting: Vec<usize> = (0..g.nodes.len()).filter(|i| joins(g.nodes[*i])).collect();
    waiting.iter().for_each(|i| known[*i] = true);
    while let Some(i) = waiting.pop() {
        let s = g.nodes[i];
        let mut reach = |v: &Value| {
            if let Some(&to) = g.index.get(&(v as *const Value)) {
                if !std::mem::replace(&mut known[to], true) {
                    waiting.push(to);
                }
            }
        };
        inner(s, &mut reach);
        g.target(s).into_iter().for_each(reach);
    }
    known
}

/// Returns the largest number of patterns that one text must match.
fn patterns(g: &Graph<'_>, known: &[u8], s: &Members) -> u8 {
    let list = |key: &str| s.get(key).and_then(Value::as_array);
    let of = |v: &Value| g.of(known, v, 0);
    let own = s.contains_key("pattern") as u8 + s.contains_key("format") as u8;
    let all = list("allOf").into_iter().flatten().map(of).chain(g.target(s).map(of));
    let options = ["anyOf", "oneOf"].into_iter().filter_map(list);
    let most = options.map(|options| options.iter().map(of).max().unwrap_or(0));
    all.chain(most).fold(own, u8::saturating_add).min(MOST_PATTERNS + 1)
}

pub fn check_patterns(root: &Value) -> Result<()> {
    let known = Graph::new(root).solve(patterns);
    match known.iter().any(|n| *n > MOST_PATTERNS) {
        true => fail(
            Code::Limit,
            format!("the schema combines more than {MOST_PATTERNS} patterns for one string by allOf or $ref"),
        ),
        false => Ok(()),
    }
}

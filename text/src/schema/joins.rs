//! Counts the parts of a schema that llguidance would join, before llguidance does so. llguidance merges the schemas of
//! one value (from allOf and from $ref with other keywords) into one. It also merges the schemas of their members and
//! items. The copies multiply, and none of llguidance's own limits applies. For several patterns of one text, llguidance
//! visits the combinations of their ways for each byte (regex_ways.rs). Their number is the product of the ways.

use super::graph::{joins_parts, Graph};
use super::regex_ways::{ways, MOST_WAYS, WAYS_OF_FORMAT, WAYS_OF_LENGTH};
use crate::base::error::{fail, Code, Result};
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};

type Members = Map<String, Value>;

/// Most schemas that apply to one value. A schema that occurs several times counts each time.
const MOST_JOINED: usize = 4_000;
/// Most schemas that are visited for a whole request, all members of joined schemas included.
const MOST_LOOKS: usize = 100_000;
/// Depth at which llguidance gives up on endless references.
const MOST_DEPTH: usize = 128;

/// Describes the schemas that apply to one value: a single schema, all of several, or any of several.
enum Said<'a> {
    Own(&'a Members),
    All(Vec<Said<'a>>),
    Any(Vec<Said<'a>>),
}

struct Walk<'a> {
    graph: &'a Graph<'a>,
    looks: usize,
    ways: HashMap<&'a str, f64>,
    /// Schemas on the path to the current one. llguidance refuses a schema that leads back to itself, or does not join
    /// it.
    path: Vec<&'a Members>,
}

fn list<'a>(s: &'a Members, key: &str) -> Option<&'a Vec<Value>> {
    s.get(key).and_then(Value::as_array)
}

fn too_many<T>() -> Result<T> {
    fail(
        Code::Limit,
        format!("allOf and $ref combine more than {MOST_JOINED} schemas for one value. Combine fewer schemas, each \
                 only once"),
    )
}

impl<'a> Said<'a> {
    /// Collects the schemas that apply to the same value as `v`, through references and combined parts. `left` is the
    /// number of schemas that may still be joined.
    fn of(w: &mut Walk<'a>, v: &'a Value, left: &mut usize) -> Result<Said<'a>> {
        match v {
            Value::Object(s) => Said::of_schema(w, s, left),
            _ => Ok(Said::All(Vec::new())),
        }
    }

    fn of_schema(w: &mut Walk<'a>, s: &'a Members, left: &mut usize) -> Result<Said<'a>> {
        if *left == 0 {
            return too_many();
        }
        w.look()?;
        *left -= 1;
        let mut all = vec![Said::Own(s)];
        if w.path.len() < MOST_DEPTH && !w.path.iter().any(|before| std::ptr::eq(*before, s)) {
            w.path.push(s);
            for part in list(s, "allOf").into_iter().flatten().chain(w.graph.target(s)) {
                all.push(Said::of(w, part, left)?);
            }
            for options in ["anyOf", "oneOf"].into_iter().filter_map(|key| list(s, key)) {
                // Only one option applies at a time, so each option may use the whole rest.
                let mut least = *left;
                let mut any = Vec::with_capacity(options.len());
                for option in options {
                    let mut own = *left;
                    any.push(Said::of(w, option, &mut own)?);
                    least = least.min(own);
                }
                *left = least;
                all.push(Said::Any(any));
            }
            w.path.pop();
        }
        Ok(if all.len() == 1 { all.remove(0) } else { Said::All(all) })
    }

    fn each(&self, f: &mut impl FnMut(&'a Members)) {
        match self {
            Said::Own(s) => f(s),
            Said::All(list) | Said::Any(list) => list.iter().for_each(|part| part.each(f)),
        }
    }

    /// Returns the largest number of schemas for which `says` is true and that are joined at once.
    fn joined(&self, says: &impl Fn(&'a Members) -> bool) -> usize {
        match self {
            Said::Own(s) => says(s) as usize,
            Said::All(list) => list.iter().map(|part| part.joined(says)).sum(),
            Said::Any(list) => list.iter().map(|part| part.joined(says)).max().unwrap_or(0),
        }
    }

    /// Joins the schemas that `part` selects from each schema.
    fn inner(
        &self,
        w: &mut Walk<'a>,
        left: &mut usize,
        part: &impl Fn(&'a Members) -> Option<&'a Value>,
    ) -> Result<Said<'a>> {
        match self {
            Said::Own(s) => {
                w.look()?;
                match part(s) {
                    Some(v) => Said::of(w, v, left),
                    None => Ok(Said::All(Vec::new())),
                }
            }
            Said::All(list) => {
                let parts = list.iter().map(|said| said.inner(w, left, part));
                parts.collect::<Result<_>>().map(Said::All)
            }
            Said::Any(list) => {
                let mut least = *left;
                let mut any = Vec::with_capacity(list.len());
                for said in list {
                    let mut own = *left;
                    any.push(said.inner(w, &mut own, part)?);
                    least = least.min(own);
                }
                *left = least;
                Ok(Said::Any(any))
            }
        }
    }
}

impl<'a> Walk<'a> {
    fn look(&mut self) -> Result<()> {
        self.looks += 1;
        match self.looks > MOST_LOOKS {
            true => fail(
                Code::Limit,
                "the schemas that allOf and $ref combine have too many members in total. Combine fewer or smaller schemas",
            ),
            false => Ok(()),
        }
    }

    fn ways_of(&mut self, s: &'a Members) -> f64 {
        let mut product = 1.0;
        if let Some(p) = s.get("pattern").and_then(Value::as_str) {
            product *= *self.ways.entry(p).or_insert_with(|| ways(p));
        }
        if s.contains_key("format") {
            product *= WAYS_OF_FORMAT;
        }
        let has_length = s.contains_key("minLength") || s.contains_key("maxLength");
        if has_length && product > 1.0 {
            product * WAYS_OF_LENGTH
        } else {
            product
        }
    }

    fn ways(&mut self, said: &Said<'a>) -> f64 {
        match said {
            Said::Own(s) => self.ways_of(s),
            Said::All(list) => list.iter().map(|part| self.ways(part)).product(),
            Said::Any(list) => list.iter().map(|part| self.ways(part)).fold(1.0, f64::max),
        }
    }

    fn check(&mut self, said: &Said<'a>, depth: usize) -> Result<()> {
        let n = said.joined(&|s: &'a Members| s.contains_key("pattern") || s.contains_key("format"));
        if n > 1 && self.ways(said) > MOST_WAYS {
            return fail(
                Code::Limit,
                format!("the intersection of {n} patterns for one string (by allOf, $ref or format) costs too much. \
                         Combine fewer patterns"),
            );
        }
        if depth > MOST_DEPTH {
            return Ok(());
        }
        let mut names: Vec<&'a str> = Vec::new();
        let mut seen = HashSet::new();
        said.each(&mut |s| {
            let own = s.get("properties").and_then(Value::as_object).into_iter().flatten();
            names.extend(own.map(|(name, _)| name.as_str()).filter(|name| seen.insert(*name)));
        });
        for name in names {
            self.inner(said, depth, &|s: &'a Members| {
                let own = s.get("properties").and_then(|p| p.get(name));
                own.or_else(|| s.get("additionalProperties"))
            })?;
        }
        for key in ["additionalProperties", "items", "additionalItems"] {
            self.inner(said, depth, &|s: &'a Members| s.get(key))?;
        }
        Ok(())
    }

    /// Checks one member that several schemas mention. llguidance handles a member of a single schema by itself.
    fn inner(
        &mut self,
        said: &Said<'a>,
        depth: usize,
        part: &impl Fn(&'a Members) -> Option<&'a Value>,
    ) -> Result<()> {
        if said.joined(&|s: &'a Members| part(s).is_some()) < 2 {
            return Ok(());
        }
        let inner = said.inner(self, &mut { MOST_JOINED }, part)?;
        self.check(&inner, depth + 1)
    }
}

pub fn check(root: &Value) -> Result<()> {
    let graph = Graph::new(root);
    let mut walk = Walk { graph: &graph, looks: 0, ways: HashMap::new(), path: Vec::new() };
    for s in graph.schemas().iter().filter(|s| joins_parts(s)) {
        let said = Said::of_schema(&mut walk, s, &mut { MOST_JOINED })?;
        walk.check(&said, 0)?;
    }
    Ok(())
}

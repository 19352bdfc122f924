//! Keeps texts that a schema cannot express for llguidance. In the schema, a random number that no client can know stands
//! for each of these texts. The texts replace these numbers after llguidance has made its lexemes.

use super::names;
use super::number_text::Span;
use super::pattern_text::PatternText;
use crate::base::error::{fail, invalid, Code, Result};
use llguidance::derivre::RegexAst;
use llguidance::earley::lexerspec::LexerSpec;
use serde_json::{json, Map, Value};
use std::cell::{Cell, RefCell};
use std::collections::hash_map::RandomState;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::sync::OnceLock;

type Members = Map<String, Value>;

/// Most digits in all bounds of a request that are written out. llguidance makes a few nodes for each digit.
const MOST_DIGITS: usize = 20_000;

/// Keywords of a schema that can be split by types, because no reference leads into such a schema.
#[rustfmt::skip]
pub const SIMPLE: [&str; 17] = [
    "$schema", "$anchor", "type", "minLength", "maxLength", "pattern", "title", "description", "default", "examples",
    "minItems", "maxItems", "x-guidance", "$id", "id", "required", "uniqueItems",
];
/// Keywords of a schema that stay at its place when the schema is split.
const OF_PLACE: [&str; 5] = ["$schema", "$anchor", "$id", "id", "x-guidance"];

/// Fuel of a request for all checks whether a `Text` allows any text at all: about one second of work.
const EMPTY_FUEL: u64 = 10_000_000;

/// Describes a text that a stand-in stands for.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Text {
    Number(Span),
    Pattern(PatternText),
}

/// Holds the stand-ins of one request's schemas; each text has one stand-in. Most texts are numbers.
pub struct Numbers {
    fuel: Cell<u64>,
    texts: RefCell<Vec<Text>>,
    known: RefCell<HashMap<Text, usize>>,
}

/// Returns the number that stands for text i. It is random, so that no client can know it, and within the range that all
/// drafts handle.
fn stand_in(i: usize) -> i64 {
    static FIRST: OnceLock<i64> = OnceLock::new();
    let first = FIRST.get_or_init(|| {
        let random = RandomState::new().build_hasher().finish();
        (1 << 52) + (random & ((1 << 51) - 1)) as i64
    });
    first + i as i64
}

impl Default for Numbers {
    fn default() -> Numbers {
        Numbers { fuel: Cell::new(EMPTY_FUEL), texts: RefCell::default(), known: RefCell::default() }
    }
}

impl Numbers {
    /// Returns true when `text` allows no text. The result is false for a text that already has a stand-in. For any other
    /// text, `look` computes the result with the remaining fuel.
    pub fn is_empty(&self, text: &Text, look: impl FnOnce(&mut u64) -> Result<bool>) -> Result<bool> {
        if self.known.borrow().contains_key(text) {
            return Ok(false);
        }
        let mut fuel = self.fuel.get();
        let answer = look(&mut fuel);
        self.fuel.set(fuel);
        answer
    }

    pub fn add(&self, text: Text) -> Result<i64> {
        let (mut texts, mut known) = (self.texts.borrow_mut(), self.known.borrow_mut());
        if let Some(i) = known.get(&text) {
            return Ok(stand_in(*i));
        }
        let digits = |t: &Text| if let Text::Number(span) = t { span.digits() } else { 0 };
        if texts.iter().chain([&text]).map(digits).sum::<usize>() > MOST_DIGITS {
            return fail(
                Code::Limit,
                format!("the number bounds of the schema have more than {MOST_DIGITS} digits in total"),
            );
        }
        known.insert(text.clone(), texts.len());
        texts.push(text);
        Ok(stand_in(texts.len() - 1))
    }

    /// Replaces the stand-ins by their texts. It must be called before the grammar is compiled.
    pub fn place(&self, spec: &mut LexerSpec) -> Result<()> {
        let texts = self.texts.borrow();
        if texts.is_empty() {
            return Ok(());
        }
        let mut places = HashMap::new();
        for (i, text) in texts.iter().enumerate() {
            let own = RegexAst::Regex(format!("({})", stand_in(i)));
            let own = spec
                .regex_builder
                .mk(&own)
                .map_err(|e| invalid(format!("a string of the schema is not supported: {e}")))?;
            places.insert(own, text);
        }
        for i in 0..spec.lexemes.len() {
            let own = names::expression(spec, i).and_then(|own| places.get(&own));
            match own {
                Some(Text::Number(span)) => names::replace(spec, i, span.text())?,
                Some(Text::Pattern(text)) => names::replace(spec, i, text.quoted())?,
                None => {}
            }
        }
        Ok(())
    }
}

/// Returns the types of the schema except those in `own`.
pub fn other_types(s: &Members, own: &[&str]) -> Vec<Value> {
    let is_other = |t: &&Value| !own.iter().any(|o| *t == o);
    let all = ["null", "boolean", "string", "array", "object", "number"].map(Value::from);
    match s.get("type") {
        Some(Value::Array(list)) => list.iter().filter(is_other).cloned().collect(),
        Some(_) => Vec::new(),
        None => all.iter().filter(is_other).cloned().collect(),
    }
}

/// Replaces the keywords `said` by a reference to a stand-in. When `name` is None, the keywords are only removed.
/// Keywords for other types stay.
pub fn refer(s: &mut Members, said: &[&str], others: Vec<Value>, name: Option<i64>, made: &mut Members) {
    let mut place = Members::new();
    for key in OF_PLACE {
        if let Some(v) = s.shift_remove(key) {
            place.insert(key.to_owned(), v);
        }
    }
    said.iter().for_each(|key| {
        s.shift_remove(*key);
    });
    let mut rest = std::mem::take(s);
    rest.insert("type".to_owned(), others.clone().into());
    let reference = name.map(|name| {
        made.insert(name.to_string(), json!({ "type": "integer", "minimum": name, "maximum": name }));
        json!({ "$ref": format!("#/$defs/{name}") })
    });
    match (reference, others.is_empty()) {
        (None, true) => place.extend([("enum".to_owned(), Value::Array(Vec::new()))]), // an empty enum allows nothing
        (None, false) => place.extend(rest),
        (Some(Value::Object(reference)), true) => place.extend(reference),
        (Some(reference), _) => place.extend([("anyOf".to_owned(), json!([rest, reference]))]),
    }
    *s = place;
}

/// Adds the schemas that this crate's references lead to.
pub fn define(root: &mut Value, made: Members) {
    if let (Value::Object(s), false) = (root, made.is_empty()) {
        let defs = s.entry("$defs").or_insert_with(|| Value::Object(Members::new()));
        defs.as_object_mut().into_iter().for_each(|defs| defs.extend(made.clone()));
    }
}

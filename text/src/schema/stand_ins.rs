//! Texts that the crate (llguidance) cannot be told of in a schema: a number no answer can know stands for each of
//! them, and the texts take its place once the crate has made its lexemes.

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

/// The digits of all bounds of a request that are written out: each becomes a few nodes of the crate's.
const MOST_DIGITS: usize = 20_000;

/// A schema of these alone can be taken apart by types: nothing is led into.
#[rustfmt::skip]
pub const SIMPLE: [&str; 17] = [
    "$schema", "$anchor", "type", "minLength", "maxLength", "pattern", "title", "description", "default", "examples",
    "minItems", "maxItems", "x-guidance", "$id", "id", "required", "uniqueItems",
];
/// Members of a schema that stay with its place.
const OF_PLACE: [&str; 5] = ["$schema", "$anchor", "$id", "id", "x-guidance"];

/// For all looks of a request whether there is any such number: a second of work.
const EMPTY_FUEL: u64 = 10_000_000;

/// The text that a stand-in stands for.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Text {
    Number(Span),
    Pattern(PatternText),
}

/// The texts of one request's schemas that stand-ins are made for, each once: numbers, most often.
pub struct Numbers {
    fuel: Cell<u64>,
    texts: RefCell<Vec<Text>>,
    known: RefCell<HashMap<Text, usize>>,
}

/// The number that stands for a text: nobody else can know it, and all drafts know its bounds.
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
    /// By look, which takes of the fuel that is left, or by what is known of the text.
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

    /// The grammar has not been compiled yet: the texts take the place of what stands for them.
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

/// The types that are none of these.
pub fn other_types(s: &Members, own: &[&str]) -> Vec<Value> {
    let is_other = |t: &&Value| !own.iter().any(|o| *t == o);
    let all = ["null", "boolean", "string", "array", "object", "number"].map(Value::from);
    match s.get("type") {
        Some(Value::Array(list)) => list.iter().filter(is_other).cloned().collect(),
        Some(_) => Vec::new(),
        None => all.iter().filter(is_other).cloned().collect(),
    }
}

/// The schema as a reference to what stands for a text, or to nothing, beside what it says of other types.
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
        (None, true) => place.extend([("enum".to_owned(), Value::Array(Vec::new()))]), // nothing
        (None, false) => place.extend(rest),
        (Some(Value::Object(reference)), true) => place.extend(reference),
        (Some(reference), _) => place.extend([("anyOf".to_owned(), json!([rest, reference]))]),
    }
    *s = place;
}

/// Schemas that references of this crate lead to.
pub fn define(root: &mut Value, made: Members) {
    if let (Value::Object(s), false) = (root, made.is_empty()) {
        let defs = s.entry("$defs").or_insert_with(|| Value::Object(Members::new()));
        defs.as_object_mut().into_iter().for_each(|defs| defs.extend(made.clone()));
    }
}

//! Implements jinja2 for chat templates. It is the sandbox of transformers and vLLM (ImmutableSandboxedEnvironment with
//! trim_blocks, lstrip_blocks, loop controls and {% generation %}), with Python's values and methods. A feature that is
//! missing here gives an error that names it, never a different text.

mod ast;
mod budget;
mod equal;
mod eval;
mod fail;
mod filters;
mod format;
mod items;
mod json;
mod lexer;
mod methods;
mod number;
mod ops;
mod parser;
mod tests;
mod time;
mod unicode;
mod value;
mod wrap;

pub use fail::Fail;
pub use lexer::unescape;
pub use value::{Dict, Value};

/// Holds a parsed template. Any thread may render it.
pub struct Template(ast::Tree);

pub fn parse(source: &str) -> Result<Template, Fail> {
    parser::parse(source).map(Template)
}

/// Holds the variables of a rendering. The rendering's fuel counts from `read` on, so a thread may hold only one context
/// at a time.
pub struct Context(Value);

impl Context {
    /// Reads the context from a JSON object.
    pub fn read(context: &str, fuel: u64) -> Result<Context, Fail> {
        budget::start(fuel, context.len());
        match json::read(context) {
            Ok(v @ Value::Dict(_)) => Ok(Context(v)),
            Ok(_) => Err(Fail::Wrong("the context is not an object".to_owned())),
            Err(Fail::Wrong(why)) => Err(Fail::Wrong(format!("the context is {why}"))),
            Err(e) => Err(e),
        }
    }

    /// Returns true when the name has a value other than none.
    pub fn has(&self, name: &str) -> bool {
        matches!(&self.0, Value::Dict(d) if d.get_str(name).is_some_and(|v| !v.is_none()))
    }

    /// Adds the entries of `defaults` that the context does not name.
    pub fn with_defaults(self, defaults: Vec<(&str, Value)>) -> Result<Context, (Fail, u32)> {
        let Value::Dict(dict) = &self.0 else { return Ok(self) };
        let mut pairs = dict.entries.clone();
        for (name, v) in defaults {
            if dict.get_str(name).is_none() {
                pairs.push((Value::from(name), v));
            }
        }
        Dict::new(pairs).map(Context).map_err(|e| (e, 0))
    }

    /// Returns the rendered text, or the failure and its line.
    pub fn render(self, template: &Template, now_unix: i64) -> Result<String, (Fail, u32)> {
        eval::render(&template.0, &self.0, now_unix)
    }
}

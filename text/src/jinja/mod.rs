//! jinja2 as chat templates use it: the sandbox of transformers and vLLM (ImmutableSandboxedEnvironment
//! with trim_blocks, lstrip_blocks, loop controls and {% generation %}), with Python's values and
//! methods. What is not here is an error that says so, never another text.

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

/// A template that was read, to be rendered by any thread.
pub struct Template(ast::Tree);

pub fn parse(source: &str) -> Result<Template, Fail> {
    parser::parse(source).map(Template)
}

/// The variables of a rendering, which begins with them: its fuel is counted from here, and only one is
/// there in a thread at a time.
pub struct Context(Value);

impl Context {
    /// Of a JSON object.
    pub fn read(context: &str, fuel: u64) -> Result<Context, Fail> {
        budget::start(fuel, context.len());
        match json::read(context) {
            Ok(v @ Value::Dict(_)) => Ok(Context(v)),
            Ok(_) => Err(Fail::Wrong("the context is not an object".to_owned())),
            Err(Fail::Wrong(why)) => Err(Fail::Wrong(format!("the context is {why}"))),
            Err(e) => Err(e),
        }
    }

    /// Whether there is a value of this name that is not none.
    pub fn has(&self, name: &str) -> bool {
        matches!(&self.0, Value::Dict(d) if d.get_str(name).is_some_and(|v| !v.is_none()))
    }

    /// With those of `defaults` that it does not name.
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

    /// The text, or why there is none and in which line.
    pub fn render(self, template: &Template, now_unix: i64) -> Result<String, (Fail, u32)> {
        eval::render(&template.0, &self.0, now_unix)
    }
}

//! Chat templates: where one comes from, and rendering it as transformers does (jinja2 with
//! trim_blocks and lstrip_blocks, Python's names for values), bounded in work, depth and output.

use crate::error::{fail, invalid, Code, Result, TextError};
use crate::gguf::{self, Metadata};
use crate::jinja;
use crate::python;
use crate::source;
use crate::spm;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, Value};
use serde_json::{Map, Value as Json};
use std::io::{self, Write};
use std::path::Path;

const DEFAULT_FUEL: u64 = 20_000_000;
const MAX_OUTPUT: usize = 64 << 20;
const MAX_DEPTH: usize = 200;
/// Messages deeper than this are refused by serde_json itself (its limit is 128).
const MAIN: &str = "chat";
const TOOL_USE: &str = "tool_use";

const BUILT_IN: [(&str, &str); 7] = [
    ("chatml", include_str!("../templates/chatml.jinja")),
    ("gemma3", include_str!("../templates/gemma3.jinja")),
    ("llama2", include_str!("../templates/llama2.jinja")),
    ("llama3", include_str!("../templates/llama3.jinja")),
    ("mistral", include_str!("../templates/mistral.jinja")),
    ("phi3", include_str!("../templates/phi3.jinja")),
    ("vicuna", include_str!("../templates/vicuna.jinja")),
];

pub struct Template {
    env: Environment<'static>,
    has_tool_use: bool,
    /// bos_token, eos_token, … of the model's files: for contexts that do not name them
    special: Vec<(String, String)>,
}

pub fn built_in(name: &str) -> Option<&'static str> {
    BUILT_IN.iter().find(|(n, _)| *n == name).map(|(_, text)| *text)
}

fn no_such(name: &str) -> String {
    let names: Vec<_> = BUILT_IN.iter().map(|(name, _)| *name).collect();
    format!("{name}: no such file, and no built-in template: those are {}", names.join(", "))
}

/// The format of a family whose files bring no template. Llama's two are told apart by their bos token.
fn of_family(family: &str, special: &[(String, String)]) -> Option<&'static str> {
    let bos = special.iter().find(|(name, _)| name == "bos_token").map(|(_, text)| text.as_str());
    built_in(match family {
        "llama" if bos == Some("<|begin_of_text|>") => "llama3",
        "llama" if bos == Some("<s>") => "llama2",
        "qwen2" | "qwen3" | "qwen3_moe" => "chatml",
        "gemma2" => "gemma3",
        "mixtral" => "mistral",
        same => same,
    })
}

impl Template {
    pub fn new(source: &str) -> Result<Template> {
        let mut env = Environment::new();
        env.set_trim_blocks(true);
        env.set_lstrip_blocks(true);
        env.set_auto_escape_callback(|_| AutoEscape::None);
        env.set_recursion_limit(MAX_DEPTH);
        env.set_unknown_method_callback(python::method);
        env.set_formatter(python::format);
        env.add_filter("tojson", python::tojson);
        env.add_filter("string", |v: &Value| python::str_of(v));
        env.add_filter("trim", python::trim);
        env.add_filter("int", jinja::int);
        env.add_filter("float", jinja::float);
        env.add_filter("join", jinja::join);
        env.add_filter(MODULO, jinja::modulo);
        env.add_filter(ITERABLE, python::iterable_or_error);
        env.add_test("iterable", python::is_iterable);
        env.add_test("sequence", python::is_sequence);
        env.add_function("raise_exception", raise_exception);
        env.add_function("strftime_now", strftime_now);
        let mut t = Template { env, has_tool_use: false, special: vec![] };
        t.add(MAIN, source)?;
        Ok(t)
    }

    fn add(&mut self, name: &'static str, source: &str) -> Result<()> {
        self.env
            .add_template_owned(name, to_minijinja(source))
            .map_err(|e| invalid(format!("chat template: {e}")))
    }

    pub fn open(model: &Path, chosen: Option<&str>, family: Option<&str>) -> Result<Template> {
        let files = Files::read(model)?;
        let mut t = match chosen {
            Some(name) => match built_in(name) {
                Some(text) => Template::new(text)?,
                None => match source::read_small(Path::new(name))? {
                    Some(text) => Template::new(&text)?,
                    None => return fail(Code::Io, no_such(name)),
                },
            },
            None => match (files.main.as_deref(), family.and_then(|f| of_family(f, &files.special))) {
                (Some(text), _) => Template::new(text)?,
                (None, Some(text)) => Template::new(text)?,
                (None, None) => {
                    return fail(Code::Unsupported, format!("{}: no chat template", model.display()))
                }
            },
        };
        if let (None, Some(text)) = (chosen, &files.tool_use) {
            t.add(TOOL_USE, text)?;
            t.has_tool_use = true;
        }
        t.special = files.special;
        Ok(t)
    }

    pub fn render(&self, context: &str, now_unix: i64, fuel: u64) -> Result<String> {
        let parsed: Json = serde_json::from_str(context).map_err(|e| invalid(format!("context: {e}")))?;
        let Json::Object(mut context) = parsed else {
            return Err(invalid("context: not an object"));
        };
        self.add_defaults(&mut context);
        let with_tools = !context["tools"].is_null();
        let mut env = self.env.clone();
        env.set_fuel(Some(if fuel == 0 { DEFAULT_FUEL } else { fuel }));
        env.add_global(NOW, Value::from(now_unix));
        let name = if self.has_tool_use && with_tools { TOOL_USE } else { MAIN };
        let template = env.get_template(name).map_err(|e| render_error(&e))?;
        let mut out = Bounded { text: Vec::new() };
        let context = Value::from_serialize(Json::Object(context));
        let rendered = template.render_captured_to(context, &mut out).map(drop);
        match rendered {
            Ok(()) => String::from_utf8(out.text).map_err(|_| invalid("the rendered text is not UTF-8")),
            Err(_) if out.text.len() > MAX_OUTPUT => {
                fail(Code::Limit, format!("the rendered text is longer than {MAX_OUTPUT} bytes"))
            }
            Err(e) => Err(render_error(&e)),
        }
    }

    /// As apply_chat_template gives them: `tools` and `documents` are there, none when not given.
    fn add_defaults(&self, context: &mut Map<String, Json>) {
        for name in ["tools", "documents"] {
            context.entry(name).or_insert(Json::Null);
        }
        context.entry("add_generation_prompt").or_insert(Json::Bool(false));
        for (name, text) in &self.special {
            context.entry(name.as_str()).or_insert_with(|| Json::String(text.clone()));
        }
    }
}

/// What a model's files say about templates.
#[derive(Default)]
struct Files {
    main: Option<String>,
    tool_use: Option<String>,
    special: Vec<(String, String)>,
}

impl Files {
    fn read(model: &Path) -> Result<Files> {
        let mut files = Files::default();
        if model.as_os_str().is_empty() || model == Path::new(crate::tokenizer::BYTES) {
            return Ok(files);
        }
        let folder = source::folder_of(model);
        files.main = source::read_small(&folder.join("chat_template.jinja"))?;
        let config = source::token_config(&folder, true)?;
        files.take_config(&config);
        if let Some(map) = source::map_spm(model)? {
            files.take_named(spm::named_texts(&map, &folder)?);
        }
        if model.is_file() {
            let map = source::map_file(model)?;
            if gguf::is_gguf(&map) {
                files.take_gguf(&Metadata::parse(&map)?)?;
            }
        }
        Ok(files)
    }

    fn take_config(&mut self, config: &Json) {
        match &config["chat_template"] {
            Json::String(text) => {
                self.main.get_or_insert_with(|| text.clone());
            }
            Json::Array(list) => {
                let named = |name: &str| {
                    let one = list.iter().find(|t| t["name"].as_str() == Some(name));
                    one.and_then(|t| t["template"].as_str()).map(str::to_owned)
                };
                if self.main.is_none() {
                    self.main = named("default");
                    self.tool_use = named("tool_use");
                }
            }
            _ => {}
        }
        for (key, v) in config.as_object().into_iter().flatten() {
            if key.ends_with("_token") {
                if let Some(text) = source::token_text(v) {
                    self.special.push((key.clone(), text));
                }
            }
        }
    }

    /// What a tokenizer.model's tokenizer calls its tokens: its class knows names that no file says.
    fn take_named(&mut self, named: Vec<(&'static str, String)>) {
        self.special.retain(|(key, _)| !spm::NAMES.contains(&key.as_str()));
        self.special.extend(named.into_iter().map(|(key, text)| (key.to_owned(), text)));
    }

    fn take_gguf(&mut self, meta: &Metadata) -> Result<()> {
        if self.main.is_none() {
            self.main = meta.text("tokenizer.chat_template").map(str::to_owned);
            self.tool_use = meta.text("tokenizer.chat_template.tool_use").map(str::to_owned);
        }
        let Some(tokens) = meta.array("tokenizer.ggml.tokens") else {
            return Ok(());
        };
        for (key, id) in [
            ("bos_token", "tokenizer.ggml.bos_token_id"),
            ("eos_token", "tokenizer.ggml.eos_token_id"),
            ("unk_token", "tokenizer.ggml.unknown_token_id"),
            ("pad_token", "tokenizer.ggml.padding_token_id"),
        ] {
            let text = match meta.u32(id) {
                Some(id) => tokens.strings()?.nth(id as usize),
                None => None,
            };
            let known = self.special.iter().any(|(k, _)| k == key);
            if let (Some(Ok(text)), false) = (text.map(std::str::from_utf8), known) {
                self.special.push((key.to_owned(), text.to_owned()));
            }
        }
        Ok(())
    }
}

/// The filter that `to_minijinja` puts around what a `for` walks.
const ITERABLE: &str = "__iterable";

/// The filter that stands for the operator %, which may have a text on its left.
pub const MODULO: &str = "__modulo";

/// Rewrites what minijinja does unlike jinja2 and no setting changes: `{% generation %}` (which marks
/// the assistant's part for training) becomes a block that is always taken, `for x in none` an error
/// instead of no turn at all, `"%s" % x` a filter, and each end of a line is a newline.
fn to_minijinja(source: &str) -> String {
    let source = &jinja::with_modulo(&source.replace("\r\n", "\n").replace('\r', "\n"), MODULO);
    let mut out = String::with_capacity(source.len());
    let mut rest: &str = source;
    let mut raw = false;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at);
        out.push_str(before);
        let Some(end) = tag.find("%}").map(|e| e + 2) else {
            rest = tag;
            break;
        };
        let inner = match tag[..end].len() {
            ..4 => "",
            n => tag[2..n - 2].trim_matches(|c: char| c.is_whitespace() || c == '-' || c == '+'),
        };
        let plain = match inner {
            "raw" => {
                raw = true;
                None
            }
            "endraw" => {
                raw = false;
                None
            }
            "generation" if !raw => Some("if true".to_owned()),
            "endgeneration" if !raw => Some("endif".to_owned()),
            _ if !raw => checked_for(inner),
            _ => None,
        };
        match plain {
            Some(words) => out.push_str(&tag[..end].replacen(inner, &words, 1)),
            None => out.push_str(&tag[..end]),
        }
        rest = &tag[end..];
    }
    out.push_str(rest);
    out
}

/// "for x in EXPR if COND" → "for x in (EXPR)|__iterable if COND"; None when it is no such tag.
fn checked_for(inner: &str) -> Option<String> {
    let rest = inner.strip_prefix("for").filter(|r| r.starts_with(char::is_whitespace))?;
    let (target, walked) = rest.split_once(" in ")?;
    let (mut depth, mut quote, mut end) = (0i32, None, walked.len());
    for (at, c) in walked.char_indices() {
        match (quote, c) {
            (Some(q), _) if c == q => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '(' | '[' | '{') => depth += 1,
            (None, ')' | ']' | '}') => depth -= 1,
            (None, _) if depth == 0 && c.is_whitespace() => {
                let next = walked[at..].trim_start();
                let is_word = |w: &str| {
                    next.strip_prefix(w)
                        .is_some_and(|r| !r.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
                };
                if is_word("if") || is_word("recursive") {
                    end = at;
                    break;
                }
            }
            _ => {}
        }
    }
    let (walked, tail) = walked.split_at(end);
    Some(format!("for{target} in ({walked})|{ITERABLE}{tail}"))
}

const NOW: &str = "__now_unix";

fn strftime_now(state: &State, format: &str) -> std::result::Result<String, Error> {
    let now = state.lookup(NOW).and_then(|v| i64::try_from(v).ok()).unwrap_or(0);
    python::strftime(format, now).ok_or_else(|| {
        Error::new(ErrorKind::InvalidOperation, "strftime_now: the format or the time is too long")
    })
}

/// The template's own message, carried through minijinja's error chain.
#[derive(Debug)]
struct Raised(String);

impl std::fmt::Display for Raised {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

fn raise_exception(message: &Value) -> std::result::Result<Value, Error> {
    let message = python::str_of(message);
    Err(Error::new(ErrorKind::InvalidOperation, "raise_exception").with_source(Raised(message)))
}

fn render_error(e: &Error) -> TextError {
    let mut at: Option<&(dyn std::error::Error + 'static)> = Some(e);
    let mut detail = e.to_string();
    while let Some(cause) = at {
        if let Some(Raised(message)) = cause.downcast_ref::<Raised>() {
            return TextError { code: Code::Template, message: message.clone() };
        }
        if let Some(inner) = cause.downcast_ref::<Error>() {
            let kind = inner.kind();
            let deep = inner.detail().is_some_and(|d| d.contains("recursion limit"));
            if kind == ErrorKind::OutOfFuel || deep {
                return TextError { code: Code::Limit, message: format!("chat template: {inner}") };
            }
            detail = inner.to_string();
        }
        at = cause.source();
    }
    invalid(format!("chat template: {detail}"))
}

struct Bounded {
    text: Vec<u8>,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(bytes);
        match self.text.len() > MAX_OUTPUT {
            true => Err(io::Error::other("output limit")),
            false => Ok(bytes.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

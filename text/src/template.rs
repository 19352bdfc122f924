//! Finds the chat template of a model and renders it as transformers does (jinja2 with trim_blocks and lstrip_blocks,
//! Python's value types). Work, depth and output are limited.

use crate::base::error::{fail, invalid, Code, Result, TextError};
use crate::files::gguf::{self, Metadata};
use crate::files::open::{folder_of, map_file, read_small};
use crate::files::token_config::{token_config, token_text};
use crate::jinja::{self, Fail};
use crate::spm;
use crate::tokenizer::{map_spm, BYTES};
use serde_json::Value as Json;
use std::path::Path;

/// Default fuel of a rendering in steps, and the fuel in steps for each byte of its context. The templates of some models
/// read all messages again for each message.
const DEFAULT_FUEL: u64 = 20_000_000;
const FUEL_PER_BYTE: u64 = 100;
/// Upper limit of the default fuel. A step takes at most about 45 ns, so a rendering ends within two seconds of CPU time.
const MOST_FUEL: u64 = 50_000_000;
const TOOL_USE: &str = "tool_use";
const DEFAULT: &str = "default";
/// Most files that are read from additional_chat_templates/.
const MAX_NAMED: usize = 64;
/// Characters that are unusual in a file name. A value of --chat-template with such a character may be the template
/// itself.
const OF_TEMPLATES: [char; 3] = ['{', '}', '\n'];

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
    main: jinja::Template,
    /// template that is used when a request has tools
    tool_use: Option<jinja::Template>,
    /// name and text of the model's other templates; a request may choose one by name
    named: Vec<(String, String)>,
    /// bos_token, eos_token, … from the model's files, for contexts that do not set them
    special: Vec<(String, String)>,
}

pub fn built_in(name: &str) -> Option<&'static str> {
    BUILT_IN.iter().find(|(n, _)| *n == name).map(|(_, text)| *text)
}

fn no_such(name: &str) -> String {
    let names: Vec<_> = BUILT_IN.iter().map(|(name, _)| *name).collect();
    format!(
        "there is no file {name} and no built-in template of this name. Built-in templates: {}",
        names.join(", ")
    )
}

/// Returns the built-in template of a family whose files have none. The bos token distinguishes Llama 2 from Llama 3.
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

fn parse(source: &str) -> Result<jinja::Template> {
    jinja::parse(source).map_err(|e| said(e, 0))
}

/// Converts a failure to an error of text.h. `line` is 0 when the failure has no line.
fn said(fail: Fail, line: u32) -> TextError {
    let at = if line > 0 { format!("line {line}: ") } else { String::new() };
    match fail {
        Fail::Raised(message) => TextError { code: Code::Template, message },
        Fail::Limit(why) => TextError { code: Code::Limit, message: format!("chat template: {at}{why}") },
        Fail::Wrong(why) => invalid(format!("chat template: {at}{why}")),
    }
}

/// Returns the template for a value of --chat-template. The value is the name of a built-in template, a file, or the
/// template itself in one line. In the last case \n and other escapes are read as in vLLM.
fn chosen_text(name: &str) -> Result<String> {
    if let Some(text) = built_in(name) {
        return Ok(text.to_owned());
    }
    if !name.contains(OF_TEMPLATES) {
        return match read_small(Path::new(name))? {
            Some(text) => Ok(text),
            None => fail(Code::Io, no_such(name)),
        };
    }
    // A file with the value as its name is preferred. No such file exists when the value is too long or otherwise
    // invalid as a path.
    if let Ok(Some(text)) = read_small(Path::new(name)) {
        return Ok(text);
    }
    jinja::unescape(name)
        .map_err(|why| invalid(format!("the chat template on the command line is not valid: {why}")))
}

impl Template {
    pub fn new(source: &str) -> Result<Template> {
        Ok(Template { main: parse(source)?, tool_use: None, named: vec![], special: vec![] })
    }

    pub fn open(model: &Path, chosen: Option<&str>, family: Option<&str>) -> Result<Template> {
        let files = Files::read(model)?;
        let family_text = || family.and_then(|f| of_family(f, &files.special)).map(str::to_owned);
        let main = match chosen {
            Some(name) => Some(chosen_text(name)?),
            None => files.main.clone().or_else(family_text),
        };
        let Some(main) = main else {
            return fail(Code::Unsupported, format!("the model {} has no chat template", model.display()));
        };
        let tool_use = match (chosen, files.named(TOOL_USE)) {
            (None, Some(text)) => Some(parse(text)?),
            _ => None,
        };
        Ok(Template { main: parse(&main)?, tool_use, named: files.named, special: files.special })
    }

    /// Returns the model's template with this name, or None.
    pub fn pick(&self, name: &str) -> Result<Option<Template>> {
        let Some((_, text)) = self.named.iter().find(|(n, _)| n == name) else { return Ok(None) };
        let (named, special) = (self.named.clone(), self.special.clone());
        Ok(Some(Template { main: parse(text)?, tool_use: None, named, special }))
    }

    /// Renders as apply_chat_template does. `tools` and `documents` always exist; their default is none.
    pub fn render(&self, context: &str, now_unix: i64, fuel: u64) -> Result<String> {
        let grown = DEFAULT_FUEL.saturating_add((context.len() as u64).saturating_mul(FUEL_PER_BYTE));
        let fuel = if fuel == 0 { grown.min(MOST_FUEL) } else { fuel };
        let context = jinja::Context::read(context, fuel).map_err(|e| said(e, 0))?;
        let mut defaults: Vec<(&str, jinja::Value)> = vec![
            ("tools", jinja::Value::None),
            ("documents", jinja::Value::None),
            ("add_generation_prompt", jinja::Value::Bool(false)),
        ];
        defaults.extend(self.special.iter().map(|(name, text)| (name.as_str(), text.as_str().into())));
        let template = match &self.tool_use {
            Some(t) if context.has("tools") => t,
            _ => &self.main,
        };
        let rendered = context.with_defaults(defaults).and_then(|c| c.render(template, now_unix));
        rendered.map_err(|(fail, line)| said(fail, line))
    }
}

/// Holds the templates and special tokens from a model's files.
#[derive(Default)]
struct Files {
    main: Option<String>,
    /// name and text of each template, `default` and `tool_use` included
    named: Vec<(String, String)>,
    special: Vec<(String, String)>,
}

impl Files {
    fn read(model: &Path) -> Result<Files> {
        let mut files = Files::default();
        if model.as_os_str().is_empty() || model == Path::new(BYTES) {
            return Ok(files);
        }
        let folder = folder_of(model);
        files.main = read_small(&folder.join("chat_template.jinja"))?;
        let config = token_config(&folder, true)?;
        files.take_config(&config);
        files.take_additional(&folder)?;
        if let Some(map) = map_spm(model)? {
            files.take_named(spm::named_texts(&map, &folder)?);
        }
        if model.is_file() {
            let map = map_file(model)?;
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
                for t in list.iter().filter(|_| self.main.is_none()) {
                    if let (Some(name), Some(text)) = (t["name"].as_str(), t["template"].as_str()) {
                        self.named.push((name.to_owned(), text.to_owned()));
                    }
                }
                if self.main.is_none() {
                    self.main = self.named(DEFAULT).map(str::to_owned);
                }
            }
            _ => {}
        }
        for (key, v) in config.as_object().into_iter().flatten() {
            if key.ends_with("_token") {
                if let Some(text) = token_text(v) {
                    self.special.push((key.clone(), text));
                }
            }
        }
    }

    fn named(&self, name: &str) -> Option<&str> {
        self.named.iter().find(|(n, _)| n == name).map(|(_, text)| text.as_str())
    }

    /// Reads additional_chat_templates/NAME.jinja of a folder. These templates are preferred to a list in the config, and
    /// `default` is the main template when there is no other.
    fn take_additional(&mut self, folder: &Path) -> Result<()> {
        let folder = folder.join("additional_chat_templates");
        let Ok(files) = std::fs::read_dir(&folder) else { return Ok(()) };
        let mut paths: Vec<_> = files.flatten().map(|f| f.path()).collect();
        paths.retain(|p| p.extension().is_some_and(|e| e == "jinja"));
        if paths.len() > MAX_NAMED {
            return fail(
                Code::Limit,
                format!("the folder {} has more than {MAX_NAMED} chat templates", folder.display()),
            );
        }
        paths.sort();
        for path in paths {
            let name = path.file_stem().and_then(|n| n.to_str()).unwrap_or_default().to_owned();
            if let Some(text) = read_small(&path)? {
                self.named.retain(|(n, _)| *n != name);
                self.named.push((name, text));
            }
        }
        if self.main.is_none() {
            self.main = self.named(DEFAULT).map(str::to_owned);
        }
        Ok(())
    }

    /// Adds the special tokens of a tokenizer.model, because the tokenizer's class has tokens that no file names.
    fn take_named(&mut self, named: Vec<(&'static str, String)>) {
        self.special.retain(|(key, _)| !spm::NAMES.contains(&key.as_str()));
        self.special.extend(named.into_iter().map(|(key, text)| (key.to_owned(), text)));
    }

    fn take_gguf(&mut self, meta: &Metadata) -> Result<()> {
        if self.main.is_none() {
            self.main = meta.text("tokenizer.chat_template").map(str::to_owned);
            for name in [TOOL_USE, "rag"] {
                if let Some(text) = meta.text(&format!("tokenizer.chat_template.{name}")) {
                    self.named.push((name.to_owned(), text.to_owned()));
                }
            }
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

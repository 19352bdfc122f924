//! Where chat templates come from: a model's files, one that the operator chose, the built-in ones.

use crate::error::{fail, io, Code, Result};
use crate::gguf::{self, Metadata};
use crate::source;
use crate::spm;
use serde_json::Value as Json;
use std::io::ErrorKind;
use std::path::Path;

/// The name of a model's template that has no name.
pub const DEFAULT: &str = "default";
/// The one that transformers and vLLM take where a request has tools.
pub const TOOL_USE: &str = "tool_use";
const MAX_NAMED: usize = 16;
const MAX_ENTRIES: usize = 256;

const BUILT_IN: [(&str, &str); 7] = [
    ("chatml", include_str!("../templates/chatml.jinja")),
    ("gemma3", include_str!("../templates/gemma3.jinja")),
    ("llama2", include_str!("../templates/llama2.jinja")),
    ("llama3", include_str!("../templates/llama3.jinja")),
    ("mistral", include_str!("../templates/mistral.jinja")),
    ("phi3", include_str!("../templates/phi3.jinja")),
    ("vicuna", include_str!("../templates/vicuna.jinja")),
];

fn built_in(name: &str) -> Option<&'static str> {
    BUILT_IN.iter().find(|(n, _)| *n == name).map(|(_, text)| *text)
}

/// What --chat-template says: the name of a built-in template, a file, or the template itself on one
/// line, as vLLM takes it: what has braces or a newline is no name of a file that is not there.
pub fn chosen(value: &str) -> Result<String> {
    if let Some(text) = built_in(value) {
        return Ok(text.to_owned());
    }
    let is_template = value.contains(['{', '}', '\n']);
    match source::read_small(Path::new(value)) {
        Ok(Some(text)) => Ok(text),
        _ if is_template => Ok(unescape(value)),
        Err(e) => Err(e),
        Ok(None) => {
            let names: Vec<_> = BUILT_IN.iter().map(|(name, _)| *name).collect();
            let all = names.join(", ");
            fail(Code::Io, format!("{value}: no such file, and no built-in template: those are {all}"))
        }
    }
}

/// The escapes of a template on one line. A backslash in front of anything else is itself.
fn unescape(line: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(line.len()), line);
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let escaped = rest[at + 1..].chars().next();
        let plain = match escaped {
            Some('n') => Some('\n'),
            Some('t') => Some('\t'),
            Some('r') => Some('\r'),
            Some(same @ ('\\' | '"' | '\'')) => Some(same),
            _ => None,
        };
        out.push(plain.unwrap_or('\\'));
        rest = &rest[at + 1 + plain.map_or(0, |_| 1)..];
    }
    out.push_str(rest);
    out
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

/// What a model's files say about templates.
#[derive(Default)]
pub struct Files {
    pub main: Option<String>,
    /// name and text of those that have a name; a name once
    pub named: Vec<(String, String)>,
    /// bos_token, eos_token, … and their texts
    pub special: Vec<(String, String)>,
}

impl Files {
    pub fn read(model: &Path) -> Result<Files> {
        let mut files = Files::default();
        if model.as_os_str().is_empty() || model == Path::new(crate::tokenizer::BYTES) {
            return Ok(files);
        }
        let folder = source::folder_of(model);
        files.main = source::read_small(&folder.join("chat_template.jinja"))?;
        files.take_folder(&folder.join("additional_chat_templates"))?;
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

    pub fn of_family(&self, family: Option<&str>) -> Option<String> {
        family.and_then(|f| of_family(f, &self.special)).map(str::to_owned)
    }

    pub fn named(&self, name: &str) -> Option<&str> {
        self.named.iter().find(|(n, _)| n == name).map(|(_, text)| text.as_str())
    }

    /// The first text of a name stays: files of their own come before tokenizer_config.json.
    fn add(&mut self, name: &str, text: &str) {
        if name == DEFAULT {
            self.main.get_or_insert_with(|| text.to_owned());
        } else if self.named.len() < MAX_NAMED && self.named(name).is_none() {
            self.named.push((name.to_owned(), text.to_owned()));
        }
    }

    /// NAME.jinja for each template beside the default one.
    fn take_folder(&mut self, folder: &Path) -> Result<()> {
        let entries = match std::fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(()),
            Err(e) => return Err(io(folder.display(), e)),
        };
        let mut names = Vec::new();
        for entry in entries.take(MAX_ENTRIES) {
            let name = entry.map_err(|e| io(folder.display(), e))?.file_name();
            if let Some(stem) = name.to_str().and_then(|n| n.strip_suffix(".jinja")) {
                names.push(stem.to_owned());
            }
        }
        names.sort(); // not in the order of the disk
        for name in names {
            if let Some(text) = source::read_small(&folder.join(format!("{name}.jinja")))? {
                self.add(&name, &text);
            }
        }
        Ok(())
    }

    /// Templates in files of their own are all that a model has, as in transformers; a default one is
    /// taken from here where they have none.
    fn take_config(&mut self, config: &Json) {
        let has_files = !self.named.is_empty();
        match &config["chat_template"] {
            _ if self.main.is_some() => {}
            Json::String(text) => self.add(DEFAULT, text),
            Json::Array(list) => {
                for one in list.iter().take(MAX_ENTRIES) {
                    if let (Some(name), Some(text)) = (one["name"].as_str(), one["template"].as_str()) {
                        if !has_files || name == DEFAULT {
                            self.add(name, text);
                        }
                    }
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
        const KEY: &str = "tokenizer.chat_template";
        if let (None, Some(text)) = (&self.main, meta.text(KEY)) {
            self.add(DEFAULT, text);
            for name in [TOOL_USE, "rag"] {
                if let Some(text) = meta.text(&format!("{KEY}.{name}")) {
                    self.add(name, text);
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

//! The pre-tokenizers that GGUF files name in tokenizer.ggml.pre, as their models' tokenizer.json has
//! them. A name that is not here is refused: a wrong split gives wrong ids without any error.

use serde_json::{json, Value};

pub struct PreTokenizer {
    /// split one after the other, each match a piece of its own
    patterns: &'static [&'static str],
    /// GPT-2's own split inside the byte-level step
    use_regex: bool,
    pub nfc: bool,
    pub ignore_merges: bool,
    pub add_bos: bool,
}

const GPT2: PreTokenizer =
    PreTokenizer { patterns: &[], use_regex: true, nfc: false, ignore_merges: false, add_bos: false };

const LLAMA3_SPLIT: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2_SPLIT: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN35_SPLIT: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const O200K_SPLIT: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const TEKKEN_SPLIT: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const CJK_SPLIT: &str = "[一-龥\u{3040}-ゟ゠-ヿ]+";
const DEEPSEEK_V3_SPLIT: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##;
const DEEPSEEK_LETTERS: &str = r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+";
const DEEPSEEK_CJK: &str = "[一-龥\u{800}-一가-\u{D7FF}]+";
/// What llama.cpp splits by when a file names no pre-tokenizer.
const DEFAULT_SPLITS: [&str; 4] = [
    r"[\p{P}\$\+<=>\^~\|]+",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)",
    r"\p{N}+",
    r"[0-9][0-9][0-9]",
];

const fn split(patterns: &'static [&'static str]) -> PreTokenizer {
    PreTokenizer { patterns, use_regex: false, ..GPT2 }
}

pub fn by_name(name: &str) -> Option<PreTokenizer> {
    Some(match name {
        "gpt-2" | "phi-2" | "jina-es" | "jina-de" | "jina-v2-es" | "jina-v2-de" | "mpt" | "olmo"
        | "gigachat" | "roberta-bpe" | "trillion" => GPT2,
        "llama3" | "llama-v3" | "llama-bpe" | "falcon3" => {
            PreTokenizer { ignore_merges: true, add_bos: true, ..split(&[LLAMA3_SPLIT]) }
        }
        "smaug-bpe" | "dbrx" | "glm4" | "chatglm-bpe" => split(&[LLAMA3_SPLIT]),
        "qwen2" | "deepseek-r1-qwen" | "megrez" => PreTokenizer { nfc: true, ..split(&[QWEN2_SPLIT]) },
        "qwen35" => PreTokenizer { nfc: true, ..split(&[QWEN35_SPLIT]) },
        "stablelm2" => split(&[QWEN2_SPLIT]),
        "gpt-4o" => split(&[O200K_SPLIT]),
        "llama4" => PreTokenizer { add_bos: true, ..split(&[O200K_SPLIT]) },
        "tekken" => PreTokenizer { ignore_merges: true, add_bos: true, ..split(&[TEKKEN_SPLIT]) },
        "deepseek-v3" => split(&[r"\p{N}{1,3}", CJK_SPLIT, DEEPSEEK_V3_SPLIT]),
        "deepseek-llm" => split(&[
            r"[\r\n]",
            DEEPSEEK_LETTERS,
            r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
            r"\s+$",
            DEEPSEEK_CJK,
            r"\p{N}+",
        ]),
        "deepseek-coder" => split(&[r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", DEEPSEEK_CJK, r"\p{N}"]),
        "starcoder" | "refact" | "command-r" | "smollm" | "codeshell" | "exaone" => {
            PreTokenizer { patterns: &[r"\p{N}"], ..GPT2 }
        }
        "default" => split(&DEFAULT_SPLITS),
        _ => return None,
    })
}

impl PreTokenizer {
    pub fn to_json(&self) -> Value {
        let mut steps: Vec<Value> = self
            .patterns
            .iter()
            .map(|p| json!({"type": "Split", "pattern": {"Regex": p}, "behavior": "Isolated", "invert": false}))
            .collect();
        steps.push(json!({
            "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
            "use_regex": self.use_regex,
        }));
        json!({"type": "Sequence", "pretokenizers": steps})
    }
}

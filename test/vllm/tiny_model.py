"""Makes a tiny model of the Qwen3 kind with random weights, a tokenizer trained here on the Python library's own sources, a chat
template of the ChatML kind, and two LoRA adapters. Its answers mean nothing; its tokens, blocks and caches are those of any model.

    python tiny_model.py FOLDER          makes FOLDER/model, FOLDER/adapter-a, FOLDER/adapter-b
"""

import json
import pathlib
import sys
import sysconfig

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

VOCABULARY = 4096
POSITIONS = 8192
HIDDEN = 64
LAYERS = 2
LORA_RANK = 8
END, PAD = "<|im_end|>", "<|endoftext|>"
SPECIAL = [PAD, "<|im_start|>", END, "<tool_call>", "</tool_call>", "<think>", "</think>"]
SOURCES = 120

# The system text comes first, tools are behind it in the same turn, then the other turns: as in Qwen's own templates.
TEMPLATE = r"""
{%- set system = messages[0].content if messages and messages[0].role == 'system' else none -%}
{%- if tools -%}
  {{- '<|im_start|>system\n' -}}
  {%- if system is not none -%}{{- system + '\n\n' -}}{%- endif -%}
  {{- '# Tools\n\n<tools>' -}}
  {%- for tool in tools -%}{{- '\n' -}}{{- tool | tojson -}}{%- endfor -%}
  {{- '\n</tools><|im_end|>\n' -}}
{%- elif system is not none -%}
  {{- '<|im_start|>system\n' + system + '<|im_end|>\n' -}}
{%- endif -%}
{%- for message in messages -%}
  {%- if not (loop.first and message.role == 'system') -%}
    {{- '<|im_start|>' + message.role + '\n' -}}
    {{- message.content or '' -}}
    {%- for call in message.tool_calls or [] -%}
      {{- '\n<tool_call>\n' -}}{{- call.function | tojson -}}{{- '\n</tool_call>' -}}
    {%- endfor -%}
    {{- '<|im_end|>\n' -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}
"""


def tokenizer():
    library = pathlib.Path(sysconfig.get_paths()["stdlib"])
    files = sorted(str(path) for path in library.glob("*.py"))[:SOURCES]
    byte_pairs = Tokenizer(models.BPE())
    byte_pairs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    byte_pairs.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    byte_pairs.train(files, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=byte_pairs,
        eos_token=END,
        pad_token=PAD,
        additional_special_tokens=["<|im_start|>"],
        clean_up_tokenization_spaces=False,
        model_max_length=POSITIONS,
    )
    fast.chat_template = TEMPLATE.strip()
    return fast


def make_model(folder):
    words = tokenizer()
    words.save_pretrained(folder)
    torch.manual_seed(1)
    config = Qwen3Config(
        vocab_size=len(words),
        hidden_size=HIDDEN,
        intermediate_size=2 * HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=HIDDEN,
        max_position_embeddings=POSITIONS,
        tie_word_embeddings=True,
        eos_token_id=words.convert_tokens_to_ids(END),
        bos_token_id=None,
        pad_token_id=words.convert_tokens_to_ids(PAD),
    )
    model = Qwen3ForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(folder)
    print(f"a model of {sum(weights.numel() for weights in model.parameters())} parameters, {len(words)} tokens")


def make_adapter(folder, seed):
    """In the files of the PEFT library: a pair of matrices for the query projection of each layer."""
    folder.mkdir(parents=True)
    random = torch.Generator().manual_seed(seed)
    weights = {}
    for layer in range(LAYERS):
        name = f"base_model.model.model.layers.{layer}.self_attn.q_proj"
        shapes = {"lora_A": (LORA_RANK, HIDDEN), "lora_B": (2 * HIDDEN, LORA_RANK)}
        for part, shape in shapes.items():
            weights[f"{name}.{part}.weight"] = torch.randn(shape, generator=random).to(torch.bfloat16)
    save_file(weights, folder / "adapter_model.safetensors")
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": "tiny",
        "r": LORA_RANK,
        "lora_alpha": 2 * LORA_RANK,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": ["q_proj"],
    }
    (folder / "adapter_config.json").write_text(json.dumps(config))


if __name__ == "__main__":
    target = pathlib.Path(sys.argv[1])
    make_model(target / "model")
    make_adapter(target / "adapter-a", 2)
    make_adapter(target / "adapter-b", 3)

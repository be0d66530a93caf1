"""Makes the model that tests run on: a real, random llama of 0.6 MB that speaks invented words.

The same bytes every time, nothing is downloaded, and it takes a fraction of a second. It answers
with about 4,000 tokens a second, and needs about one token for every byte of a prompt.
"""

import hashlib
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np

CACHE = Path(__file__).parents[2] / "build"

WIDTH, BLOCKS, HEADS, INNER = 64, 2, 2, 128
CONTEXT = 32768
SYLLABLES = "ka lo mi ter na vo si ren da pu fel go ha lin mo zu".split()  # noqa: SIM905

WORDS = re.compile(rf"(?: (?:{'|'.join(SYLLABLES)}){{2,3}})+")  # what it says

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>")
START, END, TOOL_CALL = 1, 2, 3
# Left alone it says words. With these it calls a tool if it must, and ends after the call: the
# server's grammar lets the end come no earlier, nor a second call.
ONE_TOOL_CALL = {
    "logit_bias": {str(TOOL_CALL): 90, str(END): 100},
    "parallel_tool_calls": False,
}

CHAT_TEMPLATE = """\
{%- if tools -%}
<|im_start|>system
{% for tool in tools %}{{ tool | tojson }}
{% endfor -%}
<|im_end|>
{% endif -%}
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{% if message.content %}{{ message.content }}{% endif -%}
{%- for call in message.tool_calls or [] -%}
<tool_call>{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}</tool_call>
{%- endfor -%}
<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% endif -%}
"""  # noqa: E501  (a line more would be text in the prompt, and hide the form of a call)


def tiny_model() -> Path:
    """The GGUF file; made once for each version of this module."""
    version = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]
    file = CACHE / f"tiny-model-{version}.gguf"
    if not file.exists():
        CACHE.mkdir(exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=CACHE, delete=False) as unfinished:
            pass
        write(Path(unfinished.name))
        Path(unfinished.name).replace(file)
    return file


def write(file: Path) -> None:
    """Write the model to `file`."""
    vocabulary, kinds = _vocabulary()
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(BLOCKS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_vocab_size(len(vocabulary))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(vocabulary)
    writer.add_token_types(kinds)
    writer.add_token_merges(["\u0120 k"])  # the tokenizer wants at least one
    writer.add_bos_token_id(START)
    writer.add_eos_token_id(END)
    writer.add_pad_token_id(END)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)
    _weights(writer.add_tensor, len(vocabulary))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _vocabulary() -> tuple[list[str], list[int]]:
    """Special tokens, then every byte, then words of two and three syllables after a space."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    substitutes = iter(range(256, 512))  # GPT-2's way to write a byte that can't be printed
    single = [chr(byte if byte in printable else next(substitutes)) for byte in range(256)]
    pairs = [a + b for a in SYLLABLES for b in SYLLABLES]
    triples = [pair + c for pair in pairs for c in SYLLABLES[:4]]
    words = dict.fromkeys("\u0120" + word for word in pairs + triples)
    vocabulary = [*SPECIAL, *single, *words]
    kinds = [gguf.TokenType.NORMAL] * len(vocabulary)
    kinds[: len(SPECIAL)] = [gguf.TokenType.CONTROL] * len(SPECIAL)
    kinds[TOOL_CALL] = gguf.TokenType.USER_DEFINED  # else its text would be left out of an answer
    return vocabulary, [int(kind) for kind in kinds]


def _weights(add: Callable[[str, np.ndarray], None], words: int) -> None:
    dice = np.random.default_rng(0)

    def random(*shape: int, scale: float = 0.05) -> np.ndarray:
        return (dice.standard_normal(shape) * scale).astype(np.float16)

    output = random(words, WIDTH, scale=0.3)
    output[: len(SPECIAL) + 256] = 0  # bytes and special tokens stay unlikely
    add("output.weight", output)
    add("token_embd.weight", random(words, WIDTH, scale=0.5))
    add("output_norm.weight", np.ones(WIDTH, np.float32))
    for block in range(BLOCKS):
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            add(f"blk.{block}.{part}.weight", random(WIDTH, WIDTH))
        for part, shape in (
            ("ffn_gate", (INNER, WIDTH)),
            ("ffn_up", (INNER, WIDTH)),
            ("ffn_down", (WIDTH, INNER)),
        ):
            add(f"blk.{block}.{part}.weight", random(*shape))
        for part in ("attn_norm", "ffn_norm"):
            add(f"blk.{block}.{part}.weight", np.ones(WIDTH, np.float32))

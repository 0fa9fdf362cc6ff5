"""Make a Llama with random weights, and a tokenizer of single bytes, in a directory: nothing is downloaded.

``--gguf`` after the directory: its `model.gguf`, too, for llama.cpp, whose module `gguf` writes it.
"""

import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SPECIAL = ["<s>", "</s>"]
TEMPLATE = "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"


def tokenizer() -> PreTrainedTokenizerFast:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    bare = Tokenizer(models.BPE({token: number for number, token in enumerate([*SPECIAL, *letters])}, []))
    bare.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bare.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=bare, bos_token=SPECIAL[0], eos_token=SPECIAL[1], chat_template=TEMPLATE
    )


#: The names of a layer's weights in llama.cpp's files.
GGUF_NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
GGUF_WHOLE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def write_gguf(path, model, words):
    import gguf

    writer, config = gguf.GGUFWriter(path, "llama"), model.config
    write_sizes(writer, config)
    write_tokens(writer, words)
    for name, tensor in model.state_dict().items():
        writer.add_tensor(gguf_name(name), in_halves(name, tensor, config.num_attention_heads).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_sizes(writer, config):
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)


def write_tokens(writer, words):
    import gguf

    tokens = words.convert_ids_to_tokens(range(len(words)))
    kinds = [gguf.TokenType.CONTROL if token in SPECIAL else gguf.TokenType.NORMAL for token in tokens]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(["Ġ Ġ"])  # none is refused; this one is of tokens that the list lacks
    writer.add_bos_token_id(words.bos_token_id)
    writer.add_eos_token_id(words.eos_token_id)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)


def gguf_name(name):
    base = name.removesuffix(".weight")
    if base in GGUF_WHOLE:
        return f"{GGUF_WHOLE[base]}.weight"
    _, _, number, part = base.split(".", 3)
    return f"blk.{number}.{GGUF_NAMES[part]}.weight"


def in_halves(name, tensor, heads):
    """llama.cpp rotates neighbours where transformers rotates halves of a head."""
    if not name.endswith(("q_proj.weight", "k_proj.weight")):
        return tensor
    rows, columns = tensor.shape
    return tensor.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns).contiguous()


torch.manual_seed(0)
directory, words = Path(sys.argv[1]), tokenizer()
config = LlamaConfig(
    vocab_size=len(words),
    hidden_size=128,
    intermediate_size=256,
    num_hidden_layers=4,
    num_attention_heads=4,
    bos_token_id=0,
    eos_token_id=1,
)
model = LlamaForCausalLM(config)
model.generation_config.do_sample = False
model.save_pretrained(directory)
words.save_pretrained(directory)
if "--gguf" in sys.argv[2:]:
    write_gguf(directory / "model.gguf", model, words)

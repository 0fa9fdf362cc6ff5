"""Make a Llama with random weights, and a tokenizer of single bytes, in a directory: nothing is downloaded."""

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

"""The built-in tiny model: a small Llama with a word-level tokenizer, saved as an ordinary model folder."""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    normalizers,
    pre_tokenizers,
)
from tokenizers.models import WordPiece
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from stepcredit.policy.loading import quiet

PAD, EOS, UNKNOWN, USER, ASSISTANT = "<pad>", "<eos>", "<unk>", "<user>", "<assistant>"
INITIAL_SCALE = 0.8
"""Initial weights have standard deviation INITIAL_SCALE/√width: at width 64, 0.1 instead of the customary 0.02, with
which attention starts so flat that a tiny model takes three times as long to bind an instruction to its objects."""
_CONTINUED = "##"
_PIECES = re.compile(r"[^\W_]+|.", re.DOTALL)
_CHAT_TEMPLATE = (
    "{% for message in messages %}"
    f"{{% if message.role == 'assistant' %}}{ASSISTANT}{{{{ message.content }}}}{EOS}"
    f"{{% else %}}{USER}{{{{ message.content }}}}{{% endif %}}"
    "{% endfor %}"
    f"{{% if add_generation_prompt %}}{ASSISTANT}{{% endif %}}"
)


def build_tiny_model(
    folder: Path,
    texts: Iterable[str],
    entities: Sequence[str],
    seed: int,
    *,
    width: int = 64,
    layers: int = 2,
    heads: int = 4,
    context: int = 8192,
) -> None:
    """Write a freshly initialised tiny model with its tokenizer; ``AutoModelForCausalLM`` loads the folder.

    Args:
        folder: where to; made if absent.
        texts: what the vocabulary is read from: observations, commands, prompts.
        entities: names that become one token each ("cabinet 3").
        seed: fixes the initial weights; the same seed, texts and entities give the same files.
        width: hidden size.
        layers: number of transformer blocks.
        heads: attention heads.
        context: longest sequence, tokens.
    """
    tokenizer = build_tokenizer(texts, entities)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=context,
        initializer_range=INITIAL_SCALE / math.sqrt(width),
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    _compose_entities(model.get_input_embeddings().weight, tokenizer, entities)
    with quiet():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


@torch.no_grad()
def _compose_entities(embedding: Tensor, tokenizer: PreTrainedTokenizerFast, entities: Sequence[str]) -> None:
    """Let an entity start as the sum of its words, at the variance of one: "mug 1" begins close to "mug".

    What a model learns about one mug then holds for the word in an instruction and for mugs it has not met.
    """
    ids = tokenizer.get_vocab()
    for name in _names(entities):
        pieces = [ids[piece] for word in name.split() for piece in _pieces(word)]
        embedding[ids[name]] = embedding[pieces].sum(0) / math.sqrt(len(pieces))


def build_tokenizer(texts: Iterable[str], entities: Sequence[str]) -> PreTrainedTokenizerFast:
    """A tokenizer with one token per word of ``texts`` and per entity; other words are spelled letter by letter.

    Text is lower-cased and split at white space. Punctuation glued to a word is a piece of its own, marked as
    continued, so that decoding gives back lower-cased, white-space-folded text exactly, except for a space between an
    entity and the punctuation next to it.
    A word with a character that neither ASCII nor ``texts`` has becomes ``<unk>``.
    """
    vocabulary: dict[str, int] = {}
    for token in (PAD, EOS, UNKNOWN, USER, ASSISTANT):
        vocabulary.setdefault(token, len(vocabulary))
    counts, characters = _count_pieces(texts, entities)
    alphabet = sorted({*string.printable.lower(), *characters} - set(string.whitespace))
    words = [piece for piece, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]
    for token in (*alphabet, *(_CONTINUED + character for character in alphabet), *words):
        vocabulary.setdefault(token, len(vocabulary))
    backend = Tokenizer(
        WordPiece(vocabulary, unk_token=UNKNOWN, continuing_subword_prefix=_CONTINUED, max_input_chars_per_word=10_000)
    )
    backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.decoder = decoders.WordPiece(prefix=_CONTINUED, cleanup=False)
    backend.add_tokens([AddedToken(name, single_word=True, normalized=True) for name in _names(entities)])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=PAD,
        eos_token=EOS,
        unk_token=UNKNOWN,
        additional_special_tokens=[USER, ASSISTANT],
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = _CHAT_TEMPLATE
    return tokenizer


def _count_pieces(texts: Iterable[str], entities: Sequence[str]) -> tuple[Counter[str], set[str]]:
    """How often each piece of a word occurs, and every character seen."""
    counts: Counter[str] = Counter()
    characters: set[str] = set()
    for text in (*texts, *entities):
        for word in text.lower().split():
            counts.update(_pieces(word))
            characters.update(word)
    return counts, characters


def _pieces(word: str) -> list[str]:
    """A word's runs of letters and digits and its punctuation marks, all but the first marked as continued."""
    first, *rest = _PIECES.findall(word)
    return [first, *(_CONTINUED + piece for piece in rest)]


def _names(entities: Sequence[str]) -> list[str]:
    return sorted({" ".join(name.lower().split()) for name in entities})

"""The tiny model's folder and tokenizer, the codec's frames, and the trie."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from policy.conftest import MakePolicy
from stepcredit.core.errors import InputError, OptionError
from stepcredit.policy.tiny import build_tiny_model, build_tokenizer
from stepcredit.policy.tokens import Codec
from stepcredit.policy.trie import build_trie

TEXTS = ("You arrive at cabinet 3. It is closed.", "take mug 12 from desk 1", "search[red shoes]", "Dr. Who's π")
ENTITIES = ("cabinet 3", "mug 1", "mug 12", "desk 1")
TOKENIZER = build_tokenizer(TEXTS, ENTITIES)


def pieces(text: str) -> list[str]:
    return list(TOKENIZER.convert_ids_to_tokens(TOKENIZER(text, add_special_tokens=False)["input_ids"]))


def test_words_and_entities_are_single_tokens() -> None:
    assert pieces("Take mug 12 from cabinet 3.") == ["take", "mug 12", "from", "cabinet 3", "."]
    assert pieces("search[red shoes]") == ["search", "##[", "##red", "shoes", "##]"]
    assert pieces("closed closed.") == ["closed", "closed", "##."]


def test_the_longest_entity_wins_and_longer_numbers_are_no_entity() -> None:
    assert pieces("mug 1") == ["mug 1"]
    assert pieces("mug 12") == ["mug 12"]
    assert "mug 1" not in pieces("mug 17")


def test_unknown_words_are_spelled_and_unknown_characters_unknown() -> None:
    assert pieces("zoo") == ["z", "##o", "##o"]
    assert pieces("dr. who's π") == ["dr", "##.", "who", "##'", "##s", "π"]
    assert pieces("中") == ["<unk>"]


@given(st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=126), max_size=40))
def test_ascii_text_comes_back_lower_cased_and_folded(text: str) -> None:
    """Special tokens are the tokenizer's own words, and entities next to punctuation gain a space."""
    if any(special in text.lower() for special in TOKENIZER.get_vocab() if special.startswith("<") and special[1:]):
        return
    if any(entity in " ".join(text.lower().split()) or entity in text.lower() for entity in ENTITIES):
        return
    ids = TOKENIZER(text, add_special_tokens=False)["input_ids"]
    assert TOKENIZER.unk_token_id not in ids
    assert TOKENIZER.decode(ids) == " ".join(text.lower().split())


def test_the_folder_is_an_ordinary_one_and_its_seed_fixes_it(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        build_tiny_model(tmp_path / name, TEXTS, ENTITIES, seed)
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in "abc"]
    assert weights[0] == weights[1] != weights[2]
    assert (tmp_path / "a/tokenizer.json").read_bytes() == (tmp_path / "b/tokenizer.json").read_bytes()
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "a")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "a")
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    assert tokenizer.get_vocab() == TOKENIZER.get_vocab()
    assert model.config.vocab_size == len(tokenizer)
    assert model.config.eos_token_id == tokenizer.eos_token_id
    assert sum(value.numel() for value in model.model.layers.parameters()) == 82_176


def test_an_entity_starts_as_the_sum_of_its_words(tmp_path: Path) -> None:
    build_tiny_model(tmp_path, TEXTS, ENTITIES, 1)
    weight = AutoModelForCausalLM.from_pretrained(tmp_path).get_input_embeddings().weight
    ids = TOKENIZER.get_vocab()
    expected = (weight[ids["mug"]] + weight[ids["12"]]) / 2**0.5
    assert torch.allclose(weight[ids["mug 12"]], expected)


# The codec.


def test_frames_come_from_the_chat_template() -> None:
    codec = Codec(TOKENIZER)
    first, later = codec.prompts(["desk 1", "desk 1"], [True, False])
    assert first.tolist() == later.tolist() == TOKENIZER("<user>desk 1<assistant>", add_special_tokens=False).input_ids
    assert TOKENIZER.convert_ids_to_tokens(list(codec.response("take mug 1"))) == ["take", "mug 1", "<eos>"]
    assert codec.text(codec.response("take mug 1")) == "take mug 1"


CHATML = (
    "{% if messages[0].role != 'system' %}<|im_start|>system\nBe kind.<|im_end|>\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content | trim }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def chat_tokenizer(template: str | None) -> PreTrainedTokenizerFast:
    tokenizer = build_tokenizer(TEXTS, ENTITIES)
    tokenizer.add_special_tokens({"eos_token": "<|im_end|>", "bos_token": "<s>"})
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>"]})
    tokenizer.chat_template = template
    return tokenizer


def test_a_conversation_equals_the_rendered_template() -> None:
    """Chunk by chunk, the codec gives exactly the tokens of the template's whole conversation."""
    tokenizer = chat_tokenizer(CHATML)
    codec = Codec(tokenizer)
    prompts = codec.prompts(["take mug 1", "you see desk 1"], [True, False])
    whole = tokenizer.apply_chat_template(
        [
            {"role": "user", "content": "take mug 1"},
            {"role": "assistant", "content": "search"},
            {"role": "user", "content": "you see desk 1"},
        ],
        tokenize=False,
        add_generation_prompt=True,
    )
    ids = [*prompts[0].tolist(), *codec.response("search"), *prompts[1].tolist()]
    assert ids == tokenizer(whole, add_special_tokens=False)["input_ids"]


def test_without_a_chat_template_messages_stand_bare() -> None:
    tokenizer = chat_tokenizer(None)
    first, later = Codec(tokenizer).prompts(["take", "take"], [True, False])
    assert tokenizer.convert_ids_to_tokens(first.tolist()) == ["<s>", "take"]
    assert tokenizer.convert_ids_to_tokens(later.tolist()) == ["take"]


def test_unusable_tokenizers_are_refused() -> None:
    twice = chat_tokenizer("{% for message in messages %}{{ message.content }}{{ message.content }}{% endfor %}")
    with pytest.raises(OptionError, match="does not keep messages as they are"):
        Codec(twice)
    endless = chat_tokenizer(CHATML)
    endless.eos_token = None
    with pytest.raises(OptionError, match="no end-of-sequence token"):
        Codec(endless)


def test_memory_of_ids_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stepcredit.policy.tokens._REMEMBERED_TOKENS", 20)
    monkeypatch.setattr("stepcredit.policy.tokens._REMEMBERED_RESPONSES", 2)
    codec = Codec(TOKENIZER)
    for number in range(30):
        (ids,) = codec.prompts([f"desk 1 {number}"], [True])
        assert TOKENIZER.decode(ids.tolist()) == f"<user> desk 1 {number} <assistant>"
        codec.response(f"take {number}")
    assert len(codec._prompts) <= 5
    assert len(codec._responses) <= 2


# The trie.


def test_paths_are_the_commands_and_prefixes_end_apart() -> None:
    commands = {"take": (1, 0), "take all": (1, 2, 0), "wait": (3, 0)}
    trie = build_trie(commands)
    assert {command: path for path, command in trie.paths()} == commands
    assert list(trie.children[1].children) == [0, 2]


def test_commands_that_look_alike_are_refused(make_policy: MakePolicy) -> None:
    response = make_policy().conversation.codec.response
    with pytest.raises(InputError, match="'take 文' and 'take 中' the same tokens"):
        build_trie({text: response(text) for text in ("take 中", "take 文")})
    unknown = build_trie({text: response(text) for text in ("take 中", "take")})
    assert sorted(command for _, command in unknown.paths()) == ["take", "take 中"]

"""Made-up prompts: exact in length, the same from the same seed, unlike each other from their beginning."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spark_overlay.http_api.prompts import PromptError, PromptMaker, made_up_text


def words(text: str) -> list[int]:
    """A token a word, behind one that begins every text."""
    return [0, *(hash(word) for word in text.split())]


def characters(text: str) -> list[int]:
    return [ord(character) for character in text]


def pairs(text: str) -> list[int]:
    """A token for two words: more words are needed than tokens."""
    return [hash(pair) for pair in zip(text.split()[::2], text.split()[1::2], strict=False)]


@pytest.mark.parametrize("tokenize", [words, characters, pairs])
@pytest.mark.parametrize("tokens", [1, 2, 63, 1000, 20_000])
def test_a_prompt_has_exactly_so_many_tokens(tokenize: object, tokens: int) -> None:
    maker = PromptMaker(tokenize, "s")  # type: ignore[arg-type]
    assert len(maker.exact("a", tokens)) == tokens
    assert len(maker.exact("b", tokens)) == tokens


def test_a_seed_gives_the_same_prompts_again_and_another_seed_others() -> None:
    made = [PromptMaker(characters, seed).exact("a", 200) for seed in ("1", "1", "2")]
    assert made[0] == made[1] != made[2]


def test_prompts_of_one_run_differ_within_their_first_block() -> None:
    """vLLM caches prefixes in blocks of 16 tokens and more."""
    maker = PromptMaker(words, "s")
    begins = {maker.exact(f"{tokens}-{at}", tokens)[:16] for tokens in (32, 512) for at in range(200)}
    assert len(begins) == 400


def test_the_length_of_one_prompt_does_not_change_the_text_of_another() -> None:
    long_first, alone = PromptMaker(characters, "s"), PromptMaker(characters, "s")
    long_first.exact("long", 5000)
    short, same = long_first.exact("a", 50), alone.exact("a", 50)
    assert short == same


def test_a_tokenizer_that_swallows_everything_is_said() -> None:
    with pytest.raises(PromptError, match="makes only 1 tokens of"):
        PromptMaker(lambda text: [7], "s").exact("a", 2)


@given(st.text(max_size=20), st.integers(1, 500), st.integers(0, 100))
def test_a_text_has_whole_sentences_and_begins_every_longer_one(seed: str, count: int, more: int) -> None:
    text = made_up_text(seed, count)
    assert count <= len(text.split()) < count + 16
    assert text[0].isupper()
    assert text.endswith(".")
    assert made_up_text(seed, count + more).startswith(text)

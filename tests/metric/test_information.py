from __future__ import annotations

import math
from collections.abc import Sequence

import oracle
import pytest
import tiny
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from selfreflect.metric.engine.engines import engine_for
from selfreflect.metric.information import compare, measure, nodes, words_of_tokens
from selfreflect.metric.prompts import CannotScoreError
from selfreflect.metric.scorer import SelfReflect
from selfreflect.metric.texts import pasted, shared_phrase
from selfreflect.models.judge import Judge
from selfreflect.records import AnswerSet, Information, Question

QUESTION = Question(id="q7", text="What should I plant?")
HELD_OUT = ("Radishes grow fast.", "", "Lettuce, or peas", "It is not clear")
TOLD = ("basil or peas", "Radishes")
SUMMARIES = {"good": "Radishes, lettuce or peas.", "empty": "", "wrong": "An oak forest, of course."}


def measured(
    judge: Judge, summaries: Sequence[str], held_out=HELD_OUT, told=TOLD, reader="informed"
) -> list[Information]:
    answers = AnswerSet(question_id=QUESTION.id, masked_out=tuple(held_out), conditioning=tuple(told))
    results = measure(judge, engine_for(judge), QUESTION, answers, summaries, reader)
    return [results[summary] for summary in summaries]


# --- the engine against a slow computation that shares no code with it


@pytest.mark.parametrize("reader", ["informed", "blind"])
@pytest.mark.parametrize("architecture", ["llama", "qwen3", "mistral", "gemma2"])
def test_bits_equal_those_of_one_plain_pass_for_each_answer(tiny_judge, architecture, reader) -> None:
    judge = tiny_judge(architecture)
    results = measured(judge, list(SUMMARIES.values()), reader=reader)
    for result, summary in zip(results, SUMMARIES.values(), strict=True):
        bits, available = oracle.information(
            judge.lm.model, judge.lm.tokenizer, QUESTION.text, HELD_OUT, TOLD, summary, reader == "blind"
        )
        assert result.bits == pytest.approx(bits, abs=1e-4)
        assert result.bits_available == pytest.approx(available, abs=1e-4)
        total = sum(word.told for answer in result.answers for word in answer)
        assert total / 3 == pytest.approx(result.bits, abs=1e-3)  # words are rounded
        assert [len(words) for words in result.answers] == [3, 0, 3, 4]


ZEROS = {"informed": ("", "empty"), "blind": (QUESTION.text, "repeated")}


@pytest.mark.parametrize("reader", ["informed", "blind"])
def test_the_zero_of_its_reader_tells_nothing_and_pasted_answers_everything(tiny_judge, reader) -> None:
    text, name = ZEROS[reader]
    zero, whole = measured(tiny_judge("llama"), [text, pasted(TOLD)], reader=reader)
    assert (zero.bits, zero.zero, zero.anchor, zero.scale) == (0.0, name, "distinct", "distinct")
    assert all(word.told == 0.0 for answer in zero.answers for word in answer)
    assert whole.bits == whole.bits_available == zero.bits_available


def test_repetitions_spellings_and_blank_answers_do_not_move_100_percent(tiny_judge) -> None:
    judge = tiny_judge("llama")
    [plain] = measured(judge, ["Radishes."], told=["Radishes", "Peas climb"])
    repeated = ["Radishes", "", "Peas climb", "radishes.", "Peas climb", "Radishes", "\n"]
    [again] = measured(judge, ["Radishes."], told=[*repeated, "peas climb."])
    assert again.bits_available == plain.bits_available
    texts = [pasted(["Peas climb", "Radishes"]), pasted(["Peas climb (2 of 3)", "Radishes (1 of 3)"])]
    uneven = measured(judge, texts, told=["Radishes", "Peas climb", "Peas climb"])
    assert uneven[0].bits_available == max(result.bits for result in uneven)


@pytest.mark.parametrize("reader", ["informed", "blind"])
def test_a_blank_summary_is_an_empty_one(tiny_judge, reader) -> None:
    empty, *blank = measured(tiny_judge("llama"), ["", " ", " \n\t"], reader=reader)
    assert blank == [empty, empty]
    answers = AnswerSet(question_id=QUESTION.id, masked_out=HELD_OUT, conditioning=TOLD)
    costs = [nodes(tiny_judge("llama"), QUESTION, answers, texts, reader) for texts in ([""], [" ", "\n"])]
    assert costs[0] == costs[1]


@pytest.mark.parametrize("reader", ["informed", "blind"])
def test_both_ends_cost_no_prompt_of_their_own(tiny_judge, reader) -> None:
    answers = AnswerSet(question_id=QUESTION.id, masked_out=HELD_OUT, conditioning=TOLD)
    without = nodes(tiny_judge("llama"), QUESTION, answers, [], reader)
    ends = [ZEROS[reader][0], pasted(TOLD)]
    assert nodes(tiny_judge("llama"), QUESTION, answers, ends, reader) == without


@pytest.mark.parametrize("reader", ["informed", "blind"])
def test_one_more_text_costs_neither_the_question_nor_what_was_pasted_before(tiny_judge, reader) -> None:
    answers = AnswerSet(question_id=QUESTION.id, masked_out=HELD_OUT, conditioning=TOLD)
    costs = []
    for question in (QUESTION, replace(QUESTION, text="And in a large garden? " * 9 + QUESTION.text)):
        without = nodes(tiny_judge("llama"), question, answers, [], reader)
        costs.append(nodes(tiny_judge("llama"), question, answers, ["Radishes."], reader) - without)
        assert nodes(tiny_judge("llama"), question, answers, [pasted(TOLD)], reader) == without
    assert costs[0] == costs[1] > 0


def test_what_cannot_be_measured_is_typed(tiny_judge) -> None:
    judge = tiny_judge("llama")
    for held_out, told in (((" ",), TOLD), (HELD_OUT, ()), (HELD_OUT, ("", " \n"))):
        with pytest.raises(CannotScoreError) as caught:
            measured(judge, ["x"], held_out, told)
        assert caught.value.kind == "no_answers"
    with pytest.raises(CannotScoreError) as caught:
        measured(judge, ["x"], HELD_OUT, ["word " * 5000])
    assert caught.value.kind == "too_long"
    [result] = measured(judge, ["word " * 5000])
    assert (result.bits, result.recovered, result.undefined) == (None, None, "unmeasured")
    assert "window" in result.why


def test_python_users_get_it_with_each_score_and_word(tiny_judge) -> None:
    judge = tiny_judge("llama")
    question = {"masked_out": HELD_OUT, "conditioning": TOLD, "summaries": SUMMARIES}
    plain = SelfReflect(judge, reader=None).score(QUESTION.text, **question)
    both = SelfReflect(judge).score(QUESTION.text, **question)
    [good, *_] = measured(judge, list(SUMMARIES.values()))
    expected = replace(good, summary="good", question_id=both["good"].question_id)
    assert both["good"].information == expected
    assert both["good"].recovered == good.recovered
    for name, score in plain.items():
        assert score.recovered is None
        assert (both[name].value, both[name].stderr) == (score.value, score.stderr)
    for word in both["good"].words:
        told = good.answers[word.answer][word.word]
        assert (word.text, word.bits, word.bits_available) == (told.text, told.told, told.available)


# --- the formulas


def test_the_share_is_a_ratio_of_sums_with_its_interval() -> None:
    result = compare([1.0, 2.0, 3.0], [2.0, 4.0, 6.0], "informed")
    assert (result.bits, result.bits_available, result.recovered) == (2.0, 4.0, 0.5)
    assert result.interval is None  # the share of each answer is the same, which has no width
    result = compare([4.0, 2.0, 0.0, 2.0], [4.0, 4.0, 4.0, 4.0], "informed")
    # available bits do not vary: the interval of the mean, 2 ± t * sqrt(8/3/4), divided by 4
    half = 3.182446 * math.sqrt(8 / 3 / 4) / 4
    assert result.interval == pytest.approx((0.5 - half, 0.5 + half), abs=1e-6)


@pytest.mark.parametrize(
    ("answers", "head", "tail"),
    [
        (["In Geneva.", "in Vienna"], "in", ""),
        (["It opens at six.", "It opens at eight.", "It opens at nine."], "it opens at", ""),
        (["Helen has the key.", "Tom has the key."], "", "has the key"),
        (["Take line 4 from here.", "Take line 9 from here."], "take line", "from here"),
        (["12 months.", "24 months.", "A year."], "", ""),
        (["Call 0800 999.", "0800 999"], "", ""),  # one says less, and nothing else
        (["The frost killed the blossom in April.", "The bees stayed in their hives."], "", ""),
        (["In Geneva."], "", ""),
    ],
)
def test_a_shared_phrase_is_at_least_as_long_as_its_gap(answers: list[str], head: str, tail: str) -> None:
    assert shared_phrase(answers) == (head.split(), tail.split())


@pytest.mark.parametrize(
    ("available", "settings", "reason"),
    [
        ([0.0, 0.0], {}, "known"),
        ([0.4] * 9, {}, "known"),
        ([-0.3] * 9, {}, "known"),
        ([0.1] * 9, {"room": 0.3}, None),  # a third of what a sure judge of yes and no could still be told
        ([0.02] * 9, {"room": 0.3}, "known"),
        ([-1.9, -2.5, -1.3, -1.9], {}, "worse"),
        ([-40.0, -33.0, -70.0], {}, "worse"),
        ([-1.9, -2.5, -1.3, -1.9], {"judge_answered": True}, "known"),
        ([-6.0, 2.0], {}, "different_answers"),
        ([9.0, -7.0], {}, "different_answers"),
        ([0.3, 40.0, -39.4], {"room": 50.0}, "different_answers"),  # slight by chance is not known
        ([20.0, 1.0, 0.0], {}, "few_answers"),
        ([5.0], {}, "few_answers"),
        ([5.0] * 4, {"of_format": 0.9}, None),
        ([5.0] * 4, {"of_format": 1.1}, "format"),
    ],
)
def test_without_clear_gain_there_is_no_share(available, settings, reason) -> None:
    result = compare([0.1] * len(available), available, "informed", **settings)
    assert result.reason == reason
    assert (result.recovered is None) == (reason is not None)
    assert (result.undefined == "unclear") == (result.cause is not None)
    assert result.bits_available == pytest.approx(math.fsum(available) / len(available))


@pytest.mark.parametrize(("share", "is_result"), [(-1.01, False), (-1, True), (2, True), (27.37, False)])
def test_a_share_far_out_of_range_is_no_result(share: float, is_result: bool) -> None:
    result = compare([4 * share] * 3, [4.0] * 3, "informed")
    assert (result.bits, result.bits_available) == (pytest.approx(4 * share), 4.0)
    assert result.recovered == (share if is_result else None)
    assert result.reason == (None if is_result else "out_of_range")


# --- tokens and words


def byte_level(normalizer: normalizers.Normalizer | None = None) -> PreTrainedTokenizerFast:
    tokenizer = tiny.tokenizer()
    if normalizer is not None:
        tokenizer.backend_tokenizer.normalizer = normalizer
    return tokenizer


def sentence_piece() -> PreTrainedTokenizerFast:
    """Spaces are letters of their own, and unknown characters are bytes."""
    backend = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    special = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=special, show_progress=False)
    backend.train_from_iterator(tiny.CORPUS, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")


TOKENIZERS = {
    "bytes": byte_level(),
    "bytes, composed letters": byte_level(normalizers.NFC()),  # as Qwen2's
    "pieces": sentence_piece(),
}
ODD = "ae\u0301\u00e9 \ud55c\u1112\u1161\u11ab\U0001f469\u200d\u00a0\n\u80cc\u0663-"
STRIPPED = (st.text() | st.text(ODD)).map(str.strip).filter(lambda text: text and "\ufffd" not in text)


@pytest.mark.parametrize("name", TOKENIZERS)
@given(text=STRIPPED)
@example(text="I like \U0001f469\u200d\U0001f467 and caf\u00e9 \u80cc\u666f")
@example(text="cafe\u0301 cre\u0300me bru\u0302le\u0301e s'il vous plai\u0302t")
def test_tokens_belong_to_the_words_that_their_offsets_say(name: str, text: str) -> None:
    tokenizer = TOKENIZERS[name]
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    words_before = [len(text[:index].split()) for index in range(len(text) + 1)]
    expected = []
    for start, _ in encoded.offset_mapping:
        first_letter = start + len(text[start:]) - len(text[start:].lstrip())
        # of a text that ends within a word, that word is the last one before
        inside = first_letter > 0 and not text[first_letter - 1].isspace()
        expected.append(words_before[first_letter] - inside)
    assert words_of_tokens(tokenizer, encoded.input_ids, text.split()) == expected


def test_a_letter_that_stands_for_a_broken_one_shifts_no_later_word() -> None:
    text = "lost \ufffd and \ufffd\ufffd found"
    tokens = tiny.tokenizer()(text, add_special_tokens=False).input_ids
    places = words_of_tokens(tiny.tokenizer(), tokens, text.split())
    found = tiny.tokenizer()(" found", add_special_tokens=False).input_ids
    assert places[-len(found) :] == [4] * len(found)

"""Reasoning traces are taken off whatever their tag, and nothing else is."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfreflect.models.reasoning import TRACES, StreamedTrace, UnclosedReasoningError, split_reasoning

# Written out as the models write them, independently of the patterns that find them.
PAIRS = {
    "think": ("<think>", "</think>"),
    "thinking": ("<thinking>", "</thinking>"),
    "thought": ("<thought>", "</thought>"),
    "thoughts": ("<thoughts>", "</thoughts>"),
    "reasoning": ("<reasoning>", "</reasoning>"),
    "reflection": ("<reflection>", "</reflection>"),
    "scratchpad": ("<scratchpad>", "</scratchpad>"),
    "seed:think": ("<seed:think>", "</seed:think>"),
    "magistral": ("[THINK]", "[/THINK]"),
    "cohere": ("<|START_THINKING|>", "<|END_THINKING|>"),
    "open thoughts": ("<|begin_of_thought|>", "<|end_of_thought|>"),
    "kimi": ("◁think▷", "◁/think▷"),
    "gemma": ("<|channel>thought", "<channel|>"),
    "harmony": ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
    "harmony's words": ("analysisWe", "assistantfinal"),
}
# Brackets and bars would let a drawn text hold a tag of its own.
PROSE = st.text(
    alphabet=st.characters(blacklist_characters="<>[]◁▷|", blacklist_categories=["Cs"]), max_size=60
)
KINDS = st.sampled_from(sorted(PAIRS))


@given(kind=KINDS, trace=PROSE, visible=PROSE, sizes=st.lists(st.integers(1, 30), max_size=40))
def test_a_text_in_pieces_loses_its_trace_as_the_whole_does(kind, trace, visible, sizes):
    opening, closing = PAIRS[kind]
    text = f"\n{opening}{trace}{closing}\n\n{visible}"
    streamed, shown, start = StreamedTrace(), [], 0
    for size in [*sizes, len(text)]:
        shown.append(streamed.take(text[start : start + size]))
        start += size
    assert not streamed.is_open
    whole = split_reasoning(text, unwrap=False).visible
    assert ("".join(shown) + streamed.held).strip() == whole


@pytest.mark.parametrize("kind", sorted(PAIRS))
def test_a_trace_without_an_end_shows_nothing(kind):
    streamed = StreamedTrace()
    assert [streamed.take(piece) for piece in f"{PAIRS[kind][0]} so be it"] == [""] * (
        len(PAIRS[kind][0]) + 9
    )
    assert streamed.is_open


@pytest.mark.parametrize("text", ["Paris.", "<b>Paris</b> is", "[1] Paris", "analysis of it", "  a", "<", ""])
def test_a_streamed_text_without_a_trace_is_whole(text):
    streamed = StreamedTrace()
    assert "".join(map(streamed.take, text)) + streamed.held == text


def test_every_row_of_the_table_has_its_example():
    assert list(PAIRS) == list(TRACES)


@given(kind=KINDS, trace=PROSE, visible=PROSE, before=st.sampled_from(["", " ", "\n\n"]))
def test_a_trace_at_the_start_is_removed(kind, trace, visible, before):
    opening, closing = PAIRS[kind]
    assert split_reasoning(f"{before}{opening}{trace}{closing}{visible}") == (visible.strip(), False)


@given(kind=KINDS, trace=PROSE, visible=PROSE, in_trace=st.booleans())
def test_a_closing_tag_alone_ends_a_trace_that_the_prompt_opened(kind, trace, visible, in_trace):
    text = f"{trace}{PAIRS[kind][1]}{visible}"
    assert split_reasoning(text, in_trace=in_trace) == (visible.strip(), True)


@given(kind=KINDS, text=PROSE)
def test_an_opened_trace_that_never_ends_is_an_error(kind, text):
    with pytest.raises(UnclosedReasoningError, match="never ends"):
        split_reasoning(PAIRS[kind][0] + text)
    with pytest.raises(UnclosedReasoningError, match="the prompt"):
        split_reasoning(text, in_trace=True)


@given(
    pieces=st.lists(
        st.sampled_from([tag for pair in PAIRS.values() for tag in pair] + ["a", " ", "\n", "<", "|>"]),
        max_size=12,
    )
)
def test_any_mixture_of_tags_gives_parts_of_the_text_or_the_error(pieces):
    text = "".join(pieces)
    for in_trace in (False, True):
        try:
            split = split_reasoning(text, in_trace)
        except UnclosedReasoningError:
            continue
        assert split.visible in text


@pytest.mark.parametrize(
    ("text", "visible"),
    [
        ("<think>a</think>\n<think>b</think>\nYes.", "Yes."),
        ("<thinking>a</thinking><reflection>b</reflection>Yes.", "Yes."),
        ("a</think><think>b</think>Yes.", "Yes."),
        ("<think>a<think>b</think>c</think>Yes.", "Yes."),
        ("<think>a<reflection>b</reflection>c</think>Yes.", "Yes."),
        ("a <think>b</think> c</think>Yes.", "Yes."),
        ("<think>they ask about <think> tags</think>Yes.", "Yes."),
        ("<think>close it with </reasoning>?</think>Yes.", "Yes."),
        ('<THINK level="high">a</Think >Yes.', "Yes."),
        ("<think\n>a</think>Yes.", "Yes."),
        ("<think>\n\n</think>\n\nYes.", "Yes."),
        ("<think>a</think>", ""),
        ("<think>a</think>Write </think> to stop.", "Write </think> to stop."),
        ("<thinker>a</thinker>", "<thinker>a</thinker>"),
        ("<think/>Yes.", "<think/>Yes."),
        ("<think />Yes.", "<think />Yes."),
        ("Yes.<|end|>", "Yes.<|end|>"),
        ("analysisHm.assistantanalysisSo.assistantfinalYes.", "Yes."),
        ("analysis of the text: Yes.", "analysis of the text: Yes."),
        ("", ""),
    ],
)
def test_shapes_of_traces(text, visible):
    assert split_reasoning(text).visible == visible


@pytest.mark.parametrize(
    "text",
    [
        "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>Yes.<|return|>",
        "<|start|>assistant<|channel|>analysis<|message|>a<|end|>\n<|channel|>final<|message|>Yes.<|end|>",
        "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b<|end|>"
        "<|start|>assistant<|channel|>final <|constrain|>text<|message|>Yes.",
        "<|channel|>commentary to=tool <|constrain|>json<|message|>{}<|end|><|channel|>final<|message|>Yes.",
        "<|channel|>final<|message|>Yes.<|return|>",
    ],
)
def test_only_the_final_harmony_channel_is_visible(text):
    assert split_reasoning(text).visible == "Yes."


@pytest.mark.parametrize(
    "wrapped",
    [
        "<answer>Yes.</answer>",
        "<Answer>\nYes.",
        "<|START_RESPONSE|>Yes.<|END_RESPONSE|>",
        "<|begin_of_solution|>Yes.<|end_of_solution|>",
    ],
)
def test_what_a_model_wraps_its_visible_text_in_goes_with_the_trace(wrapped):
    assert split_reasoning(f"<think>a</think>{wrapped}").visible == "Yes."
    assert split_reasoning(wrapped).visible == wrapped


@pytest.mark.parametrize("in_trace", [False, True])
@pytest.mark.parametrize(
    "unit",
    [
        "<think>",
        "</think>",
        "<think>x</think>",
        "<think ",
        "<",
        "[",
        "<|end|>  ",
        "<|start|>assistant",
        "<|channel|>analysis",
        " ",
        "a",
    ],
)
def test_long_hostile_text_takes_linear_time(unit, in_trace):
    text = unit * (300_000 // len(unit))
    started = time.process_time()
    try:
        found = len(split_reasoning(text, in_trace).visible)
    except UnclosedReasoningError:
        found = 0
    assert time.process_time() - started < 10  # at most 0.4 when linear, minutes when not
    assert found <= len(text)

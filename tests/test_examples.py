"""The examples run as they are, and the notebook holds what it writes."""

from __future__ import annotations

import asyncio
import re
import runpy
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from selfreflect.train.rewards import SelfReflectReward

EXAMPLES = Path(__file__).parent.parent / "examples"
WRITTEN = {
    "own_function": [r"10 answers\)", "x 'Ankara.', ", "basic: 'Probably Ankara, perhaps Istanbul.'"],
    "own_samples": ["3 x Radishes.", r"both: score 0\.\d+, recovers -?\d+% of", "other: score"],
    "data_frame": ["topic .* recovered", "geography", "garden"],
}


def test_every_example_is_run() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == WRITTEN.keys()


# the other two take eight seconds, and run/test_reflect.py proves what they show
@pytest.mark.parametrize(
    "name",
    ["own_function", *(pytest.param(name, marks=pytest.mark.slow) for name in ("own_samples", "data_frame"))],
)
def test_an_example_runs_as_it_is(name, tmp_path, monkeypatch, capsys) -> None:
    if name == "data_frame":
        pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    written = capsys.readouterr().out
    for pattern in WRITTEN[name]:
        assert re.search(pattern, written), written
    assert list(tmp_path.iterdir()) == []


ROW = {
    "question": "What should I plant?",
    "answers": ["Radishes", "peas"],
    "masked_answers": ["Radishes", "basil"],
}


def test_rewards_of_other_trainers_have_their_signatures(tiny_judge, monkeypatch) -> None:
    """Stand-ins take the place of these packages, which bring a trainer and its servers each."""
    v1 = ModuleType("verifiers.v1")
    v1.Task, v1.reward = object, lambda method: method
    monkeypatch.setitem(sys.modules, "verifiers", ModuleType("verifiers"))
    monkeypatch.setitem(sys.modules, "verifiers.v1", v1)
    reward = SelfReflectReward(tiny_judge("llama"))
    texts = ["Radishes, or peas", ""]
    wanted = reward(None, texts, **{name: [value] * 2 for name, value in ROW.items()})
    names = runpy.run_path(str(EXAMPLES / "rewards" / "verl_reward.py"))
    names["compute_score"].__globals__["REWARD"] = reward
    assert [names["compute_score"]("garden", text, "", {**ROW, "index": 3}) for text in texts] == wanted
    names = runpy.run_path(str(EXAMPLES / "rewards" / "verifiers_reward.py"))
    names["Belief"].faithful.__globals__["REWARD"] = reward
    task = names["Belief"]()
    task.data = SimpleNamespace(**ROW)
    traces = [SimpleNamespace(last_reply=text) for text in texts]
    assert [asyncio.run(task.faithful(trace)) for trace in traces] == wanted


def outputs(notebook) -> list[list[str]]:
    """What each cell wrote, without its numbers, which differ in their last digits between machines."""
    cells = []
    for cell in notebook.cells:
        if cell.cell_type == "code":
            kept = [output for output in cell.outputs if output.get("name") != "stderr"]
            texts = [output.get("text") or output["data"]["text/plain"] for output in kept]
            cells.append([re.sub(r"-?[\d.]+|nothing: ", "#", text) for text in texts])
    return cells


@pytest.mark.slow
def test_the_notebook_holds_what_it_writes(tmp_path) -> None:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(EXAMPLES / "reflect.ipynb", as_version=4)
    stored = outputs(notebook)
    where = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=200, kernel_name="python3", resources=where).execute()
    assert outputs(notebook) == stored
    assert all(cell for cell in stored)

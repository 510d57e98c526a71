from __future__ import annotations

from collections.abc import Iterator

import pytest

from selfreflect.metric.engine import attention as attention_module
from selfreflect.metric.engine.attention import Native, library, native


@pytest.fixture(params=["compiled", "torch's kernel", "written out"])
def fused(request, monkeypatch) -> Iterator[bool]:
    """Each way to compute attention on a CPU, as the engine's setting of that name."""
    if request.param != "compiled":
        monkeypatch.setattr(attention_module, "native", lambda: None)
        yield request.param != "written out"
        return
    if native() is None:
        pytest.skip(str(library()))
    calls = []
    attend = Native.attend
    monkeypatch.setattr(Native, "attend", lambda *arguments: (calls.append(1), attend(*arguments))[1])
    yield True
    extras = request.node.callspec.params.get("extras")
    if extras is None or extras.window is None:  # some windows hide nothing
        assert bool(calls) == (extras is None or extras.plain)

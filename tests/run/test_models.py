"""The provider that loads what the settings name."""

from __future__ import annotations

from typing import Any

import pytest
from fault_server import FaultServer, silent
from pooling import pooling

from selfreflect.errors import JudgeError
from selfreflect.run.models import ConfiguredModels, Quiet
from selfreflect.settings import ExecutionOptions, load_config


def test_a_judge_behind_a_server_has_the_timeout_that_was_asked_for(tiny_judge: Any) -> None:
    judge = tiny_judge("llama")
    respond = pooling(judge, name="m")
    with FaultServer(lambda call: silent if call.path.endswith("/embeddings") else respond(call)) as server:
        config = load_config(None, {"scores": {"judge": "vllm+http:m", "base_url": server.url}})
        with pytest.raises(JudgeError, match="no complete response came in time"):
            ConfiguredModels(config, ExecutionOptions(device="cpu", timeout=0.2), Quiet()).judge()

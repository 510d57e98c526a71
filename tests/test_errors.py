import pickle

import pytest

from selfreflect.cli.options import Overrides
from selfreflect.errors import BackendError, MissingExtraError, SelfReflectError, names_in


def problem() -> BackendError:
    return BackendError(
        "http://localhost:1/v1: the connection failed",
        code="unreachable",
        remedy="Set {answers.base_url} to its address, or {out} to {nonsense of {a model}.",
        status=503,
        wait=2.5,
    )


def test_a_remedy_is_worded_by_whoever_shows_it() -> None:
    error = problem()
    assert names_in(error.remedy) == ["answers.base_url", "out"]
    assert "Set base_url to its address, or out to {nonsense of {a model}." in str(error)
    worded = error.worded(Overrides({}).name_of)
    assert "failed. Set --base-url to its address, or --out to {nonsense of {a model}." in worded
    assert error.message == "http://localhost:1/v1: the connection failed"


@pytest.mark.parametrize("error", [problem(), MissingExtraError("the page", "serve"), SelfReflectError("x")])
def test_an_error_crosses_processes_as_it_is(error: SelfReflectError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    for name in ("message", "code", "remedy", "fields"):
        assert getattr(copy, name) == getattr(error, name)


def test_what_is_not_said_has_the_code_of_its_class() -> None:
    assert BackendError("stopped").code == "backend"
    assert (BackendError("stopped").status, BackendError("stopped").wait) == (0, None)
    assert MissingExtraError("the page", "serve").fields == {"extra": "serve"}

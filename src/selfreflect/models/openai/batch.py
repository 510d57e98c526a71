"""Batch files in OpenAI's format: requests to answer later, and responses."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from selfreflect.atomic import write_through
from selfreflect.errors import BackendError, DataError, excerpt
from selfreflect.models.backend import bare_name
from selfreflect.models.base import ModelSpec, Refusal, Reply, Request, Sample
from selfreflect.models.openai.endpoint import endpoint
from selfreflect.models.openai.protocol import APIError, ParsedResponse, parse_response, status_error
from selfreflect.models.openai.refusals import EXTENSIONS, LearningGenerator, runs
from selfreflect.text import counted

LONGEST_ID = 48
"""Maximum number of characters of a question's id in a ``custom_id``, whose length servers limit."""

# What a reader says of its file, in this order.
_COUNTED = ("lines", "unreadable", "doubled", "failed", "unfinished", "of other requests")

_PATH = "/v1/chat/completions"


class _BatchFile(LearningGenerator):
    """A model whose requests or responses are in a file."""

    def __init__(self, spec: ModelSpec, path: Path, progress: Callable[[str], None] | None) -> None:
        super().__init__(spec.name)
        self._url = endpoint(spec.base_url).url
        self._model = bare_name(spec.name)
        self._extra = spec.extra_body or {}
        self._path = path
        self._progress = progress or (lambda line: None)

    @property
    def url(self) -> str:
        return self._url

    def _problem(self, error: APIError) -> BackendError:
        return BackendError(f"{self._path}: {error}", code=error.code, remedy=error.remedy)

    def _calls(self, request: Request) -> Iterator[tuple[int, int]]:
        """Yield the first completion's number and the count of completions for each call."""
        for first, count in runs(request.missing):
            size = self.learned.wording.most_texts or count
            for start in range(first, first + count, size):
                yield start, min(size, first + count - start)

    def _body(self, request: Request, first: int, count: int) -> dict[str, Any]:
        # a batch cannot be said again without what a server refuses, and hosted APIs refuse these
        left_out = self.learned.wording.left_out | EXTENSIONS | {"stream"}
        wording = replace(self.learned.wording, left_out=left_out)
        return wording.body(self._model, request, first, count, self._extra)


class BatchWriter(_BatchFile):
    """Writer of requests to a batch file, without answers."""

    def stream_samples(self, requests: Sequence[Request]) -> Iterator[tuple[int, Sample | Reply | Refusal]]:
        """Write all requests to the file, then refuse them. Raises DataError if writing fails."""
        lines = []
        for request in requests:
            for first, count in self._calls(request):
                try:
                    body = self._body(request, first, count)
                except APIError as error:
                    raise self._problem(error) from None
                line = {"custom_id": custom_id(request, first), "method": "POST", "url": _PATH, "body": body}
                lines.append(json.dumps(line, ensure_ascii=True))
        try:
            write_through(self._path, "".join(f"{line}\n" for line in lines).encode())
        except OSError as error:
            raise _unusable(self._path, error) from None
        self._progress(f"{self._path}: {counted(len(lines), 'request')}. Nothing was sent")
        for index in range(len(requests)):
            yield index, Refusal(kind="backend", message="its request was written to a batch file")


class BatchReader(_BatchFile):
    """Generator that reads responses from a batch's output file.

    Where every line was refused, the next file is written in other words, as a call would be.

    Raises:
        DataError: the file cannot be read, or holds no line of a batch's output.
    """

    def __init__(self, spec: ModelSpec, path: Path, progress: Callable[[str], None] | None) -> None:
        super().__init__(spec, path, progress)
        self._responses: dict[str, list[tuple[int, dict[str, Any]]]] = {}
        """Responses by the beginning of their ``custom_id``, each with the number of its first completion."""
        self._counts: Counter[str] = Counter()
        self._used: set[str] = set()
        self._read()

    def _read(self) -> None:
        ids = set()
        try:
            with self._path.open("rb") as file:
                for line in filter(bytes.strip, file):
                    self._counts["lines"] += 1
                    try:
                        row = msgspec.json.decode(line)
                        # a line of requests has neither
                        name, response = row["custom_id"], row["response"] or {"error": row["error"]}
                        beginning, _, first = name.rpartition("#")
                        number = int(first)
                    except (msgspec.MsgspecError, KeyError, AttributeError, TypeError, ValueError):
                        self._counts["unreadable"] += 1
                        continue
                    if name in ids:
                        self._counts["doubled"] += 1
                        continue
                    ids.add(name)
                    entry = {"error": row.get("error"), **response}
                    self._responses.setdefault(beginning, []).append((number, entry))
        except OSError as error:
            raise _unusable(self._path, error) from None
        if not ids:
            raise DataError(
                f"{self._path} is not the output of a batch: none of its lines has custom_id and response",
                code="no_batch",
                path=str(self._path),
            )

    def stream_samples(self, requests: Sequence[Request]) -> Iterator[tuple[int, Sample | Reply | Refusal]]:
        """Yield each complete response; for an incomplete one, the available completions and a refusal."""
        self._learn(requests)
        for index, request in enumerate(requests):
            samples, prompt_tokens, refusals = list(request.samples), 0, []
            missing = set(request.missing)
            for first, entry in self._lines(request):
                try:
                    response = _parsed(entry, request, first)
                except APIError as error:
                    self._counts["failed"] += 1
                    detail = f": {excerpt(error.server_text, 200)}" if error.server_text else ""
                    again = "; write another batch for the missing texts"
                    refusals.append(
                        Refusal(kind=error.kind, message=f"{error}{detail}{again}", status=error.status)
                    )
                    continue
                self._counts["unfinished"] += len(response.broken)
                samples += [sample for sample in response.samples if sample.index in missing]
                missing -= {sample.index for sample in response.samples}
                prompt_tokens += response.prompt_tokens
            if missing:
                for sample in samples:
                    yield index, sample
                gap = f"{len(missing)} of {request.n} texts are not in {self._path}"
                yield index, refusals[0] if refusals else Refusal(kind="backend", message=gap)
                continue
            samples.sort(key=lambda sample: sample.index)
            whole = ParsedResponse(samples, prompt_tokens)
            yield index, whole.reply(bool(whole.opens_trace))
        self._say()

    def _lines(self, request: Request) -> list[tuple[int, dict[str, Any]]]:
        """List a request's responses with their first completion numbers."""
        beginning = custom_id(request, 0).rpartition("#")[0]
        if beginning in self._responses:
            self._used.add(beginning)
        return self._responses.get(beginning, [])

    def _learn(self, requests: Sequence[Request]) -> None:
        """Change the wording of later files if the server refused every line for its fields. Raises
        BackendError if that would change the distribution."""
        refused: tuple[APIError, Request, int] | None = None
        for request in requests:
            for first, entry in self._lines(request):
                try:
                    _parsed(entry, request, first)
                except APIError as error:
                    refused = refused or ((error, request, first) if error.rejected else None)
                else:
                    return  # so a refusal is about its request
        if refused is None:
            return
        refusal, request, first = refused
        body = self._body(request, first, request.n - first)
        try:
            wording = self.learned.wording.without(refusal, body, request, (), self._extra)
        except APIError as problem:
            raise self._problem(problem) from None
        if wording is not None:
            self.learned.wording = wording
            changes = ", ".join(f"{name} {change}" for name, change in wording.changes.items())
            self._progress(f"every line was refused; the next file has {changes}")

    def _say(self) -> None:
        self._counts["of other requests"] = len(self._responses.keys() - self._used)
        parts = [f"{self._counts[name]} {name}" for name in _COUNTED if self._counts[name]]
        self._progress(f"{self._path}: {', '.join(parts)}")


def _unusable(path: Path, error: OSError) -> DataError:
    return DataError(f"{path}: {error.strerror}", code="no_file_access", path=str(path))


def _parsed(entry: dict[str, Any], request: Request, first: int) -> ParsedResponse:
    """Parse the completions of one line, numbered from ``first``. Raises APIError if there are none."""
    error = entry.get("error")
    if error:
        raise APIError("the server failed", server_text=excerpt(error, 200))
    status = entry.get("status_code", 200)
    body = json.dumps(entry.get("body")).encode()
    if status != 200:
        raise status_error(status, body)
    return parse_response(body, request, first, request.n - first)


def custom_id(request: Request, first: int) -> str:
    """Build the id of a request's completions from number ``first`` on, from question and settings.

    The settings are in it as a hash, so that no output of other settings is taken for these answers.
    """
    settings = [request.messages, request.sampling, request.seed, request.thinking]
    digest = hashlib.sha256(msgspec.json.encode(settings)).hexdigest()
    is_short = request.label.isascii() and request.label.isprintable() and len(request.label) <= LONGEST_ID
    return f"{request.label}#{digest[:8]}#{first}" if request.label and is_short else f"{digest[:32]}#{first}"

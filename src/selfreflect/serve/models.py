"""The models that clients may name."""

from __future__ import annotations

from collections.abc import Sequence

from selfreflect.errors import excerpt, nearest
from selfreflect.serve.chat import PREFIX
from selfreflect.serve.faults import ChatError
from selfreflect.serve.local import LocalModel
from selfreflect.serve.remote import RemoteModel, RemoteServer


class ModelTable:
    """Models of this process, and those of one server.

    Args:
        names: the server's models that clients may name; None for all that it has.
    """

    def __init__(
        self,
        local: Sequence[LocalModel],
        server: RemoteServer | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        self._local = {model.name: model for model in local}
        self._server = server
        self._names = names if server is not None else ()

    async def names(self) -> list[str]:
        """Every name that clients may use: each model's own, and the one whose distribution is drawn. Raises
        ChatError if the server gives no list."""
        names = [*self._local, *(self._names or ())]
        if self._server is not None and self._names is None:
            names += await self._server.names()
        return [f"{prefix}{name}" for name in names for prefix in (PREFIX, "")]

    def find(self, name: str) -> LocalModel | RemoteModel:
        """Look up a model by its own name. Raises ChatError, status 404, if there is none."""
        if name in self._local:
            return self._local[name]
        if self._server is not None and (self._names is None or name in self._names):
            return self._server.model(name)
        own_names = [*self._local, *(self._names or ())]
        names = [f"{PREFIX}{one}" for one in own_names] + own_names
        hint = nearest(name, own_names) or f" Known: {', '.join(names)}."
        raise ChatError(
            404,
            f"there is no model {excerpt(name, 200)}.{hint}",
            type="not_found_error",
            param="model",
            code="model_not_found",
        )

    async def close(self) -> None:
        for model in self._local.values():
            await model.close()
        if self._server is not None:
            await self._server.close()

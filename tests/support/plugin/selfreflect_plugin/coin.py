"""A coin as a model: ``coin:NAME`` answers every question with heads or tails."""

from random import Random

from selfreflect.models.backend import Backend
from selfreflect.models.base import Completion, Reply


class Coin:
    revision = ""

    def __init__(self, spec, progress):
        self.name = spec.name
        self.facts = {"name": spec.name, "revision": ""}  # for the manifest of a run

    def generate(self, requests):
        return [self._reply(request) for request in requests]

    def _reply(self, request):
        draws = [Random(f"{request.seed} {number}") for number in range(request.n)]
        texts = [draw.choice(("It is heads.", "It is tails.")) for draw in draws]
        return Reply(completions=tuple(Completion(text=text, finish="stop", tokens=3) for text in texts))


class CoinBackend(Backend):
    generator = "selfreflect_plugin.coin:Coin"
    judge = "selfreflect_plugin.coin_judge:CoinJudge"
    loads_model = False

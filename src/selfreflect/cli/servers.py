"""Commands ``selfreflect app`` and ``selfreflect serve``: a local page, and an OpenAI-compatible endpoint."""

from __future__ import annotations

import os
import secrets
import webbrowser
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from html import escape
from ipaddress import ip_network
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import typer
from msgspec.structs import replace

from selfreflect.atomic import write_bytes
from selfreflect.cli.console import make_folder, say
from selfreflect.cli.options import Overrides, option, takes
from selfreflect.errors import ConfigError, MissingExtraError, excerpt, unknown_name
from selfreflect.models.backend import backend_of, load_generator, load_judge, on_server
from selfreflect.models.base import Sampling, check_extra_body
from selfreflect.models.openai.endpoint import endpoint
from selfreflect.prompts import load_prompts
from selfreflect.report.wording import say as sentence
from selfreflect.run.models import Quiet, load_measures, stage_model
from selfreflect.settings import Config, ServeConfig, sampling_of
from selfreflect.text import counted, name_list
from selfreflect.traits import traits_of

if TYPE_CHECKING:
    from selfreflect.metric.measure import Measures
    from selfreflect.server.belief import BeliefReader
    from selfreflect.server.endpoint import ServeServices
    from selfreflect.server.reflector import ServeSettings
    from selfreflect.server.upstream import ModelTable
    from selfreflect.uncertainty.guarantee import Guarantee

_HOST = option(
    "--host ADDRESS",
    "Listen on this address; addresses other than localhost need --allow-remote.",
    "127.0.0.1",
)


_WEB_STACK = ("fastapi", "prometheus_client", "pydantic", "starlette", "uvicorn")


def _port(default: int) -> Any:
    """Make the option ``--port``."""
    help = "Listen on this port; 0 chooses a free one."
    return typer.Option(default, "--port", min=0, max=65535, help=help)


def _allow_remote(variable: str) -> Any:
    """Make the option ``--allow-remote``."""
    help = f"Let other machines connect, with the token in ${variable} or a new one that is printed."
    return option("--allow-remote", help, False)


@contextmanager
def _web_stack(feature: str, extra: str) -> Iterator[None]:
    """Import the web stack. Raises MissingExtraError if one of its packages is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _WEB_STACK:
            raise
        raise MissingExtraError(feature, extra) from None


def _token_of(variable: str, host: str, allow_remote: bool) -> str | None:
    """Read the token from the environment; None if unset.

    Raises:
        ConfigError: other machines would be let in without being allowed, or the token is too weak.
    """
    from selfreflect.server.guard import LOCAL

    if host not in LOCAL and not allow_remote:
        raise ConfigError(
            f"listening on {host} lets other machines use this one",
            code="remote",
            remedy="Add {allow_remote} to allow that.",
            host=host,
        )
    token = os.environ.get(variable, "")
    # no header holds other characters, and a short token can be guessed
    if token and (len(token) < 16 or not token.isascii() or not token.isprintable() or " " in token):
        raise ConfigError(
            f"${variable} must have 16 or more ASCII characters and no blanks",
            code="weak_token",
            remedy="Unset the variable to get a new token.",
        )
    return token or None


def _new_token() -> str:
    """Generate a random token."""
    return secrets.token_urlsafe(32)


# --- the page

APP_TOKEN = "SELFREFLECT_APP_TOKEN"

# A file in the directory of runs, which every browser can read: packaged ones see neither
# temporary nor hidden directories.
_STARTER = "open-app.html"


@takes("answers", only=("--extra-body",), execution=("--device",))
def app_command(
    *,
    root: Path = option(
        "--root DIR", "Directory of runs: new ones are stored and earlier ones shown.", Path("runs")
    ),
    model: list[str] = option(
        "--model NAME",
        "Offer this model too: a hub name, a local directory, or a model of a server as openai:NAME, with "
        "the key in the environment. Can be repeated.",
        [],
    ),
    base_url: str | None = option(
        "--base-url URL", "Let users choose any model of this server, as openai:NAME. [default: none]"
    ),
    host: str = _HOST,
    port: int = _port(8765),
    allow_remote: bool = _allow_remote(APP_TOKEN),
    no_token: bool = option(
        "--no-token", "Accept requests of every user and program of this machine, without a token.", False
    ),
    browser: bool = option("--open/--no-browser", "Open the page in a browser.", False),
    overrides: Overrides,
) -> None:
    """Serve a page in the browser for asking.

    Open the address that is printed: it holds the token that the page needs. $SELFREFLECT_APP_TOKEN sets one
    that stays the same.

    Type a question, watch answers, summaries and scores arrive, compare strategies, and look at earlier runs.
    """
    with _web_stack("The app", "app"):
        from selfreflect.server.app import serve, url
        from selfreflect.server.guard import LOCAL, access, listen
        from selfreflect.server.requests import ModelChoices
    token = _token_of(APP_TOKEN, host, allow_remote)
    if host not in LOCAL and no_token:
        raise ConfigError(f"{host} needs a token", code="no_token", remedy="Leave out {no_token}.")
    token = None if no_token else token or _new_token()
    make_folder(root)
    socket = listen(host, port)
    address = url(host, socket.getsockname()[1], token)
    extra_body = overrides.config(_base(overrides)).answers.extra_body
    models, options = ModelChoices(model, base_url, extra_body), overrides.execution
    try:
        # the socket listens already, so that the page can be opened before the server answers
        say(f"selfreflect is at {address}\nRuns are kept in {root}. Stop with Ctrl-C.")
        config = overrides.config(_base(overrides))
        _say_show_case([config.answers.model, config.scores.judge])
        if browser:
            _open_browser(address, root / _STARTER)
        serve(socket, root, models=models, options=options, allowed=access(host, token))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    finally:
        if browser:
            (root / _STARTER).unlink(missing_ok=True)
        say(f"Stopped. Finished work is in {root}.")


def _open_browser(address: str, starter: Path) -> None:
    """Open the browser through a private file that redirects to the address. Every user of the machine can
    read the arguments of the browser's process, and the address holds the token."""
    page = f'<!doctype html><meta http-equiv="refresh" content="0; url={escape(address)}">\n'
    try:
        write_bytes(starter, page.encode(), private=True, durable=False)
    except OSError as error:
        say(f"The browser is not opened, because {starter} cannot be written: {error.strerror}.")
        return
    webbrowser.open(starter.resolve().as_uri())


# --- the endpoint

SERVE_TOKEN = "SELFREFLECT_SERVE_TOKEN"


@takes(
    "answers",
    "summaries",
    "scores",
    only=(
        *("--strategies", "--temperature", "--top-p", "--max-new-tokens", "--summary-tokens", "--thinking"),
        *("--judge", "--judge-url", "--measures", "--extra-body"),
    ),
    defaults={
        "--strategies": ("sample_and_summarize",),
        "--temperature": None,
        "--top-p": None,
        "--summary-tokens": 1024,
        "--judge": None,
        "--max-connections": 64,
    },
    whole=("serve",),
    config_file=True,
    execution=(
        *("--prompts", "--device", "--batch-size", "--trust-remote-code", "--max-connections", "--timeout"),
    ),
)
def serve_command(
    *,
    model: list[str] = option(
        "--model NAME",
        "Serve this model: smollm2, a hub name, a directory, vllm:NAME, module:function, or openai:NAME "
        "on --base-url. Can be repeated. [default: all models of --base-url, else smollm2]",
        [],
    ),
    base_url: str | None = option(
        "--base-url URL",
        "Address of the server with the models to serve. It must be OpenAI-compatible. [default: none]",
    ),
    overrides: Overrides,
    host: str = _HOST,
    port: int = _port(8766),
    allow_remote: bool = _allow_remote(SERVE_TOKEN),
) -> None:
    """Serve models over OpenAI's API, with honest answers.

    The model selfreflect/NAME answers each question several times and returns a summary of its answers, with
    their shares and a confidence in the field `selfreflect`. NAME is the model itself. Requests that cannot
    be reflected, such as images, reach the server of --base-url unchanged.

    Clients on this machine need no API key unless $SELFREFLECT_SERVE_TOKEN sets one. The key of --base-url is
    $SELFREFLECT_API_KEY or $OPENAI_API_KEY.
    """
    with _web_stack("The endpoint", "serve"):
        from selfreflect.server.chat import reflected_model
        from selfreflect.server.endpoint import serve
        from selfreflect.server.guard import LOCAL, access, listen
    config = overrides.config(_base(overrides))
    token = _token_of(SERVE_TOKEN, host, allow_remote)
    proxies = _proxies(config.serve)
    printed = ""
    if token is None and host not in LOCAL:
        token = _new_token()
        printed = f" with the API key {token}"
    bound = listen(host, port)
    services, names = _services(model, base_url, config, overrides)
    generators = [*dict.fromkeys(map(reflected_model, names))]
    try:
        say(f"The endpoint is at http://{host}:{bound.getsockname()[1]}/v1{printed}. Stop with Ctrl-C.")
        say(f"Models: {', '.join(names)}")
        say(_costs(services, _comparisons(config.serve, generators)))
        judges = [config.scores.judge] if overrides.sets("scores", "judge") else []
        _say_show_case([*generators, *judges])
        serve(bound, services, access(host, token), proxies)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    finally:
        say("Stopped.")


def _base(overrides: Overrides, answers: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
    """Build the default settings. If only ``extra_body`` is given, a placeholder names a server's model."""
    # which model it is, the list of the server says later
    names_none = overrides.sets("answers", "extra_body") and not overrides.sets("answers", "model")
    return {"answers": {**answers, **({"model": on_server("NAME")} if names_none else {})}}


def _say_show_case(names: Iterable[str]) -> None:
    """Say a caution about those of the models and judges that are for demonstration only."""
    if small := [name for name in dict.fromkeys(names) if traits_of(name).is_show_case]:
        caution = sentence("show_case_model", models=small)
        say(f"{caution[:1].upper()}{caution[1:]}.")


def _services(
    models: Sequence[str], base_url: str | None, config: Config, overrides: Overrides
) -> tuple[ServeServices, list[str]]:
    """Load the services that the settings name, and list the model names to print."""
    from selfreflect.server.endpoint import Admission, ServeServices
    from selfreflect.server.record import Archive, History, ServerMetrics
    from selfreflect.server.reflector import Reflector

    options = config.serve
    if options.keep_texts and options.out is None:
        raise ConfigError(
            "keeping texts needs a run directory", code="no_directory", remedy="Give {serve.out}."
        )
    if options.at_least is not None and options.at_least > options.num_answers:
        raise ConfigError(
            f"drawing may stop after {options.at_least} answers, but only {options.num_answers} are drawn",
            remedy="Lower {serve.at_least}, or raise {serve.num_answers}.",
        )
    names = list(models)
    if overrides.sets("answers", "model") and not names:
        names = [config.answers.model]
    base_url = base_url or config.answers.base_url
    if not names and base_url is None:
        names = ["smollm2"]
    config = overrides.config(_base(overrides, sampling_of(names[0]) if len(names) == 1 else {}))
    reader = _reader(options)
    guarantee = None
    if reader.calibrator is not None:
        guarantee = reader.calibrator.saved.guarantee
        say(f"The calibrator was fitted to {reader.calibrator.saved.origin}.")
    if guarantee:
        config = _as_guaranteed(config, overrides, guarantee)
    settings = _settings(config, overrides, reader.kinds, names)
    with ExitStack() as stack:  # before the models, which take their time to load
        archive = Archive(Path(options.out), texts=options.keep_texts) if options.out is not None else None
        if archive is not None:
            stack.callback(archive.close)
        judge = _judge(config, overrides) if overrides.sets("scores", "judge") else {}
        reflector = Reflector(settings, reader, judge)
        table = _table(names, base_url, config, overrides)
        saved = reader.calibrator.saved if reader.calibrator is not None else None
        # earlier files name the model only in their guarantee
        fitted = ((guarantee.model if guarantee else "") or saved.answered_by) if saved else ""
        if fitted and names:
            for name in (table.find(_name_for_clients(name)).generator.name for name in names):
                if name != fitted:
                    raise ConfigError(
                        f"the calibrator was fitted on answers of {excerpt(fitted)}, not of {excerpt(name)}",
                        code="other_model",
                        remedy="Serve that model, or calibrate this one with labelled answers of its own.",
                    )
        # from here on the services close what was opened
        stack.pop_all()
    queue = Admission()
    watch = reader.calibrator.watch if reader.calibrator is not None else None
    metrics = ServerMetrics(lambda: queue.running, lambda: queue.waiting, watch, _at_most(settings))
    services = ServeServices(table, reflector, queue, History(), metrics, archive)
    addresses = [f"selfreflect/{_name_for_clients(name)}" for name in names]
    return services, addresses or [f"selfreflect/NAME for every model NAME of {endpoint(base_url).url}"]


def _as_guaranteed(config: Config, overrides: Overrides, guarantee: Guarantee) -> Config:
    """Adopt the sampling settings of the calibrator's guarantee, and refuse settings that would void it."""
    for key in ("below", "at_least"):
        if overrides.sets("serve", key):
            raise ConfigError(
                "the calibrator's guarantee holds only at its own threshold, and for questions with "
                f"{counted(guarantee.samples, 'answer')}",
                code="guarantee",
                remedy=f"Leave out {{serve.{key}}}, or use a {{serve.calibrator}} without a guarantee.",
            )
    for key, value in (("temperature", guarantee.temperature), ("top_p", guarantee.top_p)):
        if value is None:
            continue
        if overrides.sets("answers", key) and getattr(config.answers, key) != value:
            raise ConfigError(
                f"the guarantee holds only for answers drawn at {key.replace('_', '-')} {value:g}",
                code="other_sampling",
                remedy=f"Give {{answers.{key}}} {value:g}, or leave it out.",
            )
        config = replace(config, answers=replace(config.answers, **{key: value}))
    options = config.serve
    if options.one_call:  # its guarantee is about one response, and no others are drawn
        return config
    if overrides.sets("serve", "num_answers") and options.num_answers != guarantee.samples:
        raise ConfigError(
            f"the guarantee holds only for questions with {counted(guarantee.samples, 'answer')}, not "
            f"{options.num_answers}",
            code="other_samples",
            remedy=f"Give {{serve.num_answers}} {guarantee.samples}, or leave it out.",
        )
    return replace(config, serve=replace(options, num_answers=guarantee.samples))


def _proxies(options: ServeConfig) -> list[str]:
    """Read the addresses of trusted proxies. Raises ConfigError for other values."""
    proxies = name_list(options.proxies or "")
    for proxy in proxies:
        try:
            ip_network(proxy)
        except ValueError:
            raise ConfigError(
                f"the proxy {excerpt(proxy)} is not an address",
                remedy="Give {serve.proxies} addresses such as 10.0.0.5 or networks such as 10.0.0.0/24.",
            ) from None
    return proxies


def _comparisons(options: ServeConfig, models: Sequence[str]) -> int:
    """Compute the maximum number of answer pairs that a model compares."""
    from selfreflect.uncertainty.classes import PAIRS_PER_ANSWER
    from selfreflect.uncertainty.relations import CONTROLS

    pairs = options.num_answers * (options.num_answers - 1) // 2
    if options.classes == "judge":
        return pairs
    is_small = all(traits_of(name).is_show_case for name in models)
    if options.classes or options.calibrator or is_small:
        return 0
    return min(pairs, PAIRS_PER_ANSWER * options.num_answers) + len(CONTROLS)


MEAN_ANSWERS = {20: 15.7}
"""Mean number of answers that ``--at-least`` draws for 250 TriviaQA questions, by ``--num-answers``:
benchmarks/RESULTS.md."""


def _at_most(settings: ServeSettings) -> int:
    """Compute the maximum number of texts per question, without comparisons and follow-up questions."""
    # the summary, and the one response that comes before others are drawn
    options = settings.options
    return options.num_answers * (2 if settings.measures else 1) + 1 + options.one_call


def _costs(services: ServeServices, comparisons: int) -> str:
    """Describe how many texts a question needs: the maximum, and the average so far."""
    settings = services.reflector.settings
    options = settings.options
    mean, questions = services.archive.mean_answers() if services.archive is not None else (0.0, 0)
    known = None if options.at_least is None or settings.measures else MEAN_ANSWERS.get(options.num_answers)
    return sentence(
        "serve_costs",
        at_most=_at_most(settings),
        may_be_fewer=options.at_least is not None or options.one_call,
        asks_back=options.when_unsure == "ask",
        comparisons=comparisons,
        questions=questions,
        mean=mean + 1 if questions else known and known + 1,
        is_one_call=services.reflector.takes_one_call,
        reflect=options.reflect,
    )


def _reader(options: ServeConfig) -> BeliefReader:
    """Build the reader of classes and confidence. Raises ConfigError if the calibrator was fitted with other
    classes."""
    from selfreflect.server.belief import BeliefReader, load_calibrator
    from selfreflect.uncertainty.classes import DEFAULT, ClassRule

    if options.calibrator is None:
        if options.one_call:
            raise ConfigError(
                "the token probabilities of one response are not a confidence until they are calibrated",
                code="no_calibrator",
                remedy="Give {serve.calibrator} a file of `selfreflect calibrate --num-answers 1 --save`.",
            )
        if options.when_unsure is not None and options.classes == "exact":
            raise ConfigError(
                f"{options.when_unsure} with exact classes: answers in sentences are hardly ever spelled "
                "alike, so the endpoint would doubt what the model knows",
                code="exact_classes",
                remedy="Leave out {serve.classes} (the default asks the served model), or use same, "
                "judge, embedding or nli:MODEL.",
            )
        if options.classes in (None, "judge"):
            return BeliefReader(ClassRule(DEFAULT), asks="always" if options.classes else "bounded")
        return BeliefReader(ClassRule(options.classes))
    calibrator = load_calibrator(Path(options.calibrator), one_call=options.one_call)
    saved = calibrator.saved
    if options.classes not in (None, saved.classes):
        raise ConfigError(
            f"the classes are {options.classes}, but the calibrator was fitted with {saved.classes}",
            code="other_classes",
            remedy="Leave out {serve.classes}.",
        )
    return BeliefReader(ClassRule(saved.classes), calibrator)


def _settings(
    config: Config, overrides: Overrides, kinds: Sequence[str], names: Sequence[str]
) -> ServeSettings:
    from selfreflect.server.reflector import ServeSettings
    from selfreflect.uncertainty.claims.labelled import ClaimCalibrator

    options = config.serve
    # of the answers that are drawn where one is not enough
    default = "modal_share" if options.one_call else kinds[0]
    confidence = options.confidence or default
    if confidence not in kinds:
        raise unknown_name("confidence", confidence, kinds)
    if options.when_unsure is not None and options.confidence == "none":
        raise ConfigError(
            "acting on an unsure answer needs a confidence",
            code="no_confidence",
            remedy="Leave out {serve.confidence}, or {serve.when_unsure}.",
        )
    summaries = config.summaries
    measures = tuple(sorted(config.scores.measure_names)) if overrides.sets("scores", "judge") else ()
    if overrides.sets("scores", "measures") and not measures:
        raise ConfigError(
            "these measures need a judge", code="no_judge", remedy="Name one with {scores.judge}."
        )
    claims_calibrator = None
    if options.claims_calibrator is not None:
        claims_calibrator = ClaimCalibrator.load(Path(options.claims_calibrator), "words")
    return ServeSettings(
        prompts=load_prompts(overrides.execution.prompts),
        options=options,
        strategies=summaries.strategies,
        sampling=config.answers.sampling,
        summary=Sampling(temperature=0.0, max_new_tokens=summaries.max_new_tokens),
        thinking=config.answers.thinking,
        confidence=confidence,
        measures=measures,
        claims_calibrator=claims_calibrator,
        prices={name: price.cost for name in {*config.prices, *names} if (price := config.price_of(name))},
    )


def _judge(config: Config, overrides: Overrides) -> dict[str, Measures]:
    """Load the judge and its measures by name."""
    scores = config.scores
    spec = stage_model(config, overrides.execution, "scores")
    judge = load_judge(spec, compat=scores.compat, progress=say)
    measures = {}
    for name in scores.measure_names:
        single = replace(config, scores=replace(scores, measures=name, controls=False))
        measures[name] = load_measures(judge, single, overrides.execution, Quiet())
    return measures


def _name_for_clients(name: str) -> str:
    """Shorten a model's name for clients: a directory to its last part."""
    if Path(name).is_dir():
        return Path(name).resolve().name
    backend = backend_of(name)
    return backend.bare_name(name) if backend.can_relay else name


def _table(names: Sequence[str], base_url: str | None, config: Config, overrides: Overrides) -> ModelTable:
    """Load local models, and set up calls to the server."""
    from selfreflect.server.session import LocalModel
    from selfreflect.server.upstream import ModelTable, RemoteServer

    options = overrides.execution
    local, served = [], []
    for name in names:
        backend = backend_of(name)
        if backend.can_relay:
            served.append(backend.bare_name(name))
            continue
        answers = replace(config.answers, model=name, base_url=base_url if backend.is_remote else None)
        generator = load_generator(stage_model(replace(config, answers=answers), options, "answers"), say)
        local.append(LocalModel(_name_for_clients(name), generator))
    # the address may be that of a server which speaks another protocol than clients do
    speaks_other = any(backend_of(name).is_remote for name in names) and not served
    if not served and (base_url is None or speaks_other):
        return ModelTable(local)
    server = endpoint(base_url)
    if server.lacks_key:
        raise ConfigError(
            f"{server.url} needs a key",
            code="no_key",
            remedy=f"{server.key_advice}, or name another server with {{answers.base_url}}.",
        )
    extra = config.answers.extra_body
    check_extra_body(extra or {})
    remote = RemoteServer(
        server, max_connections=options.max_connections, timeout=options.timeout, extra_body=extra
    )
    return ModelTable(local, remote, served or None)

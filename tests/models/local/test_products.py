"""Products in C: those of torch, and the same to the last bit in whichever form the weights are kept."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from selfreflect.models.local import step as products
from selfreflect.models.local.step import Product, StepLibrary, packed_weights, step_library


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    if isinstance(step_library(), str):
        pytest.skip(str(step_library()))
    with torch.inference_mode():
        yield


def library() -> StepLibrary:
    loaded = step_library()
    assert not isinstance(loaded, str)
    return loaded


def linear(weight: torch.Tensor) -> torch.nn.Linear:
    outer, inner = weight.shape
    module = torch.nn.Linear(inner, outer, bias=False)
    module.weight = torch.nn.Parameter(weight)
    return module


def weights(form: int, outer: int, inner: int) -> torch.Tensor:
    """Numbers as a hub model stores them, or as ``gguf`` reads them from a file of llama.cpp."""
    source = torch.randn(outer, inner)
    if form == products.BFLOAT16:
        return source.bfloat16().float()
    if form == products.FLOAT32:
        return source
    import gguf

    kind = {products.CODES8: gguf.GGMLQuantizationType.Q8_0, products.CODES4: gguf.GGMLQuantizationType.Q4_1}
    stored = gguf.quants.quantize(source.numpy(), kind[form])
    return torch.from_numpy(gguf.quants.dequantize(stored, kind[form]))


@given(
    rows=st.sampled_from([1, 2, 5, 12, 13, 20, 50, 97, 130]),
    inner=st.sampled_from([1, 15, 64, 96, 100]),
    outer=st.lists(st.sampled_from([1, 5, 12, 33]), min_size=1, max_size=3),
    norm=st.booleans(),
    bias=st.booleans(),
)
def test_products_are_those_of_torch(rows: int, inner: int, outer: list[int], norm: bool, bias: bool) -> None:
    torch.manual_seed(0)
    modules = [torch.nn.Linear(inner, size, bias=bias) for size in outer]
    scale = torch.nn.RMSNorm(inner, eps=1e-5)
    torch.nn.init.normal_(scale.weight)
    before = SimpleNamespace(weight=scale.weight, variance_epsilon=1e-5) if norm else None
    x = torch.randn(rows, inner)
    total = torch.randn(rows, sum(outer))
    truth = torch.cat([module(scale(x) if norm else x) for module in modules], dim=1)
    lanes = torch.empty_like(x)
    product = Product(library(), modules, before)
    assert torch.allclose(product(x, lanes), truth, atol=1e-4)
    summed = product(x, lanes, total.clone())
    assert torch.allclose(summed, total + truth, atol=1e-4)


@pytest.mark.parametrize("form", [products.CODES4, products.CODES8, products.BFLOAT16])
@pytest.mark.parametrize(("outer", "inner"), [(40, 96), (1, 32), (64, 256)])
def test_packed_weights_give_the_same_bits(
    monkeypatch: pytest.MonkeyPatch, form: int, outer: int, inner: int
) -> None:
    """A product with the unit matrix reads the weights back, one with any rows the sums."""
    torch.manual_seed(1)
    module = linear(weights(form, outer, inner))
    assert packed_weights(library(), module).form == form
    packed = Product(library(), [module])
    monkeypatch.setattr(products, "PACKED_FORMS", ())
    own = Product(library(), [linear(module.weight)])
    assert own.packed[0].form == products.FLOAT32
    unit = torch.eye(inner)
    assert torch.equal(packed(unit, torch.empty_like(unit)).T, module.weight)
    for rows in (1, 20, 50):
        x = torch.randn(rows, inner)
        lanes = torch.empty_like(x)
        assert torch.equal(packed(x, lanes), own(x, lanes))


@torch.inference_mode(False)
def test_weights_that_have_changed_are_packed_again() -> None:
    """In place, through ``data`` (as merging an adapter does), and by another tensor."""
    module = linear(torch.randn(8, 64).bfloat16().float())
    x = torch.randn(3, 64)

    def product() -> torch.Tensor:
        return Product(library(), [module])(x, torch.empty_like(x))

    changes = (
        lambda: module.weight.data.mul_(2),
        lambda: module.weight.requires_grad_(False).view(-1)[5].fill_(4.0),
        lambda: setattr(module, "weight", torch.nn.Parameter(torch.randn(8, 64))),
    )
    for change in changes:
        assert torch.allclose(product(), module(x), atol=1e-5)
        change()
    assert torch.allclose(product(), module(x), atol=1e-5)


def test_without_spare_memory_weights_are_not_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "free_memory", lambda: 10_000)
    assert packed_weights(library(), linear(weights(products.CODES8, 32, 64))).form == products.FLOAT32

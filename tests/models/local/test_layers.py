"""Products with weights are torch's own but for rounding, whatever the rows, strides and types."""

import os
import subprocess
import sys

import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from selfreflect.models.local.layers import add_linear, linear


def made(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@given(
    rows=st.integers(0, 70),
    inner=st.integers(1, 70),
    outer=st.integers(1, 70),
    biased=st.booleans(),
    turned=st.booleans(),
)
def test_a_product_is_exact_but_for_rounding(
    rows: int, inner: int, outer: int, biased: bool, turned: bool
) -> None:
    x = made(inner, rows).t() if turned else made(rows, inner)
    weight, bias = made(outer, inner, seed=1), made(outer, seed=2) if biased else None
    exact = F.linear(x.double(), weight.double(), None if bias is None else bias.double())
    with torch.inference_mode():
        found = linear(x, weight, bias)
        activated = linear(x, weight, bias, silu=True)
        total = made(rows, outer, seed=3)
        added = total.clone()
        add_linear(added, x, weight, bias)
    size = F.linear(x.abs().double(), weight.abs().double()) + 4
    assert found.shape == (rows, outer)
    assert found.dtype == torch.float32
    assert ((found - exact).abs() <= 1e-6 * size).all()
    assert ((added - total - exact).abs() <= 1e-6 * size).all()
    assert ((activated - F.silu(exact)).abs() <= 2e-6 * size).all()


def test_ever_new_numbers_of_rows_do_not_fill_the_memory() -> None:
    """A kernel is compiled for each of them, and a thousand kept ones would be half a gigabyte."""
    code = (
        "import torch\n"  # by a program that knows nothing of this package yet
        "from selfreflect.models.local.layers import linear\n"
        "from selfreflect.bench import allocated\n"
        "from selfreflect.models.local.machine import set_library_defaults; set_library_defaults()\n"
        "torch.set_num_threads(1)\n"
        "x, weight = torch.randn(1024, 576), torch.randn(1536, 576)\n"
        "def kept(rows): [linear(x[:n], weight) for n in rows]; return allocated(torch.device('cpu'))\n"
        "few = kept(range(1, 60)); print((kept(range(60, 180)) - few) / 2**20)"
    )
    environment = {
        k: v
        for k, v in os.environ.items()
        if k not in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
    }
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert float(done.stdout) < 30

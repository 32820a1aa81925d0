"""Programs as functions of PyTorch: values and gradients, against PyTorch's own."""

from __future__ import annotations

from pathlib import Path

import pytest

import upl_mlir as upl

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'upl-mlir[torch]'")

from upl_mlir.interop.torch import torch_function  # noqa: E402

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.parametrize("t", [torch.float64, torch.float32])
def test_value_and_gradient(t):
    f = torch_function(upl.load(EXAMPLES / "matmul.upl"), "C")
    torch.manual_seed(0)
    a, b = (torch.randn(*shape, dtype=t, requires_grad=True) for shape in ((3, 4), (4, 2)))
    near = 1e-12 if t == torch.float64 else 1e-5
    torch.testing.assert_close(f(a, b), a @ b, rtol=near, atol=near)
    found = torch.autograd.grad(torch.sin(f(a, b)).sum(), (a, b))
    wanted = torch.autograd.grad(torch.sin(a @ b).sum(), (a, b))
    for x, y in zip(found, wanted, strict=True):
        assert x.dtype == t
        torch.testing.assert_close(x, y, rtol=near, atol=near)


def test_gradcheck():
    f = torch_function(upl.load(EXAMPLES / "softmax.upl"), "Loss")
    x, y = (torch.rand(2, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(f, (x, y))


def test_one_number():
    f = torch_function(upl.load(EXAMPLES / "scalars.upl"), "Y", wrt="w2")
    w1, w2 = (torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (1.7, 0.6))
    (3 * f(w1, w2)).backward()
    assert w1.grad is None
    expected = 3 * (torch.log(w1.detach()) + 0.5 * torch.sqrt(torch.log(w1.detach()) / w2.detach()))
    torch.testing.assert_close(w2.grad, expected)


def test_bf16():
    f = torch_function(upl.load(EXAMPLES / "matmul.upl"), "C")
    a = torch.tensor([[1.0, 2.0]], dtype=torch.bfloat16, requires_grad=True)
    b = torch.tensor([[3.0], [4.0]])
    y = f(a, b)
    assert y.dtype == torch.float32 and y.item() == 11
    y.sum().backward()
    assert a.grad.dtype == torch.bfloat16 and a.grad.tolist() == [[3, 4]]


def test_a_view_of_the_negative():
    f = torch_function(upl.load(EXAMPLES / "matmul.upl"), "C")
    a = torch.complex(torch.ones(1, 1), torch.tensor([[2.0]])).conj().imag
    assert f(a, torch.ones(1, 1)).item() == -2


def test_what_is_wrong_is_said():
    f = torch_function(upl.load(EXAMPLES / "matmul.upl"), "C")
    with pytest.raises(upl.UplError, match=r"UPL1501.*1 arguments are given for the inputs A, B"):
        f(torch.ones(2, 3))
    with pytest.raises(upl.UplError, match=r"UPL1502.*is not an input of the program"):
        torch_function(upl.load(EXAMPLES / "matmul.upl"), "C", wrt="C")

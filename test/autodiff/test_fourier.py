"""A fast Fourier transform in radix-2 stages, whose index conditions read a table of powers: its gradient is its transpose.

The transform and its transpose come from numpy.  What it asks of sets: instances whose predecessors halve stage by stage."""

import numpy as np
import pytest

import upl_mlir as upl

STAGES = 5
POINTS = 2**STAGES
TEXT = f"""program fourier
const L = {STAGES}
const H[0:L] = {[2**k for k in range(STAGES + 1)]}
input U<t> in 0<=t<H[L] {{ U -> In.u<0,t,0> }}
input V<t> in 0<=t<H[L] {{ V -> In.v<0,t,0> }}
output C<f>
output D<f>
node In<s,t,f> in 0<=s<=L, 0<=t<H[L-s], 0<=f<H[s] {{
  in u, v
  if s<L && t<H[L-s-1]: u -> Fly.u<s,t,f>
  if s<L && t<H[L-s-1]: v -> Fly.v<s,t,f>
  if s<L && t>=H[L-s-1]: u -> Fly.x<s,t-H[L-s-1],f>
  if s<L && t>=H[L-s-1]: v -> Fly.y<s,t-H[L-s-1],f>
  if s==L: u -> C<f>
  if s==L: v -> D<f>
}}
node Fly<s,t,f> in 0<=s<L, 0<=t<H[L-s-1], 0<=f<H[s] {{
  in u, v, x, y
  a = -3.141592653589793*f/H[s]
  p = cos(a)*x - sin(a)*y
  q = cos(a)*y + sin(a)*x
  u+p -> In.u<s+1,t,f>
  v+q -> In.v<s+1,t,f>
  u-p -> In.u<s+1,t,f+H[s]>
  v-q -> In.v<s+1,t,f+H[s]>
}}
"""


@pytest.mark.parametrize("engine", ["interp", "native"])
def test_the_gradient_of_a_fast_fourier_transform(engine: str) -> None:
    rng = np.random.default_rng(3)
    u, v, w = rng.normal(size=(3, POINTS))
    found = upl.compile(upl.vjp(upl.load(TEXT), of="C", wrt=["U", "V"]), engine=engine)(U=u, V=v, d_C=w)
    np.testing.assert_allclose(found["C"] + 1j * found["D"], np.fft.fft(u + 1j * v), atol=1e-12)
    back = np.fft.fft(w)  # the real part of the transform is sum (u cos + v sin), and both matrices are symmetric
    np.testing.assert_allclose(found["d_U"], back.real, atol=1e-12)
    np.testing.assert_allclose(found["d_V"], -back.imag, atol=1e-12)

"""JAX functions as UPL programs: `from_jax`.  Needs the extra `jax`.

    import jax.numpy as jnp
    import upl_mlir as upl

    def loss(w, x, y):
        return jnp.mean((jnp.tanh(x @ w) - y) ** 2)

    f = upl.from_jax(loss)                          # a function as upl.function makes them
    f(w, x, y)                                      # runs as a UPL program
    upl.grad(f)(w, x, y)                            # by UPL's reverse mode
    print(f.program(w, x, y))                       # the program, with the positions of the JAX function's lines

JAX traces the function (`jax.make_jaxpr`); each equation of its jaxpr is then an operation on traced arrays (`rules.py`).
So the value is imported, never a derivative: those are UPL's.
"""

"""The examples at the end of each command's `--help`, for the programs in `examples/` of the repository."""

from __future__ import annotations

EXAMPLES: dict[str, tuple[str, ...]] = {
    "check": (
        "upl check examples/perceptron.upl",
        "upl check examples/fir.upl examples/matmul.upl",
        "upl check examples/perceptron.upl --json",
        "upl grad examples/perceptron.upl --of R --wrt W | upl check -",
    ),
    "grad": (
        "upl grad examples/perceptron.upl --of R --wrt W -o gradient.upl",
        "upl grad examples/softmax.upl --of Loss --wrt X --explain",
    ),
    "jacobian": ("upl jacobian examples/matmul.upl --of C --wrt A -o jacobian.upl",),
    "explain": ("upl explain examples/perceptron.upl --of R --wrt W",),
    "draw": (
        "upl draw examples/perceptron.upl -o perceptron.svg",
        "upl draw examples/perceptron.upl --of R --wrt W -o derivative.png",
        "upl draw examples/matmul.upl -D m=4 -D n=4 -D r=4 --circuit --lanes 4 -o circuit.svg",
    ),
    "view": (
        "upl view examples/perceptron.upl --of R --wrt W --open",
        "upl view examples/matmul.upl --trace t.json -o matmul.html",
        "upl view --edit examples/perceptron.upl --open",
    ),
    "run": (
        "upl run examples/matmul.upl --input 'A=[[1,2],[3,4]]' --input 'B=[[1,0],[0,1]]'",
        "upl run examples/matmul.upl --engine native --input ab.npz --output c.npz --stats s.json",
        "upl run examples/matmul.upl --input ab.npz --trace t.json",
    ),
    "train": ("upl train examples/iris.upl --data examples/data/iris.npz --carry W_out=W --epochs 10",),
    "einsum": (
        "upl einsum examples/einsum/gemm.json --grad -t upl",
        "upl einsum --recognise examples/matmul.upl",
    ),
    "quantize": ("upl quantize examples/matmul.upl --input ab.npz --range A=-1..1 --error 1%",),
    "plot": ("upl run examples/matmul.upl --input ab.npz --trace t.json", "upl plot t.json -o run.svg"),
    "synth": (
        "upl synth examples/matmul.upl --circuit --lanes 4 -D m=4 -D n=4 -D r=4",
        "upl synth --machine m.toml --place",
    ),
    "wrap": ("upl wrap examples/matmul.upl --lanes 4 -D m=4 -D n=4 -D r=4 -o wrapped",),
    "explore": ("upl explore examples/sweep.toml --list", "upl explore examples/circuits.toml --jobs 2"),
    "fmt": ("upl fmt examples/perceptron.upl --check", "upl fmt -"),
    "lsp": ("upl lsp",),
    "completion": (
        "upl completion bash > ~/.local/share/bash-completion/completions/upl",
        "upl completion zsh > ~/.zfunc/_upl",
        "upl completion fish > ~/.config/fish/completions/upl.fish",
    ),
}


def shown(command: str) -> str:
    """The examples of a command, as they stand under its help."""
    return "examples:\n" + "\n".join(f"  {line}" for line in EXAMPLES[command])

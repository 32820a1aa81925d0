"""What is wrong with a case is said with its position: in the JSON, or inside the kernel."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import upl_mlir as upl
from upl_mlir.frontend import einsum
from upl_mlir.tools.upl import main


def case(kernel: str, ins: str = "B", outs: str = "A", **more: Any) -> str:
    """The JSON of a case; names are letters."""
    return json.dumps({"name": "t", "ins": list(ins), "outs": list(outs), "data_type": "float", "kernel": kernel} | more)


def fault(text: str, *, grad: bool = False) -> Any:
    """The diagnostic of a faulty case."""
    with pytest.raises(upl.UplError) as e:
        (einsum.gradient if grad else einsum.load)(text)
    assert len(e.value.diagnostics) == 1
    d = e.value.diagnostics[0]
    assert d.span is not None and f"{d.span}: error[{d.code}]: {d.message}" in str(e.value)
    assert "^" in str(e.value) or d.span.col > 400, "the line is shown, unless it is very long"
    return d


KERNELS = [
    # the form
    ("", "UPL1902", 1, 1, "the kernel has no statements"),
    ("A<4>[i] = B<4>[i]", "UPL1902", 1, 18, "expected an operator or `;`, found the end of the kernel"),
    ("A<4>[i] B<4>[i];", "UPL1902", 1, 9, "expected `=`, found `B`"),
    ("A<4>[i] = B<4>[i] + ;", "UPL1902", 1, 21, r"expected a tensor, a number or `\(`, found `;`"),
    ("A<4>[i] = (B<4>[i];", "UPL1902", 1, 19, r"expected an operator or `\)`, found `;`"),
    ("A<4>[i] = B[i];", "UPL1902", 1, 12, r"expected `<`, found `\[`"),
    ("A<4>[i] = B<n>[i];", "UPL1902", 1, 13, "expected an extent, found `n`"),
    ("A<4>[i] = B<4>[i;", "UPL1902", 1, 17, r"expected `,` or `\]`, found `;`"),
    ("A<4>[i] = B<4>[];", "UPL1902", 1, 16, r"expected an index, an integer or `\(`, found `\]`"),
    ("A<4>[i] = B<4>[i] @ 2;", "UPL1902", 1, 19, "`@` means nothing in a kernel"),
    ("3 = B<4>[i];", "UPL1902", 1, 1, "expected a tensor, found `3`"),
    ("A<4>[i] =\n  B<4>[i]\n  ** 2;", "UPL1902", 3, 4, "found `\\*`"),
    ("A<4>[i] = " + "(" * 300 + "B<4>[i];", "UPL1902", 1, 211, "nested too deeply"),
    ("A<4>[i] = " + "B<4>[i] + " * 300 + "1;", "UPL1902", 1, 1021, "more than 200 operations in a row"),
    # names
    ("A<4>[i] = X<4>[i];", "UPL1903", 1, 11, "`X` is neither an input nor assigned before"),
    ("T<4>[i] = B<4>[i] * T<4>[i]; A<4>[i] = T<4>[i];", "UPL1903", 1, 21, "`T` is neither an input nor assigned before"),
    ("C<4>[i] = B<4>[i] * A<4>[i];", "UPL1903", 1, 21, "`A` is in `outs`, but no statement assigns it"),
    ("C<4>[i] = B<4>[i];", "UPL1903", 1, 1, "`A` is in `outs`, but no statement assigns it"),
    ("A<4>[i] = 1;", "UPL1903", 1, 1, "`B` is in `ins`, but the kernel does not use it"),
    # shapes
    ("A<4>[i] = B<4>[i] + B<5>[i];", "UPL1904", 1, 21, r"`B` is `B<5>\[…\]` here and `B<4>\[…\]` before"),
    ("A<4>[i] = B<4>[i, i];", "UPL1904", 1, 11, "`B` has 1 dimension and 2 indices"),
    ("A<4>[i] = B<4, 4>[i];", "UPL1904", 1, 11, "`B` has 2 dimensions and 1 index"),
    ("A<4>[i] = B<4>;", "UPL1904", 1, 11, "`B<4>` needs an index in brackets"),
    ("A<4>[i] = B<1> + B<1>[i];", "UPL1904", 1, 18, r"`B` is `B<1>\[…\]` here and `B<1>` before"),
    ("A<0>[i] = B<4>[i];", "UPL1904", 1, 3, "an extent is at least 1"),
    ("A<4>[i] = B<99999999999>[i];", "UPL1904", 1, 13, "at most 2147483647"),
    # index expressions
    ("A<4>[i] = B<4>[i * j];", "UPL1905", 1, 18, "a product of two indices"),
    ("A<4>[i] = B<4>[i // j];", "UPL1905", 1, 21, "the right side of `//` must be a positive number here"),
    ("A<4>[i] = B<4>[i % 0];", "UPL1905", 1, 20, "the right side of `%` must be a positive number here"),
    ("A<4>[i] = B<4>[i / 2];", "UPL1905", 1, 18, "`/` cannot stand in an index"),
    ("A<4>[i] = B<4>[i + 0.5];", "UPL1905", 1, 20, "`0.5` is not an integer"),
    # ranges
    ("A<4>[i] = B<4>[i] * B<4>[p + r];", "UPL1906", 1, 26, "the range of the index `p` does not follow from its uses"),
    ("A<4>[i] = B<4>[i] * B<4>[i % 2 + 0*j];", "UPL1906", 1, 21, "the index `j` cancels out"),
    ("A<4>[i] = B<4>[i + 4];", "UPL1906", 1, 16, r"no value of the index `i` suits all its uses: `A` with `i` below 4, `B`"),
    ("A<4>[i] = B<9>[i + r] * B<9>[r + 8];", "UPL1907", 1, 16, r"`i\+r`, is -8 at i=0, r=-8"),
    ("A<4>[i] = B<4>[i % 4] + B<4>[3 - i] + B<4>[2*(i // 2)];", None, 1, 1, ""),
    ("A<2, 4>[i, i // 3 + 1] = B<4>[i - -2];", None, 1, 1, ""),
    ("A<4>[i] = B<3>[i + r] * B<3>[r];", "UPL1907", 1, 16, r"index 1, `i\+r`, is 3 at i=1, r=2, and the extent is 3"),
    ("A<4>[i] = B<4>[i] + B<4>[4];", "UPL1907", 1, 26, "`B` is read out of bounds: index 1, `4`, is 4, and the extent is 4"),
    ("A<8>[i] = B<4>[i % 5];", "UPL1907", 1, 16, r"`i mod 5`, is 4 at i=4"),
    # assigned twice
    ("A<4>[i//2] = B<8>[i];", "UPL1908", 1, 1, r"assigns `A\[0\]` twice: at i=0 and at i=1"),
    ("A<4, 4>[i + j, i + j] = B<2>[i] + B<2>[j];", "UPL1908", 1, 1, r"assigns `A\[1,1\]` twice"),
]  # fmt: skip


@pytest.mark.parametrize(("kernel", "code", "line", "col", "message"), [k for k in KERNELS if k[1]])
def test_faults_of_kernels(kernel: str, code: str, line: int, col: int, message: str) -> None:
    d = fault(case(kernel))
    assert d.code == code
    assert d.span.file == "<json>:kernel"
    assert (d.span.line, d.span.col) == (line, col)
    assert re.search(message, d.message), d.message


@pytest.mark.parametrize("kernel", [k[0] for k in KERNELS if k[1] is None])
def test_what_is_no_fault(kernel: str) -> None:
    assert einsum.load(case(kernel)).check().ok


def test_help_and_notes() -> None:
    d = fault(case("A<4>[i] = Bb<4>[i] * B<4>[i];"))
    assert d.help == "did you mean `B`?"
    d = fault(case("A<4>[i] = B<4>[i];\nA<4>[i] = B<4, 1>[i, 0];"))
    assert (d.span.line, d.span.col) == (2, 11)
    assert (d.notes[0].span.line, d.notes[0].span.col) == (1, 11)
    d = fault(case("A<4>[i] = B<4>[i / 2];"))
    assert "write `//`" in d.help


def test_types() -> None:
    d = fault(case("A<4>[i] = B<4>[i] * 2.0;", data_type="int"))
    assert (d.code, d.span.col) == ("UPL1909", 21)
    for number in ("3.5e38", "1e999", "4" + 38 * "0"):
        d = fault(case(f"A<4>[i] = B<4>[i] * {number};"))
        assert (d.code, d.span.col) == ("UPL1909", 21) and "does not fit a float" in d.message
    for op in ("/", "//", "%"):
        d = fault(case(f"A<4>[i] = B<4>[i] {op} 0;", data_type="int"))
        assert (d.code, d.span.col) == ("UPL1909", 20 + len(op)) and "divided by 0" in d.message
    d = fault(case("A<4>[i] = B<4>[i] + 2147483648;", data_type="int"))
    assert d.code == "UPL1909" and "does not fit 32 bits" in d.message
    d = fault(case("A<4>[i] = B<4>[i] + B<4>[i] % 2;", data_type="int", grad_to=["B"]), grad=True)
    assert (d.code, d.span.col) == ("UPL1909", 29) and "`%` on integers has no derivative" in d.message
    d = fault(case("A<4>[i] = B<4>[i];"), grad=True)
    assert d.code == "UPL1901" and "`grad_to` is empty" in d.message


GOOD = json.loads(case("A<4>[i] = B<4>[i];"))


@pytest.mark.parametrize(
    ("text", "where", "message"),
    [
        ("{", "1:2", "this is not JSON: input data was truncated"),
        ('{\n  "name": x\n}', "2:11", "this is not JSON: invalid character"),
        ("[]", "1:1", "expected `object`, got `array`"),
        (json.dumps(GOOD | {"data_type": "double"}), "1:44", "`data_type`: invalid enum value 'double'"),
        (json.dumps(GOOD | {"ins": "B"}), "1:15", "`ins`: expected `array`, got `str`"),
        (json.dumps(GOOD | {"ins": ["B", 3]}), "1:15", r"`ins\[1\]`: expected `str`, got `int`"),
        (json.dumps(GOOD | {"grad": ["B"]}), None, "there is no key `grad`"),
        (json.dumps({k: v for k, v in GOOD.items() if k != "outs"}), "1:1", "the key `outs` is missing"),
        (json.dumps(GOOD | {"outs": []}), "1:29", "`outs`: there is no result"),
        (json.dumps(GOOD | {"outs": ["A", "A"]}), "1:29", "`outs`: `A` is listed twice"),
        (json.dumps(GOOD | {"name": "no name"}), "1:2", "`name`: `no name` is not a name"),
        (json.dumps(GOOD | {"grad_to": ["T"]}), None, "`grad_to`: `T` is not one of `ins` or `outs`"),
    ],
)
def test_faults_of_the_json(tmp_path: Path, text: str, where: str | None, message: str) -> None:
    path = tmp_path / "case.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(upl.UplError) as e:
        einsum.load(path)
    d = e.value.diagnostics[0]
    assert d.code == "UPL1901" and re.search(message, d.message), d.message
    assert d.span is not None and d.span.file == str(path)
    assert where is None or f"{d.span.line}:{d.span.col}" == where


def test_data_types_by_their_other_names() -> None:
    for name in ("float", "int"):
        texts = [case("A<4>[i] = B<4>[i] * 2;", data_type=n) for n in (name, f"{name}32")]
        assert einsum.cpp_of(einsum.read(texts[0])) == einsum.cpp_of(einsum.read(texts[1]))
    assert "`float` and `int`" in fault(case("A<4>[i] = B<4>[i];", data_type="double")).help


def test_spaces_and_comments_mean_nothing() -> None:
    plain = str(einsum.load(case("A<4>[i] = B<4>[i + 0] // 2;")))
    for text in ("A < 4 >[ i]=\n\tB<4> [i+0]//2 ;\r\n", "# one\nA<4>[i] = /* two; **/ B<4>[i + 0] // 2; # three"):
        assert str(einsum.load(case(text))) == plain
    d = fault(case("A<4>[i] = /* one\n */ X<4>[i];"))
    assert (d.span.line, d.span.col) == (2, 5)
    assert fault(case("A<4>[i] = B<4>[i]; /* never closed")).span.col == 20


def test_unknown_keys_have_a_suggestion() -> None:
    assert fault(json.dumps(GOOD | {"kernels": "x"})).help == "did you mean `kernel`?"


def test_the_command_says_so_and_exits_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "case.json", tmp_path / "out.upl"
    path.write_text(case("A<4>[i] = B<4>[i + r] * B<4>[r];"), encoding="utf-8")
    assert main(["einsum", str(path), "-o", str(out)]) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"{path}:kernel:1:16: error[UPL1907]: `B` is read out of bounds: index 1, `i+r`, is 4 at i=1, r=3")
    assert " 1 | A<4>[i] = B<4>[i + r] * B<4>[r];\n   |                ^^^^^" in err
    assert not out.exists()
    assert main(["einsum", str(tmp_path / "none.json")]) == 1
    assert "error[UPL1001]: there is no such file" in capsys.readouterr().err
    path.write_bytes(b'{"name": "\xff"}')
    assert main(["einsum", str(path)]) == 1
    assert f"{path}:1:11: error[UPL1001]: this is not UTF-8 text: the byte 0xFF cannot stand here" in capsys.readouterr().err
    assert main(["einsum", str(path), "-D", "n=3"]) == 2
    assert main(["einsum", str(path), "--recognise", "--grad"]) == 2

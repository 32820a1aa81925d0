"""Ranks: no two tokens that may wait at the same time share a place, on random polyhedral domains and on programs."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import upl_mlir as upl
from upl_mlir.diagnostics import UplError
from upl_mlir.dialects.upl.query import program_of
from upl_mlir.hw.core.layouts import Dimensions, Mode
from upl_mlir.hw.core.place import home_of
from upl_mlir.hw.direct.domains import Domain, domains_of
from upl_mlir.hw.direct.home import Spread
from upl_mlir.hw.direct.lanes import aligned
from upl_mlir.hw.direct.ranks import NodeRanks, Ranks, Role, index_at, index_digits, place_of, rank_program, ranks_along
from upl_mlir.hw.image import Input, Node, ProgramImage, layout_fields, pack
from upl_mlir.hw.microcode import ValueType
from upl_mlir.passes.hardware.lower_hw import lower_hw

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
D = Dimensions(tag_bits=40, sets=1 << 14, ways=5)
Point = tuple[int, ...]


@st.composite
def polyhedra(draw: st.DrawFn) -> Domain:
    """A box cut by two half-spaces."""
    rank = draw(st.integers(1, 4))
    low = [draw(st.integers(-3, 3)) for _ in range(rank)]
    shape = [draw(st.integers(1, 6)) for _ in range(rank)]
    inside = np.ones(shape, np.bool_)
    grid = np.meshgrid(*(np.arange(lo, lo + n) for lo, n in zip(low, shape, strict=True)), indexing="ij")
    for _ in range(2):
        normal = [draw(st.integers(-2, 2)) for _ in range(rank)]
        inside &= sum(c * g for c, g in zip(normal, grid, strict=True)) <= draw(st.integers(-2, 8))
    where = np.argwhere(inside)
    if not len(where):
        return Domain(None)
    first, last = where.min(0), where.max(0)
    cut = inside[tuple(slice(a, b + 1) for a, b in zip(first, last, strict=True))]
    bounds = tuple((int(lo + a), int(lo + b)) for lo, a, b in zip(low, first, last, strict=True))
    return Domain(bounds, cut)


@st.composite
def nodes(draw: st.DrawFn) -> tuple[Domain, list[Role]]:
    """A domain, and up to three inputs, the first one with full indices."""
    domain = draw(polyhedra())
    rank = len(domain.bounds) if domain.bounds else 1
    roles = [Role(draw(st.sampled_from([Mode.PLAIN, Mode.ADD_F32])))]
    for _ in range(draw(st.integers(0, 2))):
        wild = draw(st.frozensets(st.integers(0, rank - 1), max_size=2))
        roles.append(Role(Mode.COUNTED if wild else draw(st.sampled_from([Mode.PLAIN, Mode.MIN_I32])), wild))
    return domain, roles


def image_of(many: list[tuple[Domain, list[Role]]], tag_bits: int) -> tuple[ProgramImage, dict[str, Domain]]:
    made: list[Node] = []
    for number, (domain, roles) in enumerate(many):
        fields = [(f"f{n}", lo, hi) for n, (lo, hi) in enumerate(domain.bounds or [(0, 0)])]
        inputs = tuple(Input(f"i{n}", ValueType.F32) for n in range(len(roles)))
        made.append(Node(f"N{number}", layout_fields(fields), inputs))
    domains = {f"N{n}": domain for n, (domain, _) in enumerate(many)}
    return aligned(ProgramImage("random", tuple(made), domains=domains), tag_bits), domains


def points(domain: Domain) -> list[Point]:
    if domain.bounds is None:
        return []
    assert domain.inside is not None
    low = [lo for lo, _ in domain.bounds]
    return [tuple(int(i) + lo for i, lo in zip(p, low, strict=True)) for p in np.argwhere(domain.inside)]


def core_of(node: Node, of: NodeRanks, index: tuple[int | None, ...], tag_bits: int) -> int:
    """The core of a token: the same by the rule and by the row of the placement table, as the hardware does it."""
    home = of.local.home
    assert home is not None
    core = home.core(index_digits(node, of, index))
    if home.bits:
        assert home_of(home.row(of.digits), pack(node.fields, index, "")[0], tag_bits, lanes=True) == core
    return core


def all_places_differ(
    image: ProgramImage, all_roles: list[list[Role]], domains: dict[str, Domain], ranks: Ranks, tag_bits: int = 40
) -> int:
    """Every waiting token has a place of its own on its core, and the place tells its index again; the number of such
    tokens."""
    owners: dict[tuple[int, int, int], set[tuple[object, ...]]] = {}
    for number, (node, roles) in enumerate(zip(image.nodes, all_roles, strict=True)):
        of = ranks.nodes[number]
        if of is None:
            continue
        for port, role in enumerate(roles):
            indices = {tuple(None if f in role.wild else v for f, v in enumerate(p)) for p in points(domains[node.name])}
            for index, summand in itertools.product(indices, (False, True)):
                if summand and not role.gathers:
                    continue
                place = place_of(node, of, port, index, summand=summand)
                core = core_of(node, of, index, tag_bits)
                if not summand and len(roles) == 1:
                    assert place is None
                    continue
                assert place is not None
                bank = len(ranks.places) - 1 if summand else of.bank_of(port)
                assert 0 <= place < ranks.cores[core][bank] <= ranks.places[bank]
                who: tuple[object, ...] = (node.name, index, summand, None if of.merged and not summand else port)
                owners.setdefault((core, bank, place), set()).add(who)
                assert index_at(node, of, port, place, role.wild, summand=summand, core=core) == index
    assert all(len(found) == 1 for found in owners.values())
    return len(owners)


@settings(max_examples=150, deadline=None)
@given(st.lists(nodes(), min_size=1, max_size=4), st.sampled_from([24, 40]), st.sampled_from([1, 1, 2, 4, 16]))
def test_ranks_are_injective(many: list[tuple[Domain, list[Role]]], tag_bits: int, cores: int) -> None:
    image, domains = image_of(many, tag_bits)
    roles = [r for _, r in many]
    ranks = rank_program(image, roles, replace(D, tag_bits=tag_bits), Spread(cores))
    assert all("lane" in reason for reason in ranks.reasons.values())
    all_places_differ(image, roles, domains, ranks, tag_bits)


@settings(max_examples=60, deadline=None)
@given(nodes(), st.integers(0, 1), st.sampled_from([1, 1, 2]))
def test_windows_share_places_between_values_that_far_apart_only(
    many: tuple[Domain, list[Role]], window: int, cores: int
) -> None:
    image, _ = image_of([many], 40)
    domain, roles = many
    ranks = ranks_along({"N0": 0}, image, [roles], replace(D, window_bits=window), Spread(cores))
    (of,) = ranks.nodes
    if of is None or of.window is None:
        return
    bits = window + cores // 2  # what is between two values that share a place
    assert of.window[1] == (window if of.local.split == of.window[0] else bits)
    low = image.nodes[0].fields[0].bias
    for port, role in enumerate(roles):
        owners: dict[tuple[int, int], set[tuple[int | None, ...]]] = {}
        for point in points(domain):
            index = tuple(None if f in role.wild else v for f, v in enumerate(point))
            place = place_of(image.nodes[0], of, port, index, summand=role.gathers)
            if place is None:
                assert len(roles) == 1 and role.mode is Mode.PLAIN
                continue
            core = core_of(image.nodes[0], of, index, 40)
            owners.setdefault((core, place), set()).add(index)
            generation = point[0] - low >> bits
            again = index_at(
                image.nodes[0], of, port, place, role.wild, summand=role.gathers, generation=generation, core=core
            )
            assert again == index
        for together in owners.values():
            values = sorted(v[0] for v in together if v[0] is not None)
            assert len({v[1:] for v in together}) == 1
            assert values == [*range(values[0], values[-1] + 1, 1 << bits)]
            assert values[0] - low < 1 << bits


def test_a_wrong_stride_is_seen() -> None:
    box = Domain(((0, 2), (0, 3)), np.ones((3, 4), np.bool_))
    roles = [[Role(Mode.PLAIN), Role(Mode.PLAIN)]]
    image, domains = image_of([(box, roles[0])], 40)
    ranks = rank_program(image, roles, D)
    assert all_places_differ(image, roles, domains, ranks) == 12
    of = ranks.nodes[0]
    assert of is not None
    row = of.rows[0]
    space = row.banks[0]
    assert space is not None
    wrong = replace(space, strides=(3, 1))
    ranks.nodes[0] = replace(of, rows=(replace(row, banks=(wrong, wrong)),))
    with pytest.raises(AssertionError):
        all_places_differ(image, roles, domains, ranks)


def test_a_triangle_and_a_ragged_domain_have_no_holes() -> None:
    """With a row for each value of one field, places are as many as tokens."""
    triangle = np.tril(np.ones((6, 6), np.bool_))
    ragged = np.array([[j < n for j in range(5)] for n in (4, 0, 5, 2)])
    for inside in (triangle, ragged):
        domain = Domain(tuple((1, n) for n in inside.shape), inside)
        roles = [[Role(Mode.PLAIN), Role(Mode.PLAIN)]]
        image, domains = image_of([(domain, roles[0])], 40)
        ranks = rank_program(image, roles, D)
        assert ranks.places[0] == all_places_differ(image, roles, domains, ranks) == inside.sum()
        assert ranks.rows == inside.shape[0]


@pytest.mark.parametrize("cores", [2, 4, 16])
def test_the_places_of_a_box_are_divided_among_the_cores_without_holes(cores: int) -> None:
    """Each core has its share of the instances, and as many places as instances; in every row and column, too."""
    box = Domain(((1, 32), (0, 15)), np.ones((32, 16), np.bool_))
    roles = [[Role(Mode.PLAIN), Role(Mode.PLAIN)]]
    image, domains = image_of([(box, roles[0])], 40)
    ranks = rank_program(image, roles, D, Spread(cores))
    assert all_places_differ(image, roles, domains, ranks) == 32 * 16
    assert [given[0] for given in ranks.cores] == [32 * 16 // cores] * cores
    (of,) = ranks.nodes
    assert of is not None
    for line in ([(1, j) for j in range(16)], [(i, 3) for i in range(1, 33)]):
        found = Counter(core_of(image.nodes[0], of, point, 40) for point in line)
        assert list(found.values()) == [len(line) // cores] * cores


def test_a_node_whose_tokens_leave_all_fields_open_is_on_one_core_and_a_chosen_one_on_any() -> None:
    """Tokens <i,*> meet tokens <*,j>: no field says where."""
    box = Domain(((0, 5), (0, 6)), np.ones((6, 7), np.bool_))
    roles = [[Role(Mode.COUNTED, frozenset({1})), Role(Mode.COUNTED, frozenset({0}))]]
    image, _ = image_of([(box, roles[0])], 40)
    assert rank_program(image, roles, D, Spread(2)).cores == [[6, 7, 0, 0, 0], [0, 0, 0, 0, 0]]
    assert rank_program(image, roles, D, Spread(2, frozenset({"N0"}))).cores == [[6, 7, 0, 0, 0]] * 2


def test_the_domains_of_a_program() -> None:
    """The perceptron: Link<d,k,i,j> is ragged in i and j by k."""
    program = upl.load(EXAMPLES / "perceptron.upl", D=2).infer_domains()
    domains = domains_of(lower_hw(program_of(program.module)))
    sizes = [4, 4, 5, 6, 4, 3, 3]
    link = domains["Link"]
    assert link.bounds == ((1, 2), (1, 6), (1, 6), (1, 6))
    assert link.inside is not None
    assert link.inside.sum() == 2 * sum(a * b for a, b in itertools.pairwise(sizes))
    sections = link.sections(1)
    assert [s and s[2:] for s in sections] == [((1, a), (1, b)) for a, b in itertools.pairwise(sizes)]


def test_too_many_fields_are_refused_with_the_reason() -> None:
    bounds = tuple((0, 200) for _ in range(6))
    fields = layout_fields([(f"f{n}", 0, 200) for n in range(6)])
    node = Node("N", fields, (Input("a", ValueType.F32), Input("b", ValueType.F32)))
    image = aligned(ProgramImage("wide", (node,), domains={"N": Domain(bounds)}), 40)
    ranks = rank_program(image, [[Role(Mode.PLAIN)] * 2], D)
    assert ranks.nodes == [None]
    assert "do not fit in the" in ranks.reasons["N"]


def test_more_places_than_there_are_are_refused() -> None:
    image, _ = image_of([(Domain(((0, 99), (0, 99))), [Role(Mode.PLAIN)] * 2)], 40)
    with pytest.raises(UplError) as caught:
        rank_program(image, [[Role(Mode.PLAIN)] * 2], replace(D, sets=1024))
    assert caught.value.diagnostics[0].code == "UPL1710"
    assert "10000 places" in str(caught.value)

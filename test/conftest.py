"""Set-up shared by every pytest: hypothesis profiles, and the folders of the repository as fixtures.

Hypothesis is deterministic unless told otherwise: profile `ci` derives its examples from the test itself, so that a
run that passed here passes everywhere.  `HYPOTHESIS_PROFILE=explore make test` looks for new examples instead.
"""

from __future__ import annotations

import gc
import importlib.util
import os
import shutil
import signal
import sys
import threading
import zlib
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).resolve().parent))
import slow

ROOT = Path(__file__).resolve().parent.parent

settings.register_profile(
    "ci",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=100,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "explore",
    deadline=None,
    max_examples=2000,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores Ctrl-C; tests send it

if "PYTEST_XDIST_WORKER" in os.environ:  # the processors are shared by as many of us; tests of threads say how many
    os.environ.setdefault("UPL_SIMULATION_THREADS", "1")

os.environ.setdefault("UPL_VERIFY", "1")  # IR that our own passes made is verified; users' calls do without

# Objects made between two collections of the young ones (Python's own: 700): IR is many objects, few of them garbage.
gc.set_threshold(20_000)

SLOW = (
    "frontend/trace/test_rounds.py::test_on_other_engines[power-token",
    *(f"frontend/trace/test_numpy_functions.py::test_{name}" for name in (
        "derivatives", "values[other elements", "values[other places-n", "values[other no numbers-n", "values[matrices",
        "values[sorting-n", "values[folds-n", "values[places-n", "second", "determinants", "qr", "sorting_on")),
    "hw/test_direct.py", "hw/test_direct_matching.py", "hw/test_direct_cores.py",
    "hw/test_mixed.py::test_programs_on_the_whole", "hw/test_mixed.py::test_firings", "hw/test_mixed.py::test_the_failure",
    "hw/test_throttled_machines.py", "hw/test_throttle.py::test_a_machine_with_a_window",
    "mpi/test_ranks.py::test_examples",
    *(f"mpi/test_checkpoint.py::test_a_killed_run_is_taken_up_on_other_ranks[{name}" for name in ("jacobi1d", "wave")),
    "agreement/test_data_ways.py::test_many", "agreement/test_data_ways.py::test_results",
    "tools/test_vsix.py::test_the_file", "tools/test_marimo.py",
    "tools/test_wheel.py", "tools/test_train.py::test_a_circuit",
    "explore/test_circuits.py::test_a_sweep_over",
    "hw/sim/test_netlist.py::test_every_kind", "agreement/test_strips.py::test_random_programs",
    "native/test_mlir_tools.py::test_an_example", "native/test_mlir_tools.py::test_a_time",
    "native/test_iree.py::test_an_example",
    *(f"frontend/jaxpr/test_from_jax.py::test_{name}" for name in (
        "functions", "second", "models_on", "models[l", "models[g", "models[a", "models[r", "models[t", "models[k",
        "models[p")),
    "agreement/test_data_ways.py::test_gradients_on", "examples/test_sparse.py::test_gradients_on",
    "examples/test_sparse.py::test_second_order[", "examples/test_sparse.py::test_values_and_gradients[token",
    "hw/test_synth.py", "circuit/test_cost.py::test_the_area", "hw/test_faults.py", "hw/formal/test_paths.py",
    "hw/formal/test_open_gathers.py", "hw/test_open_gathers.py::test_steps[two", "hw/test_open_gathers.py::test_steps[a",
    "hw/test_open_gathers.py::test_steps[rec", "hw/test_open_gathers.py::test_steps[bes",
    "hw/test_open_gathers.py::test_sim", "hw/test_open_gathers.py::test_the_hardware",
    "hw/test_open_gathers.py::test_nothing_ends",
    "hw/formal/test_blocks.py::test_backing_memory", "hw/formal/test_blocks.py::test_send_engine",
    "hw/formal/test_blocks.py::test_reducer", "hw/test_functions.py::test_the_core_computes",
    "hw/test_floating_point.py::test_compiled_units", "hw/test_floating_point.py::test_pipelines_in_binary32",
    "hw/test_pipelined_functions.py::test_many", "hw/test_pipelined_functions.py::test_other",
    "circuit/test_bodies.py::test_functions[softplus", "circuit/test_bodies.py::test_functions[gate",
    "circuit/test_bodies.py::test_functions[sin", "circuit/test_bodies.py::test_functions[log",
    "hw/test_pipelined.py::test_compiled_units", "hw/test_pipelined.py::test_the_verilog",
    "hw/test_pipelined.py::test_every_latency[Divider", "hw/test_pipelined.py::test_every_latency[SquareRoot",
    "circuit/test_decided.py::test_more", "circuit/test_decided.py::test_a_type",
    "circuit/test_verilator.py", "circuit/test_cocotb.py", "circuit/test_circt.py::test_what_circt",
    "circuit/test_circt.py::test_every",
    "hw/test_board.py", "hw/test_verilog.py", "hw/sim/test_netlist.py::test_more",
    "hw/sim/test_netlist.py::test_a_", "hw/sim/test_netlist_splits.py::test_more", "hw/sim/test_netlist.py::test_lanes[2]",
    "hw/sim/test_netlist.py::test_lanes[8]", "hw/sim/test_upl_cam.py::test_a_defect",
    "hw/test_cores.py::test_both_simulators", "hw/test_cores.py::test_many_tokens",
    "hw/test_cores.py::test_a_full_backing", "hw/test_cores.py::test_programs_on_two_cores",
    "hw/test_examples.py::test_gradient", "explore/test_run.py", "mutation/test_hulls.py",
    *(f"mutation/test_mutation.py::test_{name}" for name in ("a_", "all_", "random", "the_", "what", "without")),
    "explore/test_estimate.py::test_boxes_have_what_the_units_have[`iris", "explore/test_estimate.py::test_sharing",
    "examples/test_demo.py", "nn/test_training.py", "docs/test_notebooks.py::test_a_notebook[lecture]",
    "docs/test_notebooks.py::test_a_notebook[machines]",
    "agreement/test_conditions.py::test_more_programs", "agreement/test_conditions.py::test_engines_that",
    "agreement/test_by_data.py::test_many", "agreement/test_by_data.py::test_random",
    "agreement/test_wide.py::test_more_programs", "agreement/test_wide.py::test_adjoints_inside",
    "agreement/test_agreement.py::test_derivatives", "agreement/test_agreement.py::test_mistakes_are_refuted",
    "agreement/test_agreement.py::test_a_seed_that_crashes",
    "tools/test_quota.py", "tools/test_garbage.py::test_mutated_programs_in_passes",
    "hw/test_core.py::test_both_simulators", "hw/test_core.py::test_every_operation", "hw/test_core.py::test_sending",
    "hw/formal/test_blocks.py::test_store", "hw/formal/test_blocks.py::test_presence", "hw/test_settings.py",
    "hw/test_matching_unit.py::test_legal", "hw/test_matching_unit.py::test_any_tokens", "hw/test_cam.py::test_waveforms",
    "hw/test_cam.py::test_both_simulators", "hw/test_cam.py::test_several_cores_find_all_partners[3]",
    "hw/formal/test_cam.py",
    "token/test_random_programs.py::test_mistakes", "token/test_interpreter_tests.py",
    "token/test_examples.py::test_gradients", "native/test_c_programs.py",
    "native/test_gradients.py::test_the_gradients_of_an_example", "circuit/test_circuits.py::test_more_circuits",
    "hw/test_simulators.py", "circuit/test_trace.py::test_a_trace_of_several", "circuit/test_view.py::test_words_leave",
    "circuit/test_trace.py::test_instances_begin", "passes/test_loops_legal.py::test_a_broken_pass",
    "agreement/test_entries.py::test_commands", "circuit/test_bodies.py::test_gathers_of_many",
    "circuit/test_bodies.py::test_functions", "docs/test_snippets.py::test_a_page[docs/circuits.md]",
    "docs/test_snippets.py::test_a_page[docs/tutorial.md]", "docs/test_snippets.py::test_a_page[docs/native.md]",
    "passes/test_loops_passes.py::test_one_by_one", "examples/test_gradients.py::test_both_modes_against_differences",
    "hw/test_hashed.py::test_the_rate", "hw/test_hashed.py::test_every_instance", "hw/test_hashed.py::test_overflow",
    "hw/sim/test_netlist_splits.py::test_hashes", "hw/test_core.py::test_arithmetic_that_fails",
    "hw/formal/test_circuit.py::test_lanes", "hw/formal/test_circuit.py::test_a_delay", "hw/test_pipelined_functions.py",
    "agreement/test_wide.py::test_results_and_native", "agreement/test_names.py::test_names_that_meant",
    "passes/test_loops_ir.py::test_programs_read_back", "autodiff/test_jacobian.py::test_the_perceptron",
    "circuit/test_networks.py::test_more_networks", "circuit/test_networks.py::test_a_network_that_learns",
    "circuit/test_networks.py::test_every_plan", "circuit/test_share.py::test_more_that_is_shared",
    "hw/sim/test_threads.py", "hw/sim/test_netlist.py::test_lanes[4]",
    "agreement/test_agreement.py::test_saved[inside_9001007]", "hw/test_cam.py::test_several_cores_find_all_partners[2]",
    "passes/test_loops_legal.py::test_schedules_are_proved[digits]", "hw/test_cam.py::test_matrix_vector_product",
    "passes/test_loops_passes.py::test_any_options_are_legal[jacobi2d", "hw/test_hashed.py::test_the_rate_of_exact_keys",
    "passes/test_loops_passes.py::test_any_options_are_legal[digits", "hw/test_cores.py::test_what_is_stranded",
    "hw/test_hashed.py::test_a_walk_without", "hw/test_cores.py::test_any_box",
    "native/test_schedules.py::test_a_loop_over_time_runs_as_a_wavefront[reaction]",
    "examples/test_gradients.py::test_the_derivative_is_proved_for_all_sizes[digits]",
    "examples/test_gradients.py::test_both_modes_by_each_input", "autodiff/test_every_program.py::test_every_derivative",
    "autodiff/test_hypergradient.py::test_other_runs_twice",
    "examples/test_gradients.py::test_both_modes_against_differences[digits]",
    "examples/test_examples.py::test_counts_are_what_a_run_counts[digits]",
    "autodiff/test_checkpoint.py::test_layers", "autodiff/test_checkpoint.py::test_segments",
    "autodiff/test_checkpoint.py::test_snapshots", "autodiff/test_ways.py::test_the_token_engine",
    "autodiff/test_batch.py::test_a_batched_program_differentiates",
    "docs/test_snippets.py::test_a_page[docs/drawing.md]", "malformed/test_malformed.py::test_random_inputs",
    "frontend/test_format.py::test_blanks", "frontend/einsum/test_einsum_values.py::test_value_in_cpp[elementwise]",
    "small/test_small_training.py", "small/test_small_programs.py::test_engines_have_the_bits_of_the_reference[perceptron",
    "circuit/test_small_circuits.py::test_more",
    "circuit/test_small_circuits.py::test_a_gradient",
    "circuit/test_bus.py::test_a_training", "circuit/test_bus.py::test_errors", "hw/formal/test_bus.py::test_words_pass",
    "hw/formal/test_bus.py::test_words_with_a_defect",
    "agreement/test_agreement.py::test_the_same_text_gives", "agreement/test_agreement.py::test_valid_programs_are_proved",
    "agreement/test_truth_gathers.py::test_it_is_what_python_says[rtl-{'machine': 'direct'}",
    "circuit/test_bodies.py::test_bodies[root", "hw/test_cam.py::test_figures_are",
    "circuit/test_networks.py::test_a_network_computes_as_the_interpreter[gradient",
    "circuit/test_networks.py::test_a_network_computes_as_the_interpreter[products",
    "circuit/test_networks.py::test_a_network_computes_as_the_interpreter[transposed",
    "picture/test_unrolled.py::test_a_machine_says", "circuit/test_small_circuits.py::test_a_small_circuit[body-1-bf16",
    "ops/test_gathers.py::test_an_operator_on_every_engine", "circuit/test_trace.py::test_tracks_of_several",
    "circuit/test_trace.py::test_a_trace_of_another", "hw/test_circuit_blocks.py::test_the_device_has",
    "hw/test_machine_programs.py::test_a_program_by_hand", "hw/test_by_constant.py::test_every_latency",
    "native/test_gradients.py::test_an_example[digits", "native/test_gradients.py::test_an_example[training",
    "native/test_gradients.py::test_an_example[lstm", "native/test_gradients.py::test_an_example[iris_batch",
    "examples/test_gradients.py::test_the_derivative_is_proved_for_all_sizes[training",
    "examples/test_gradients.py::test_the_derivative_is_proved_for_all_sizes[lstm", "frontend/trace/test_random.py",
    "token/test_random_programs.py::test_right_programs", "native/test_schedules.py::test_gradients_of_a_convolution",
    "native/test_schedules.py::test_states_made_again", "frontend/einsum/test_einsum_values.py::test_value_in_cpp",
    "ops/test_functions.py::test_a_function_on_every_engine", "passes/test_loops_legal.py::test_schedules_are_proved[iris",
    "autodiff/test_dynamic.py::test_only_live_instances", "circuit/test_share.py::test_one_operation_at_a_time[iris_batch-8",
    "reference/test_random_programs.py::test_mistakes", "frontend/test_small_programs.py::test_folds_and_chains[token]",
    "agreement/test_conditions.py::test_conditions[time loop",
    "agreement/test_conditions.py::test_conditions[guarded gather", "agreement/test_conditions.py::test_a_sample",
    "agreement/test_agreement.py::test_valid_programs[engines-",
    "circuit/test_networks.py::test_a_network_computes_as_the_interpreter[floyd",
    "native/test_gradients.py::test_an_example[conv2d", "native/test_gradients.py::test_an_example[jacobi2d",
    "hw/test_mixed.py::test_a_program_uses", "hw/formal/test_dsp.py::test_a_defect",
    "circuit/test_bodies.py::test_gathers_of_a_few", "hw/test_hashed.py::test_partners_of_another_home",
    "hw/test_hashed.py::test_what_cannot_be_taken",
    "picture/test_sizes.py::test_nothing_is_cut[large", "picture/test_sizes.py::test_nothing_is_cut[laptop-light",
    "picture/test_page.py::test_stuck_tokens", "hw/test_floating_point.py::test_fused_multiply_add_in_binary32",
    "autodiff/test_no_dead_derivatives.py::test_every_adjoint_instance_matters[lstm",
    "native/test_start.py::test_in_a_process_of_its_own", "passes/test_critical_path.py::test_the_entries_of_open",
    "hw/test_machine_programs.py::test_a_lowered_program_runs_as_its_source[direct]",
    "autodiff/test_jax.py::test_the_derivatives_of_a_training_run_on_every_engine[token]",
    "docs/test_notebooks.py::test_a_notebook[price_of_matching]", "agreement/test_agreement.py::test_saved[inside_9001090]",
    "hw/formal/test_bus.py::test_bursts_walk_over_an_array[Walk(offset=0, loops=((2, 1)",
    "autodiff/test_mixed.py::test_equal_to_complex_steps_on_every_engine[state",
    "autodiff/test_mixed.py::test_equal_to_complex_steps_on_every_engine[layers by gathers",
    "autodiff/test_mixed.py::test_equal_to_complex_steps_on_every_engine[by weights",
    "frontend/einsum/test_einsum_values.py::test_gradient_in_cpp[elementwise",
    "agreement/test_agreement.py::test_valid_programs[machine", "tools/test_train.py::test_other_engines[token",
    "malformed/test_malformed.py::test_saved[mlir_7010097",
    "explore/test_estimate.py::test_boxes_have_what_the_units_have[`triangular",
)  # fmt: skip
"""Beginnings of the names of tests that build machines of their own or run for long: `make test` leaves them out, with those
in `slow.txt`, so that it takes less than ten minutes; `make test-slow` and `.ci/run` run them (pytest -m slow)."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--share N/M`: the tests whose names are in the N-th of M classes, counted from 0; all classes together are all."""
    parser.addoption("--share", default="0/1", metavar="N/M", help="only one of M parts of the tests, the N-th from 0")
    parser.addoption("--measure", metavar="FILE", help="write the seconds of a processor that each test takes to a file")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the slow tests, and leave out those of other shares."""
    measured = slow.read(slow.LIST)
    number, parts = map(int, config.getoption("share").split("/"))
    others = [item for item in items if zlib.crc32(item.nodeid.encode()) % parts != number]
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if zlib.crc32(item.nodeid.encode()) % parts == number]
    for item in items:
        if item.nodeid in measured or item.nodeid.removeprefix("test/").startswith(SLOW):
            item.add_marker(pytest.mark.slow)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """See `slow.py`."""
    before = os.times()
    result = yield
    if file := item.config.getoption("measure"):
        with Path(file).open("a", encoding="utf-8") as out:  # of several processes: a line is written at once
            out.write(f"{sum(os.times()[:4]) - sum(before[:4]):.2f} {item.nodeid}\n")
    return result


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """See `settle`."""
    settle()


@pytest.hookimpl(trylast=True)  # after the fixtures of the module
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """See `settle`."""
    if nextitem is not None and nextitem.path != item.path:
        settle()


def settle() -> None:
    """Let collections pass over what is there, thousands of tests and the caches of those that have run.

    They would take a second each, towards the end of a run; `gc.collect` is called by tests, too.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache folder for this run, so that no code of another version is found."""
    folder = tmp_path_factory.mktemp("cache")
    folder.chmod(0o700)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UPL_CACHE_DIR", str(folder))
        yield folder


@pytest.fixture(scope="session")
def example_data() -> ModuleType:
    """`examples/data.py`, which is a script and belongs to no package."""
    spec = importlib.util.spec_from_file_location("examples_data", ROOT / "examples" / "data.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def examples() -> Path:
    """The folder of the example programs and their data."""
    return ROOT / "examples"


_CUT = """() => {
  const bad = [], seen = e => e.getClientRects().length && getComputedStyle(e).visibility !== 'hidden';
  const say = e => `${e.tagName}#${e.id}.${e.className} ${(e.textContent || '').slice(0, 30)}`;
  const root = document.documentElement, bars = ['header', '#tools', '#tabs', 'aside', 'footer'];
  if (root.scrollWidth > innerWidth || root.scrollHeight > innerHeight) bad.push('the page scrolls');
  for (const e of document.querySelectorAll(bars.flatMap(b => [b, `${b} *`]).join())) {
    if (!seen(e) || e.closest('svg') || e.matches('option')) continue;
    const r = e.getBoundingClientRect();
    if (r.left < -.5 || r.right > innerWidth + .5) bad.push(`beside the window: ${say(e)}`);
    const scrolls = !e.matches('input, select, label') && getComputedStyle(e).display !== 'inline';
    if (scrolls && e.scrollWidth > e.clientWidth + 1) bad.push(`cut: ${say(e)}`);
  }
  for (const e of document.querySelectorAll('header, #tools, #tabs, main, footer')) {
    const r = e.getBoundingClientRect();
    if (seen(e) && (r.top < -.5 || r.bottom > innerHeight + .5)) bad.push(`above or below the window: ${say(e)}`);
  }
  for (const e of document.querySelectorAll('aside section'))
    if (seen(e) && e.textContent && e.clientHeight < 40) bad.push(`too low: ${say(e)}`);
  const stage = document.getElementById('stage');
  if (seen(stage)) {
    const a = document.querySelector('#canvas svg').getBoundingClientRect(), b = stage.getBoundingClientRect();
    if (a.left < b.left - 1 || a.right > b.right + 1) bad.push('the picture is cut at its sides');
    if (a.top < b.top - 1 || a.bottom > b.bottom + 1) bad.push('the picture is cut above or below');
    if (b.height < 200) bad.push('the picture has no room');
  }
  return bad;
}"""
"""What of a page is cut, or beside the window, in words."""


class Opened:
    """A page in a browser, with everything that it complained about or asked for."""

    def __init__(self, browser: Any, address: str, **context: Any):
        self.page = browser.new_page(**{"viewport": {"width": 1400, "height": 900}, **context})
        self.complaints: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda m: self.complaints.append(m.text) if m.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda e: self.complaints.append(str(e)))
        self.page.on("request", lambda r: self.asked.append(r.url))
        self.page.goto(address)
        self.until("window.uplReady === true")

    def until(self, condition: str) -> None:
        """Wait until a condition holds; the page forbids itself what playwright's own function for that does."""
        for _ in range(1200):
            if self.page.evaluate(condition):
                return
            self.page.wait_for_timeout(50)
        raise AssertionError(f"never came true: {condition}")

    def cut(self) -> list[str]:
        """What of the page is cut or beside the window."""
        return self.page.evaluate(_CUT)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium of the system; without it, or without playwright, these tests are skipped and say so."""
    sync = pytest.importorskip("playwright.sync_api", reason="no Python package `playwright` here (extra `browser`)")
    chromium = os.environ.get("UPL_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("there is no Chromium on this system (Debian's package `chromium`; or set UPL_CHROMIUM)")
    with sync.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Opened]]:
    """Opens addresses in the browser; a page may not have complained when the test has ended."""
    opened: list[Opened] = []

    def open_(address: str, **context: Any) -> Opened:
        opened.append(Opened(browser, address, **context))
        return opened[-1]

    yield open_
    for found in opened:
        assert found.complaints == []
        found.page.close()

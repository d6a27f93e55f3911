"""The fixture and the marker, in test sessions of their own."""

from pathlib import Path

import pytest
from broken_core import Broken

PLUGIN = ("-p", "pyonnx_wasm.parity.plugin", "-p", "no:cacheprovider", "-p", "no:playwright")


def write(pytester: pytest.Pytester, classifier: Path, body: str) -> None:
    pytester.makepyfile(f"import numpy as np, pytest\nMODEL = {str(classifier)!r}\nX = np.ones((4, 12), np.float32)\n{body}")


def test_agreeing_backends_pass(pytester: pytest.Pytester, classifier: Path) -> None:
    write(
        pytester,
        classifier,
        """
@pytest.mark.parity(backends=["cpu", "wasm"])
class TestBoth:
    def test_marker(self, parity):
        report = parity(MODEL, {"x": X})
        assert report.reference == "cpu" and report.backends == ["wasm"] and parity.reports == [report]

    @pytest.mark.parity(against="onnxruntime", layers=True)
    def test_the_nearer_marker_adds_to_the_farther(self, parity):
        assert parity(MODEL).layers and parity.reports[0].reference == "onnxruntime"

def test_options_of_the_call(parity):
    assert parity(MODEL, backends=["cpu", "cpu:sse4"], sizes={"batch": 3}).outputs[0].shape == (3, 33)
""",
    )
    result = pytester.runpytest_inprocess(*PLUGIN, "--strict-markers", "--parity-html=reports")
    result.assert_outcomes(passed=3)
    pages = sorted(p.name for p in (pytester.path / "reports").iterdir())
    assert len(pages) == 3
    assert pages[0].endswith("TestBoth_test_marker-1.html")


def test_a_broken_kernel_fails_with_the_table(pytester: pytest.Pytester, classifier: Path, broken: Broken) -> None:
    write(
        pytester,
        classifier,
        f"""
@pytest.mark.parity(backends=["cpu", "cpu:{broken.library}"], layers=True)
def test_model(parity):
    parity(MODEL, {{"x": X}})
""",
    )
    result = pytester.runpytest_inprocess(*PLUGIN)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*diverges from cpu in 'y'; first at 'attend/Softmax' (Softmax), value 'h3'", "*output*max abs*max rel*max ulp*", "*y *DIVERGES"]
    )
    result.stdout.no_fnmatch_line("*Traceback*")


def test_options_are_checked(pytester: pytest.Pytester, classifier: Path) -> None:
    write(pytester, classifier, '@pytest.mark.parity(backend="cpu")\ndef test_model(parity): ...')
    result = pytester.runpytest_inprocess(*PLUGIN)
    result.stderr.fnmatch_lines(["*the marker parity takes no option 'backend', only backends, against*"])


def test_the_installed_package_offers_it() -> None:
    import tomllib

    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {PLUGIN[1]: PLUGIN[1]}

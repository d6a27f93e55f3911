"""The text of shaders: lines that are repeated."""

import pytest

from pyonnx_wasm.gpu import wgsl
from pyonnx_wasm.ir import IRError


def test_lines_are_repeated_within_each_other() -> None:
    text = "#for r 2\na${r} = 0;\n#for c 3\nb${r}_${c} = ${r} * ${c};\n#end\n#end\nlast"
    assert wgsl._repeated(text, "k").split("\n") == [
        "a0 = 0;", "b0_0 = 0 * 0;", "b0_1 = 0 * 1;", "b0_2 = 0 * 2;",
        "a1 = 0;", "b1_0 = 1 * 0;", "b1_1 = 1 * 1;", "b1_2 = 1 * 2;", "last",
    ]  # fmt: skip
    assert wgsl._repeated("#for i 0\nx${i}\n#end\nlast", "k").split("\n") == ["last"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("#for i 2\nx", "#for without #end"),
        ("x\n#end", "#end without #for"),
        ("#for i 2\n#end\nx${j}", r"\$\{j\} is no text of this case"),
    ],
)
def test_what_is_not_closed_or_not_known_names_the_kernel(text: str, why: str) -> None:
    with pytest.raises(IRError, match=f"^k.wgsl: {why}"):
        wgsl._repeated(text, "k")

"""`python -m pyonnx_wasm.testing.clang` makes sure that there is a clang++ with AddressSanitizer, which zig's lacks."""

from .. import toolchain
from . import system

PACKAGES = ("clang-19", "libclang-rt-19-dev")

if __name__ == "__main__":
    found = toolchain.own_clang() or (system.apt(PACKAGES, "clang with AddressSanitizer") and toolchain.own_clang())
    print(f"Sanitizers: {found}" if found else "No clang++ 17 or newer: one test of damaged Programs is skipped", flush=True)

// What includes this is compiled for size in WebAssembly, where every page downloads it: code that runs once per bind or per step, or whose time
// memory and branches take. It must share no inline function with kernels whose time counts, unless it is never called from there: of copies
// that differ only in how they were compiled, the linker keeps one.
#pragma once

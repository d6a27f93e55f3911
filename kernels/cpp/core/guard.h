// A build for tests (toolchain --guard): runs a step on copies of its buffers that end, and then begin, at an unmapped page.
#pragma once
#include "../kernel.h"

void run_guarded(const Kernel& kernel, const Call& call, int n_outputs, const char** error);

extern i64 guard_left;  // bytes that may still be copied; then steps run as they are

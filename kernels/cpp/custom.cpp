// What a shader of the file runs on a GPU. No core can: a step of it has to run elsewhere.
#include "kernel.h"
#include "small.h"

namespace {

const char* check(const Call&, Proof&) { return "runs on a GPU alone"; }

void run(Call&) {}

}  // namespace

KERNEL(custom, check, no_scratch, run)

"""One module per kernel that GPUs run; each has ``cases(call)``."""

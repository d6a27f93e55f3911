"""One module per kernel that GPUs run; each has ``cases(call)``.

They import ``gpu``, ``tensor``, and from ``ops`` the enumerations of their kernel. A module is added with its kernel's name, beside
``kernels/wgsl/<name>.wgsl``: both are found by presence.
"""

"""What of onnxruntime's and onnxruntime-common's surface is here: `docs/reference/members.md`, written by `python tests/members.py`."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import onnxruntime

import pyonnx_wasm

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "members.md"
TYPES = ROOT / "tests" / "packaging" / "types"

# Names of onnxruntime that are absent here, each for a reason.
DEVICES = "values live in memory; there is one kind of device"
OTHERS = "providers and adapters loaded from libraries of onnxruntime"
COMPILED = "its own compiled models; here pyonnx_wasm.compile and save"
INTERNAL = "no part of its documented surface"
ABSENT = {
    **dict.fromkeys(
        ["OrtDevice", "OrtDeviceMemoryType", "OrtDeviceVendorId", "OrtMemType", "OrtMemoryInfo", "OrtMemoryInfoDeviceType",
         "OrtAllocatorType",
         "OrtArenaCfg", "OrtSyncStream", "copy_tensors", "create_and_register_allocator", "create_and_register_allocator_v2"], DEVICES),
    **dict.fromkeys(
        ["OrtEpDevice", "OrtHardwareDevice", "OrtHardwareDeviceType", "OrtExecutionProviderDevicePolicy", "OrtEpAssignedNode",
         "OrtEpAssignedSubgraph", "AdapterFormat", "LoraAdapter", "get_ep_devices", "register_execution_provider_library",
         "unregister_execution_provider_library", "preload_dlls", "cuda_version"], OTHERS),
    **dict.fromkeys(["ModelCompiler", "OrtCompileApiFlags", "OrtExternalInitializerInfo", "OrtEpContextData",
                    "OrtEpContextDataBuffer"], COMPILED),
    **dict.fromkeys(
        ["SessionIOBinding", "capi", "contextlib", "import_capi_exception", "onnxruntime_validation", "package_name",
         "print_debug_info", "enable_telemetry_events",
         "set_global_thread_pool_sizes"], INTERNAL),
}  # fmt: skip
ABSENT_MEMBERS = {
    "InferenceSession": {
        "create_ortvalue_from_shape_and_type": DEVICES, "get_input_epdevices": OTHERS, "get_input_memory_infos": DEVICES,
        "get_output_memory_infos": DEVICES, "get_provider_graph_assignment_info": OTHERS, "get_tuning_results": OTHERS,
        "release_captured_graph": OTHERS, "run_with_ortvaluevector": INTERNAL, "set_ep_dynamic_options": OTHERS,
        "set_tuning_results": OTHERS,
    },
    "SessionOptions": {
        "add_provider": OTHERS,
        "add_provider_for_devices": OTHERS, "clear_ep_context_data_read_func": COMPILED, "has_providers": OTHERS,
        "set_ep_context_data_read_func": COMPILED, "set_load_cancellation_flag": INTERNAL, "set_provider_selection_policy": OTHERS,
        "set_provider_selection_policy_delegate": OTHERS,
    },
    "RunOptions": {"add_active_adapter": OTHERS},
    "OrtValue": {"as_sparse_tensor": "sparse inputs are SparseTensor", "ort_value_from_sparse_tensor": INTERNAL},
    "IOBinding": {"get_outputs_as_ortvaluevector": INTERNAL},
    "ModelMetadata": {},
    "SparseTensor": {"as_blocksparse_view": INTERNAL, "to_cuda": DEVICES},
}  # fmt: skip
MODULES = {"version", "quantization", "transformers"}  # some builds have the first, who imports them the others
PYTHON = ["InferenceSession", "SessionOptions", "RunOptions", "OrtValue", "IOBinding", "ModelMetadata", "SparseTensor"]
# Members of onnxruntime-common that are here and mean something of their own.
NOTES = {
    "Env.WebAssemblyFlags.proxy": "no meaning: a session runs in a worker unless `env.worker` is `false`",
    "Env.WebAssemblyFlags.wasmPaths": "the folder of this package's files; onnxruntime's own are passed over",
    "Env.WebAssemblyFlags.wasmBinary": "the bytes of `core.wasm`; another module's are passed over",
    "InferenceSession.SessionOptions.interOpNumThreads": "steps run one after the other, each on all threads",
    "InferenceSession.SessionOptions.executionMode": "steps run one after the other, each on all threads",
    "InferenceSession.SessionOptions.enableCpuMemArena": "memory is planned when sizes are known",
    "InferenceSession.SessionOptions.enableMemPattern": "memory is planned when sizes are known",
    "InferenceSession.SessionOptions.optimizedModelFilePath": "`pyonnx-wasm compile` writes compiled models",
    "InferenceSession.SessionOptions.profileFilePrefix": "`endProfiling()` returns the profile",
    "InferenceSession.SessionOptions.logVerbosityLevel": "`env.logLevel` says how much is said",
    "InferenceSession.SessionOptions.enableGraphCapture": "runs of the same sizes are replayed anyway",
    "InferenceSession.SessionOptions.extra": "named once on the console: it configures onnxruntime's own core",
    "InferenceSession.RunOptions.extra": "named once on the console: it configures onnxruntime's own core",
    "InferenceSession.RunOptions.logVerbosityLevel": "`env.logLevel` says how much is said",
}


def public(thing: Any) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


def python_members() -> Iterator[tuple[str, str]]:
    """Names of onnxruntime's module, and what stands in their place where they are absent."""
    for name in sorted(public(onnxruntime) - MODULES):
        yield name, "" if name in public(pyonnx_wasm) else ABSENT[name]
        if name in ABSENT_MEMBERS:
            here = _instance(pyonnx_wasm, name)
            for member in sorted(public(_instance(onnxruntime, name))):
                yield f"{name}.{member}", "" if member in public(here) else ABSENT_MEMBERS[name][member]


def _instance(module: Any, name: str) -> Any:
    kind = getattr(module, name)
    return kind() if module is pyonnx_wasm and name in ("SessionOptions", "RunOptions", "ModelMetadata") else kind


def javascript_members(typescript: Path, theirs: Path, ours: Path) -> dict[str, bool]:
    """Members of onnxruntime-common's declarations, and whether ours have them."""
    command = ["node", "--preserve-symlinks", TYPES / "members.mjs", typescript, theirs, ours]
    table = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True).stdout.strip().splitlines()
    return {name: there == "yes" for name, there in (row.split("\t") for row in table)}


def rows(members: Sequence[tuple[str, str]], title: str, others: str) -> str:
    absent = [(name, why) for name, why in members if why]
    text = f"## {title}\n\n{len(members)} members, of which {len(members) - len(absent)} are here{others}\n\n"
    text += "| member | here | instead |\n|---|---|---|\n"
    return text + "".join(f"| `{name}` | {'no' if why else 'yes'} | {why} |\n" for name, why in members)


def page(javascript: dict[str, bool]) -> str:
    """The whole page."""
    python = list(python_members())
    noted = [(name, NOTES.get(name, "")) for name in javascript]
    script = "".join(f"| `{name}` | {'yes' if javascript[name] else 'no'} | {note} |\n" for name, note in noted)
    return (
        "# Members of onnxruntime\n\nCompared name by name with onnxruntime's module and with the declarations of onnxruntime-common, "
        f"by `python tests/members.py`.\n\n{rows(python, f'Python, onnxruntime {onnxruntime.__version__}', '.')}\n"
        f"## JavaScript, onnxruntime-common\n\n{len(javascript)} members, of which {sum(javascript.values())} are here.\n\n"
        f"| member | here | remark |\n|---|---|---|\n{script}"
    )


def python_part(text: str) -> str:
    return text.split("## JavaScript")[0]


if __name__ == "__main__":
    TOOLS = ROOT / "build" / "packages" / "bundlers" / "node_modules" / "typescript-5" / "lib" / "typescript.js"
    COMMON = ROOT / "node_modules" / "onnxruntime-common" / "dist" / "esm" / "index.d.ts"
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(javascript_members(TOOLS, COMMON, ROOT / "js" / "dist" / "index.d.ts")))

"""torchvision, also where its extension was built for a torch with CUDA that is not here: two of its operators, written in Python.

An exporter needs an operator's name and something to trace; what it writes (NonMaxSuppression, RoiAlign) is torchvision's own.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor

SCHEMAS = {
    "nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "roi_align": "(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, int sampling_ratio,"
    " bool aligned) -> Tensor",
}


def nms(boxes: Tensor, scores: Tensor, threshold: float) -> Tensor:
    order, kept = scores.argsort(descending=True, stable=True).tolist(), []
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    for i in order:
        if kept:
            near, far = torch.maximum(boxes[i, :2], boxes[kept, :2]), torch.minimum(boxes[i, 2:], boxes[kept, 2:])
            common = (far - near).clamp(min=0).prod(1)
            if bool((common / (area[i] + area[kept] - common) > threshold).any()):
                continue
        kept.append(i)
    return torch.tensor(kept, dtype=torch.long)


def loads() -> bool:
    spec = find_spec("torchvision")
    assert spec is not None
    assert spec.origin is not None
    try:
        torch.ops.load_library(next(Path(spec.origin).parent.glob("_C*.so")))
    except (OSError, StopIteration):
        return False
    return True


if not loads():
    LIBRARY = torch.library.Library("torchvision", "DEF")
    for name, schema in SCHEMAS.items():
        LIBRARY.define(name + schema)
    LIBRARY.impl("nms", nms, "CPU")
    from torchvision import extension
    from torchvision.ops.roi_align import _roi_align as roi_align

    LIBRARY.impl("roi_align", roi_align, "CPU")

    def has_ops() -> bool:  # a function, since it is compiled as TorchScript
        return True

    extension._has_ops = has_ops

    @torch.library.register_fake("torchvision::roi_align")
    def pooled(x: Tensor, rois: Tensor, scale: float, height: int, width: int, ratio: int, aligned: bool) -> Tensor:
        return x.new_empty((rois.shape[0], x.shape[1], height, width))

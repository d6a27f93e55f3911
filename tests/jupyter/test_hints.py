"""What a playground takes from a model's metadata, from the files beside it, and from the names and shapes of its outputs."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pandas
import pytest
from onnx import TensorProto, helper

from pyonnx_wasm.dtypes import DType
from pyonnx_wasm.jupyter import Boxes, Playground, Preprocess, Table, Text
from pyonnx_wasm.jupyter.detect import detector
from pyonnx_wasm.jupyter.hints import look, preprocessing
from pyonnx_wasm.program import Signature

VIT = {
    "do_resize": True,
    "size": {"height": 224, "width": 224},
    "resample": 2,
    "do_rescale": True,
    "rescale_factor": 0.00392156862745098,
    "do_normalize": True,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.4, 0.5],
}
RESNET = {"crop_pct": 0.875, "do_resize": True, "size": {"shortest_edge": 224}, "resample": 3, "image_mean": [0.485, 0.456, 0.406]}
CLIP = {"size": {"shortest_edge": 256}, "do_center_crop": True, "crop_size": {"height": 224, "width": 224}, "do_rescale": False}


def of(name: str, *shape: int | str, dtype: DType = DType.float32) -> Signature:
    return Signature(name, dtype, shape)


def model(path: Path, inputs: dict[str, list[Any]], outputs: dict[str, list[Any]], metadata: dict[str, str] | None = None) -> Path:
    """A model of that interface: each output is a constant of its shape, added to nothing of an input."""
    value = helper.make_tensor_value_info
    dtypes = {n: TensorProto.INT64 if n.endswith(("ids", "mask")) else TensorProto.FLOAT for n in inputs}
    nodes, weights = [], []
    for name, shape in outputs.items():
        sizes = [d if isinstance(d, int) else 1 for d in shape]
        weights.append(onnx.numpy_helper.from_array(np.zeros(sizes, np.float32), f"{name}_0"))
        nodes.append(helper.make_node("Identity", [f"{name}_0"], [name]))
    graph = helper.make_graph(
        nodes,
        "g",
        [value(n, dtypes[n], s) for n, s in inputs.items()],
        [value(n, TensorProto.FLOAT, s) for n, s in outputs.items()],
        weights,
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    helper.set_model_props(made, metadata or {})
    onnx.save(made, path)
    return path


@pytest.mark.parametrize(
    ("metadata", "labels"),
    [
        ({"names": "{0: 'person', 1: \"dog's\", 3: 'cat'}"}, ("person", "dog's", "2", "cat")),
        ({"id2label": '{"0": "no", "1": "yes"}'}, ("no", "yes")),
        ({"labels": "a, b ,c"}, ("a", "b", "c")),
        ({"classes": '["x", "y"]'}, ("x", "y")),
        ({"names": "__import__('os').system('false')"}, ()),
        ({"names": "{'a': 'b'}"}, ()),
        ({"names": "{-1: 'b', 0: 'c'}"}, ()),
        ({}, ()),
    ],
)
def test_labels_in_metadata(metadata: dict[str, str], labels: tuple[str, ...]) -> None:
    assert look(None, metadata).labels == labels


def test_files_beside_the_model(tmp_path: Path) -> None:
    """As in Hugging Face's repositories, with the model in onnx/ below; nothing further up is read."""
    folder = tmp_path / "repository" / "onnx"
    folder.mkdir(parents=True)
    (tmp_path / "labels.txt").write_text("too\nfar")
    (folder.parent / "config.json").write_text(json.dumps({"id2label": {"1": "yes", "0": "no"}}))
    (folder.parent / "preprocessor_config.json").write_text(json.dumps(VIT))
    (folder.parent / "tokenizer.json").write_text("{}")
    hints = look(folder / "model.onnx", {})
    assert hints.labels == ("no", "yes")
    assert hints.tokenizer == folder.parent / "tokenizer.json"
    assert hints.found == ("labels in config.json", "preprocessing in preprocessor_config.json", "tokenizer.json")
    (folder.parent / "config.json").write_text(json.dumps({"id2label": {"0": "LABEL_0", "1": "LABEL_1"}}))
    (folder.parent / "preprocessor_config.json").write_text("{broken")
    (folder / "labels.txt").write_text("one\n\ntwo \n")
    hints = look(folder / "model.onnx", {})
    assert (hints.labels, hints.preprocess) == (("one", "two"), None)


@pytest.mark.parametrize(
    ("config", "steps"),
    [
        (VIT, Preprocess(resize=(224, 224), mean=(0.5, 0.5, 0.5), std=(0.5, 0.4, 0.5), scale=0.00392156862745098)),
        (RESNET, Preprocess(resize=224, filter="bicubic", mean=(0.485, 0.456, 0.406))),
        (CLIP, Preprocess(resize=256, crop=(224, 224), scale=1.0)),
        ({"feature_size": 80, "sampling_rate": 16000}, None),
    ],
)
def test_preprocessor_config(config: dict[str, Any], steps: Preprocess | None) -> None:
    assert preprocessing(config) == steps


@pytest.mark.parametrize(
    ("outputs", "labels", "task", "layout", "form"),
    [
        ([of("output0", 1, 84, 8400)], 80, "", "yolo", "cxcywh"),
        ([of("output0", "batch", 6, "anchors")], 2, "", "yolo", "cxcywh"),
        ([of("output0", 1, 7, 8400)], 0, "detect", "yolo", "cxcywh"),
        ([of("output0", 1, 116, 8400), of("output1", 1, 32, 160, 160)], 80, "segment", "yolo", "cxcywh"),
        ([of("output", 1, 25200, 85)], 0, "", "objectness", "cxcywh"),
        ([of("output", 1, 25200, 8)], 3, "", "objectness", "cxcywh"),
        ([of("output0", 1, 300, 6)], 80, "", "rows", "xyxy"),
        ([of("logits", 1, 100, 92), of("pred_boxes", 1, 100, 4)], 0, "", "split", "cxcywh"),
        ([of("boxes", "n", 4), of("labels", "n", dtype=DType.int64), of("scores", "n")], 91, "", "split", "xyxy"),
        ([of("scores", 1, 3000, 21), of("boxes", 1, 3000, 4)], 0, "", "split", "xyxy"),
        ([of("detection_boxes", 1, 100, 4), of("detection_scores", 1, 100), of("num_detections", 1)], 0, "", "split", "yxyx"),
    ],
)
def test_heads_of_detectors(outputs: list[Signature], labels: int, task: str, layout: str, form: str) -> None:
    boxes, hidden = detector(outputs, [f"c{i}" for i in range(labels)], task)
    ((_, found),) = boxes.items()
    assert (found.layout, found.format) == (layout, form)
    assert hidden == ({s.name for s in outputs} - set(boxes) if layout == "split" else set())


@pytest.mark.parametrize(
    "outputs",
    [
        [of("last_hidden_state", 1, 197, 768)],
        [of("logits", 1, 1000)],
        [of("hidden", "batch", "sequence", 384)],
        [of("output0", 1, 84, 20)],
        [of("masks", 1, 21, 65, 65)],
        [of("boxes", 1, 100, 4)],
        [of("output", 1, 84, 8400, dtype=DType.int64)],
    ],
)
def test_what_is_no_detector(outputs: list[Signature]) -> None:
    assert detector(outputs, ()) == ({}, set())


def shows(playground: Playground) -> dict[str, Any]:
    return {show["output"]: show for show in playground.spec["shows"]}


def test_a_yolo_export_needs_nothing_else(tmp_path: Path) -> None:
    about = {"names": "{0: 'cat', 1: 'dog'}", "imgsz": "[64, 96]", "task": "detect", "stride": "32"}
    playground = Playground(model(tmp_path / "yolo.onnx", {"images": [1, 3, 64, 96]}, {"output0": [1, 6, 126]}, about))
    show = shows(playground)["output0"]
    assert (show["kind"], show["layout"], show["labels"], show["normalized"]) == ("boxes", "yolo", ("cat", "dog"), None)
    (panel,) = playground.spec["panels"]
    wanted = {"resize": [64, 96], "fit": "contain", "fill": 114}
    assert {k: panel["preprocess"][k] for k in wanted} == wanted
    assert playground.spec["found"] == ["labels in the model's metadata (names)", "boxes by the shape of the outputs"]


def test_a_classifier_with_its_files(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("\n".join(f"thing {i}" for i in range(10)))
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(VIT))
    path = model(tmp_path / "vit.onnx", {"pixel_values": ["batch", 3, 32, 32]}, {"logits": [1, 10]})
    playground = Playground(path)
    assert shows(playground)["logits"]["labels"][3] == "thing 3"
    (panel,) = playground.spec["panels"]
    assert (panel["preprocess"]["resize"], panel["preprocess"]["mean"]) == ([32, 32], [0.5, 0.5, 0.5])
    given = Playground(path, labels="abcdefghij", preprocess=Preprocess(resize=(32, 32)))
    assert (shows(given)["logits"]["labels"][0], given.spec["found"]) == ("a", [])
    other = Playground(model(tmp_path / "other.onnx", {"pixel_values": ["batch", 3, 32, 32]}, {"logits": [1, 7]}))
    assert other.spec["found"] == ["preprocessing in preprocessor_config.json"]


def test_segmentation_is_a_map_on_the_picture(tmp_path: Path) -> None:
    playground = Playground(model(tmp_path / "segment.onnx", {"x": [1, 3, 32, 32]}, {"classes": [1, 21, 32, 32]}))
    show = shows(playground)["classes"]
    assert (show["kind"], show["overlay"]) == ("heatmap", True)


def test_inputs_of_language_models(tmp_path: Path) -> None:
    inputs = {"input_ids": ["b", "s"], "attention_mask": ["b", "s"], "token_type_ids": ["b", "s"]}
    path = model(tmp_path / "words.onnx", inputs, {"logits": [1, 2]})
    fills = {p["inputs"][0]: p["fill"] for p in Playground(path).spec["panels"]}
    assert fills == {"input_ids": "random", "attention_mask": "ones", "token_type_ids": "zeros"}
    (tmp_path / "tokenizer.json").write_text('{"model": {}}')
    playground = Playground(path, examples=["good morning", "good night"])
    (panel,) = playground.spec["panels"]
    assert (panel["kind"], panel["value"], panel["examples"]) == ("text", "good morning", ["good morning", "good night"])
    assert playground._files["tokenizer"] == b'{"model": {}}'
    assert playground.spec["found"] == ["tokenizer.json"]


def test_tokenizer_objects(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models

    tokenizer = Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
    fast = type("Fast", (), {"backend_tokenizer": tokenizer})()
    slow = type("SlowTokenizer", (), {"vocab_size": 3})()
    (tmp_path / "tokenizer.json").write_text(tokenizer.to_str())
    for given in (tokenizer, fast, tmp_path, tmp_path / "tokenizer.json", json.loads(tokenizer.to_str()), tokenizer.to_str().encode()):
        kept: dict[str, bytes] = {}
        Text(given).spec(lambda name, data, kept=kept: kept.setdefault(name, data) and name)
        assert json.loads(kept["tokenizer"])["model"]["vocab"] == {"a": 0}
    with pytest.raises(ValueError, match=r"SlowTokenizer is written in Python.*use_fast=True"):
        Text(slow).spec(lambda name, data: name)


def test_tables_from_data_frames(tmp_path: Path) -> None:
    """Of pandas, columns of several dtypes among them."""
    frame = pandas.DataFrame({"length": pandas.array([1, 3], "Int64"), "width": [2.5, 4]})
    path = model(tmp_path / "iris.onnx", {"x": ["rows", 2]}, {"y": [1, 3]})
    for given in (frame, Table(rows=frame)):
        (panel,) = Playground(path, inputs={"x": given}).spec["panels"]
        assert (panel["columns"], panel["rows"]) == (["length", "width"], [[1.0, 2.5], [3.0, 4.0]])
    for value in ("long", pandas.NA):
        with pytest.raises(ValueError, match="a table holds numbers: column 'length' has"):
            Playground(path, inputs={"x": pandas.DataFrame({"length": [value], "width": [1]})})


def test_what_is_declared_stays(tmp_path: Path) -> None:
    path = model(tmp_path / "yolo.onnx", {"images": [1, 3, 64, 64]}, {"output0": [1, 84, 8400]})
    playground = Playground(path, outputs={"output0": Boxes(layout="rows", format="xyxy")})
    assert shows(playground)["output0"]["layout"] == "rows"
    assert playground.spec["found"] == []

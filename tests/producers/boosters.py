"""XGBoost and LightGBM through onnxmltools: objectives, boosters, gaps, double sums."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import lightgbm
import numpy as np
import xgboost
from case import Case, main
from onnxmltools import convert_lightgbm, convert_xgboost
from onnxmltools.convert.common.data_types import FloatTensorType

TYPES = [("X", FloatTensorType([None, 6]))]


def models(rng: np.random.Generator) -> Iterator[Case]:
    x = rng.normal(size=(200, 6)).astype(np.float32)
    gaps = x.copy()
    gaps[rng.random(x.shape) < 0.1] = np.nan
    score = x[:, 0] + x[:, 1] * x[:, 2]
    targets = {
        "binary": (score > 0).astype(int),
        "three": np.digitize(score, [-0.5, 0.5]),
        "real": score,
        "count": np.abs(score).astype(int),
    }
    small: dict[str, Any] = {"n_estimators": 12, "max_depth": 4, "random_state": 0, "n_jobs": 1}
    makers: list[tuple[str, Any, str, dict[str, Any]]] = []
    for target in ("binary", "three"):
        makers += [(f"xgb-{target}", xgboost.XGBClassifier, target, {}), (f"lgbm-{target}", lightgbm.LGBMClassifier, target, {})]
    makers += [(f"xgb-{o.replace(':', '-')}", xgboost.XGBRegressor, t, {"objective": o}) for o, t in (
        ("reg:squarederror", "real"), ("count:poisson", "count"), ("reg:logistic", "binary"), ("reg:absoluteerror", "real"))]  # fmt: skip
    makers += [(f"lgbm-{o}", lightgbm.LGBMRegressor, t, {"objective": o}) for o, t in (
        ("regression", "real"), ("regression_l1", "real"), ("huber", "real"), ("poisson", "count"), ("tweedie", "count"))]  # fmt: skip
    makers += [("xgb-forest", xgboost.XGBRFClassifier, "binary", {}), ("xgb-dart", xgboost.XGBClassifier, "binary", {"booster": "dart"}),
               ("lgbm-forest", lightgbm.LGBMClassifier, "binary", {"boosting_type": "rf", "bagging_freq": 1, "bagging_fraction": 0.8}),
               ("lgbm-dart", lightgbm.LGBMRegressor, "real", {"boosting_type": "dart"})]  # fmt: skip
    for name, kind, target, given in makers:
        for data, suffix in ((x, ""), (gaps, "-gaps")):

            def make(kind: Any = kind, given: Any = given, data: Any = data, target: str = target) -> bytes:
                quiet = {"verbosity": -1} if kind.__module__.startswith("lightgbm") else {}
                model = kind(**small, **given, **quiet).fit(data, targets[target])
                convert = convert_xgboost if kind.__module__.startswith("xgboost") else convert_lightgbm
                return bytes(convert(model, initial_types=TYPES, target_opset=15).SerializeToString())

            yield Case(name + suffix, make, [{"X": data[:5]}, {"X": data[5:105]}])


if __name__ == "__main__":
    main(models)

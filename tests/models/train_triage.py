"""Trains the pipeline of `js/pages/triage` on made-up requests: `python tests/models/train_triage.py`.

Needs the extra `train`. A scikit-learn pipeline over columns of text, choices and numbers, converted by skl2onnx with its ZipMap. What a
form needs beyond the model's signature (choices, usual ranges) goes into the model's metadata, under the key `form`.
"""

from __future__ import annotations

import argparse
import csv
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from skl2onnx import convert_sklearn
from skl2onnx.common.data_types import FloatTensorType, Int64TensorType, StringTensorType
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

PAGE = Path(__file__).parents[2] / "js/pages/triage"
COLUMNS = ("message", "plan", "channel", "seats", "errors_per_minute", "days_to_invoice")
LABEL = "team"
PLANS = ("Free", "Team", "Business", "Enterprise")
CHANNELS = ("Email", "Chat", "Phone")


@dataclass(frozen=True)
class Team:
    """How the requests look that a team answers.

    Attributes:
        share: of all requests.
        says: sentences; `{a|b}` is one of them.
        plans, channels: weights in the order of `PLANS` and `CHANNELS`.
        seats, errors: medians of log-normal numbers; `errors` per minute, as monitoring saw them.
        invoice: days to the nearest invoice, mean and deviation.
    """

    share: float
    says: tuple[str, ...]
    plans: tuple[int, ...]
    channels: tuple[int, ...]
    seats: float
    errors: float
    invoice: tuple[float, float]


TEAMS = {
    "Billing": Team(
        0.24,
        (
            "{we were|I was} charged {twice|two times|again} {this month|on Monday|yesterday}",
            "please {correct|check|send again} the invoice {of last month|number 20418|for our order}",
            "the {refund|credit note} has not {arrived|been paid} yet",
            "our card {was declined|has expired}, how can we pay {the bill|now}",
            "the {price|amount|tax} on the invoice is {wrong|not what we agreed|higher than before}",
            "we need {a receipt|another address|a VAT number} on the bill",
            "why did the {monthly payment|subscription} {go up|cost more}",
        ),
        (1, 5, 4, 2), (6, 3, 2), 14, 0.3, (1, 5),
    ),
    "Incidents": Team(
        0.22,
        (
            "{the site|everything|the dashboard|the API} is down {since this morning|for all of us|again}",
            "we get {error 500|a timeout|a blank page} when {saving|opening the dashboard|calling the API}",
            "{uploads|exports|logins|all requests} fail since {the last release|noon|ten minutes}",
            "the {app|editor} {crashes|freezes} {on start|every few minutes|for everybody}",
            "pages are {very slow|not loading|broken} {today|in all our offices}",
            "we {lost|cannot see} {data|yesterday's work|all projects}",
        ),
        (2, 3, 4, 4), (3, 4, 5), 40, 9, (15, 9),
    ),
    "Accounts": Team(
        0.2,
        (
            "I {forgot|cannot reset|lost} my password",
            "the {reset link|confirmation mail|code} {does not arrive|has expired}",
            "my account is {locked|disabled} {after too many tries|since Friday}",
            "please {remove|add} {a colleague|a user|an administrator} {who left|to our workspace}",
            "how do I {change|move} my {mail address|user name|phone} {for the second factor|of the account}",
            "single sign-on {rejects|does not know} {me|our new colleagues}",
        ),
        (4, 5, 3, 2), (4, 6, 2), 16, 0.4, (15, 9),
    ),
    "How-to": Team(
        0.2,
        (
            "how do I {export a report|share a folder|import a table|make a template}",
            "where can I {find|switch on} {dark mode|the calendar|keyboard shortcuts|notifications}",
            "is there a {guide|video|manual} for {beginners|the editor|charts}",
            "can I {sort|filter|group} {by date|projects|my tasks}",
            "which {format|file type|size} do {pictures|imports|attachments} need",
            "I would like to learn how to {build a chart|use formulas|print a page}",
        ),
        (6, 4, 2, 1), (4, 7, 1), 8, 0.3, (15, 9),
    ),
    "Sales": Team(
        0.14,
        (
            "we would like {an offer|a quote|a discount} for {forty|a hundred|more} seats",
            "what does the {business|enterprise} plan cost {for us|per year}",
            "we want to {upgrade|try|buy} {the next plan|more licences|the enterprise plan}",
            "can {somebody|your team} show us {a demo|the product} {next week|soon}",
            "do you have {a contract|terms|prices} for {schools|charities|resellers}",
        ),
        (7, 6, 2, 1), (5, 2, 5), 70, 0.3, (15, 9),
    ),
}  # fmt: skip
VAGUE = (
    "it does not work", "please call me back", "can somebody look at this", "is there any news", "same problem as last time",
    "this is urgent", "something is wrong", "I need help with this", "see the picture", "we still wait for an answer",
)  # fmt: skip
START = "Hello, we were charged twice this month"
EXAMPLES = ("The API is down", "Reset my password", "How do I import a table?", "A quote for 100 seats", "It does not work")
OPENING = ("", "", "", "hello, ", "hi, ", "dear team, ", "good morning, ", "sorry to trouble you, ")
CLOSING = ("", "", "", ", please", ", thank you", ", it is urgent", ", we wait for your answer", ", best regards")


def sentence(rng: np.random.Generator, pattern: str) -> str:
    """The pattern with one of each `{a|b}`."""
    start = pattern.find("{")
    if start < 0:
        return pattern
    end = pattern.index("}", start)
    chosen = rng.choice(pattern[start + 1 : end].split("|"))
    return pattern[:start] + str(chosen) + sentence(rng, pattern[end + 1 :])


def slip(rng: np.random.Generator, text: str) -> str:
    """The text with a letter left out here and there."""
    return "".join(c for c in text if not (c.isalpha() and rng.random() < 0.006))


def request(rng: np.random.Generator) -> dict[str, object]:
    """A row: the columns, and the team that answers."""
    names = list(TEAMS)
    name = names[rng.choice(len(names), p=[t.share for t in TEAMS.values()])]
    team = TEAMS[name]
    said = str(rng.choice(VAGUE)) if rng.random() < 0.2 else sentence(rng, str(rng.choice(team.says)))
    text = f"{rng.choice(OPENING)}{said}{rng.choice(CLOSING)}"

    def pick(values: tuple[str, ...], weights: tuple[int, ...]) -> str:
        return str(rng.choice(values, p=np.array(weights) / sum(weights)))

    return {
        "message": text[:1].upper() + slip(rng, text[1:]),
        "plan": pick(PLANS, team.plans),
        "channel": pick(CHANNELS, team.channels),
        "seats": int(np.clip(round(team.seats * np.exp(rng.normal(0, 1))), 1, 900)),
        "errors_per_minute": round(float(np.clip(team.errors * np.exp(rng.normal(0, 0.9)), 0, 99)), 1),
        "days_to_invoice": int(np.clip(round(rng.normal(*team.invoice)), -30, 30)),
        LABEL: name,
    }


def table(rows: list[dict[str, object]]) -> np.ndarray:
    return np.array([[row[name] for name in COLUMNS] for row in rows], object)


def fit(rows: list[dict[str, object]]) -> Pipeline:
    words = TfidfVectorizer(token_pattern="[a-zA-Z0-9_]+", min_df=4)
    columns = ColumnTransformer(
        [
            ("words", words, COLUMNS.index("message")),
            ("choices", OneHotEncoder(handle_unknown="ignore"), [COLUMNS.index("plan"), COLUMNS.index("channel")]),
            ("numbers", StandardScaler(), [COLUMNS.index(n) for n in ("seats", "errors_per_minute", "days_to_invoice")]),
        ]
    )
    return Pipeline([("columns", columns), ("classes", LogisticRegression(C=6, max_iter=400))]).fit(
        table(rows), [row[LABEL] for row in rows]
    )


def form(pipeline: Pipeline, rows: list[dict[str, object]]) -> dict[str, dict[str, object]]:
    """What a form shows beside the signature: choices that the encoder knows, ranges of nearly all numbers, what one may begin with."""
    known = pipeline["columns"].named_transformers_["choices"].categories_
    about: dict[str, dict[str, object]] = {"message": {"start": START, "examples": EXAMPLES, "long": True}}
    for name, order, values in zip(("plan", "channel"), (PLANS, CHANNELS), known, strict=True):
        about[name] = {"choices": sorted(values, key=order.index), "start": order[1]}
    for name, step in (("seats", 1), ("errors_per_minute", 0.1), ("days_to_invoice", 1)):
        low, middle, high = np.percentile([float(row[name]) for row in rows], [1, 50, 97])  # type: ignore[arg-type]
        about[name] = {"low": round(low), "high": round(high), "step": step, "start": round(middle / step) * step}
    about["errors_per_minute"]["hint"] = "as monitoring saw them"
    about["days_to_invoice"]["hint"] = "negative: days since"
    return about


def export(pipeline: Pipeline, about: dict[str, dict[str, object]], path: Path) -> None:
    text, whole, real = StringTensorType([None, 1]), Int64TensorType([None, 1]), FloatTensorType([None, 1])
    kinds = dict(zip(COLUMNS, (text, text, text, whole, real, whole), strict=True))
    options = {id(pipeline["columns"].named_transformers_["words"]): {"locale": "C.UTF-8"}}  # one that every machine has
    model = convert_sklearn(pipeline, "triage", list(kinds.items()), target_opset={"": 17, "ai.onnx.ml": 3}, options=options)
    onnx.helper.set_model_props(model, {"form": json.dumps(about)})
    onnx.save(model, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=6000)
    parser.add_argument("--output", type=Path, default=PAGE)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    rows = [request(rng) for _ in range(options.rows)]
    held_out = [request(rng) for _ in range(400)]
    pipeline = fit(rows)
    right = pipeline.predict(table(held_out)) == [row[LABEL] for row in held_out]
    print(f"held-out accuracy {right.mean():.4f} ({right.sum()} of {len(held_out)})")
    export(pipeline, form(pipeline, rows), options.output / "triage.onnx")
    with (options.output / "held_out.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, [*COLUMNS, LABEL], lineterminator="\n")
        writer.writeheader()
        writer.writerows(held_out)
    for path in (options.output / "triage.onnx", options.output / "held_out.csv"):
        print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()

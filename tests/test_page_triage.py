"""The page with a scikit-learn pipeline: its form, its numbers, its tables."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from page_weight import told, weigh
from playwright.sync_api import Page, expect

import pyonnx_wasm
from pyonnx_wasm.server import Server

pytestmark = pytest.mark.browser

FOLDER = Path(__file__).parents[1] / "js/pages/triage"
MODEL = FOLDER / "triage.onnx"
LOAD = 180_000
Row = dict[str, str]


def held_out() -> list[Row]:
    with (FOLDER / "held_out.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def oracle(rows: Sequence[Row]) -> tuple[list[str], list[dict[str, float]]]:
    """Labels and probabilities as onnxruntime gives them."""
    session = onnxruntime.InferenceSession(MODEL)
    kinds = {"tensor(string)": object, "tensor(int64)": np.int64, "tensor(float)": np.float32}
    feed = {i.name: np.array([[r[i.name]] for r in rows], object).astype(kinds[i.type]) for i in session.get_inputs()}
    labels, maps = session.run(None, feed)
    return list(labels), list(maps)


@pytest.fixture
def page(sound_page: Page, site: Server) -> Page:
    sound_page.goto(site.url + "triage/")
    expect(sound_page.locator("#status")).to_contain_text("ms", timeout=LOAD)
    return sound_page


def shown(page: Page) -> dict[str, float]:
    rows = page.locator("#bars li").all_inner_texts()
    return {name: float(percent.removesuffix(" %")) / 100 for name, percent in (row.split("\n") for row in rows)}


def upload(page: Page, text: str | bytes, name: str = "table.csv") -> None:
    data = text.encode() if isinstance(text, str) else text
    page.set_input_files("#file", {"name": name, "mimeType": "text/csv", "buffer": data})


def downloaded(page: Page) -> list[list[str]]:
    with page.expect_download() as download:
        page.click("#download")
    return list(csv.reader(io.StringIO(Path(download.value.path()).read_text(encoding="utf-8"))))


def test_accuracy_on_what_training_never_saw() -> None:
    rows = held_out()
    labels, maps = oracle(rows)
    assert np.mean([label == row["team"] for label, row in zip(labels, rows, strict=True)]) >= 0.95
    session = pyonnx_wasm.InferenceSession(MODEL)
    kinds = {"tensor(string)": object, "tensor(int64)": np.int64, "tensor(float)": np.float32}
    feed = {i.name: np.array([[r[i.name]] for r in rows], object).astype(kinds[i.type]) for i in session.get_inputs()}
    ours, probabilities = session.run(None, feed)
    assert list(ours) == labels
    for got, want in zip(probabilities, maps, strict=True):
        assert got == pytest.approx(want, abs=1e-5)


def test_form_is_the_signature(page: Page) -> None:
    signature = [(i.name, i.type) for i in onnxruntime.InferenceSession(MODEL).get_inputs()]
    names = {"tensor(string)": "string", "tensor(int64)": "int64", "tensor(float)": "float32"}
    labels = page.locator("#form > * > :is(label, legend)").all_inner_texts()
    assert [text.split() for text in labels] == [[*name.capitalize().split("_"), names[kind]] for name, kind in signature]
    expect(page.get_by_role("group", name="Plan").get_by_role("radio")).to_have_count(4)
    expect(page.get_by_role("spinbutton", name="Seats")).to_have_attribute("step", "1")
    expect(page.get_by_role("spinbutton", name="Errors per minute")).to_have_attribute("step", "0.1")


def test_prediction_follows_what_is_typed(page: Page) -> None:
    expect(page.locator("#answer")).to_have_text("Billing")
    row = {"message": "", "plan": "Free", "channel": "Phone", "seats": "7", "errors_per_minute": "2.5", "days_to_invoice": "-3"}
    page.get_by_role("radio", name="Free").check()
    page.get_by_role("radio", name="Phone").check()
    page.get_by_role("spinbutton", name="Seats").fill("7")
    page.get_by_role("spinbutton", name="Errors per minute").fill("2.5")
    page.get_by_role("slider", name="Days to invoice").fill("-3")
    expect(page.get_by_role("spinbutton", name="Days to invoice")).to_have_value("-3")
    for message in ("I cannot reset my password", "how do I export a report", "The API is down", "", "gr\u00fc\u00dfe \U0001f600 <b>"):
        page.get_by_role("textbox", name="Message").fill("")
        page.get_by_role("textbox", name="Message").press_sequentially(message)
        (label,), (want,) = oracle([{**row, "message": message}])
        expect(page.locator("#answer")).to_have_text(label)
        expect(page.locator("#bars .best")).to_contain_text(f"{100 * want[label]:.1f}")
        assert shown(page) == pytest.approx(want, abs=6e-4)


def test_examples_and_keyboard(page: Page) -> None:
    page.get_by_role("button", name="Reset my password").press("Enter")
    expect(page.get_by_role("textbox", name="Message")).to_have_value("Reset my password")
    expect(page.locator("#answer")).to_have_text("Accounts")
    page.get_by_role("radio", name="Free").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("radio", name="Team")).to_be_checked()
    page.get_by_role("slider", name="Errors per minute").focus()
    page.keyboard.press("End")
    page.get_by_role("textbox", name="Message").fill("it does not work")
    expect(page.locator("#answer")).to_have_text("Incidents")


@pytest.mark.parametrize(
    ("field", "text", "told"), [("Seats", "", "a whole number"), ("Seats", "2.5", "2.5"), ("Errors per minute", "", "a number")]
)
def test_number_that_is_none_is_told(page: Page, field: str, text: str, told: str) -> None:
    number = page.get_by_role("spinbutton", name=field)
    number.fill(text)
    expect(page.locator("#words")).to_contain_text(f"{field} takes")
    expect(page.locator("#words")).to_contain_text(told)
    expect(number).to_have_attribute("aria-invalid", "true")
    number.fill("3")
    expect(page.locator("#answer")).to_have_text("Billing")
    expect(number).to_have_attribute("aria-invalid", "false")


def test_model_that_says_nothing_of_its_inputs(sound_page: Page, site: Server, tmp_path: Path) -> None:
    """Plain fields, from names, types and shapes alone."""
    model = onnx.load(MODEL)
    del model.metadata_props[:]
    pyonnx_wasm.save(pyonnx_wasm.compile(model.SerializeToString()), tmp_path / "plain.ponnx")
    sound_page.route("**/triage.ponnx", lambda route: route.fulfill(path=tmp_path / "plain.ponnx"))
    sound_page.goto(site.url + "triage/")
    expect(sound_page.locator("#status")).to_contain_text("ms", timeout=LOAD)
    expect(sound_page.locator("#form input:not([type=number])")).to_have_count(3)
    expect(sound_page.locator("#form input[type=number]")).to_have_count(3)
    texts = {"message": "uploads fail since noon", "plan": "Business", "channel": "Phone"}
    for name, text in texts.items():
        sound_page.get_by_role("textbox", name=name.capitalize()).fill(text)
    (label,), (want,) = oracle([texts | dict.fromkeys(("seats", "errors_per_minute", "days_to_invoice"), "0")])
    expect(sound_page.locator("#answer")).to_have_text(label)
    expect(sound_page.locator("#bars .best")).to_contain_text(f"{100 * want[label]:.1f}")


def test_table_comes_back_with_predictions(page: Page) -> None:
    rows = held_out()
    labels, maps = oracle(rows)
    right = sum(label == row["team"] for label, row in zip(labels, rows, strict=True))
    page.click("#sample")
    status = page.locator("#batch-status")
    expect(status).to_contain_text("400 rows answered in")
    expect(status).to_contain_text(f"{right} as the column “team” says")
    expect(page.locator("#accuracy")).to_have_text(str(right))
    expect(page.locator("#rows tbody tr")).to_have_count(8)
    expect(page.locator("#download")).to_have_attribute("download", "held_out_predicted.csv")
    header, *found = downloaded(page)
    assert header == [*rows[0], "predicted", "probability"]
    assert [dict(zip(header, line, strict=False)) for line in (line[:-2] for line in found)] == rows
    assert [line[-2] for line in found] == labels
    assert [float(line[-1]) for line in found] == pytest.approx([m[n] for n, m in zip(labels, maps, strict=True)], abs=1e-4)


def test_table_with_all_that_csv_allows(page: Page) -> None:
    """A byte order mark, semicolons, quoted line ends, columns in another order and of no concern, rows beyond one run."""
    header = "id;seats;message;plan;channel;errors_per_minute;days_to_invoice"
    odd = '"1;a";3;"The API is down; said ""all""\r\nof us";Team;Chat;0.1;5'
    upload(page, "\ufeff" + "\r\n".join([header, odd, *["2;3;password;Team;Chat;0.1;5"] * 700]))
    expect(page.locator("#batch-status")).to_contain_text("701 rows answered")
    with page.expect_download() as download:
        page.click("#download")
    lines = list(csv.reader(io.StringIO(Path(download.value.path()).read_bytes().decode()), delimiter=";"))
    assert lines[1][0] == "1;a"
    assert lines[1][2].replace("\r", "") == 'The API is down; said "all"\nof us'
    assert [line[-2] for line in lines[:3]] == ["predicted", "Incidents", "Accounts"]
    assert len(lines) == 702


HEADER = "message,plan,channel,seats,errors_per_minute,days_to_invoice"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "The file is empty"),
        ("message,plan\na,b\n", "no column “channel” and none “seats”"),
        (HEADER, "no rows below its header"),
        (f"{HEADER}\na,Team,Chat,1,2,3\na,Team,Chat,few,2,3\n", "Row 2: Seats takes a whole number, not “few”"),
        (f"{HEADER}\na,Team,Chat,1,2\n", "Row 1 has 5 fields, the header has 6"),
    ],
)
def test_table_that_does_not_suit_is_told(page: Page, text: str, told: str) -> None:
    upload(page, text, "mine.csv")
    expect(page.locator("#batch-status")).to_contain_text("mine.csv could not be answered. ")
    expect(page.locator("#batch-status")).to_contain_text(told)
    expect(page.locator("#results")).to_be_hidden()


def test_needs_no_network_once_loaded(page: Page) -> None:
    page.context.set_offline(True)
    page.get_by_role("textbox", name="Message").fill("How do I import a table?")
    expect(page.locator("#answer")).to_have_text("How-to")
    upload(page, f"{HEADER}\nThe API is down,Team,Chat,1,30,3\n")
    expect(page.locator("#rows td").first).to_have_text("Incidents")


def test_download_is_what_the_page_says(sound_page: Page, site: Server) -> None:
    sent, packed, files = weigh(sound_page, site, "triage/")
    assert {"/triage/triage.ponnx", "/triage/main.js", "/player/index.mjs"} <= files
    assert 0.7 * told(sound_page, "raw") < sent < told(sound_page, "raw")
    assert 0.7 * told(sound_page, "packed") < packed < told(sound_page, "packed")

"""The two hands that write numbers, Python's and the browser's, write every value alike."""

import random
from pathlib import Path

from playwright.sync_api import Page

from dashboard.draw.formats import number

NUMBERS = (
    Path(__file__).resolve().parents[2] / "dashboard" / "draw" / "components" / "lib" / "numbers.js"
)


def test_the_browser_writes_numbers_as_python_does(page: Page):
    draw = random.Random(3)
    values = [0, 1, -1, 0.125, 0.375, 0.9996, 0.99999996, 99.996, 1234.5, 1e-5, 9.9e-6, 12345678.5]
    values += [draw.choice((-1, 1)) * 10 ** draw.uniform(-9, 5) for _ in range(2000)]
    values += [1 - 10 ** draw.uniform(-8, 0) for _ in range(1000)]
    script = NUMBERS.read_text(encoding="utf-8").replace("export ", "")
    written = page.evaluate(f"values => {{ {script}\nreturn values.map(number); }}", values)
    assert written == [number(value) for value in values]
